//! Channels: how people write to the hub and how answers, pictures and cards reach them.
//!
//! ```text
//! platform ──► Adapter::receive ──► Inbox ──► access ──► router ──► run
//!    ▲                                                               │
//!    └── Messages, Pictures, Edits, Buttons ◄── outbox ◄── plan ◄────┘
//! ```
//!
//! | file | |
//! | --- | --- |
//! | [`message`] | the neutral words: conversation, person, message, reply, part |
//! | [`adapter`] | **what a platform implements**: [`adapter::Channel`], [`adapter::Adapter`] and its facets |
//! | [`capabilities`] | what a channel can show, and what becomes of the rest |
//! | [`split`] | long texts in pieces that keep code blocks, lists and links whole |
//! | [`inbox`] | what an adapter hands in: access, attachments, presses of buttons |
//! | [`plan`], [`outbox`], [`draft`] | what goes out: from a reply to parts, durable, and while it is still being written |
//! | [`cards`] | approvals as messages with buttons |
//! | [`people`] | who was let in, and who knocks |
//! | [`host`], [`health`] | keeps every adapter running, and tells how it stands |
//! | [`clients`], [`telegram`] | the adapters |
//!
//! A new platform is one module that implements [`adapter::Channel`] and one line in the registry below. It
//! is then in the configuration, in `hearth channels`, and may be held against the conformance suite.

pub mod adapter;
pub mod capabilities;
pub mod cards;
pub mod clients;
#[cfg(test)]
pub(crate) mod conformance;
pub mod draft;
pub mod health;
pub mod host;
pub mod inbox;
pub mod message;
pub mod outbox;
pub mod people;
pub mod plan;
pub mod split;
pub mod telegram;
#[cfg(test)]
mod toy;

pub use capabilities::{Capabilities, can};
pub use host::Channels;
pub use message::{ApprovalPrompt, Inbound, Reply};

use adapter::{Adapter, Channel, ChannelError, Ground};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// From one list: the configuration's tables, the capabilities by name, and the adapters to open.
/// `always` channels need no configuration; a `configured` one is open when its table is there.
macro_rules! registry {
    (always { $($always:ty),* $(,)? } configured { $($(#[$doc:meta])* $name:ident: $kind:ty),* $(,)? }) => {
        /// `[channels]`: one table a platform.
        #[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct ChannelsConfig {
            $($(#[$doc])* pub $name: Option<<$kind as Channel>::Config>,)*
        }

        impl ChannelsConfig {
            /// Names of a table's keys in the order of its type; `path` as in `channels.telegram`.
            pub(crate) fn fields(path: &str) -> &'static [&'static str] {
                $(if path == concat!("channels.", stringify!($name)) {
                    return crate::config::fields::<<$kind as Channel>::Config>();
                })*
                match path {
                    "channels" => crate::config::fields::<Self>(),
                    _ if path.ends_with(".access") => crate::config::fields::<crate::config::AccessConfig>(),
                    _ => &[],
                }
            }

            /// What is wrong with the values: table, key, and the message.
            pub(crate) fn problems(&self) -> Vec<(String, &'static str, String)> {
                let mut found = Vec::new();
                $(if let Some(config) = &self.$name {
                    let table = concat!("channels.", stringify!($name));
                    let own = <$kind as Channel>::problems(config);
                    found.extend(own.into_iter().map(|(key, message)| (table.to_owned(), key, message)));
                })*
                found
            }
        }

        /// What every channel can do, by name.
        pub(crate) const DECLARED: &[(&str, Capabilities)] = &[
            $((<$always as Channel>::NAME, <$always as Channel>::CAN),)*
            $((<$kind as Channel>::NAME, <$kind as Channel>::CAN),)*
        ];

        /// Opens all that are configured. One that cannot be opened is told of and does not keep the
        /// others from running.
        pub(crate) fn open_all(config: &ChannelsConfig, ground: &Ground) -> Vec<Opened> {
            let mut opened = Vec::new();
            $(opened.push(open_one::<$always>(&Default::default(), ground));)*
            $(if let Some(own) = &config.$name {
                opened.push(open_one::<$kind>(own, ground));
            })*
            opened
        }
    };
}

registry! {
    always { clients::Terminal, clients::Webchat }
    configured {
        /// A Telegram bot. No public address is needed: the hub fetches its messages.
        telegram: telegram::Telegram,
    }
}

/// An adapter, or why there is none.
pub(crate) struct Opened {
    pub(crate) name: &'static str,
    pub(crate) can: Capabilities,
    pub(crate) access: Option<crate::config::AccessConfig>,
    pub(crate) adapter: Result<Arc<dyn Adapter>, ChannelError>,
}

/// Opens one.
pub(crate) fn open_one<C: Channel>(config: &C::Config, ground: &Ground) -> Opened {
    Opened {
        name: C::NAME,
        can: C::CAN,
        access: C::access(config).cloned(),
        adapter: C::open(config, ground),
    }
}
