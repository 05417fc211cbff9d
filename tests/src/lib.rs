//! Starts the real hub and the real node, each in a directory of its own, and talks to them as a user
//! would: through their command lines.

pub mod client;
pub mod http;
pub mod hub;
pub mod liar;
pub mod model;
pub mod network;
pub mod node;
pub mod process;
pub mod program;
pub mod server;
pub mod telegram;

pub use client::JsonClient;
pub use hub::TestHub;
pub use liar::{Liar, LiarLink};
pub use network::Cable;
pub use node::TestNode;
pub use process::{Finished, eventually, skip};
pub use program::Program;
pub use telegram::FakeTelegram;
