//! Durable requests to nodes.
//!
//! ```text
//!            ┌────────────► waiting for the node ◄───────┐
//! submitted ─┤                     │                     │
//!            └────► running ──► asking ──► granted ──► running ──► done | failed
//!                                  └──► denied | expired | cancelled    └──► outcome unknown
//! ```
//!
//! A state is on disk before it has effects. A hub that was killed goes on with what waited; an action
//! whose outcome is not known is reported, never repeated.

use crate::approvals::audit::Audit;
use crate::approvals::{Approval, Card, Decider};
use crate::bus::Bus;
use crate::config::Config;
use crate::hub::Tasks;
use crate::keys::HubKeys;
use crate::nodes::{Media, Nodes};
use crate::store::{Store, StoreError};
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::error::CommandError;
use hearth_shared::grant::Decision;
use hearth_shared::identity::DeviceId;
use hearth_shared::reading::{Correlation, RequestId};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A request.
#[derive(Debug, Clone)]
pub struct ActionRequest {
    /// Which node.
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
    /// Wait for a node that is away (within the approval lifetime) instead of failing at once.
    pub wait_for_node: bool,
    /// For the logs.
    pub correlation: Correlation,
}

/// State of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Actions {}

impl Actions {
    /// Puts the parts together; [`Actions::resume`] goes on with what waited.
    #[must_use]
    pub fn new(
        _store: Store,
        _bus: Bus,
        _audit: Audit,
        _nodes: Nodes,
        _keys: Arc<HubKeys>,
        _config: Arc<Config>,
        _tasks: Tasks,
    ) -> Self {
        todo!()
    }

    /// After a start: takes up what was waiting, reports what was running.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resume(&self) -> Result<(), StoreError> {
        todo!()
    }

    /// Takes a request; it is on disk when this returns (commands of class observe excepted: they have no
    /// effect and live in memory).
    ///
    /// # Errors
    /// [`ActionError::Refused`] when a rule of the hub, the declaration or the parameters forbid it.
    pub async fn submit(&self, _request: ActionRequest) -> Result<RequestId, ActionError> {
        todo!()
    }

    /// Waits until it is done or failed.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn wait(&self, _id: RequestId) -> Result<Action, ActionError> {
        todo!()
    }

    /// One action.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn get(&self, _id: RequestId) -> Result<Option<Action>, ActionError> {
        todo!()
    }

    /// Withdraws it; what was started may still finish.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn cancel(&self, _id: RequestId, _by: &str) -> Result<(), ActionError> {
        todo!()
    }

    /// Approvals, the newest first; only pending ones, or all that are kept.
    ///
    /// # Errors
    /// [`ActionError::Store`].
    pub async fn approvals(&self, _all: bool) -> Result<Vec<Approval>, ActionError> {
        todo!()
    }

    /// One approval by id or unique prefix.
    ///
    /// # Errors
    /// [`ActionError::UnknownApproval`], [`ActionError::Ambiguous`].
    pub async fn approval(&self, _which: &str) -> Result<Approval, ActionError> {
        todo!()
    }

    /// Opens the card: fetches a fresh challenge from the node. With the node away, the card has none.
    ///
    /// # Errors
    /// As [`Actions::approval`].
    pub async fn card(&self, _which: &str) -> Result<Card, ActionError> {
        todo!()
    }

    /// Decides. The first decision wins; every party hears of it on the bus.
    ///
    /// # Errors
    /// [`ActionError::AlreadyDecided`], [`ActionError::NotEnough`], [`ActionError::Changed`].
    pub async fn decide(
        &self,
        _which: &str,
        _decision: Decision,
        _by: Decider,
    ) -> Result<Approval, ActionError> {
        todo!()
    }

    /// Passes a signed change of a node's list of approvers on to it (id, unique prefix or name). The node
    /// checks it; `by` is for the audit log.
    ///
    /// # Errors
    /// [`ActionError::Refused`] when the node is unknown, away, a foreign one, or refuses.
    pub async fn change_approvers(
        &self,
        _node: &str,
        _change: ApproversChange,
        _by: &str,
    ) -> Result<ApproverSet, ActionError> {
        todo!()
    }

    /// Tells how many approvers are connected now (operator clients with the right and the ability to
    /// show approvals). With none, and none configured, a request that needs a person ends at once.
    pub fn approvers_connected(&self, _count: usize) {
        todo!()
    }
}
