//! `health`, `status`, `system-presence`.

use super::health::{self, Health, NodesHealth, SessionsHealth};
use super::{Access, Call, Method, NoParams, method};
use crate::devices::Scope;
use crate::gateway::answer::Answer;
use crate::gateway::presence::{self, PresenceEntry};
use crate::store::now_ms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) const METHODS: &[Method] = &[
    method!("health", Access::Any, health_now, HealthParams => Health),
    method!("status", Access::Operator(Scope::Read), status, StatusParams => Status),
    method!("system-presence", Access::Operator(Scope::Read), list, NoParams => Vec<PresenceEntry>),
];

/// `health`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HealthParams {
    /// Always measured anew here.
    #[serde(rename = "probe")]
    _probe: Option<bool>,
}

async fn health_now(call: Call, _: HealthParams) -> Answer<Health> {
    health::measure(&call.gateway).await
}

/// `status`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StatusParams {
    /// Always complete here.
    #[serde(rename = "includeChannelSummary")]
    _include_channel_summary: Option<bool>,
}

/// What `hearth status` shows.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Status {
    runtime_version: String,
    pid: u32,
    uptime_ms: u64,
    ts: u64,
    /// The hub's identity.
    hub_id: String,
    /// SHA-256 of its TLS key, which nodes pin.
    tls_pin: String,
    name: Option<String>,
    addresses: Vec<String>,
    connections: Connections,
    /// One line a channel that is configured, for example `telegram: up`.
    channel_summary: Vec<String>,
    queued_system_events: Vec<String>,
    sessions: SessionsHealth,
    nodes: NodesHealth,
    pairing: Pairing,
    approvals: Approvals,
    process_memory: ProcessMemory,
    model: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Connections {
    /// JSON clients that are in.
    clients: usize,
    /// Sockets open, node links included.
    sockets: usize,
    /// Of them such that have not authenticated.
    unauthenticated: usize,
    limit: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Pairing {
    open: bool,
    expires_at_ms: Option<u64>,
    pending: usize,
    knocks_while_closed: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Approvals {
    pending: usize,
    /// Ways to somebody who can decide: connected clients that show approvals, people in chats, notifications.
    approvers: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ProcessMemory {
    rss_bytes: Option<u64>,
}

async fn status(call: Call, _: StatusParams) -> Answer<Status> {
    use crate::gateway::answer::Outward as _;
    let gateway = &call.gateway;
    let hub = &gateway.hub;
    let health = health::measure(gateway).await?;
    let (pending, _) = hub.devices.list().await.map_err(crate::devices::DeviceError::outward)?;
    let approvals = hub.actions.approvals(false).await.map_err(crate::actions::ActionError::outward)?;
    let window = hub.devices.window();
    let (sockets, unauthenticated) = gateway.admission.counts();
    Ok(Status {
        runtime_version: hearth_shared::VERSION.into(),
        pid: std::process::id(),
        uptime_ms: u64::try_from(hub.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        ts: now_ms(),
        hub_id: hub.keys.identity.device_id().to_string(),
        tls_pin: hub.keys.spki.to_string(),
        name: hub.config.gateway.name.clone(),
        addresses: gateway.addresses.iter().map(ToString::to_string).collect(),
        connections: Connections {
            clients: gateway.clients.count(),
            sockets,
            unauthenticated,
            limit: hub.config.gateway.max_connections,
        },
        channel_summary: hub.channels.summary(),
        queued_system_events: Vec::new(),
        sessions: health.sessions,
        nodes: health.nodes,
        pairing: Pairing {
            open: window.open,
            expires_at_ms: window.expires_ms,
            pending: pending.len(),
            knocks_while_closed: window.knocks_while_closed,
        },
        approvals: Approvals { pending: approvals.len(), approvers: gateway.hub.actions.ways_to_ask() },
        process_memory: ProcessMemory { rss_bytes: resident_bytes() },
        model: hub.config.agent.model.as_ref().map(|m| m.name.clone()),
    })
}

/// Resident memory of this process, as Linux tells it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

async fn list(call: Call, _: NoParams) -> Answer<Vec<PresenceEntry>> {
    Ok(presence::entries(&call.gateway).await)
}
