//! `health`: whether the hub works, in the form that clients of the protocol read.

use crate::gateway::Gateway;
use crate::gateway::answer::{Answer, Outward as _};
use crate::sessions::SessionInfo;
use crate::store::now_ms;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// Sessions shown in the snapshot.
const RECENT: usize = 5;

/// The snapshot.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The database answers.
    pub ok: bool,
    /// Unix milliseconds.
    pub ts: u64,
    /// How long it took to measure.
    pub duration_ms: u64,
    /// Messaging platforms; none here.
    pub channels: BTreeMap<String, Value>,
    /// See `channels`.
    pub channel_order: Vec<String>,
    /// See `channels`.
    pub channel_labels: BTreeMap<String, String>,
    /// No heartbeat runs here: 0.
    pub heartbeat_seconds: u64,
    /// Agent that answers.
    pub default_agent_id: String,
    /// Agents.
    pub agents: Vec<AgentHealth>,
    /// Sessions of all agents.
    pub sessions: SessionsHealth,
    /// Nodes.
    pub nodes: NodesHealth,
}

/// One agent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentHealth {
    /// Id.
    pub agent_id: String,
    /// Answers where none is named.
    pub is_default: bool,
    /// Its sessions.
    pub sessions: SessionsHealth,
}

/// Sessions, counted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionsHealth {
    /// Folder of the transcripts.
    pub path: String,
    /// How many.
    pub count: usize,
    /// The latest.
    pub recent: Vec<RecentSession>,
}

/// A session, short.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentSession {
    /// For example `agent:main:main`.
    pub key: String,
    /// Unix milliseconds.
    pub updated_at: u64,
    /// Milliseconds ago.
    pub age: u64,
}

/// Nodes, counted.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesHealth {
    /// Known.
    pub total: usize,
    /// Connected.
    pub connected: usize,
    /// With something that waits for approval.
    pub pending: usize,
}

/// Measures now.
pub(crate) async fn measure(gateway: &Gateway) -> Answer<Health> {
    let start = Instant::now();
    let hub = &gateway.hub;
    let sessions = hub.sessions.list().await.map_err(crate::store::StoreError::outward)?;
    let nodes = hub.nodes.list().await.map_err(crate::nodes::NodeError::outward)?;
    let now = now_ms();
    let counted = |list: &[SessionInfo]| SessionsHealth {
        path: hub.home.sessions("main").display().to_string(),
        count: list.len(),
        recent: list
            .iter()
            .take(RECENT)
            .map(|s| RecentSession {
                key: s.key.clone(),
                updated_at: s.updated_at,
                age: now.saturating_sub(s.updated_at),
            })
            .collect(),
    };
    Ok(Health {
        ok: true,
        ts: now,
        duration_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        channels: BTreeMap::new(),
        channel_order: Vec::new(),
        channel_labels: BTreeMap::new(),
        heartbeat_seconds: 0,
        default_agent_id: "main".into(),
        agents: vec![AgentHealth { agent_id: "main".into(), is_default: true, sessions: counted(&sessions) }],
        sessions: counted(&sessions),
        nodes: NodesHealth {
            total: nodes.len(),
            connected: nodes.iter().filter(|n| n.connected).count(),
            pending: nodes.iter().filter(|n| n.pending_request.is_some()).count(),
        },
    })
}

/// As JSON, for events and `hello-ok`.
pub(crate) async fn snapshot(gateway: &Gateway) -> Answer<Value> {
    Ok(super::encode(&measure(gateway).await?))
}
