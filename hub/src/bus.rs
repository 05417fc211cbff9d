//! The event bus: what happened, for whoever cares.
//!
//! Layers tell upwards by events and never call upwards. Delivery is best effort and bounded: a
//! subscriber that lags loses the oldest events and is told so ([`tokio::sync::broadcast`]), so nothing
//! that must not be lost may depend on it alone; durable facts are in the database first.

use hearth_shared::identity::DeviceId;
use hearth_shared::reading::RequestId;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::broadcast;

/// Events a slow subscriber may lag behind.
const CAPACITY: usize = 1024;

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A device knocks and waits for a person.
    DevicePairRequested(Arc<crate::devices::PendingDevice>),
    /// A waiting device was approved, rejected, or replaced by a newer request.
    DevicePairResolved { request_id: String, device: DeviceId, decision: &'static str },
    /// Every open socket of this device must close now (rotated, revoked, removed).
    DeviceClosed { device: DeviceId, code: u16, reason: String },
    /// A node declared something that nobody approved yet.
    SurfaceRequested { node: DeviceId, request_id: String },
    /// A waiting surface was approved, rejected or removed.
    SurfaceResolved { node: DeviceId, request_id: String, decision: &'static str },
    /// A node is connected and admitted.
    NodeConnected { node: DeviceId },
    /// It is gone; `reason` such as `heartbeat_timeout`.
    NodeDisconnected { node: DeviceId, reason: String },
    /// An event came out of a node's outbox (committed in the database).
    NodeEvent { node: DeviceId, kind: String, json: String, at_ms: Option<u64> },
    /// A JSON client or node came or went; the presence list changed.
    PresenceChanged,
    /// An action waits for a person. Look it up by id.
    ApprovalRequested { id: RequestId },
    /// It was decided, expired or withdrawn.
    ApprovalResolved { id: RequestId },
    /// An action reached another state.
    ActionChanged { id: RequestId },
    /// A run's visible progress; see the JSON protocol's event `chat`.
    Chat(Arc<ChatEvent>),
    /// A run's inner progress; see the JSON protocol's event `agent`.
    Agent(Arc<AgentEvent>),
    /// Something the owner must know: a setup code used twice, two sessions with one key.
    Alarm { message: String },
    /// The hub stops.
    Shutdown { reason: String },
}

/// `chat`: `{runId, sessionKey, seq, state, …}`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatEvent {
    /// The run.
    pub run_id: String,
    /// Long form, for example `agent:main:main`.
    pub session_key: String,
    /// Counts per run.
    pub seq: u64,
    /// `status`, `delta`, `final`, `aborted`, `error`.
    pub state: &'static str,
    /// Fields of the state, flattened into the payload.
    #[serde(flatten)]
    pub fields: Value,
}

/// `agent`: `{runId, seq, stream, ts, data, sessionKey}`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEvent {
    /// The run.
    pub run_id: String,
    /// Counts per run.
    pub seq: u64,
    /// `lifecycle`, `assistant`, `tool`.
    pub stream: &'static str,
    /// Unix milliseconds.
    pub ts: u64,
    /// Fields of the stream.
    pub data: Value,
    /// Long form.
    pub session_key: String,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Bus {
    sender: broadcast::Sender<Event>,
}

impl Default for Bus {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(CAPACITY) }
    }
}

impl Bus {
    /// Tells everybody who listens.
    pub fn emit(&self, event: Event) {
        // No listener is no error.
        let _ = self.sender.send(event);
    }

    /// Events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }
}
