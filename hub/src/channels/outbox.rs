//! What is to be sent, on disk until it is.
//!
//! A row is one message. Before its first byte leaves, the row says `begun` and where the conversation
//! stood; after the platform's answer it holds the message's id. A hub that is killed in between looks for
//! the message ([`super::adapter::Recovery`]) before it sends again; where a platform offers no way to look, it is
//! sent again: a word too many rather than one too few. In one conversation messages keep their order; one
//! that has to wait holds up no other conversation.
//!
//! [`rows`] is the table, [`worker`] the task that empties it.

pub(crate) mod rows;
#[cfg(test)]
mod tests;
pub(crate) mod worker;

/// Messages that may wait for one channel; beyond it new ones are refused and told of in the log.
pub const MAX_WAITING: i64 = 1_000;
/// How long rows that ended are kept: the dedupe of keys, and edits of cards.
pub const KEEP_MS: u64 = 7 * 24 * 3_600_000;
/// Times that a message is tried while the platform is not reached; the pauses grow to a minute, so that
/// this is about a day.
pub const MAX_TRIES: u32 = 1_500;
