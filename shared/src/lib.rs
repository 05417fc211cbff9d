//! What the Hearth hub and the Hearth node have in common: types and pure functions only.
//!
//! No sockets, no files, no async runtime. A module per message family; read them in this order:
//!
//! | module | what it settles |
//! | --- | --- |
//! | [`identity`] | keys, device ids, secrets that never print themselves |
//! | [`command`] | every command a node may run: name, class, parameters, result, schema |
//! | [`link`] | the binary link between our node and our hub: frames, handshake, flow control |
//! | [`connect`] | what a device signs when it connects, on our link and in the JSON protocol |
//! | [`pairing`] | setup codes, and the words two screens compare |
//! | [`approver`] | who may approve on a node, and how that list changes |
//! | [`challenge`], [`grant`] | what a person approves, exact to the byte, and the signature that says so |
//! | [`reading`] | sensor readings and events on their way through the outbox |
//! | [`chain`] | the hash chain of the audit logs |
//! | [`frame`] | the JSON frames that clients speak |
//! | [`pin`] | TLS trust by pinned public key |
//! | [`backoff`], [`limits`], [`error`] | the numbers and the error codes |

pub mod approver;
pub mod backoff;
pub mod chain;
pub mod challenge;
pub mod command;
pub mod connect;
pub mod error;
pub mod frame;
pub mod grant;
pub mod identity;
pub mod limits;
pub mod link;
pub mod pairing;
pub mod pin;
pub mod reading;

/// Version of both programs, as `major.minor.patch`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
