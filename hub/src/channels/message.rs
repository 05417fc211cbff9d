//! The neutral words that the hub and every adapter share.

use crate::nodes::Media;
use hearth_shared::error::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where people talk on a platform.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conversation {
    /// As the platform names it, at most 200 bytes.
    pub id: String,
    /// One person alone, or several.
    pub kind: ConversationKind,
    /// A thread or topic in a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

impl Conversation {
    /// With one person.
    #[must_use]
    pub fn direct(id: impl Into<String>) -> Self {
        Self { id: id.into(), kind: ConversationKind::Direct, thread: None }
    }
}

/// How many can read along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConversationKind {
    /// One person and the hub.
    Direct,
    /// Several.
    Group,
}

/// Who writes, as the platform vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The platform's own, unchangeable id: what rules are about. Never a name.
    pub id: String,
    /// What he calls himself; for showing only.
    pub name: String,
}

/// A message as an adapter hands it in.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// The platform's id of the message, unique in the conversation.
    pub id: String,
    /// Where.
    pub conversation: Conversation,
    /// Who.
    pub sender: Person,
    /// What; empty when there are only attachments. Mentions of the hub itself are taken out.
    pub text: String,
    /// Files, not fetched yet: an unknown sender makes the hub fetch nothing.
    pub attachments: Vec<Attachment>,
    /// In groups: whether it speaks to the hub (a mention, or an answer to one of its messages).
    pub addressed: bool,
    /// Written by the sender himself, here: no forward, no anonymous administrator, no other bot. Only such
    /// a message may decide anything.
    pub genuine: bool,
}

/// A file that a person sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What the adapter needs to fetch it.
    pub source: String,
    /// MIME type, as the platform says.
    pub mime: String,
    /// Bytes, if the platform says.
    pub size: Option<u64>,
    /// For people, for example `voice note, 12 s`.
    pub label: String,
}

/// Somebody pressed a button.
#[derive(Debug, Clone)]
pub struct Press {
    /// What the button carried, as the hub gave it out.
    pub data: String,
    /// Under which message.
    pub message: MessageId,
    /// Where that message is.
    pub conversation: Conversation,
    /// Who pressed, as the platform vouches for it.
    pub person: Person,
}

/// A message on the platform, as the platform names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(pub String);

/// A text that is sent as one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// The text itself.
    pub body: String,
    /// How it is to be read.
    pub markup: Markup,
}

/// How a text is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Markup {
    /// Every character as it stands. Cards are plain: no markup can hide a part of one.
    Plain,
    /// Markdown, as assistants write it.
    Markdown,
}

impl Text {
    /// Every character as it stands.
    #[must_use]
    pub fn plain(body: impl Into<String>) -> Self {
        Self { body: body.into(), markup: Markup::Plain }
    }

    /// Markdown.
    #[must_use]
    pub fn markdown(body: impl Into<String>) -> Self {
        Self { body: body.into(), markup: Markup::Markdown }
    }
}

/// A button under a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    /// What stands on it.
    pub label: String,
    /// What comes back in a [`Press`]; at most 64 bytes of ASCII.
    pub data: String,
}

/// One message to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "lowercase")]
pub enum Part {
    /// Words.
    Text {
        /// What.
        text: Text,
    },
    /// A picture with words under it (which may be none).
    Picture {
        /// The file.
        picture: Media,
        /// Under it.
        caption: Text,
    },
    /// Words with buttons.
    Card {
        /// What.
        text: Text,
        /// In the order in which they are shown.
        buttons: Vec<Button>,
    },
    /// Another message, sent before, gets this text and loses its buttons.
    Edit {
        /// Key of that message in the outbox.
        of: String,
        /// What it becomes.
        text: Text,
    },
}

impl Part {
    /// The words in it.
    #[must_use]
    pub fn text(&self) -> &Text {
        match self {
            Self::Text { text } | Self::Card { text, .. } | Self::Edit { text, .. } => text,
            Self::Picture { caption, .. } => caption,
        }
    }
}

/// One neutral message, past the access rules, on its way to the router.
#[derive(Debug, Clone)]
pub struct Inbound {
    /// `terminal`, `webchat`, `telegram`.
    pub channel: String,
    /// Who writes, as the channel knows him.
    pub sender: String,
    /// The conversation: a session key or its short form.
    pub session: String,
    /// Unique per message: duplicates are dropped for 7 days.
    pub message_id: String,
    /// What he writes.
    pub text: String,
    /// Files that came with it, kept.
    pub attachments: Vec<(String, Media)>,
    /// Whether the sender may decide approvals: the gateway and the access rules know, the text never does.
    /// Without it `/approve` is refused.
    pub may_decide: bool,
    /// Where the answer has to be sent; none for clients of the gateway, which read it themselves.
    pub reply_to: Option<ReplyTo>,
}

/// Where an answer goes. Stored with the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    /// The channel.
    pub channel: String,
    /// The conversation there.
    pub conversation: Conversation,
}

/// What goes back, on whatever channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// Markdown.
    pub text: String,
    /// Pictures.
    pub media: Vec<Media>,
    /// Code of the command that the reply says failed: programs tell a "no" from an answer by it.
    pub failure: Option<ErrorCode>,
}

impl Reply {
    /// The parts of an assistant's message: `{type:"text",text}`, then `{type:"image",mimeType,mediaId,path,
    /// sizeBytes}` for every picture.
    #[must_use]
    pub fn content(&self) -> Value {
        let mut parts = vec![json!({ "type": "text", "text": self.text })];
        parts.extend(self.media.iter().map(|m| {
            json!({ "type": "image", "mimeType": m.mime, "mediaId": m.id, "path": m.path, "sizeBytes": m.size })
        }));
        Value::Array(parts)
    }
}

/// A request that waits for a person, as it is told in chat. What would run is on the card of the
/// approval; this is only the way to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApprovalPrompt {
    /// Id of the approval.
    pub id: String,
    /// What waits, in one sentence.
    pub sentence: String,
}
