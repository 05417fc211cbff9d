//! Runs: a message is answered by intents or by a model with tools.
//!
//! ```text
//! queued ─► thinking ─► acting ─► (waiting approval | waiting device) ─► acting ─► … ─► done | failed | stopped
//! ```
//!
//! A run and each of its steps are in the database before they have an effect, and a call is in the
//! transcript before it is made. After a restart a run goes on: finished steps are read, a step that was
//! handed to [`crate::actions`] is waited for again, and what only thought thinks again.
//!
//! | file | |
//! | --- | --- |
//! | [`intents`] | the grammar |
//! | `run` | one run from its lane to its reply |
//! | `act` | one call to a node or the history, with the waiting |
//! | `respond`, `wording` | what an intent does, and the words of its reply |
//! | `model`, `tools`, `providers` | the tool loop with a language model |
//! | `lanes`, `ledger`, `events` | order, the database, what is told on the bus |

mod act;
mod events;
pub mod intents;
mod lanes;
mod ledger;
mod model;
mod providers;
mod respond;
mod run;
#[cfg(test)]
mod tests;
mod tools;
mod wording;

use crate::actions::Actions;
use crate::bus::Bus;
use crate::config::Config;
use crate::hub::Tasks;
use crate::nodes::Nodes;
use crate::sessions::Sessions;
use crate::store::{Store, StoreError};
use hearth_shared::reading::Correlation;
use lanes::{Lanes, MAX_WAITING, Ticket};
use ledger::Ledger;
pub use ledger::NewRun;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// In its lane.
    Queued,
    /// Understanding, or the model is speaking.
    Thinking,
    /// A tool runs.
    Acting,
    /// A person must decide.
    WaitingApproval,
    /// A node is away.
    WaitingDevice,
    /// Answered.
    Done,
    /// Ended with an error that was told.
    Failed,
    /// Stopped by a person.
    Stopped,
}

/// A run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Equals the message's idempotency key.
    pub run_id: String,
    /// Session.
    pub session_key: String,
    /// State.
    pub state: RunState,
    /// Unix milliseconds.
    pub started_ms: u64,
    /// Unix milliseconds.
    pub ended_ms: Option<u64>,
    /// The reply, when done.
    pub reply: Option<String>,
    /// Media ids and paths in the reply.
    pub media: Vec<crate::nodes::Media>,
    /// The error, when failed; when done, the code of the command that the reply says failed.
    pub error: Option<String>,
}

/// What a message with this id found.
#[derive(Debug, Clone)]
pub enum Started {
    /// A new run.
    New,
    /// The same message came before; this is its run.
    Known(Box<Run>),
    /// Too many messages of the session wait already.
    Full,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent {
    parts: Arc<Parts>,
}

/// A run that lives in this process.
#[derive(Debug)]
struct Live {
    session_key: String,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Parts {
    ledger: Ledger,
    bus: Bus,
    config: Arc<Config>,
    nodes: Nodes,
    actions: Actions,
    sessions: Sessions,
    tasks: Tasks,
    lanes: Arc<Lanes>,
    live: Mutex<HashMap<String, Live>>,
    // Counts runs that ended; whoever waits for one looks again.
    ended: watch::Sender<u64>,
}

impl Agent {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        store: Store,
        bus: Bus,
        config: Arc<Config>,
        nodes: Nodes,
        actions: Actions,
        sessions: Sessions,
        tasks: Tasks,
    ) -> Self {
        let lanes = Lanes::new(config.agent.max_runs);
        let ledger = Ledger(store);
        let live = Mutex::default();
        let ended = watch::Sender::new(0);
        Self {
            parts: Arc::new(Parts {
                ledger,
                bus,
                config,
                nodes,
                actions,
                sessions,
                tasks,
                lanes,
                live,
                ended,
            }),
        }
    }

    /// After a start: takes up unfinished runs, each in its lane, in their order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resume(&self) -> Result<(), StoreError> {
        for (new, events, started_ms) in self.parts.ledger.unfinished().await? {
            tracing::info!(run = %new.run_id, session = %new.session_key, "a run goes on");
            if let Some(ticket) = self.parts.lanes.queue(&new.session_key, usize::MAX) {
                self.launch(new, ticket, Some((events, started_ms)));
            }
        }
        Ok(())
    }

    /// Takes a message. It is on disk when this returns; the answer comes as events and by [`Agent::wait`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn start(&self, new: NewRun) -> Result<Started, StoreError> {
        let Some(ticket) = self.parts.lanes.queue(&new.session_key, MAX_WAITING) else {
            // A message that is known already is no news for a full lane.
            return Ok(match self.parts.ledger.run(&new.run_id).await? {
                Some(run) => Started::Known(Box::new(run)),
                None => Started::Full,
            });
        };
        if let Some(known) = self.parts.ledger.insert(new.clone()).await? {
            return Ok(Started::Known(Box::new(known)));
        }
        self.launch(new, ticket, None);
        Ok(Started::New)
    }

    fn launch(&self, new: NewRun, ticket: Ticket, resumed: Option<(u64, u64)>) {
        let parts = self.parts.clone();
        let stop = CancellationToken::new();
        let live = Live { session_key: new.session_key.clone(), stop: stop.clone() };
        lock(&parts.live).insert(new.run_id.clone(), live);
        let id = new.run_id.clone();
        let task = Box::pin(run::RunTask::new(parts.clone(), new, stop, resumed).execute(ticket));
        let shutdown = parts.tasks.stop.clone();
        parts.tasks.clone().spawn(async move {
            tokio::select! {
                biased;
                // What is on disk goes on at the next start.
                () = shutdown.cancelled() => {}
                () = task => {}
            }
            lock(&parts.live).remove(&id);
            parts.ended.send_modify(|n| *n += 1);
        });
    }

    /// A run by id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn run(&self, run_id: &str) -> Result<Option<Run>, StoreError> {
        self.parts.ledger.run(run_id).await
    }

    /// The message that began a run.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn said(&self, run_id: &str) -> Result<Option<String>, StoreError> {
        self.parts.ledger.text(run_id).await
    }

    /// Waits for its end at most this long; `None` when it is still going on (or unknown).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn wait(&self, run_id: &str, at_most: Duration) -> Result<Option<Run>, StoreError> {
        let mut ended = self.parts.ended.subscribe();
        let deadline = tokio::time::Instant::now() + at_most;
        loop {
            ended.mark_unchanged();
            match self.parts.ledger.run(run_id).await? {
                None => return Ok(None),
                Some(run) if run.ended_ms.is_some() => return Ok(Some(run)),
                Some(_) => {}
            }
            match tokio::time::timeout_at(deadline, ended.changed()).await {
                Ok(Ok(())) => {}
                _ => return Ok(None),
            }
        }
    }

    /// Stops the runs of a session, or one; returns their ids. What waits for a person or a node is
    /// withdrawn; what a node has started may still finish there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn abort(&self, session_key: &str, run_id: Option<&str>) -> Result<Vec<String>, StoreError> {
        let mut stopped: Vec<String> = lock(&self.parts.live)
            .iter()
            .filter(|(id, live)| live.session_key == session_key && run_id.is_none_or(|r| r == id.as_str()))
            .map(|(id, live)| {
                live.stop.cancel();
                id.clone()
            })
            .collect();
        stopped.sort();
        Ok(stopped)
    }

    /// Answers a message at the door, without a run: writes both to the transcript and tells the text as
    /// a finished reply of this run id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn say(&self, new: NewRun, reply: String) -> Result<Started, StoreError> {
        if let Some(known) = self.parts.ledger.insert(new.clone()).await? {
            return Ok(Started::Known(Box::new(known)));
        }
        let task = run::RunTask::new(self.parts.clone(), new, CancellationToken::new(), None);
        task.reply_only(reply).await?;
        self.parts.ended.send_modify(|n| *n += 1);
        Ok(Started::New)
    }

    /// What `/status` tells: nodes, what waits for a person, and the session's runs.
    ///
    /// # Errors
    /// One line when nodes or approvals cannot be read.
    pub(crate) async fn status_text(&self, session_key: &str, text: &str) -> Result<String, String> {
        let runs = lock(&self.parts.live).values().filter(|l| l.session_key == session_key).count();
        let lang = intents::language(text);
        let nodes = self.parts.nodes.list().await.map_err(|e| e.to_string())?;
        let pending = self.parts.actions.approvals(false).await.map_err(|e| e.to_string())?;
        let mut status = wording::status(lang, &nodes, &pending);
        if runs > 0 {
            status.push_str(&format!("\n{}", wording::running(lang, runs)));
        }
        Ok(status)
    }

    /// What `/help` tells.
    ///
    /// # Errors
    /// One line when the nodes cannot be read.
    pub(crate) async fn help_text(&self) -> Result<String, String> {
        let nodes = self.parts.nodes.list().await.map_err(|e| e.to_string())?;
        let world = respond::world(&nodes);
        Ok(wording::help(intents::Lang::En, &world, self.parts.config.agent.model.is_some()))
    }

    /// Approvals are decided below; the door only passes the decision on.
    pub(crate) fn actions(&self) -> &Actions {
        &self.parts.actions
    }

    /// Forgets the question that a session was asked.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) async fn forget_question(&self, session_key: &str) -> Result<(), StoreError> {
        self.parts.ledger.ask(session_key, None).await
    }
}

/// A fresh correlation; zeros when the machine has no randomness (the hub would not have started).
pub(crate) fn correlation() -> Correlation {
    Correlation::fresh().unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
