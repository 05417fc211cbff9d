//! Every size, time and count that something outside may push against, in one place.
//!
//! Durations are milliseconds where the name ends in `_MS`, sizes are bytes.

/// Default port of the hub; WebSocket and HTTP share it.
pub const DEFAULT_PORT: u16 = 18789;

/// Interval of the `tick` event and of link heartbeats. Clients set their clocks by it.
pub const TICK_INTERVAL_MS: u64 = 30_000;
/// A connection that was silent for two intervals is closed (`heartbeat_timeout`).
pub const LIVENESS_TIMEOUT_MS: u64 = 2 * TICK_INTERVAL_MS;
/// From TCP accept to an accepted `connect`; TLS included.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 15_000;
/// A frame before `connect` was accepted.
pub const MAX_PREAUTH_FRAME: usize = 64 * 1024;
/// A JSON frame after it (25 MiB; a picture as base64 for foreign clients fits).
pub const MAX_PAYLOAD: usize = 25 * 1024 * 1024;
/// What may wait for a slow client before it is closed.
pub const MAX_BUFFERED: usize = 2 * MAX_PAYLOAD;
/// Sockets that have not authenticated yet; beyond it the oldest is dropped.
pub const MAX_UNAUTHENTICATED: usize = 64;
/// Requests a JSON client may send before its `connect` was answered.
pub const MAX_QUEUED_BEFORE_CONNECT: usize = 15;
/// Read buffer of one WebSocket: the library's default of 128 KiB is too much for a thousand nodes.
pub const WS_READ_BUFFER: usize = 4 * 1024;

/// One link frame without attachment bytes. The largest is a result with 200 KB of program output.
pub const MAX_LINK_FRAME: usize = 512 * 1024;
/// Attachment bytes in one chunk frame: 16 KiB at 1 Mbit/s hold the line for 0.13 s, so a heartbeat
/// behind one is never late.
pub const CHUNK_SIZE: usize = 16 * 1024;
/// Unacknowledged attachment bytes in flight on one transfer.
pub const TRANSFER_WINDOW: u32 = 128 * 1024;
/// Largest attachment the hub takes from a node.
pub const MAX_ATTACHMENT: u64 = 32 * 1024 * 1024;
/// Invocations in flight on one link.
pub const MAX_IN_FLIGHT: usize = 256;

/// Largest challenge text (see [`crate::challenge`]).
pub const MAX_CHALLENGE: usize = 16 * 1024;
/// Open challenges a node keeps in memory.
pub const MAX_OPEN_CHALLENGES: usize = 8;
/// How long a challenge is valid on the node's boot clock.
pub const CHALLENGE_VALID_MS: u32 = 60_000;
/// How long an approval request waits for a person: powered time of the hub.
pub const APPROVAL_LIFETIME_MS: u64 = 30 * 60_000;
/// Reason shown on a card, in characters.
pub const MAX_REASON_CHARS: usize = 200;
/// The line of an error as clients get it, in characters; the longest of our own have a third of it.
pub const MAX_ERROR_CHARS: usize = 1_000;
/// Approvers on one node.
pub const MAX_APPROVERS: usize = 16;

/// Command parameters as JSON text.
pub const MAX_PARAMS: usize = 64 * 1024;
/// Program output kept by `system.run`, standard output and error together.
pub const MAX_RUN_OUTPUT: usize = 200_000;
/// Command time limit when the caller names none, and the largest he may name.
pub const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Longest time limit of one command (30 minutes).
pub const MAX_TIMEOUT_MS: u64 = 30 * 60_000;

/// Pairing window of `hearth pair` by default.
pub const PAIRING_WINDOW_MS: u64 = 10 * 60_000;
/// A link that lets a page in, by default.
pub const PAGE_LINK_MS: u64 = 10 * 60_000;
/// Knocks that may wait in an open window.
pub const MAX_PENDING_PAIRINGS: usize = 3;
/// A device or node name, in characters; longer ones are cut.
pub const MAX_NAME_CHARS: usize = 64;
/// Entries of each kind in a node's declaration.
pub const MAX_DECLARED: usize = 256;

/// Changes an hour of what one node says of itself (its declaration, its approvers): each is a record in
/// the hub's audit log, which is never cut.
pub const MAX_NODE_CHANGES_AN_HOUR: usize = 60;

/// Readings and events in one outbox batch.
pub const MAX_OUTBOX_BATCH: usize = 500;
/// Readings are committed in groups of this length; a power cut may lose one group.
pub const OUTBOX_GROUP_MS: u64 = 1_000;

/// Reconnect backoff: base, factor and cap; see [`crate::backoff`].
pub const BACKOFF_BASE_MS: u64 = 1_000;
/// Each failure multiplies the delay by this.
pub const BACKOFF_FACTOR: u32 = 2;
/// Longest reconnect delay (5 minutes).
pub const BACKOFF_CAP_MS: u64 = 300_000;
/// A connection that lived this long counts as healthy and resets the backoff.
pub const HEALTHY_AFTER_MS: u64 = 60_000;

/// How far a JSON client's `signedAt` may be from the hub's clock.
pub const SIGNED_AT_SKEW_MS: i64 = 120_000;
/// Idempotency keys of effects are kept on disk this long.
pub const EFFECT_KEY_TTL_MS: u64 = 24 * 3_600_000;
