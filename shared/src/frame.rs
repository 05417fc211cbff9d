//! The JSON frames that clients speak: one object per WebSocket text message.
//!
//! ```text
//! client ──► {type:"req", id, method, params?}
//! hub    ──► {type:"res", id, ok, payload? | error?}      in any order; `agent` answers twice
//! hub    ──► {type:"event", event, payload?, seq?, stateVersion?}
//! ```

use crate::identity::display_safe;
use crate::limits::MAX_ERROR_CHARS;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Protocol version the hub speaks; nodes may still ask for [`MIN_NODE_PROTOCOL`].
pub const PROTOCOL: u32 = 4;
/// Oldest version accepted from nodes and probes.
pub const MIN_NODE_PROTOCOL: u32 = 3;

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Request {
    /// Chosen by the client; not empty.
    pub id: String,
    /// For example `node.invoke`.
    pub method: String,
    /// Parameters of the method.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Response {
    /// Of the request.
    pub id: String,
    /// Whether `payload` or `error` is there.
    pub ok: bool,
    /// Result of the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// What was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorShape>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EventFrame {
    /// For example `presence`.
    pub event: String,
    /// Payload of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Counts broadcast events on this connection; a gap means loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Versions of the snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_version: Option<StateVersion>,
}

/// Versions of the presence and health snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateVersion {
    /// Rises with every presence change.
    pub presence: u64,
    /// Rises with every health change.
    pub health: u64,
}

/// An error as clients see it; branch on `details.code`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ErrorShape {
    /// `INVALID_REQUEST`, `UNAVAILABLE`, `FORBIDDEN`, `NOT_PAIRED`, `APPROVAL_NOT_FOUND`.
    pub code: String,
    /// One line for people.
    pub message: String,
    /// For programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Whether the same request may work later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl ErrorShape {
    /// A plain error. The message may quote what somebody sent: it is shown on one line, escaped and cut
    /// to [`MAX_ERROR_CHARS`].
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: display_safe(&message.into(), MAX_ERROR_CHARS),
            details: None,
            retryable: None,
            retry_after_ms: None,
        }
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}

/// Any frame, told apart by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum Frame {
    /// From the client.
    #[serde(rename = "req")]
    Request(Request),
    /// From the hub.
    #[serde(rename = "res")]
    Response(Response),
    /// From the hub.
    #[serde(rename = "event")]
    Event(EventFrame),
}

/// WebSocket close codes in use.
pub mod close {
    /// Heartbeat timeout and ordinary ends.
    pub const NORMAL: u16 = 1000;
    /// Protocol versions do not meet.
    pub const PROTOCOL: u16 = 1002;
    /// Authentication, pairing, bad handshake, slow consumer.
    pub const POLICY: u16 = 1008;
    /// A frame over the limit.
    pub const TOO_BIG: u16 = 1009;
    /// The hub goes away or restarts.
    pub const RESTART: u16 = 1012;
    /// Starting up or too busy.
    pub const TRY_LATER: u16 = 1013;
    /// The device was removed, or its token rotated or revoked.
    pub const DEVICE_REMOVED: u16 = 4001;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_documented_form() {
        let frame: Frame = serde_json::from_str(r#"{"type":"req","id":"1","method":"health"}"#).unwrap();
        assert!(matches!(&frame, Frame::Request(r) if r.method == "health" && r.params.is_null()));
        let response =
            Frame::Response(Response { id: "1".into(), ok: true, payload: Some(1.into()), error: None });
        assert_eq!(
            serde_json::to_string(&response).unwrap(),
            r#"{"type":"res","id":"1","ok":true,"payload":1}"#
        );
    }
}
