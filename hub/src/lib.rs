//! The Hearth hub: one process per state directory, one port, everything a home assistant needs.
//!
//! Follow a message down this list and you walk the path from words to a pin:
//!
//! | folder | what happens there |
//! | --- | --- |
//! | [`gateway`] | sockets: TLS, HTTP, the handshake, JSON methods, the upgrade to the node link |
//! | [`web`] | the web page's files, embedded |
//! | [`channels`] | how people write: traits, the terminal chat |
//! | [`routing`] | the door, chat commands, session keys |
//! | [`agent`] | lanes, runs: intents, the tool loop with a model |
//! | [`actions`] | durable requests to nodes: queued, waiting for a person, running, done |
//! | [`approvals`] | cards, decisions, grants, the audit log |
//! | [`nodes`] | connected nodes, what they declare, the link, readings, media |
//! | [`devices`] | identities, pairing, tokens, scopes |
//! | [`sessions`] | transcripts |
//! | [`notify`] | telling a person who is not looking: a command, ntfy, Web Push |
//! | [`discovery`] | being found on the network by name |
//! | [`cert`] | what TLS shows to browsers: a local authority, a certificate that renews itself |
//! | [`bus`], [`config`], [`store`], [`home`], [`keys`], [`logging`] | the ground everything stands on |
//!
//! A layer calls only those below it; upwards it speaks by events on the [`bus`].

pub mod actions;
pub mod agent;
pub mod approvals;
pub mod bus;
pub mod cert;
pub mod channels;
pub mod cli;
pub mod config;
pub mod devices;
pub mod discovery;
pub mod gateway;
pub mod home;
pub mod hub;
pub mod keys;
pub mod logging;
pub mod nodes;
pub mod notify;
pub mod routing;
pub mod sessions;
pub mod store;
pub mod web;
