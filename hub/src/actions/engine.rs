//! What drives an action from state to state.
//!
//! One task an action: it reads the state from the database, does the step that belongs to it, and reads
//! again. Whoever else changes the state (a decision, a withdrawal) does so in the database first and
//! then wakes the task. Every change names the state it comes from, so that of two at once one loses and
//! finds out.

use super::open::{Entry, Open};
use super::powered::{Powered, SAVE_EVERY};
use super::record::{self, End, Record};
use super::{ActionState, Host, NodeDirectory, plan};
use crate::approvals::audit::batch::Batch;
use crate::approvals::audit::{self, Audit};
use crate::bus::{Bus, Event};
use crate::config::Config;
use crate::hub::Tasks;
use crate::keys::HubKeys;
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::command::Need;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::reading::RequestId;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tracing::Instrument as _;

/// Pause after the database refused a write.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// Interval of deleting old actions.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// How many people could be asked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Approvers {
    /// Over connected clients.
    pub(super) connected: usize,
    /// In chats, reached or not.
    pub(super) in_chats: usize,
    /// By notifications.
    pub(super) told: usize,
}

impl Approvers {
    /// Whether there is anybody at all.
    pub(super) fn any(&self) -> bool {
        self.connected + self.in_chats + self.told > 0
    }
}

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
    pub(super) approvers: watch::Sender<Approvers>,
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

    pub(super) async fn drive(&self, id: RequestId, entry: &Entry) {
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
        if record.host == Host::Gateway {
            return Ok(None);
        }
        let view = match self.directory.view(record.action.node).await {
            Ok(view) => view,
            Err(crate::nodes::NodeError::Store(error)) => return Err(error),
            Err(error) => return Ok(Some(CommandError::new(ErrorCode::NotFound, error.to_string()))),
        };
        let again = plan::check(view, &self.config.nodes, &record.action.command, &record.action.params);
        Ok(again.err())
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

    /// Background work: wakes drivers when nodes come, saves the powered clock, deletes what is old.
    pub(super) async fn attend(&self, mut events: broadcast::Receiver<Event>) {
        let mut save = tokio::time::interval(SAVE_EVERY);
        let mut prune = tokio::time::interval(PRUNE_EVERY);
        loop {
            tokio::select! {
                () = self.tasks.stop.cancelled() => break,
                event = events.recv() => match event {
                    Ok(Event::NodeConnected { node }) => self.open.node_changed(Some(&node)),
                    Ok(Event::DeviceClosed { device, .. }) => self.open.node_changed(Some(&device)),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => self.open.node_changed(None),
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

pub(super) fn away(record: &Record) -> CommandError {
    let message = format!("`{}` is not connected; see `hearth nodes list`", record.node_name);
    CommandError::new(ErrorCode::NotConnected, message)
}

fn log(result: Result<(), StoreError>, what: &str) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what}");
    }
}
