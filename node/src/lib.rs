//! The Hearth node: a small program for boards with cameras, pins and sensors.
//!
//! It trusts nobody blindly. A message from the hub passes, in this order:
//! [`link`] (who speaks) → [`dispatch`] (which request) → [`guard`] (is it allowed, did a person say so)
//! → [`capability`] (the board). Readings and events go the other way through the [`outbox`].

pub mod capability;
pub mod cli;
pub mod config;
pub mod control;
pub mod dispatch;
pub mod guard;
pub mod identity;
pub mod link;
pub mod logging;
pub mod outbox;
pub mod recorder;
pub mod state;
