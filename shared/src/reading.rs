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

use crate::identity::IdentityError;
use serde::{Deserialize, Serialize};

macro_rules! bytes16 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 32 hex digits in text formats, 16 raw bytes in binary ones.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// A random one.
            ///
            /// # Errors
            /// [`IdentityError::NoEntropy`].
            pub fn fresh() -> Result<Self, IdentityError> {
                crate::identity::random().map(Self)
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), hex::encode(&self.0[..4]))
            }
        }
        impl std::str::FromStr for $name {
            type Err = IdentityError;
            fn from_str(text: &str) -> Result<Self, IdentityError> {
                let mut bytes = [0; 16];
                hex::decode_to_slice(text, &mut bytes)
                    .map_err(|_| IdentityError::Malformed { what: "id", expected: "32 hex digits" })?;
                Ok(Self(bytes))
            }
        }
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                if d.is_human_readable() {
                    let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    <[u8; 16]>::deserialize(d).map(Self)
                }
            }
        }
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> { stringify!($name).into() }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$" })
            }
        }
    };
}

bytes16!(
    /// One start of a node's program; monotonic times are comparable within it only.
    BootId
);
bytes16!(
    /// One life of a node's outbox.
    Epoch
);
bytes16!(
    /// One requested action, from the question to its stored outcome; the journal's key on the node.
    RequestId
);
bytes16!(
    /// Ties log lines of hub and node together, from message to pin.
    Correlation
);

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
