//! Durable requests to nodes.
//!
//! ```text
//!            ┌────────────► waiting for the node ◄───────┐
//! submitted ─┤                     │                     │
//!            └────► running ──► asking ──► granted ──► running ──► done | failed
//!                                  └──► denied | expired | cancelled    └──► outcome unknown
//! ```
//!
//! [`plan`] checks a request and makes the plan that is stored; [`engine`] drives it from state to state;
//! [`decide`] is where people look and decide; [`deliver`] carries a decision to the node.
//!
//! A state is on disk before it has effects. A hub that was killed goes on with what waited; an action
//! whose outcome is not known is reported, never repeated.

mod ask;
mod decide;
mod deliver;
mod engine;
mod here;
mod observe;
mod open;
mod plan;
mod powered;
mod record;
mod settle;

use crate::approvals::audit::Audit;
use crate::approvals::audit::batch::{Batch, Seen};
use crate::approvals::{Approval, Card, Decider};
use crate::bus::{Bus, Event};
use crate::config::Config;
use crate::hub::Tasks;
use crate::keys::HubKeys;
use crate::nodes::{Media, NodeConnection, NodeError, NodeView, Nodes};
use crate::store::{Store, StoreError};
use futures_util::future::BoxFuture;
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::command::{Class, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::Decision;
use hearth_shared::identity::DeviceId;
use hearth_shared::reading::{Correlation, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// On a node.
    Node,
    /// On the hub's machine, by whoever asked: the decision is all that the hub gives.
    Gateway,
}

impl Host {
    /// As written in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Gateway => "gateway",
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub struct ActionRequest {
    /// Where.
    pub host: Host,
    /// Which node; the hub's own id for its machine.
    pub node: DeviceId,
    /// Which command.
    pub command: String,
    /// Parameters; checked and completed for known commands.
    pub params: Value,
    /// Who asks, for example `terminal: owner`.
    pub requester: String,
    /// Device of a JSON client that asks, if one does.
    pub requester_device: Option<DeviceId>,
    /// What the assistant says why.
    pub reason: Option<String>,
    /// Session it belongs to.
    pub session_key: Option<String>,
    /// Run that waits for it.
    pub run_id: Option<String>,
    /// Time limit of the command on the node.
    pub timeout: Duration,
    /// The same key again within 24 hours is the same action; with other parameters an error.
    pub idempotency_key: Option<String>,
    /// Wait for a node that is away (up to `approvals.device_wait_s`) instead of failing at once.
    pub wait_for_node: bool,
    /// How long it may wait for a person; the configured lifetime at most, and when left out.
    pub ask_for: Option<Duration>,
    /// For the logs.
    pub correlation: Correlation,
}

/// State of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionState {
    /// On disk, not sent.
    Submitted,
    /// The node is away.
    WaitingForNode,
    /// A person must decide.
    Asking,
    /// Decided yes, the grant is not delivered yet.
    Granted,
    /// Sent.
    Running,
    /// Ended with a result.
    Done,
    /// Ended with an error.
    Failed,
}

/// A finished or unfinished action.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Id.
    pub id: RequestId,
    /// Node.
    pub node: DeviceId,
    /// Command.
    pub command: String,
    /// Complete parameters.
    pub params: Value,
    /// State.
    pub state: ActionState,
    /// Result of a done one.
    pub result: Option<Value>,
    /// Stored attachments.
    pub media: Vec<Media>,
    /// Error of a failed one.
    pub error: Option<CommandError>,
    /// Session.
    pub session_key: Option<String>,
    /// Run.
    pub run_id: Option<String>,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// Unix milliseconds.
    pub finished_ms: Option<u64>,
}

/// Why an action cannot be taken or decided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActionError {
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Refused before anything was done.
    #[error(transparent)]
    Refused(#[from] CommandError),
    /// No such approval.
    #[error("no approval `{0}`; see `hearth approvals list`")]
    UnknownApproval(String),
    /// A prefix fits several.
    #[error("`{0}` fits more than one approval; give more of the id")]
    Ambiguous(String),
    /// The first decision won.
    #[error("already {status} by {by}")]
    AlreadyDecided { status: &'static str, by: String },
    /// The same idempotency key with other parameters.
    #[error("the idempotency key was used with other parameters")]
    KeyReused,
    /// This decider cannot give what is needed.
    #[error("{0}")]
    NotEnough(String),
    /// What the person saw is no longer what would run: look again.
    #[error("the request changed since it was shown; look at it again with `hearth approvals show`")]
    Changed,
}

/// What actions need to know of nodes.
pub trait NodeDirectory: Send + Sync + std::fmt::Debug {
    /// A node as it is known now.
    fn view(&self, node: DeviceId) -> BoxFuture<'_, Result<NodeView, NodeError>>;
    /// Its connection, if there is one.
    fn connection(&self, node: &DeviceId) -> Option<Arc<dyn NodeConnection>>;
}

impl NodeDirectory for Nodes {
    fn view(&self, node: DeviceId) -> BoxFuture<'_, Result<NodeView, NodeError>> {
        Box::pin(async move { self.find(&node.to_string()).await })
    }
    fn connection(&self, node: &DeviceId) -> Option<Arc<dyn NodeConnection>> {
        Nodes::connection(self, node)
    }
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Actions {
    engine: Arc<engine::Engine>,
    nodes: Option<Nodes>,
}

impl Actions {
    /// Puts the parts together; [`Actions::resume`] goes on with what waited. Must be called inside the
    /// runtime: background work starts here and ends with `tasks`.
    #[must_use]
    pub fn new(
        store: Store,
        bus: Bus,
        audit: Audit,
        nodes: Nodes,
        keys: Arc<HubKeys>,
        config: Arc<Config>,
        tasks: Tasks,
    ) -> Self {
        let directory = Arc::new(nodes.clone());
        let actions = Self::with_directory(store, bus, audit, directory, keys, config, tasks);
        Self { nodes: Some(nodes), ..actions }
    }

    /// As [`Actions::new`], with nodes from elsewhere.
    #[must_use]
    pub fn with_directory(
        store: Store,
        bus: Bus,
        audit: Audit,
        directory: Arc<dyn NodeDirectory>,
        keys: Arc<HubKeys>,
        config: Arc<Config>,
        tasks: Tasks,
    ) -> Self {
        let engine = Arc::new(engine::Engine {
            batch: Batch::start(store.clone(), &tasks),
            powered: powered::Powered::new(store.clone()),
            store,
            bus,
            audit,
            directory,
            keys,
            config,
            tasks,
            open: open::Open::default(),
            approvers: tokio::sync::watch::Sender::default(),
        });
        let attendant = engine.clone();
        // From now on: a node that connects before the task first runs must not be missed.
        let events = engine.bus.subscribe();
        engine.tasks.spawn(async move { attendant.attend(events).await });
        Self { engine, nodes: None }
    }

    /// After a start: takes up what was waiting, reports what was running.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resume(&self) -> Result<(), StoreError> {
        for record in self.engine.store.read(record::unfinished).await? {
            self.engine.adopt(&record);
        }
        Ok(())
    }

    /// Takes a request; it is on disk when this returns (commands of class observe excepted: they have no
    /// effect and live in memory, unless they must wait for a person or for the node).
    ///
    /// A caller that leaves before it has the id withdraws the request, unless a run owns it.
    ///
    /// # Errors
    /// [`ActionError::Refused`] when a rule of the hub, the declaration or the parameters forbid it, the
    /// node is away and it shall not wait, or too many requests are open. [`ActionError::KeyReused`].
    pub async fn submit(&self, request: ActionRequest) -> Result<RequestId, ActionError> {
        let engine = self.engine.clone();
        let (answer, wait) = tokio::sync::oneshot::channel();
        let owned_by_run = request.run_id.is_some();
        let left = format!("{} (left)", request.requester);
        // A task of its own: half a submission must not stay behind when the caller is dropped.
        self.engine.tasks.spawn(async move {
            let taken = take(&engine, request).await;
            let made = taken.as_ref().ok().and_then(|(id, new)| new.then_some(*id));
            let gone = answer.send(taken.map(|(id, _)| id)).is_err();
            if let Some(id) = made.filter(|_| gone && !owned_by_run)
                && let Err(error) = engine.cancel(id, &left).await
            {
                tracing::warn!(%id, %error, "cannot withdraw a request whose caller has gone");
            }
        });
        wait.await.unwrap_or(Err(ActionError::Store(StoreError::Closed)))
    }

    /// Waits until it is done or failed.
    ///
    /// # Errors
    /// [`ActionError::Store`]; [`ActionError::Refused`] with `NOT_FOUND` for an unknown id.
    pub async fn wait(&self, id: RequestId) -> Result<Action, ActionError> {
        let entry = match self.engine.open.get(&id) {
            Some(entry) => entry,
            None => match self.engine.load(id).await? {
                Some(record) if record.action.finished_ms.is_none() => self.engine.adopt(&record),
                Some(record) => return Ok(record.action),
                None => {
                    return self.engine.open.kept(&id).ok_or_else(|| {
                        let message =
                            format!("no action {id}; results of readings are kept for a minute only");
                        CommandError::new(ErrorCode::NotFound, message).into()
                    });
                }
            },
        };
        tokio::select! {
            action = entry.finished() => Ok((*action?).clone()),
            () = self.engine.tasks.stop.cancelled() => Err(StoreError::Closed.into()),
        }
    }

    /// One action.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn get(&self, id: RequestId) -> Result<Option<Action>, ActionError> {
        if let Some(kept) = self.engine.open.kept(&id) {
            return Ok(Some(kept));
        }
        let stored = self.engine.load(id).await?.map(|record| record.action);
        Ok(stored.or_else(|| self.engine.open.looking(&id)))
    }

    /// An action and the device that asked for it.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn asked_by(&self, id: RequestId) -> Result<Option<(Action, Option<DeviceId>)>, ActionError> {
        Ok(self.engine.load(id).await?.map(|record| (record.action, record.requester_device)))
    }

    /// Decided, expired and withdrawn approvals, the newest first: at most `limit`, behind the approval
    /// `before`.
    ///
    /// # Errors
    /// [`ActionError::Store`], [`ActionError::UnknownApproval`].
    pub async fn history(&self, limit: usize, before: Option<&str>) -> Result<Vec<Approval>, ActionError> {
        let before = match before {
            Some(which) => Some(self.engine.find(which).await?.approval),
            None => None,
        };
        let powered = self.engine.powered.now().await?;
        let list = self
            .engine
            .store
            .read(move |c| crate::approvals::rows::history(c, limit, before.as_ref(), powered))
            .await?;
        Ok(list)
    }

    /// Withdraws it; what was started may still finish.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn cancel(&self, id: RequestId, by: &str) -> Result<(), ActionError> {
        self.engine.cancel(id, by).await
    }

    /// Approvals, the newest first; only pending ones, or all that are kept.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn approvals(&self, all: bool) -> Result<Vec<Approval>, ActionError> {
        let powered = self.engine.powered.now().await?;
        let list = self.engine.store.read(move |c| crate::approvals::rows::list(c, all, powered)).await?;
        Ok(list)
    }

    /// One approval by id or unique prefix.
    ///
    /// # Errors
    /// [`ActionError::UnknownApproval`], [`ActionError::Ambiguous`].
    pub async fn approval(&self, which: &str) -> Result<Approval, ActionError> {
        Ok(self.engine.find(which).await?.approval)
    }

    /// Opens the card: fetches a fresh challenge from the node. With the node away, for foreign nodes, and
    /// for what is decided already, the card has none.
    ///
    /// # Errors
    /// As [`Actions::approval`]; [`ActionError::Refused`] when the node refuses the request by now.
    pub async fn card(&self, which: &str) -> Result<Card, ActionError> {
        self.engine.card(which).await
    }

    /// Decides. The first decision wins; every party hears of it on the bus.
    ///
    /// # Errors
    /// [`ActionError::AlreadyDecided`], [`ActionError::NotEnough`], [`ActionError::Changed`];
    /// [`ActionError::Refused`] when the node refuses the request by now.
    pub async fn decide(
        &self,
        which: &str,
        decision: Decision,
        by: Decider,
    ) -> Result<Approval, ActionError> {
        self.engine.decide(which, decision, by).await
    }

    /// Passes a signed change of a node's list of approvers on to it (id, unique prefix or name). The node
    /// checks it; `by` is for the audit log.
    ///
    /// # Errors
    /// [`ActionError::Refused`] when the node is unknown, away, a foreign one, or refuses.
    pub async fn change_approvers(
        &self,
        node: &str,
        change: ApproversChange,
        by: &str,
    ) -> Result<ApproverSet, ActionError> {
        let not_found = |e: NodeError| CommandError::new(ErrorCode::NotFound, e.to_string());
        let view = match (&self.nodes, node.parse::<DeviceId>()) {
            (Some(nodes), _) => nodes.find(node).await.map_err(not_found)?,
            (None, Ok(id)) => self.engine.directory.view(id).await.map_err(not_found)?,
            (None, Err(_)) => {
                return Err(CommandError::new(ErrorCode::NotFound, format!("no node `{node}`")).into());
            }
        };
        let name = &view.device.name;
        if !view.checks_grants() {
            let message = format!("`{name}` keeps no list of approvers: it does not check grants");
            return Err(CommandError::new(ErrorCode::Denied, message).into());
        }
        let Some(connection) = self.engine.directory.connection(&view.device.id) else {
            let message = format!("`{name}` is not connected; see `hearth nodes list`");
            return Err(CommandError::new(ErrorCode::NotConnected, message).into());
        };
        let signer = change.signer.device_id();
        let outcome = connection.change_approvers(change).await;
        let what = match &outcome {
            Ok(set) => json!({"epoch": set.epoch, "approvers": set.approvers.len()}),
            Err(error) => json!({"refused": error.code}),
        };
        let body = json!({"node": view.device.id, "by": by, "signer": signer, "outcome": what});
        self.engine.audit.append("approvers.changed", body).await?;
        Ok(outcome?)
    }

    /// Deletes actions and approvals that ended longer ago than `retention.actions_days`; how many went. Runs
    /// by itself every hour too.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn prune(&self) -> Result<u64, StoreError> {
        self.engine.prune().await
    }

    /// Tells how many approvers are connected now (operator clients with the right and the ability to
    /// show approvals). With none, and none configured, a request that needs a person ends at once.
    pub fn approvers_connected(&self, count: usize) {
        self.engine.approvers.send_modify(|a| a.connected = count);
    }

    /// How many ways lead now to somebody who can be asked: approvers connected, people who may decide in
    /// chats, notifications.
    #[must_use]
    pub fn ways_to_ask(&self) -> usize {
        let approvers = *self.engine.approvers.borrow();
        approvers.connected + approvers.in_chats + approvers.told
    }

    /// Tells how many people may decide in chats. They can be asked whether or not the platform is reached
    /// just now: requests wait for their lifetime.
    pub fn chat_approvers(&self, count: usize) {
        self.engine.approvers.send_modify(|a| a.in_chats = count);
    }

    /// Tells over how many ways a person is notified who is not looking: requests wait until he comes.
    pub fn approvers_told(&self, count: usize) {
        self.engine.approvers.send_modify(|a| a.told = count);
    }
}

/// [`Actions::submit`]; whether the action is a new one stands beside its id.
async fn take(
    engine: &Arc<engine::Engine>,
    request: ActionRequest,
) -> Result<(RequestId, bool), ActionError> {
    let key = request.idempotency_key.clone();
    let plan = match plan::make(&*engine.directory, &engine.config.nodes, &request).await {
        Ok(plan) => plan,
        Err(error) => {
            let body = json!({
                "node": request.node,
                "command": hearth_shared::identity::display_safe(&request.command, 64),
                "requester": request.requester,
                "outcome": error.code,
            });
            engine.batch.add(Seen { kind: "action.refused", body, heads: None }).await;
            return Err(error.into());
        }
    };
    let id = RequestId::fresh().map_err(|e| CommandError::new(ErrorCode::Internal, e.to_string()))?;
    let record = record::Record::new(id, request, plan);
    if let Some(key) = key.clone() {
        let (owner, digest) = (record.owner(), record.plan_digest());
        match engine.store.read(move |c| record::key_use(c, &owner, &key, &digest)).await? {
            record::KeyUse::Fresh => {}
            record::KeyUse::Same(id) => return Ok((id, false)),
            record::KeyUse::Other => return Err(ActionError::KeyReused),
        }
    }
    let connected =
        record.host == Host::Gateway || engine.directory.connection(&record.action.node).is_some();
    if !connected && !record.wait_for_node {
        return Err(engine::away(&record).into());
    }
    let entry = engine.open.add(id, record.owner(), record.action.node)?;
    if connected && record.class == Class::Observe && record.raise == Need::None {
        engine.observe(record, entry);
        return Ok((id, true));
    }
    let body = engine.audit_body(&record, &[("reason", json!(record.reason))]);
    let stored = engine
        .store
        .write(move |t| {
            let used = record::insert(t, &record, key.as_deref())?;
            if used == record::KeyUse::Fresh {
                Audit::append_in(t, "action.submitted", &body)?;
            }
            Ok(used)
        })
        .await;
    match stored {
        Ok(record::KeyUse::Fresh) => {
            engine.bus.emit(Event::ActionChanged { id });
            engine.start(id, entry);
            Ok((id, true))
        }
        Ok(record::KeyUse::Same(first)) => {
            engine.open.remove(&id);
            Ok((first, false))
        }
        Ok(record::KeyUse::Other) => {
            engine.open.remove(&id);
            Err(ActionError::KeyReused)
        }
        Err(error) => {
            engine.open.remove(&id);
            Err(error.into())
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
