//! From a message to a run: access rules, the door (duplicates, limits, chat commands), session keys. Lanes are the
//! agent's, because a run that is taken up after a restart needs its lane before any message comes.

pub mod access;
mod commands;
mod door;
pub mod keys;

use crate::agent::{Agent, NewRun, Run, Started, correlation};
use crate::channels::Inbound;
use crate::sessions::Sessions;
use crate::store::StoreError;
use door::Door;
use std::sync::Arc;

/// Why a message is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too long or empty.
    #[error("{0}")]
    Refused(String),
    /// Over the rate, or too much waits; worth another try in a moment.
    #[error("{0}")]
    Busy(String),
    /// The same id with another text or for another conversation.
    #[error("the idempotency key was used for another message")]
    KeyReused,
}

/// A message that was taken.
#[derive(Debug, Clone)]
pub struct Routed {
    /// The run: the message's idempotency key.
    pub run_id: String,
    /// Long form.
    pub session_key: String,
    /// `started`, `in_flight` or `ok`: what the same message found.
    pub status: &'static str,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Router {
    sessions: Sessions,
    agent: Agent,
    door: Arc<Door>,
}

impl Router {
    /// Puts the parts together.
    #[must_use]
    pub fn new(sessions: Sessions, agent: Agent) -> Self {
        Self { sessions, agent, door: Arc::default() }
    }

    /// Takes a message. It is on disk when this returns. The same message id again, within 7 days, finds
    /// the run it began.
    ///
    /// # Errors
    /// [`RouteError::Refused`] or [`RouteError::Busy`] with the limit, [`RouteError::KeyReused`], [`RouteError::Store`].
    pub async fn deliver(&self, message: Inbound) -> Result<Routed, RouteError> {
        let session_key = keys::resolve(&message.session).map_err(|e| RouteError::Refused(e.to_string()))?;
        door::check(&message)?;
        if let Some(known) = self.agent.run(&message.message_id).await? {
            let same = known.session_key == session_key
                && self.agent.said(&known.run_id).await?.is_none_or(|text| text == message.text);
            return if same { Ok(found(&known)) } else { Err(RouteError::KeyReused) };
        }
        self.door.admit(&message)?;
        let new = NewRun {
            run_id: message.message_id.clone(),
            session_key: session_key.clone(),
            channel: message.channel.clone(),
            sender: message.sender.clone(),
            text: with_files(&message),
            correlation: correlation(),
            reply_to: message.reply_to.as_ref().and_then(|to| serde_json::to_string(to).ok()),
        };
        tracing::info!(run = %new.run_id, session = %session_key, correlation = %new.correlation, "message");
        if message.text.trim().is_empty() {
            let n = message.attachments.len();
            let reply =
                format!("Kept {n} file{}; I cannot look into files yet.", if n == 1 { "" } else { "s" });
            return Ok(match self.agent.say(new, reply).await? {
                Started::Known(run) => found(&run),
                _ => Routed { run_id: message.message_id, session_key, status: "ok" },
            });
        }
        let started = match commands::Command::parse(&message.text) {
            Some(command) => {
                let reply = self.command(command, &message, &session_key).await?;
                return Ok(match self.agent.say(new, reply).await? {
                    Started::Known(run) => found(&run),
                    _ => Routed { run_id: message.message_id, session_key, status: "ok" },
                });
            }
            None => self.agent.start(new).await?,
        };
        match started {
            Started::New => Ok(Routed { run_id: message.message_id, session_key, status: "started" }),
            Started::Known(run) => Ok(found(&run)),
            Started::Full => Err(RouteError::Busy(
                "too many messages of this conversation wait already; /stop ends them".into(),
            )),
        }
    }

    /// `main` becomes `agent:main:main`; long forms stay. A text that is no key stays as it is and finds
    /// nothing; [`Router::deliver`] says what is wrong with it.
    #[must_use]
    pub fn session_key(text: &str) -> String {
        keys::resolve(text).unwrap_or_else(|_| text.to_owned())
    }
}

/// What the person wrote, and a line for every file that came with it.
fn with_files(message: &Inbound) -> String {
    let mut text = message.text.clone();
    for (label, media) in &message.attachments {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("[{label}: {}]", crate::channels::capabilities::in_words(media)));
    }
    text
}

fn found(run: &Run) -> Routed {
    let status = if run.ended_ms.is_some() { "ok" } else { "in_flight" };
    Routed { run_id: run.run_id.clone(), session_key: run.session_key.clone(), status }
}
