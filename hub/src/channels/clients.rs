//! The terminal chat and the page's chat. Their clients are connected to the gateway, which knows who they
//! are and hands their messages to the router; answers reach them as events and in the transcript, cards as
//! approvals. What the hub says of its own accord is a line of the transcript and an event, like an answer.

use super::adapter::{Adapter, Channel, ChannelError, Ground, Messages, Pictures, SendError, Sent};
use super::capabilities::{Capabilities, Limit, Unit};
use super::inbox::Inbox;
use super::message::{Conversation, MessageId, Reply, Text};
use crate::bus::{ChatEvent, Event};
use crate::nodes::Media;
use crate::routing::keys;
use crate::sessions::Message;
use crate::store::{StoreError, now_ms};
use futures_util::future::BoxFuture;
use hearth_shared::reading::RequestId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// Nothing to configure.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// `hearth chat`: words.
#[derive(Debug, Clone, Copy)]
pub struct Terminal;

/// The page: words, pictures, and cards with buttons of its own.
#[derive(Debug, Clone, Copy)]
pub struct Webchat;

/// A page or terminal shows what a transcript line holds.
const LINE: Limit = Limit { max: 100_000, unit: Unit::Chars };

impl Channel for Terminal {
    const NAME: &'static str = "terminal";
    const CAN: Capabilities = Capabilities { text: LINE, ..Capabilities::PLAIN };
    type Config = NoConfig;

    fn open(_: &NoConfig, ground: &Ground) -> Result<Arc<dyn Adapter>, ChannelError> {
        Ok(Arc::new(Clients { name: Self::NAME, pictures: false, ground: ground.clone() }))
    }
}

impl Channel for Webchat {
    const NAME: &'static str = "webchat";
    const CAN: Capabilities =
        Capabilities { text: LINE, pictures: Some(LINE), own_cards: true, ..Capabilities::PLAIN };
    type Config = NoConfig;

    fn open(_: &NoConfig, ground: &Ground) -> Result<Arc<dyn Adapter>, ChannelError> {
        Ok(Arc::new(Clients { name: Self::NAME, pictures: true, ground: ground.clone() }))
    }
}

#[derive(Debug)]
struct Clients {
    name: &'static str,
    pictures: bool,
    ground: Ground,
}

impl Clients {
    /// Says something in a session: first in its transcript, then to whoever listens.
    async fn say(&self, to: &Conversation, reply: Reply) -> Result<MessageId, SendError> {
        let key = keys::resolve(&to.id).map_err(|e| SendError::Refused(e.to_string()))?;
        let id = RequestId::fresh().map_err(|e| SendError::Unreachable(e.to_string()))?.to_string();
        let content = reply.content();
        let timestamp = now_ms();
        let line = Message {
            id: id.clone(),
            role: "assistant".into(),
            content: content.clone(),
            timestamp,
            ..Message::default()
        };
        let not_stored = |e: StoreError| SendError::Unreachable(e.to_string());
        self.ground.sessions.append(&key, line).await.map_err(not_stored)?;
        let message = json!({ "role": "assistant", "content": content, "timestamp": timestamp });
        self.ground.bus.emit(Event::Chat(Arc::new(ChatEvent {
            run_id: id.clone(),
            session_key: key,
            seq: 1,
            state: "final",
            fields: json!({ "message": message, "stopReason": "stop" }),
        })));
        Ok(MessageId(id))
    }
}

impl Adapter for Clients {
    /// Messages come through the gateway.
    fn receive<'a>(&'a self, _: &'a Inbox) -> BoxFuture<'a, Result<(), ChannelError>> {
        Box::pin(std::future::pending())
    }

    fn check(&self) -> BoxFuture<'_, Result<String, ChannelError>> {
        Box::pin(async { Ok(format!("{} clients of the gateway", self.name)) })
    }

    /// A person here is a session.
    fn direct<'a>(&'a self, person: &'a str) -> BoxFuture<'a, Result<Conversation, SendError>> {
        Box::pin(async move {
            let key = keys::resolve(person).map_err(|e| SendError::Refused(e.to_string()))?;
            Ok(Conversation::direct(key))
        })
    }

    fn messages(&self) -> &dyn Messages {
        self
    }

    fn pictures(&self) -> Option<&dyn Pictures> {
        self.pictures.then_some(self)
    }
}

impl Messages for Clients {
    fn send<'a>(&'a self, to: &'a Conversation, text: &'a Text) -> Sent<'a> {
        Box::pin(self.say(to, Reply { text: text.body.clone(), ..Reply::default() }))
    }
}

impl Pictures for Clients {
    fn send_picture<'a>(&'a self, to: &'a Conversation, picture: &'a Media, caption: &'a Text) -> Sent<'a> {
        let reply = Reply { text: caption.body.clone(), media: vec![picture.clone()], failure: None };
        Box::pin(self.say(to, reply))
    }
}
