//! What drives an action from state to state.
//!
//! One task an action: it reads the state from the database, does the step that belongs to it, and reads
//! again. Whoever else changes the state (a decision, a withdrawal) does so in the database first and
//! then wakes the task. Every change names the state it comes from, so that of two at once one loses and
//! finds out.

use super::open::{Entry, Open};
use super::powered::{Powered, SAVE_EVERY};
use super::record::{self, End, Record};
use super::{Action, ActionState, NodeDirectory, plan};
use crate::approvals::audit::batch::{Batch, Seen};
use crate::approvals::audit::{self, Audit};
use crate::approvals::{ApprovalStatus, rows};
use crate::bus::{Bus, Event};
use crate::config::Config;
use crate::hub::Tasks;
use crate::keys::HubKeys;
use crate::nodes::{NodeConnection, NodeReply};
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::chain::Head;
use hearth_shared::command::{Class, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::link::Outcome;
use hearth_shared::reading::RequestId;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tracing::Instrument as _;

/// How long a request waits for the first approver to connect before it ends with `NOBODY_TO_ASK`: the
/// client that sent it may still be saying that it can show approvals.
const GRACE: Duration = Duration::from_secs(2);
/// For a request of an earlier start: its client comes back with backoff.
const GRACE_AFTER_START: Duration = Duration::from_secs(30);
/// Pause before a step that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after the database refused a write.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// How long the outcome of what was sent is waited for at least when the link died.
const LOST_WAIT: Duration = Duration::from_secs(60);
/// Interval of deleting old actions.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// The parts that steps need.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) store: Store,
    pub(super) bus: Bus,
    pub(super) audit: Audit,
    pub(super) batch: Batch,
    pub(super) directory: Arc<dyn NodeDirectory>,
    pub(super) keys: Arc<HubKeys>,
    pub(super) config: Arc<Config>,
    pub(super) tasks: Tasks,
    pub(super) open: Open,
    pub(super) powered: Powered,
    pub(super) approvers: watch::Sender<usize>,
}

impl Engine {
    /// Takes up an action that has no driver yet.
    pub(super) fn adopt(self: &Arc<Self>, record: &Record) -> Arc<Entry> {
        let id = record.action.id;
        let (entry, new) = self.open.restore(id, record.owner(), record.action.node);
        if new {
            self.start(id, entry.clone());
        }
        entry
    }

    /// Starts the driver of an action.
    pub(super) fn start(self: &Arc<Self>, id: RequestId, entry: Arc<Entry>) {
        let engine = self.clone();
        self.tasks.spawn(async move { engine.drive(id, &entry).await });
    }

    async fn drive(&self, id: RequestId, entry: &Entry) {
        loop {
            let step = async {
                let Some(record) = self.load(id).await? else {
                    self.open.remove(&id);
                    return Ok(true);
                };
                if record.action.finished_ms.is_some() {
                    self.open.finish(record.action, false);
                    return Ok(true);
                }
                let span = tracing::info_span!("action", id = %id, correlation = %record.correlation, command = record.action.command);
                Box::pin(self.step(&record, entry)).instrument(span).await?;
                Ok::<_, StoreError>(false)
            };
            let outcome = tokio::select! {
                outcome = step => outcome,
                () = self.tasks.stop.cancelled() => return,
            };
            match outcome {
                Ok(true) | Err(StoreError::Closed) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%id, %error, "an action cannot go on for now");
                    self.pause(entry, STORE_PAUSE).await;
                }
            }
        }
    }

    async fn step(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
        match record.action.state {
            ActionState::Submitted => self.begin(record, entry).await,
            ActionState::WaitingForNode => self.wait_for_node(record, entry).await,
            ActionState::Asking => self.wait_for_decision(record, entry).await,
            ActionState::Granted => self.deliver(record, entry).await,
            ActionState::Running => self.recover(record, entry).await,
            ActionState::Done | ActionState::Failed => Ok(()),
        }
    }

    /// On disk, not sent.
    async fn begin(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
        let id = record.action.id;
        if let Some(refused) = self.check_again(record).await? {
            return self.end(record, End::Failed(refused)).await;
        }
        if !record.checked_on_node && record.raise > Need::None {
            return self.ask(record, entry, Need::Hub).await;
        }
        let Some(connection) = self.directory.connection(&record.action.node) else {
            if !record.wait_for_node {
                return self.end(record, End::Failed(away(record))).await;
            }
            let wait = Duration::from_secs(self.config.approvals.device_wait_s);
            let deadline = self.powered.now().await? + wait.as_millis() as u64;
            self.advance(id, ActionState::Submitted, ActionState::WaitingForNode, Some(deadline)).await?;
            return Ok(());
        };
        let deadline = self.lost_deadline(record).await?;
        if self.advance(id, ActionState::Submitted, ActionState::Running, Some(deadline)).await? {
            self.call(record, entry, &*connection).await?;
        }
        Ok(())
    }

    /// The rules of today: config, approved surface and pairing may have changed while it waited.
    pub(super) async fn check_again(&self, record: &Record) -> Result<Option<CommandError>, StoreError> {
        let view = match self.directory.view(record.action.node).await {
            Ok(view) => view,
            Err(crate::nodes::NodeError::Store(error)) => return Err(error),
            Err(error) => return Ok(Some(CommandError::new(ErrorCode::NotFound, error.to_string()))),
        };
        let again = plan::check(view, &self.config.nodes, &record.action.command, &record.action.params);
        Ok(again.err())
    }

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
        let reply = connection.invoke(invoke).await;
        if matches!(&reply, Err(error) if error.code == ErrorCode::Timeout) {
            connection.cancel(record.action.id);
        }
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
            ErrorCode::NotConnected if record.checked_on_node => {
                // Its journal knows; see `recover`. A dead connection may be listed a moment longer.
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

    /// Puts the question, if there is anybody to ask.
    async fn ask(&self, record: &Record, entry: &Entry, need: Need) -> Result<(), StoreError> {
        if !self.config.approvals.wait_for_approver && !self.somebody_to_ask(entry).await {
            let message = format!(
                "`{}` on `{}` needs a person's yes, and nobody who could decide is connected; open `hearth chat`, or set approvals.wait_for_approver in config.toml",
                record.action.command, record.node_name
            );
            return self.end(record, End::Failed(CommandError::new(ErrorCode::NobodyToAsk, message))).await;
        }
        let deadline = self.powered.now().await? + self.config.approvals.lifetime_s * 1000;
        let id = record.action.id;
        // For a foreign node the hub asks before anything is sent, for ours after the node's answer.
        let from = if record.checked_on_node { ActionState::Running } else { ActionState::Submitted };
        let sentence = plan::sentence(record);
        let body = self.audit_body(record, &[("need", json!(need)), ("sentence", json!(sentence))]);
        let asked = self
            .store
            .write(move |t| {
                if !record::advance(t, &id, &[from], ActionState::Asking, None)? {
                    return Ok(false);
                }
                rows::insert(t, &id, &sentence, need, deadline)?;
                Audit::append_in(t, "approval.requested", &body)?;
                Ok(true)
            })
            .await?;
        if asked {
            tracing::info!(need = need.as_str(), "a person must decide");
            self.bus.emit(Event::ApprovalRequested { id });
            self.bus.emit(Event::ActionChanged { id });
        }
        Ok(())
    }

    async fn somebody_to_ask(&self, entry: &Entry) -> bool {
        let mut approvers = self.approvers.subscribe();
        let grace = if entry.restored { GRACE_AFTER_START } else { GRACE };
        matches!(tokio::time::timeout(grace, approvers.wait_for(|n| *n > 0)).await, Ok(Ok(_)))
    }

    async fn wait_for_node(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
        if self.directory.connection(&record.action.node).is_some() {
            self.advance(record.action.id, ActionState::WaitingForNode, ActionState::Submitted, None).await?;
            return Ok(());
        }
        if let Some(refused) = self.check_again(record).await? {
            return self.end(record, End::Failed(refused)).await;
        }
        let left = self.powered.left(record.deadline.unwrap_or(0)).await?;
        if left.is_zero() {
            let waited = self.config.approvals.device_wait_s / 3600;
            let message = format!(
                "`{}` did not come back within {waited} hours; see `hearth nodes list`",
                record.node_name
            );
            let error = CommandError::new(ErrorCode::NotConnected, message);
            return self.end(record, End::Failed(error)).await;
        }
        self.pause(entry, left).await;
        Ok(())
    }

    async fn wait_for_decision(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
        let id = record.action.id;
        let powered = self.powered.now().await?;
        let Some(stored) = self.store.read(move |c| rows::load(c, &id, powered)).await? else {
            return Err(StoreError::Corrupt(format!("action {id} asks without an approval")));
        };
        let left = Duration::from_millis(stored.deadline.saturating_sub(powered));
        if !left.is_zero() {
            self.pause(entry, left).await;
            return Ok(());
        }
        let lifetime = self.config.approvals.lifetime_s;
        let message = format!("nobody decided within {lifetime} s; ask again when somebody is there");
        let end = End::Failed(CommandError::new(ErrorCode::ApprovalExpired, message));
        let from = Some(ActionState::Asking);
        let ending = Ending { approval: ApprovalStatus::Expired, from, ..Ending::new(end) };
        self.end_with(record, ending).await
    }

    /// It was sent, and this program (or this connection) did not see the outcome.
    async fn recover(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
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

    /// A command that only looks: in memory, unless it turns out that it must wait.
    pub(super) fn observe(self: &Arc<Self>, mut record: Record, entry: Arc<Entry>) {
        let engine = self.clone();
        let id = record.action.id;
        let span = tracing::info_span!("observe", id = %id, correlation = %record.correlation, command = record.action.command);
        self.tasks.spawn(
            async move {
                let outcome = tokio::select! {
                    outcome = engine.look(&record) => outcome,
                    () = entry.cancel.cancelled() => {
                        if let Some(connection) = engine.directory.connection(&record.action.node) {
                            connection.cancel(id);
                        }
                        Ok(End::Failed(CommandError::new(ErrorCode::Cancelled, "withdrawn")))
                    }
                    () = engine.tasks.stop.cancelled() => return,
                };
                let end = match outcome {
                    Ok(end) => end,
                    Err(Later) => match engine.make_durable(&record).await {
                        Ok(()) => return engine.drive(id, &entry).await,
                        Err(error) => End::Failed(CommandError::new(ErrorCode::Internal, error.to_string())),
                    },
                };
                engine.finish_in_memory(&mut record.action, end);
            }
            .instrument(span),
        );
    }

    async fn look(&self, record: &Record) -> Result<End, Later> {
        let action = &record.action;
        let failed = |e: StoreError| End::Failed(CommandError::new(ErrorCode::Internal, e.to_string()));
        let sent = match self.audit.head().await {
            Ok(head) => head,
            Err(error) => return Ok(failed(error)),
        };
        let reply = match self.directory.connection(&action.node) {
            Some(connection) => connection.invoke(record.invoke(sent)).await,
            None => Err(away(record)),
        };
        let (end, answered) = match reply {
            Ok(NodeReply { outcome: Outcome::ApprovalRequired { .. }, .. }) => return Err(Later),
            Ok(NodeReply { outcome: Outcome::Done { result }, media, head }) => {
                let result = serde_json::from_str(&result).unwrap_or(Value::String(result));
                (End::Done { result, media }, head)
            }
            Ok(NodeReply { outcome: Outcome::Failed(error), head, .. }) => (End::Failed(error), head),
            Err(error) if error.code == ErrorCode::NotConnected && record.wait_for_node => return Err(Later),
            Err(error) => (End::Failed(error), None),
        };
        let body = self.audit_body(record, &[("outcome", outcome_word(&end))]);
        let heads = record.checked_on_node.then_some((action.node, sent, answered));
        self.batch.add(Seen { kind: "node.observed", body, heads }).await;
        Ok(end)
    }

    async fn make_durable(&self, record: &Record) -> Result<(), StoreError> {
        let record = record.clone();
        self.store.write(move |t| record::insert(t, &record, None).map(drop)).await
    }

    fn finish_in_memory(&self, action: &mut Action, end: End) {
        match end {
            End::Done { result, media } => {
                action.state = ActionState::Done;
                action.result = Some(result);
                action.media = media;
            }
            End::Failed(error) => {
                action.state = ActionState::Failed;
                action.error = Some(error);
            }
        }
        action.finished_ms = Some(now_ms());
        let id = action.id;
        self.open.finish(action.clone(), true);
        self.bus.emit(Event::ActionChanged { id });
    }

    /// Background work: wakes drivers when nodes come, saves the powered clock, deletes what is old.
    pub(super) async fn attend(&self) {
        let mut events = self.bus.subscribe();
        let mut save = tokio::time::interval(SAVE_EVERY);
        let mut prune = tokio::time::interval(PRUNE_EVERY);
        loop {
            tokio::select! {
                () = self.tasks.stop.cancelled() => break,
                event = events.recv() => match event {
                    Ok(Event::NodeConnected { node }) => self.open.wake(Some(&node)),
                    Ok(Event::DeviceClosed { device, .. }) => self.open.wake(Some(&device)),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => self.open.wake(None),
                    Err(broadcast::error::RecvError::Closed) => break,
                },
                _ = save.tick() => {
                    if !self.open.is_empty() {
                        log(self.powered.save().await, "the powered clock was not saved");
                    }
                }
                _ = prune.tick() => log(self.prune().await.map(drop), "old actions were not deleted"),
            }
        }
        log(self.powered.save().await, "the powered clock was not saved");
    }

    /// Deletes actions and approvals that ended longer ago than the configuration keeps them.
    pub(super) async fn prune(&self) -> Result<u64, StoreError> {
        let keep = u64::from(self.config.retention.actions_days) * 86_400_000;
        let before = now_ms().saturating_sub(keep);
        self.store.write(move |t| record::prune(t, before)).await
    }

    pub(super) async fn load(&self, id: RequestId) -> Result<Option<Record>, StoreError> {
        self.store.read(move |c| record::load(c, &id)).await
    }

    /// Waits to be woken, at most this long. Dropped at the stop.
    pub(super) async fn pause(&self, entry: &Entry, at_most: Duration) {
        tokio::select! {
            () = entry.wake.notified() => {}
            () = tokio::time::sleep(at_most) => {}
            () = self.tasks.stop.cancelled() => {}
        }
    }

    pub(super) async fn lost_deadline(&self, record: &Record) -> Result<u64, StoreError> {
        let wait = if record.wait_for_node {
            Duration::from_secs(self.config.approvals.device_wait_s)
        } else {
            record.timeout.max(LOST_WAIT)
        };
        Ok(self.powered.now().await? + wait.as_millis() as u64)
    }

    pub(super) async fn advance(
        &self,
        id: RequestId,
        from: ActionState,
        to: ActionState,
        deadline: Option<u64>,
    ) -> Result<bool, StoreError> {
        let moved = self.store.write(move |t| record::advance(t, &id, &[from], to, deadline)).await?;
        if moved {
            self.bus.emit(Event::ActionChanged { id });
        }
        Ok(moved)
    }

    /// Ends an action; an approval that is still open ends as withdrawn.
    pub(super) async fn end(&self, record: &Record, end: End) -> Result<(), StoreError> {
        self.end_with(record, Ending::new(end)).await
    }

    pub(super) async fn end_with(&self, record: &Record, ending: Ending) -> Result<(), StoreError> {
        let (id, node) = (record.action.id, record.action.node);
        let mut body = self.audit_body(record, &[("outcome", outcome_word(&ending.end))]);
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
            self.bus.emit(Event::ActionChanged { id });
        }
        Ok(())
    }

    /// What every record about an action says.
    pub(super) fn audit_body(&self, record: &Record, more: &[(&str, Value)]) -> Value {
        let action = &record.action;
        let mut body = json!({
            "request": action.id,
            "node": action.node,
            "command": action.command,
            "params": audit::redacted(&action.params),
            "requester": record.requester,
            "correlation": record.correlation,
        });
        for (key, value) in more {
            body[*key] = value.clone();
        }
        body
    }
}

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

/// It must wait for a person or for the node: on to the disk.
struct Later;

pub(super) fn away(record: &Record) -> CommandError {
    let message = format!("`{}` is not connected; see `hearth nodes list`", record.node_name);
    CommandError::new(ErrorCode::NotConnected, message)
}

fn unknown(record: &Record, why: &str) -> CommandError {
    let message = format!(
        "whether `{}` ran on `{}` is not known: {why}; it is not repeated, look at the device",
        record.action.command, record.node_name
    );
    CommandError::new(ErrorCode::OutcomeUnknown, message)
}

fn outcome_word(end: &End) -> Value {
    match end {
        End::Done { .. } => json!("done"),
        End::Failed(error) => json!(error.code),
    }
}

fn log(result: Result<(), StoreError>, what: &str) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what}");
    }
}
