//! Who is here: the hub itself, people's programs, nodes.

use super::Gateway;
use crate::store::now_ms;
use hearth_shared::frame::StateVersion;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};

/// One entry of the presence list.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PresenceEntry {
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Program version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// As told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// As told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_family: Option<String>,
    /// `gateway`, `node`, `ui`, `webchat`, …
    pub mode: String,
    /// `self`, `connect`.
    pub reason: String,
    /// Device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// Roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Rights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Installation or run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// `client.id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// One line for people.
    pub text: String,
    /// Unix milliseconds.
    pub ts: u64,
}

/// Versions of the presence and health snapshots.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    presence: AtomicU64,
    health: AtomicU64,
}

impl Presence {
    pub(crate) fn version(&self) -> StateVersion {
        StateVersion {
            presence: self.presence.load(Ordering::Relaxed),
            health: self.health.load(Ordering::Relaxed),
        }
    }

    /// The list changed.
    pub(crate) fn changed(&self) -> StateVersion {
        self.presence.fetch_add(1, Ordering::Relaxed);
        self.version()
    }

    /// Health was measured anew.
    pub(crate) fn health_changed(&self) -> StateVersion {
        self.health.fetch_add(1, Ordering::Relaxed);
        self.version()
    }

    /// The list as it is now.
    pub(crate) async fn list(&self, gateway: &Gateway) -> Value {
        serde_json::to_value(entries(gateway).await).unwrap_or_default()
    }
}

pub(crate) async fn entries(gateway: &Gateway) -> Vec<PresenceEntry> {
    let hub = &gateway.hub;
    let name = hub.config.gateway.name.clone().unwrap_or_else(|| "hearth".into());
    let mut list = vec![PresenceEntry {
        text: format!("Gateway: {name} · app {} · mode gateway · reason self", hearth_shared::VERSION),
        host: Some(name),
        version: Some(hearth_shared::VERSION.into()),
        platform: Some(std::env::consts::OS.into()),
        mode: "gateway".into(),
        reason: "self".into(),
        instance_id: Some(hub.keys.identity.device_id().to_string()),
        ts: now_ms(),
        ..PresenceEntry::default()
    }];
    match hub.nodes.list().await {
        Ok(nodes) => list.extend(nodes.into_iter().filter(|n| n.connected).map(|node| PresenceEntry {
            text: format!("Node: {} · mode node", node.device.name),
            host: Some(node.device.name),
            ip: node.remote_ip,
            version: Some(node.version),
            platform: Some(node.device.platform),
            device_family: Some(node.device.device_family),
            mode: "node".into(),
            reason: "connect".into(),
            device_id: Some(node.device.id.to_string()),
            roles: vec!["node".into()],
            instance_id: Some(node.device.id.to_string()),
            client_id: Some(node.device.client_id),
            ts: node.connected_ms.unwrap_or_default(),
            ..PresenceEntry::default()
        })),
        Err(error) => tracing::warn!(%error, "nodes for the presence list"),
    }
    for client in gateway.clients.snapshot() {
        if client.is_listed() {
            list.push(PresenceEntry {
                text: format!("{} · mode {}", client.label(), client.client.mode.as_str()),
                host: Some(client.client.display_name.clone().unwrap_or_else(|| client.label())),
                ip: Some(client.peer.ip().to_string()),
                version: Some(client.client.version.clone()),
                platform: Some(client.client.platform.clone()),
                device_family: client.client.device_family.clone(),
                mode: client.client.mode.as_str().into(),
                reason: "connect".into(),
                device_id: client.device_id().map(|d| d.to_string()),
                roles: vec!["operator".into()],
                scopes: client.scopes.iter().map(|s| s.as_str().into()).collect(),
                instance_id: client.client.instance_id.clone(),
                client_id: Some(client.client.id.as_str().into()),
                ts: client.connected_ms,
            });
        }
    }
    list
}
