//! One run, from its place in the lane to its reply.

use super::events::Teller;
use super::lanes::{Permit, Ticket};
use super::{NewRun, Parts, RunState};
use crate::channels::{self, Reply};
use crate::sessions::Message;
use crate::store::{StoreError, now_ms};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// Lines of the transcript that a resumed run looks through for its own.
const LOOK_BACK: usize = 1000;

#[derive(Debug)]
pub(super) struct RunTask {
    pub(super) parts: Arc<Parts>,
    pub(super) new: NewRun,
    pub(super) tell: Teller,
    /// Unix milliseconds.
    started_ms: u64,
    /// It was begun by an earlier process.
    pub(super) resumed: bool,
    stop: CancellationToken,
    pub(super) permit: Mutex<Option<Permit>>,
    /// True while a person or a device is waited for: that time does not count.
    paused: watch::Sender<bool>,
}

/// How answering failed, in words for the person.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Told(String),
}

impl RunTask {
    /// `resumed`: events sent and start time, when an earlier process began it.
    pub(super) fn new(
        parts: Arc<Parts>,
        new: NewRun,
        stop: CancellationToken,
        resumed: Option<(u64, u64)>,
    ) -> Self {
        let (sent, started_ms) = resumed.unwrap_or_else(|| (0, now_ms()));
        let tell = Teller::new(parts.bus.clone(), &new.run_id, &new.session_key, sent);
        Self {
            parts,
            tell,
            started_ms,
            resumed: resumed.is_some(),
            stop,
            permit: Mutex::default(),
            paused: watch::Sender::new(false),
            new,
        }
    }

    /// Waits for its turn, answers, and ends the run in one of its three ways.
    pub(super) async fn execute(self, ticket: Ticket) {
        let span = tracing::info_span!("run", id = %self.new.run_id, correlation = %self.new.correlation);
        async {
            let result = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                () = self.over_limit() => Some(Err(RunError::Told(format!(
                    "The run took longer than {} seconds and was ended; see [agent] run_limit_s.",
                    self.parts.config.agent.run_limit_s
                )))),
                result = self.take_turn_and_answer(ticket) => Some(result),
            };
            let stored = match result {
                None => self.stopped().await,
                Some(Ok(reply)) => self.reply(reply).await,
                Some(Err(error)) => self.failed(&error.to_string()).await,
            };
            if let Err(error) = stored {
                // Nothing can be stored: the run stays open and is taken up at the next start.
                tracing::error!(%error, "the end of a run could not be stored");
                self.tell.chat("error", json!({ "errorMessage": error.to_string(), "errorKind": "unknown" }));
            }
        }
        .instrument(span)
        .await;
    }

    async fn take_turn_and_answer(&self, ticket: Ticket) -> Result<Reply, RunError> {
        // Waiting in the lane is not active time.
        self.paused.send_replace(true);
        let permit = ticket.wait().await;
        *super::lock(&self.permit) = permit;
        self.paused.send_replace(false);
        self.state(RunState::Thinking).await?;
        self.tell.agent("lifecycle", json!({ "phase": "start", "startedAt": self.started_ms }));
        self.write_user_line().await?;
        if self.resumed
            && let Some(reply) = self.reply_in_transcript().await?
        {
            return Ok(reply);
        }
        self.answer().await
    }

    /// Ends when the active time is used up.
    async fn over_limit(&self) {
        let mut left = Duration::from_secs(self.parts.config.agent.run_limit_s);
        let mut paused = self.paused.subscribe();
        loop {
            let now_paused = *paused.borrow_and_update();
            if now_paused {
                if paused.changed().await.is_err() {
                    return std::future::pending().await;
                }
                continue;
            }
            let since = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                changed = paused.changed() => {
                    left = left.saturating_sub(since.elapsed());
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    pub(super) async fn state(&self, state: RunState) -> Result<(), StoreError> {
        self.parts.ledger.set_state(&self.new.run_id, state, self.tell.sent()).await
    }

    /// Gives the lane back while a person or a device is waited for.
    pub(super) fn pause(&self) {
        self.paused.send_replace(true);
        drop(super::lock(&self.permit).take());
    }

    /// Takes the lane again.
    pub(super) async fn go_on(&self) {
        if super::lock(&self.permit).is_none()
            && let Some(ticket) = self.parts.lanes.queue(&self.new.session_key, usize::MAX)
        {
            let permit = ticket.wait().await;
            *super::lock(&self.permit) = permit;
        }
        self.paused.send_replace(false);
    }

    // -- transcript ------------------------------------------------------------------------------

    pub(super) fn line_id(&self, part: &str) -> String {
        format!("{}:{part}", self.new.run_id)
    }

    /// Appends a line; a resumed run does not write the same line twice.
    pub(super) async fn write(&self, message: Message) -> Result<(), StoreError> {
        if self.resumed && self.find_line(&message.id).await?.is_some() {
            return Ok(());
        }
        self.parts.sessions.append(&self.new.session_key, message).await
    }

    pub(super) async fn find_line(&self, id: &str) -> Result<Option<Message>, StoreError> {
        let (lines, _) = self.parts.sessions.history(&self.new.session_key, LOOK_BACK, 0).await?;
        Ok(lines.into_iter().rev().find(|l| l.id == id))
    }

    pub(super) fn line(&self, part: &str, role: &str, content: Value) -> Message {
        Message {
            id: self.line_id(part),
            role: role.into(),
            content,
            timestamp: now_ms(),
            run_id: Some(self.new.run_id.clone()),
            ..Message::default()
        }
    }

    async fn write_user_line(&self) -> Result<(), StoreError> {
        self.write(self.line("user", "user", Value::String(self.new.text.clone()))).await
    }

    /// The reply of a run that was killed between its last line and its end in the database.
    async fn reply_in_transcript(&self) -> Result<Option<Reply>, StoreError> {
        let Some(line) = self.find_line(&self.line_id("reply")).await? else { return Ok(None) };
        let text = line.content.pointer("/0/text").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Some(Reply { text, media: self.media_so_far().await?, failure: None }))
    }

    /// Calls that have no result in the transcript get one that says so.
    async fn close_calls(&self, why: &str) -> Result<(), StoreError> {
        let (lines, _) = self.parts.sessions.history(&self.new.session_key, LOOK_BACK, 0).await?;
        let own = |l: &&Message| l.run_id.as_deref() == Some(self.new.run_id.as_str());
        let answered: Vec<&str> =
            lines.iter().filter(own).filter_map(|l| l.tool_call_id.as_deref()).collect();
        let mut open = Vec::new();
        for line in lines.iter().filter(own) {
            for part in line.content.as_array().into_iter().flatten() {
                let id = part["id"].as_str().unwrap_or_default();
                if part["type"] == "toolCall" && !answered.contains(&id) {
                    open.push((id.to_owned(), part["name"].as_str().unwrap_or_default().to_owned()));
                }
            }
        }
        for (id, name) in open {
            let mut line =
                self.line(&format!("{id}:result"), "toolResult", json!([{ "type": "text", "text": why }]));
            (line.tool_call_id, line.tool_name, line.is_error) = (Some(id), Some(name), Some(true));
            self.write(line).await?;
        }
        Ok(())
    }

    // -- ends ------------------------------------------------------------------------------------

    async fn reply(&self, reply: Reply) -> Result<(), StoreError> {
        // Who asks for the reply as text alone gets pictures as words where his channel shows none; the
        // transcript and the event keep the parts, for every client of the session.
        let text = channels::can(&self.new.channel).text_of(&reply);
        let failure = reply.failure.map(hearth_shared::error::ErrorCode::as_str);
        let line = self.line("reply", "assistant", reply.content());
        let message = json!({ "role": "assistant", "content": line.content, "timestamp": line.timestamp });
        self.write(line).await?;
        self.parts
            .ledger
            .finish(&self.new.run_id, RunState::Done, Some(text), &reply.media, failure.map(str::to_owned))
            .await?;
        self.tell
            .agent("lifecycle", json!({ "phase": "end", "startedAt": self.started_ms, "endedAt": now_ms() }));
        self.tell.chat("final", json!({ "message": message, "stopReason": "stop", "failure": failure }));
        Ok(())
    }

    async fn failed(&self, error: &str) -> Result<(), StoreError> {
        tracing::warn!(error, "run failed");
        self.withdraw("the hub").await;
        self.close_calls("The run ended before this call had a result.").await?;
        self.write(self.line("reply", "assistant", json!([{ "type": "text", "text": error }]))).await?;
        self.parts.ledger.finish(&self.new.run_id, RunState::Failed, None, &[], Some(error.into())).await?;
        self.tell.agent("lifecycle", json!({ "phase": "error", "error": error, "endedAt": now_ms() }));
        self.tell.chat("error", json!({ "errorMessage": error, "errorKind": "unknown" }));
        Ok(())
    }

    async fn stopped(&self) -> Result<(), StoreError> {
        self.withdraw(&self.requester()).await;
        self.close_calls("Stopped by a person before this call had a result.").await?;
        self.write_user_line().await.ok();
        self.parts.ledger.finish(&self.new.run_id, RunState::Stopped, None, &[], None).await?;
        self.tell.agent("lifecycle", json!({ "phase": "end", "aborted": true, "endedAt": now_ms() }));
        self.tell.chat("aborted", json!({ "stopReason": "rpc" }));
        Ok(())
    }

    async fn withdraw(&self, by: &str) {
        match self.parts.ledger.open_actions(&self.new.run_id).await {
            Ok(open) => {
                for action in open {
                    if let Err(error) = self.parts.actions.cancel(action, by).await {
                        tracing::warn!(%action, %error, "an action could not be withdrawn");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "open actions of the run are not known"),
        }
    }

    /// For messages that the door answers itself.
    pub(super) async fn reply_only(&self, text: String) -> Result<(), StoreError> {
        self.write_user_line().await?;
        self.tell.delta(&text, &text);
        self.reply(Reply { text, ..Reply::default() }).await
    }

    pub(super) fn requester(&self) -> String {
        format!("{}: {}", self.new.channel, self.new.sender)
    }
}
