//! `node.list`, `node.describe`, `node.invoke`.

mod invoke;

pub(crate) use invoke::MediaEntry;

use super::node_pair::split;
use super::{Access, Call, Method, NoParams, method};
use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _};
use crate::nodes::{NodeError, NodeView};
use crate::store::now_ms;
use hearth_shared::approver::ApproverSet;
use hearth_shared::link::Declaration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) const METHODS: &[Method] = &[
    method!("node.list", Access::Operator(Scope::Read), list, NoParams => NodeList),
    method!("node.describe", Access::Operator(Scope::Read), describe, NodeParams => Described),
    method!(
        "node.invoke", Access::Operator(Scope::Write), invoke::invoke,
        invoke::InvokeParams => invoke::Invoked, Withdraw
    ),
];

/// A node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeEntry {
    node_id: String,
    display_name: String,
    platform: String,
    version: String,
    client_id: String,
    client_mode: String,
    device_family: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_identifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_ip: Option<String>,
    caps: Vec<String>,
    /// Declared and approved.
    commands: Vec<String>,
    /// Cameras, pins and sensors that are approved, as `kind:id`.
    parts: Vec<String>,
    session_host: bool,
    node_plugin_tools: Vec<String>,
    /// `approved`, `pending-approval`, `pending-reapproval` or `unapproved`.
    approval_state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_request_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending_declared_caps: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending_declared_commands: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending_declared_parts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connected_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_reason: Option<String>,
    approved_at_ms: u64,
    paired: bool,
    connected: bool,
    /// Whether the node itself checks approvals; false for foreign nodes.
    checked_on_node: bool,
    /// Who may approve on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvers: Option<ApproverSet>,
}

fn entry(view: &NodeView) -> NodeEntry {
    let device = &view.device;
    let usable: Vec<String> = view.approved.iter().filter(|a| view.declared.contains(a)).cloned().collect();
    let (commands, parts) = split(&usable);
    let (pending_commands, pending_parts) = split(&view.pending);
    let state = match (view.pending_request.is_some(), view.approved.is_empty()) {
        (true, true) => "pending-approval",
        (true, false) => "pending-reapproval",
        (false, false) => "approved",
        (false, true) => "unapproved",
    };
    NodeEntry {
        node_id: device.id.to_string(),
        display_name: device.name.clone(),
        platform: device.platform.clone(),
        version: view.version.clone(),
        client_id: device.client_id.clone(),
        client_mode: device.client_mode.clone(),
        device_family: device.device_family.clone(),
        model_identifier: view.declaration.as_ref().map(|d| d.model.clone()).filter(|m| !m.is_empty()),
        remote_ip: view.remote_ip.clone(),
        caps: view.caps.clone(),
        commands,
        parts,
        session_host: false,
        node_plugin_tools: Vec::new(),
        approval_state: state.into(),
        pending_request_id: view.pending_request.clone(),
        pending_declared_caps: if view.pending_request.is_some() { view.caps.clone() } else { Vec::new() },
        pending_declared_commands: pending_commands,
        pending_declared_parts: pending_parts,
        connected_at_ms: view.connected_ms,
        last_seen_at_ms: device.last_seen_ms,
        last_seen_reason: device.last_seen_reason.clone(),
        approved_at_ms: device.approved_ms,
        paired: true,
        connected: view.connected,
        checked_on_node: view.checks_grants(),
        approvers: view.checks_grants().then(|| view.approvers.clone()),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct NodeList {
    ts: u64,
    nodes: Vec<NodeEntry>,
}

async fn list(call: Call, _: NoParams) -> Answer<NodeList> {
    let nodes = call.gateway.hub.nodes.list().await.map_err(NodeError::outward)?;
    Ok(NodeList { ts: now_ms(), nodes: nodes.iter().map(entry).collect() })
}

/// A node: its id, a unique prefix of it, or its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeParams {
    node_id: String,
}

/// A node with all that it declares.
#[derive(Debug, Serialize, JsonSchema)]
struct Described {
    ts: u64,
    #[serde(flatten)]
    node: NodeEntry,
    /// Of our own nodes: commands with class and need, cameras, pins, sensors.
    declaration: Option<Declaration>,
}

async fn describe(call: Call, params: NodeParams) -> Answer<Described> {
    let view = call.gateway.hub.nodes.find(&params.node_id).await.map_err(NodeError::outward)?;
    Ok(Described { ts: now_ms(), node: entry(&view), declaration: view.declaration })
}
