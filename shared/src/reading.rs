//! Readings and events on their way from a node's outbox into the hub's database.
//!
//! ```text
//! node: commit (epoch, seq, item) ──► Outbox{epoch, items} ──► hub: insert + advance mark, one transaction
//! node: delete up to seq          ◄── OutboxAck{epoch, seq} ◄──
//! ```
//!
//! The key of an item is (node, epoch, seq). The hub ignores what its mark already covers, so a batch
//! that is sent again after a lost acknowledgement is stored once. If the hub's mark is at or beyond
//! the node's next number (the node lost its outbox), the node starts a new epoch.

use crate::identity::{byte_array, drawn_at_random};
use serde::{Deserialize, Serialize};

byte_array!(
    /// One start of a node's program; monotonic times are comparable within it only.
    BootId, 16, "id", "32 hex digits"
);
byte_array!(
    /// One life of a node's outbox.
    Epoch, 16, "id", "32 hex digits"
);
byte_array!(
    /// One requested action, from the question to its stored outcome; the journal's key on the node.
    RequestId, 16, "id", "32 hex digits"
);
byte_array!(
    /// Ties log lines of hub and node together, from message to pin.
    Correlation, 16, "id", "32 hex digits"
);

drawn_at_random!(BootId, Epoch, RequestId, Correlation);

/// Zeros: no outbox yet.
impl Default for Epoch {
    fn default() -> Self {
        Self([0; 16])
    }
}

/// Zeros: no correlation.
impl Default for Correlation {
    fn default() -> Self {
        Self([0; 16])
    }
}

/// A committed item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Number within the epoch, from 1, rising by one.
    pub seq: u64,
    /// The start of the node that recorded it.
    pub boot: BootId,
    /// Milliseconds since that start.
    pub mono_ms: u64,
    /// Unix milliseconds, only when the node's clock was set by the network at that moment.
    pub wall_ms: Option<u64>,
    /// What was recorded.
    pub body: Body,
}

/// What an item holds. The order is part of the link format: append only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// A sensor's value in its declared unit; finite.
    Reading { sensor: String, value: f64 },
    /// Something happened: `kind` such as `gpio.edge`, details as JSON text of at most 4 KiB.
    Event { kind: String, json: String },
    /// The outbox was full and dropped this many of the oldest readings.
    Dropped { readings: u64 },
}

/// How far the hub's database has an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The epoch.
    pub epoch: Epoch,
    /// Every item up to and including this number is committed.
    pub seq: u64,
}
