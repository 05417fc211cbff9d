//! `hello-ok`: what a client learns when it is let in.

use crate::devices::Scope;
use crate::gateway::Gateway;
use crate::gateway::clients::Client;
use crate::gateway::{events, methods};
use crate::store::now_ms;
use hearth_shared::connect::Role;
use hearth_shared::frame::PROTOCOL;
use hearth_shared::identity::SecretText;
use hearth_shared::limits::{MAX_ATTACHMENT, MAX_BUFFERED, MAX_PAYLOAD, TICK_INTERVAL_MS};
use serde_json::{Value, json};

/// Largest picture in a message.
const MAX_IMAGE: u64 = 6 * 1024 * 1024;

pub(super) async fn payload(
    gateway: &Gateway,
    client: &Client,
    method: &'static str,
    token: Option<&SecretText>,
) -> Value {
    let hub = &gateway.hub;
    let scopes: Vec<&str> = client.scopes.iter().map(|s| s.as_str()).collect();
    let mut auth = json!({ "method": method, "role": client.role, "scopes": scopes });
    if let Some(token) = token {
        // The one place where a device learns its token.
        auth["deviceToken"] = token.expose().into();
        auth["issuedAtMs"] = now_ms().into();
    }
    let mut snapshot = json!({
        "presence": [],
        "health": methods::health::snapshot(gateway).await.unwrap_or_else(|_| json!({ "ok": false })),
        "stateVersion": gateway.presence.version(),
        "uptimeMs": u64::try_from(hub.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "sessionDefaults": {
            "defaultAgentId": "main",
            "mainKey": "main",
            "mainSessionKey": "agent:main:main",
            "scope": "per-sender",
            "modelConfigured": hub.config.agent.model.is_some(),
            "ownership": "sole",
            "selectionRequired": false,
        },
        "authMode": "token",
    });
    if client.may(Scope::Read) {
        snapshot["presence"] = gateway.presence.list(gateway).await;
    }
    if client.may(Scope::Admin) {
        snapshot["configPath"] = hub.home.config().display().to_string().into();
        snapshot["stateDir"] = hub.home.root().display().to_string().into();
    }
    json!({
        "type": "hello-ok",
        "protocol": PROTOCOL,
        "server": {
            "version": hearth_shared::VERSION,
            "bootId": gateway.boot_id,
            "connId": client.conn_id,
        },
        "features": {
            "methods": methods::names(client.role),
            "events": if client.role == Role::Node { events::NODE_EVENTS } else { events::EVENTS },
            "capabilities": [],
        },
        "snapshot": snapshot,
        "auth": auth,
        "policy": {
            "maxPayload": MAX_PAYLOAD,
            "maxBufferedBytes": MAX_BUFFERED,
            "tickIntervalMs": TICK_INTERVAL_MS,
            "attachments": { "maxBytes": MAX_ATTACHMENT, "maxImageBytes": MAX_IMAGE },
        },
    })
}
