//! What comes back from a node, and how actions end.

use super::engine::Engine;
use super::open::Entry;
use super::record::{self, End, Record};
use super::{ActionState, plan};
use crate::approvals::audit::{self, Audit};
use crate::approvals::{ApprovalStatus, rows};
use crate::bus::Event;
use crate::nodes::{NodeConnection, NodeReply};
use crate::store::StoreError;
use hearth_shared::chain::Head;
use hearth_shared::command::{Class, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::link::Outcome;
use serde_json::{Value, json};
use std::time::Duration;

/// Pause before a node is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long, beyond the command's own time limit, the outcome of what was sent is waited for at least.
const LOST_WAIT: Duration = Duration::from_secs(60);

/// An end with all that is written down together.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) end: End,
    /// How an approval ends that nobody decided.
    pub(super) approval: ApprovalStatus,
    /// Who ended it, if a person did.
    pub(super) by: Option<String>,
    /// The hub's head that the node was sent, and the head of the node's log that it answered with.
    pub(super) heads: Option<(Head, Head)>,
    /// Only if it is still in this state.
    pub(super) from: Option<ActionState>,
}

impl Ending {
    pub(super) fn new(end: End) -> Self {
        Self { end, approval: ApprovalStatus::Cancelled, by: None, heads: None, from: None }
    }
}

#[derive(Debug, Default)]
struct Written {
    ended: bool,
    resolved: bool,
    fault: Option<String>,
}

impl Engine {
    /// Sends it and settles what comes back. The state is [`ActionState::Running`] already.
    pub(super) async fn call(
        &self,
        record: &Record,
        entry: &Entry,
        connection: &dyn NodeConnection,
    ) -> Result<(), StoreError> {
        let head = self.audit.head().await?;
        let mut invoke = record.invoke(head);
        if !record.checked_on_node && record.raise > Need::None {
            invoke.params = plan::approved_params(record).to_string();
        }
        let permit = entry.talk.acquire().await.map_err(|_| StoreError::Closed)?;
        let reply = connection.invoke(invoke).await;
        drop(permit);
        self.settle(record, entry, head, reply).await
    }

    /// The state is [`ActionState::Running`] and the node said something, or the link died.
    pub(super) async fn settle(
        &self,
        record: &Record,
        entry: &Entry,
        sent: Head,
        reply: Result<NodeReply, CommandError>,
    ) -> Result<(), StoreError> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return self.settle_unanswered(record, entry, error).await,
        };
        let heads = reply.head.map(|answered| (sent, answered));
        let end = match reply.outcome {
            Outcome::Done { result } => {
                let result = serde_json::from_str(&result).unwrap_or(Value::String(result));
                End::Done { result, media: reply.media }
            }
            Outcome::Failed(error) => End::Failed(error),
            Outcome::ApprovalRequired { need, .. } if record.checked_on_node => {
                return self.approval_required(record, entry, need).await;
            }
            // The hub asked already; there is nobody else to ask about a foreign node.
            Outcome::ApprovalRequired { rule, .. } => End::Failed(CommandError::new(
                ErrorCode::Denied,
                format!("the node wants more than the hub's yes: {rule}"),
            )),
        };
        self.end_with(record, Ending { heads, ..Ending::new(end) }).await
    }

    async fn settle_unanswered(
        &self,
        record: &Record,
        entry: &Entry,
        error: CommandError,
    ) -> Result<(), StoreError> {
        let observes = record.class == Class::Observe;
        match error.code {
            // Its journal knows; see `recover`. A dead connection may be listed a moment longer.
            ErrorCode::NotConnected | ErrorCode::Timeout if record.checked_on_node => {
                self.pause(entry, PAUSE).await;
                Ok(())
            }
            // It was sent before, and the link is too full to ask what became of it.
            ErrorCode::Busy if record.action.state == ActionState::Running => {
                self.pause(entry, PAUSE).await;
                Ok(())
            }
            ErrorCode::NotConnected | ErrorCode::Timeout if !observes => {
                self.end(record, End::Failed(unknown(record, &error.message))).await
            }
            _ => self.end(record, End::Failed(error)).await,
        }
    }

    /// The node wants a yes: nothing was started.
    async fn approval_required(&self, record: &Record, entry: &Entry, need: Need) -> Result<(), StoreError> {
        let id = record.action.id;
        let powered = self.powered.now().await?;
        let Some(stored) = self.store.read(move |c| rows::load(c, &id, powered)).await? else {
            return self.ask(record, entry, need.max(record.raise).max(Need::Hub)).await;
        };
        if entry.count_try() > super::deliver::MAX_TRIES {
            return self.reopen(record, need, "the node did not take the grant; see its log").await;
        }
        if need == Need::Person || stored.approval.need == Need::Person || !stored.by_hub {
            let note = "the node was away when it was decided, and a person's key must sign while it listens";
            return self.reopen(record, need.max(stored.approval.need), note).await;
        }
        self.advance(id, ActionState::Running, ActionState::Granted, None).await?;
        Ok(())
    }

    /// It was sent, and this program (or this connection) did not see the outcome.
    pub(super) async fn recover(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
        if !record.checked_on_node {
            return self.end(record, End::Failed(unknown(record, "the hub stopped while it ran"))).await;
        }
        if let Some(by) = &record.withdrawn_by {
            let why = format!("{by} withdrew it after it was sent");
            return self.end(record, End::Failed(unknown(record, &why))).await;
        }
        let left = self.powered.left(record.deadline.unwrap_or(0)).await?;
        if left.is_zero() {
            let why = "the node went away while it ran and did not come back in time";
            return self.end(record, End::Failed(unknown(record, why))).await;
        }
        let Some(connection) = self.directory.connection(&record.action.node) else {
            self.pause(entry, left).await;
            return Ok(());
        };
        // The same request id: the node's journal answers, nothing is run a second time.
        self.call(record, entry, &*connection).await
    }

    pub(super) async fn lost_deadline(&self, record: &Record) -> Result<u64, StoreError> {
        let wait = if record.wait_for_node {
            Duration::from_secs(self.config.approvals.device_wait_s)
        } else {
            record.timeout + LOST_WAIT
        };
        Ok(self.powered.now().await? + wait.as_millis() as u64)
    }

    /// Ends an action; an approval that is still open ends as withdrawn.
    pub(super) async fn end(&self, record: &Record, end: End) -> Result<(), StoreError> {
        self.end_with(record, Ending::new(end)).await
    }

    pub(super) async fn end_with(&self, record: &Record, ending: Ending) -> Result<(), StoreError> {
        let (id, node) = (record.action.id, record.action.node);
        let outcome = outcome_word(&ending.end);
        let word = outcome.as_str().unwrap_or_default().to_owned();
        let mut body = self.audit_body(record, &[("outcome", outcome)]);
        if let End::Done { result, media } = &ending.end {
            body["result"] = json!(audit::digest(&result.to_string()));
            body["media"] = media.iter().map(|m| json!(m.sha256)).collect();
        }
        if let Some(by) = &ending.by {
            body["by"] = json!(by);
        }
        let written = self
            .store
            .write(move |t| {
                let mut written = Written::default();
                if let Some((sent, answered)) = ending.heads {
                    Audit::note_held_in(t, &format!("node:{node}"), sent)?;
                    written.fault = Audit::note_receipt_in(t, &node, answered)?;
                }
                written.ended = record::finish(t, &id, &ending.end, ending.from)?;
                if written.ended {
                    written.resolved =
                        rows::settle(t, &id, ending.approval, None, ending.by.as_deref(), None)?;
                    Audit::append_in(t, "action.finished", &body)?;
                }
                Ok(written)
            })
            .await?;
        if let Some(fault) = written.fault {
            let message = format!("the audit log of node `{}` is not what it was: {fault}", record.node_name);
            self.bus.emit(Event::Alarm { message });
        }
        if written.resolved {
            self.bus.emit(Event::ApprovalResolved { id });
        }
        if written.ended {
            tracing::info!(outcome = word, "the action ended");
            self.bus.emit(Event::ActionChanged { id });
        }
        Ok(())
    }
}

fn unknown(record: &Record, why: &str) -> CommandError {
    let message = format!(
        "whether `{}` ran on `{}` is not known: {why}; it is not repeated, look at the device",
        record.action.command, record.node_name
    );
    CommandError::new(ErrorCode::OutcomeUnknown, message)
}

pub(super) fn outcome_word(end: &End) -> Value {
    match end {
        End::Done { .. } => json!("done"),
        End::Failed(error) => json!(error.code),
    }
}
