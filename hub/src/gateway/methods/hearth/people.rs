//! Persons' approver keys, lists of approvers on nodes, and single actions.

use crate::actions::{Action, ActionError};
use crate::devices::{DeviceError, Scope};
use crate::gateway::answer::{Answer, Outward as _, forbidden, invalid};
use crate::gateway::methods::nodes::MediaEntry;
use crate::gateway::methods::{Access, Call, Method, NoParams, encode, method};
use crate::nodes::NodeError;
use hearth_shared::approver::{Approver, ApproverKind, ApproverSet, ApproversChange};
use hearth_shared::identity::DeviceId;
use hearth_shared::reading::RequestId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const READ: Access = Access::Operator(Scope::Read);
const WRITE: Access = Access::Operator(Scope::Write);
const ADMIN: Access = Access::Operator(Scope::Admin);
const APPROVALS: Access = Access::Operator(Scope::Approvals);

pub(super) const KNOWN: Method = method!("hearth.approvers.known", READ, known, NoParams => Known);
pub(super) const ADD: Method = method!("hearth.approvers.add", ADMIN, add, AddParams => Known);
pub(super) const REMOVE: Method = method!("hearth.approvers.remove", ADMIN, remove, RemoveParams => Removed);
pub(super) const LIST: Method = method!("hearth.node.approvers.get", READ, list, NodeParams => NodeApprovers);
pub(super) const CHANGE: Method =
    method!("hearth.node.approvers.change", APPROVALS, change, ChangeParams => NodeApprovers);
pub(super) const ACTION: Method = method!("hearth.action.get", READ, action, ActionParams => ActionView);
pub(super) const CANCEL: Method = method!("hearth.action.cancel", WRITE, cancel, ActionParams => Cancelled);

/// Keys that go into setup codes. One counts on a node only once the node has it.
#[derive(Debug, Serialize, JsonSchema)]
struct Known {
    approvers: Vec<Approver>,
}

async fn known(call: Call, _: NoParams) -> Answer<Known> {
    let approvers = call.gateway.hub.devices.known_approvers().await.map_err(DeviceError::outward)?;
    Ok(Known { approvers })
}

/// Whoever holds only the token file never says who may approve.
pub(super) fn require_device(call: &Call) -> Answer<()> {
    if call.client.device.is_some() {
        return Ok(());
    }
    Err(forbidden("this needs a device key: the token file alone says nothing about who may approve"))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddParams {
    approver: Approver,
}

async fn add(call: Call, params: AddParams) -> Answer<Known> {
    require_device(&call)?;
    let approver = params.approver;
    if approver.kind == ApproverKind::Hub {
        return Err(invalid("the hub's own key is no person's approver"));
    }
    ApproverSet { epoch: 1, approvers: vec![approver.clone()], recovery: None }
        .check()
        .map_err(|e| invalid(e.to_string()))?;
    let devices = &call.gateway.hub.devices;
    devices.add_known_approver(approver, &call.client.label()).await.map_err(DeviceError::outward)?;
    known(call, NoParams::default()).await
}

/// Id, unique prefix of it, or name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RemoveParams {
    approver: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Removed {
    id: DeviceId,
}

async fn remove(call: Call, params: RemoveParams) -> Answer<Removed> {
    require_device(&call)?;
    let devices = &call.gateway.hub.devices;
    let by = call.client.label();
    let id = devices.remove_known_approver(&params.approver, &by).await.map_err(DeviceError::outward)?;
    Ok(Removed { id })
}

/// A node: its id, a unique prefix of it, or its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeParams {
    node_id: String,
}

/// Who may approve on a node, as the node keeps it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeApprovers {
    node_id: DeviceId,
    approvers: ApproverSet,
    /// Whether need `person` is in force there.
    person_ready: bool,
}

async fn list(call: Call, params: NodeParams) -> Answer<NodeApprovers> {
    let view = call.gateway.hub.nodes.find(&params.node_id).await.map_err(NodeError::outward)?;
    Ok(NodeApprovers {
        node_id: view.device.id,
        person_ready: view.approvers.person_ready(),
        approvers: view.approvers,
    })
}

/// A new list, signed by an admin on it or the recovery key. The node checks it; the hub only carries it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangeParams {
    node_id: String,
    change: ApproversChange,
}

async fn change(call: Call, params: ChangeParams) -> Answer<NodeApprovers> {
    require_device(&call)?;
    let hub = &call.gateway.hub;
    let view = hub.nodes.find(&params.node_id).await.map_err(NodeError::outward)?;
    let node_id = view.device.id;
    let by = call.client.label();
    let set = hub
        .actions
        .change_approvers(&node_id.to_string(), params.change, &by)
        .await
        .map_err(ActionError::outward)?;
    Ok(NodeApprovers { node_id, person_ready: set.person_ready(), approvers: set })
}

/// An action by its id (32 hex digits).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ActionParams {
    id: RequestId,
}

/// A request to a node and how it stands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ActionView {
    id: RequestId,
    node_id: DeviceId,
    command: String,
    params: Value,
    /// `submitted`, `waiting-for-node`, `asking`, `granted`, `running`, `done`, `failed`.
    state: String,
    result: Option<Value>,
    media: Vec<MediaEntry>,
    error: Option<hearth_shared::error::CommandError>,
    session_key: Option<String>,
    run_id: Option<String>,
    created_at_ms: u64,
    finished_at_ms: Option<u64>,
}

impl From<Action> for ActionView {
    fn from(a: Action) -> Self {
        Self {
            id: a.id,
            node_id: a.node,
            state: encode(&a.state).as_str().unwrap_or_default().to_owned(),
            media: a.media.iter().map(MediaEntry::from).collect(),
            command: a.command,
            params: a.params,
            result: a.result,
            error: a.error,
            session_key: a.session_key,
            run_id: a.run_id,
            created_at_ms: a.created_ms,
            finished_at_ms: a.finished_ms,
        }
    }
}

async fn action(call: Call, params: ActionParams) -> Answer<ActionView> {
    let found = call.gateway.hub.actions.get(params.id).await.map_err(ActionError::outward)?;
    found.map(Into::into).ok_or_else(|| invalid(format!("no action `{}`", params.id)))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Cancelled {
    ok: bool,
}

async fn cancel(call: Call, params: ActionParams) -> Answer<Cancelled> {
    let by = call.client.label();
    call.gateway.hub.actions.cancel(params.id, &by).await.map_err(ActionError::outward)?;
    Ok(Cancelled { ok: true })
}
