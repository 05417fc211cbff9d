//! `node.pair.*`: what of a node's declaration may be used.

use super::device_pair::check_name;
use super::{Access, Call, Method, NoParams, encode, method};
use crate::devices::{DeviceError, Scope};
use crate::gateway::answer::{Answer, Outward as _};
use crate::gateway::json_node::policy;
use crate::nodes::{NodeError, NodeView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const PAIRING: Access = Access::Operator(Scope::Pairing);

pub(super) const METHODS: &[Method] = &[
    method!("node.pair.list", PAIRING, list, NoParams => NodePairs),
    method!("node.pair.approve", PAIRING, approve, RequestParams => Approved),
    method!("node.pair.reject", PAIRING, reject, RequestParams => Rejected),
    method!("node.pair.remove", PAIRING, remove, NodeParams => Removed),
    method!("node.rename", PAIRING, rename, RenameParams => Renamed),
];

/// A declaration that waits.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PendingEntry {
    request_id: String,
    node_id: String,
    client_id: String,
    client_mode: String,
    display_name: String,
    platform: String,
    version: String,
    device_family: String,
    caps: Vec<String>,
    commands: Vec<String>,
    /// Of our own nodes: cameras, pins and sensors as `kind:id`.
    parts: Vec<String>,
    required_approve_scopes: Vec<String>,
    ts: u64,
}

/// A node and what is approved of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PairedEntry {
    node_id: String,
    client_id: String,
    client_mode: String,
    display_name: String,
    platform: String,
    version: String,
    device_family: String,
    caps: Vec<String>,
    commands: Vec<String>,
    parts: Vec<String>,
    created_at_ms: u64,
    approved_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_reason: Option<String>,
}

/// Commands and parts of a surface.
pub(super) fn split(surface: &[String]) -> (Vec<String>, Vec<String>) {
    let (parts, commands) = surface.iter().cloned().partition(|s| s.contains(':'));
    (commands, parts)
}

/// What it takes to approve: the more it can do, the more right.
fn required(surface: &[String]) -> Vec<Scope> {
    let (commands, parts) = split(surface);
    let executes = commands.iter().any(|c| policy::executes(c));
    let mut scopes = vec![Scope::Pairing];
    if executes || commands.iter().any(|c| c == "system.which") {
        scopes.push(Scope::Admin);
    } else if !commands.is_empty() || !parts.is_empty() {
        scopes.push(Scope::Write);
    }
    scopes
}

fn pending(view: &NodeView) -> Option<PendingEntry> {
    let request_id = view.pending_request.clone()?;
    let (commands, parts) = split(&view.pending);
    let device = &view.device;
    Some(PendingEntry {
        request_id,
        node_id: device.id.to_string(),
        client_id: device.client_id.clone(),
        client_mode: device.client_mode.clone(),
        display_name: device.name.clone(),
        platform: device.platform.clone(),
        version: view.version.clone(),
        device_family: device.device_family.clone(),
        caps: view.caps.clone(),
        commands,
        parts,
        required_approve_scopes: required(&view.pending).iter().map(|s| s.as_str().into()).collect(),
        ts: view.connected_ms.or(device.last_seen_ms).unwrap_or(device.created_ms),
    })
}

/// The same as the payload of `node.pair.requested`.
pub(crate) fn pending_value(view: &NodeView) -> Option<Value> {
    pending(view).map(|p| encode(&p))
}

fn paired(view: &NodeView) -> PairedEntry {
    let (commands, parts) = split(&view.approved);
    let device = &view.device;
    PairedEntry {
        node_id: device.id.to_string(),
        client_id: device.client_id.clone(),
        client_mode: device.client_mode.clone(),
        display_name: device.name.clone(),
        platform: device.platform.clone(),
        version: view.version.clone(),
        device_family: device.device_family.clone(),
        caps: view.caps.clone(),
        commands,
        parts,
        created_at_ms: device.created_ms,
        approved_at_ms: device.approved_ms,
        last_seen_at_ms: device.last_seen_ms,
        last_seen_reason: device.last_seen_reason.clone(),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct NodePairs {
    pending: Vec<PendingEntry>,
    paired: Vec<PairedEntry>,
}

async fn list(call: Call, _: NoParams) -> Answer<NodePairs> {
    let nodes = call.gateway.hub.nodes.list().await.map_err(NodeError::outward)?;
    Ok(NodePairs {
        pending: nodes.iter().filter_map(pending).collect(),
        paired: nodes.iter().filter(|n| !n.approved.is_empty()).map(paired).collect(),
    })
}

/// The request's id, or the node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequestParams {
    request_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Approved {
    request_id: String,
    node: PairedEntry,
}

/// The node with this waiting request, or this node.
async fn waiting(call: &Call, which: &str) -> Answer<NodeView> {
    let nodes = &call.gateway.hub.nodes;
    let all = nodes.list().await.map_err(NodeError::outward)?;
    match all.into_iter().find(|n| n.pending_request.as_deref() == Some(which)) {
        Some(view) => Ok(view),
        None => nodes.find(which).await.map_err(NodeError::outward),
    }
}

async fn approve(call: Call, params: RequestParams) -> Answer<Approved> {
    let view = waiting(&call, &params.request_id).await?;
    for scope in required(&view.pending) {
        call.require(scope)?;
    }
    let by = call.client.label();
    let nodes = &call.gateway.hub.nodes;
    let view = nodes.approve_surface(&params.request_id, &by).await.map_err(NodeError::outward)?;
    Ok(Approved { request_id: params.request_id, node: paired(&view) })
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Rejected {
    request_id: String,
    node_id: String,
}

async fn reject(call: Call, params: RequestParams) -> Answer<Rejected> {
    let by = call.client.label();
    let nodes = &call.gateway.hub.nodes;
    let id = nodes.reject_surface(&params.request_id, &by).await.map_err(NodeError::outward)?;
    Ok(Rejected { request_id: params.request_id, node_id: id.to_string() })
}

/// A node: its id, a unique prefix of it, or its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeParams {
    node_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Removed {
    node_id: String,
}

async fn remove(call: Call, params: NodeParams) -> Answer<Removed> {
    let hub = &call.gateway.hub;
    let view = hub.nodes.find(&params.node_id).await.map_err(NodeError::outward)?;
    let id = view.device.id;
    hub.devices.remove(&id.to_string(), &call.client.label()).await.map_err(DeviceError::outward)?;
    hub.bus.emit(crate::bus::Event::SurfaceResolved {
        node: id,
        request_id: String::new(),
        decision: "removed",
    });
    Ok(Removed { node_id: id.to_string() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RenameParams {
    node_id: String,
    /// At most 64 characters.
    #[schemars(length(min = 1, max = 64))]
    display_name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Renamed {
    node_id: String,
    display_name: String,
}

async fn rename(call: Call, params: RenameParams) -> Answer<Renamed> {
    check_name(&params.display_name)?;
    let hub = &call.gateway.hub;
    let view = hub.nodes.find(&params.node_id).await.map_err(NodeError::outward)?;
    let id = view.device.id;
    hub.devices.rename(&id.to_string(), &params.display_name).await.map_err(DeviceError::outward)?;
    Ok(Renamed { node_id: id.to_string(), display_name: params.display_name })
}
