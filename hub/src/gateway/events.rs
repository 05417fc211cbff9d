//! From the bus to clients: each event is looked up and written once, then sent to everybody who may see
//! it. A family that is not in the table below is withheld.

use super::Gateway;
use super::clients::Client;
use super::methods::{self, approvals, device_pair, node_pair};
use crate::bus::Event;
use crate::devices::Scope;
use crate::store::now_ms;
use hearth_shared::connect::Role;
use hearth_shared::frame::StateVersion;
use hearth_shared::limits::TICK_INTERVAL_MS;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

/// Events an operator may receive; told in `hello-ok`.
pub(crate) const EVENTS: &[&str] = &[
    "connect.challenge",
    "tick",
    "health",
    "presence",
    "shutdown",
    "chat",
    "agent",
    "device.pair.requested",
    "device.pair.resolved",
    "node.pair.requested",
    "node.pair.resolved",
    "exec.approval.requested",
    "exec.approval.resolved",
    "hearth.action.changed",
    "hearth.node.event",
    "hearth.alarm",
];

/// Events a JSON node may receive.
pub(crate) const NODE_EVENTS: &[&str] = &[
    "connect.challenge",
    "tick",
    "health",
    "shutdown",
    "node.pair.resolved",
    "node.invoke.request",
    "node.invoke.cancel",
];

/// Who may see a family of events.
fn may_see(client: &Client, event: &str) -> bool {
    match event {
        "tick" | "health" | "shutdown" => true,
        "presence" | "chat" | "agent" | "hearth.node.event" | "hearth.action.changed" => {
            client.may(Scope::Read)
        }
        _ if event.starts_with("exec.approval.") => client.may(Scope::Approvals),
        _ if event.starts_with("device.pair.") || event.starts_with("node.pair.") => {
            client.may(Scope::Pairing)
        }
        "hearth.alarm" => client.may(Scope::Pairing) || client.may(Scope::Approvals),
        _ => false,
    }
}

impl Gateway {
    fn tell(&self, event: &str, payload: &Value, version: Option<StateVersion>) {
        self.clients.broadcast(event, payload, version, |client| may_see(client, event));
    }
}

/// Closes sockets of devices that were rotated, revoked or removed. A task of its own that never waits
/// for anything else, so that it cannot fall behind.
pub(super) async fn close_devices(gateway: Arc<Gateway>) {
    let mut events = gateway.hub.bus.subscribe();
    loop {
        let event = tokio::select! {
            () = gateway.stop.cancelled() => return,
            event = events.recv() => event,
        };
        match event {
            Ok(Event::DeviceClosed { device, code, reason }) => {
                gateway.clients.close_device(&device, code, &reason);
            }
            Ok(_) => {}
            Err(RecvError::Lagged(lost)) => {
                tracing::error!(lost, "events lost; every device must prove itself again");
                gateway.clients.close_all_devices();
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Sends events and ticks until the gateway stops.
pub(super) async fn pump(gateway: Arc<Gateway>) {
    let mut events = gateway.hub.bus.subscribe();
    let period = Duration::from_millis(TICK_INTERVAL_MS);
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    let mut ticks = 0_u64;
    loop {
        tokio::select! {
            () = gateway.stop.cancelled() => return,
            _ = tick.tick() => {
                gateway.tell("tick", &json!({ "ts": now_ms() }), None);
                ticks += 1;
                if ticks.is_multiple_of(2) && gateway.clients.count() > 0 {
                    health(&gateway).await;
                }
            }
            event = events.recv() => match event {
                Ok(event) => forward(&gateway, event).await,
                Err(RecvError::Lagged(lost)) => {
                    tracing::warn!(lost, "clients missed events");
                    presence(&gateway).await;
                }
                Err(RecvError::Closed) => return,
            },
        }
    }
}

async fn health(gateway: &Gateway) {
    if let Ok(health) = methods::health::snapshot(gateway).await {
        let version = gateway.presence.health_changed();
        gateway.tell("health", &health, Some(version));
    }
}

async fn presence(gateway: &Gateway) {
    let version = gateway.presence.changed();
    let list = gateway.presence.list(gateway).await;
    gateway.tell("presence", &json!({ "presence": list }), Some(version));
}

async fn forward(gateway: &Gateway, event: Event) {
    match event {
        Event::PresenceChanged | Event::NodeConnected { .. } | Event::NodeDisconnected { .. } => {
            presence(gateway).await;
        }
        Event::DevicePairRequested(pending) => {
            gateway.tell("device.pair.requested", &device_pair::pending_value(&pending), None);
        }
        Event::DevicePairResolved { request_id, device, decision } => {
            let payload =
                json!({ "requestId": request_id, "deviceId": device, "decision": decision, "ts": now_ms() });
            gateway.tell("device.pair.resolved", &payload, None);
        }
        Event::SurfaceRequested { node, .. } => match gateway.hub.nodes.find(&node.to_string()).await {
            Ok(view) => {
                if let Some(payload) = node_pair::pending_value(&view) {
                    gateway.tell("node.pair.requested", &payload, None);
                }
            }
            Err(error) => tracing::warn!(%error, "a surface waits and cannot be read"),
        },
        Event::SurfaceResolved { node, request_id, decision } => {
            let payload =
                json!({ "requestId": request_id, "nodeId": node, "decision": decision, "ts": now_ms() });
            gateway.tell("node.pair.resolved", &payload, None);
            for client in gateway.clients.snapshot() {
                if client.role == Role::Node && client.device_id() == Some(node) {
                    client.outbound.targeted("node.pair.resolved", &payload);
                }
            }
        }
        Event::ApprovalRequested { id } => match gateway.hub.actions.approval(&id.to_string()).await {
            Ok(approval) => {
                gateway.tell("exec.approval.requested", &approvals::request_value(&approval), None);
            }
            Err(error) => tracing::warn!(%error, "an approval waits and cannot be read"),
        },
        Event::ApprovalResolved { id } => match gateway.hub.actions.approval(&id.to_string()).await {
            Ok(approval) => {
                gateway.tell("exec.approval.resolved", &approvals::resolved_value(&approval), None);
            }
            Err(error) => tracing::warn!(%error, "an approval was decided and cannot be read"),
        },
        Event::ActionChanged { id } => {
            gateway.tell("hearth.action.changed", &json!({ "id": id, "ts": now_ms() }), None);
        }
        Event::NodeEvent { node, kind, json, at_ms } => {
            let payload: Value = serde_json::from_str(&json).unwrap_or(Value::Null);
            let event = json!({ "nodeId": node, "kind": kind, "payload": payload, "atMs": at_ms });
            gateway.tell("hearth.node.event", &event, None);
        }
        Event::Chat(chat) => gateway.tell("chat", &serde_json::to_value(&*chat).unwrap_or_default(), None),
        Event::Agent(agent) => {
            let payload = serde_json::to_value(&*agent).unwrap_or_default();
            let tools_only = agent.stream == "tool";
            gateway.clients.broadcast("agent", &payload, None, |client| {
                may_see(client, "agent") && (!tools_only || client.caps.iter().any(|c| c == "tool-events"))
            });
        }
        Event::Alarm { message } => {
            gateway.tell("hearth.alarm", &json!({ "message": message, "ts": now_ms() }), None);
        }
        Event::Shutdown { reason } => gateway.clients.say_shutdown(&reason),
        // Has a task of its own.
        Event::DeviceClosed { .. } => {}
    }
}
