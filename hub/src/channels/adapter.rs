//! What a platform implements.
//!
//! [`Channel`] is the static side: name, declared capabilities, configuration, how it is opened.
//! [`Adapter`] is an open account: it receives, and it hands out a *facet* for everything else it can do.
//! A facet that is missing is degraded by the hub: no [`Buttons`] means a command to type, no [`Pictures`] a
//! line that names the file, no [`Edits`] a second message.
//!
//! An adapter keeps no queue, retries nothing and stores nothing. The hub calls [`Adapter::receive`] again
//! with growing pauses, keeps the cursor, and sends one message at a time in order; what the platform says
//! about rates comes back as [`SendError::Slow`].

use super::capabilities::Capabilities;
use super::inbox::Inbox;
use super::message::{Attachment, Button, Conversation, MessageId, Part, Text};
use crate::bus::Bus;
use crate::config::AccessConfig;
use crate::nodes::Media;
use crate::sessions::Sessions;
use crate::store::StoreError;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A platform.
pub trait Channel {
    /// In the configuration, in session keys, in `hearth channels`.
    const NAME: &'static str;
    /// What it can do.
    const CAN: Capabilities;
    /// Its table, `[channels.NAME]`.
    type Config: Debug + Clone + Default + Serialize + DeserializeOwned + JsonSchema;

    /// The access rules in its configuration; none where the gateway lets people in.
    fn access(_config: &Self::Config) -> Option<&AccessConfig> {
        None
    }

    /// What is wrong with the values: the key, and what must be.
    fn problems(_config: &Self::Config) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Opens the account. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ChannelError::Config`] when it can never work as configured.
    fn open(config: &Self::Config, ground: &Ground) -> Result<Arc<dyn Adapter>, ChannelError>;
}

/// Parts of the hub that an adapter may stand on.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Events to clients of the gateway.
    pub bus: Bus,
    /// Transcripts.
    pub sessions: Sessions,
}

/// An open account on a platform.
pub trait Adapter: Send + Sync + Debug {
    /// Receives and hands in, until the connection ends. Cancelled when the hub stops.
    ///
    /// # Errors
    /// Why it ended; it is called again after a pause.
    fn receive<'a>(&'a self, inbox: &'a Inbox) -> BoxFuture<'a, Result<(), ChannelError>>;

    /// Told once, before anything is received or sent: the cursor that was stored last.
    fn restore(&self, _cursor: &str) {}

    /// Asks the platform who we are there, for example `@hearth_bot`.
    ///
    /// # Errors
    /// [`ChannelError`].
    fn check(&self) -> BoxFuture<'_, Result<String, ChannelError>>;

    /// The conversation with one person alone, opened if need be.
    ///
    /// # Errors
    /// [`SendError`].
    fn direct<'a>(&'a self, person: &'a str) -> BoxFuture<'a, Result<Conversation, SendError>>;

    /// Sends words: the one thing that every channel can.
    fn messages(&self) -> &dyn Messages;

    /// Sends pictures.
    fn pictures(&self) -> Option<&dyn Pictures> {
        None
    }
    /// Changes what was sent; needed to stream a reply while it is being written.
    fn edits(&self) -> Option<&dyn Edits> {
        None
    }
    /// Sends buttons and hears of presses.
    fn buttons(&self) -> Option<&dyn Buttons> {
        None
    }
    /// Shows that the hub is writing.
    fn typing(&self) -> Option<&dyn Typing> {
        None
    }
    /// Fetches files that people send.
    fn files(&self) -> Option<&dyn Files> {
        None
    }
    /// Finds a message whose sending was cut short.
    fn recovery(&self) -> Option<&dyn Recovery> {
        None
    }
}

/// The outcome of sending.
pub type Sent<'a> = BoxFuture<'a, Result<MessageId, SendError>>;

/// Words.
pub trait Messages: Send + Sync {
    /// Sends a text within the declared limit as one message.
    fn send<'a>(&'a self, to: &'a Conversation, text: &'a Text) -> Sent<'a>;
}

/// Pictures.
pub trait Pictures: Send + Sync {
    /// Sends a file with a caption within the declared limit (which may be empty).
    fn send_picture<'a>(&'a self, to: &'a Conversation, picture: &'a Media, caption: &'a Text) -> Sent<'a>;
}

/// Changing what was sent.
pub trait Edits: Send + Sync {
    /// Shortest time between two edits of one message while it is streamed.
    fn pace(&self) -> Duration;
    /// Gives a message another text and takes its buttons away. The same text again is no error.
    fn edit<'a>(
        &'a self,
        to: &'a Conversation,
        message: &'a MessageId,
        text: &'a Text,
    ) -> BoxFuture<'a, Result<(), SendError>>;
}

/// Buttons. Presses come in through [`Inbox::press`].
pub trait Buttons: Send + Sync {
    /// Sends a text with buttons under it.
    fn send_card<'a>(&'a self, to: &'a Conversation, text: &'a Text, buttons: &'a [Button]) -> Sent<'a>;
}

/// "Is writing".
pub trait Typing: Send + Sync {
    /// Shows it for some seconds. Best effort.
    fn show_typing<'a>(&'a self, to: &'a Conversation) -> BoxFuture<'a, Result<(), SendError>>;
}

/// Files of people.
pub trait Files: Send + Sync {
    /// Fetches one, at most `limit` bytes.
    fn fetch<'a>(
        &'a self,
        attachment: &'a Attachment,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<u8>, SendError>>;
}

/// Finding what was sent when no answer came, so that nothing is sent twice.
pub trait Recovery: Send + Sync {
    /// Where the conversation stands before something is sent; stored with it.
    fn mark(&self, to: &Conversation) -> Option<String>;
    /// Looks after that mark for a message of ours that is this part, or was to become it; afterwards it
    /// is. `None` when there is surely none, or it cannot be told: then the part is sent again.
    fn find<'a>(
        &'a self,
        to: &'a Conversation,
        part: &'a Part,
        mark: &'a str,
    ) -> BoxFuture<'a, Result<Option<MessageId>, SendError>>;
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The platform asks for a pause. Surely not sent.
    #[error("the platform asks to wait {} s", wait.as_secs())]
    Slow {
        /// How long.
        wait: Duration,
    },
    /// It never will be: the person blocked us, the conversation is gone, the text is refused.
    #[error("refused: {0}")]
    Refused(String),
    /// Surely not sent; worth another try.
    #[error("not reached: {0}")]
    Unreachable(String),
    /// No answer came: it may have been sent.
    #[error("no answer: {0}")]
    Unknown(String),
}

/// Why an account does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// It can never work as configured.
    #[error("{0}")]
    Config(String),
    /// The platform does not know our token.
    #[error("{0}")]
    Credentials(String),
    /// Somebody else receives for this account.
    #[error("{0}")]
    Conflict(String),
    /// Not reached.
    #[error("{0}")]
    Unreachable(String),
    /// The platform asks for a pause.
    #[error("the platform asks to wait {} s", .0.as_secs())]
    Slow(Duration),
    /// An answer that cannot be understood.
    #[error("{0}")]
    Protocol(String),
    /// The hub's database.
    #[error(transparent)]
    Store(#[from] StoreError),
}
