//! Scenarios: the real hub and the real node, started as processes, used through their command lines.

#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

mod approval;
mod cable;
mod cert;
mod chat;
mod cli;
mod client;
mod crash;
mod demo;
mod discovery;
mod liar;
mod lines;
mod notify;
mod pairing;
mod regression;
mod telegram;
