//! The hub's end of the link against a small node that speaks it, over real loopback sockets.

mod handshake;
mod outbox;
mod session;
mod surface;
pub mod tester;
mod transfer;
