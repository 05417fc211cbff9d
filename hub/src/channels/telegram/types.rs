//! The fields of the Bot API that are read.

use serde::Deserialize;

/// The bot itself.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Me {
    pub(super) id: i64,
    pub(super) first_name: String,
    pub(super) username: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Update {
    pub(super) message: Option<Message>,
    pub(super) callback_query: Option<CallbackQuery>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) message_id: i64,
    pub(super) message_thread_id: Option<i64>,
    pub(super) is_topic_message: bool,
    pub(super) from: Option<User>,
    /// A message in the name of a chat: a channel, or an anonymous administrator.
    pub(super) sender_chat: Option<Chat>,
    pub(super) chat: Chat,
    pub(super) forward_origin: Option<serde::de::IgnoredAny>,
    pub(super) is_automatic_forward: bool,
    pub(super) via_bot: Option<User>,
    pub(super) reply_to_message: Option<Box<Message>>,
    pub(super) text: Option<String>,
    pub(super) entities: Vec<Entity>,
    pub(super) caption: Option<String>,
    pub(super) caption_entities: Vec<Entity>,
    pub(super) photo: Vec<PhotoSize>,
    pub(super) voice: Option<Document>,
    pub(super) audio: Option<Document>,
    pub(super) video: Option<Document>,
    pub(super) video_note: Option<Document>,
    pub(super) animation: Option<Document>,
    pub(super) document: Option<Document>,
    pub(super) location: Option<Location>,
}

#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub(super) id: i64,
    #[serde(default)]
    pub(super) is_bot: bool,
    #[serde(default)]
    pub(super) first_name: String,
    pub(super) last_name: Option<String>,
}

impl User {
    pub(super) fn name(&self) -> String {
        match &self.last_name {
            Some(last) => format!("{} {last}", self.first_name),
            None => self.first_name.clone(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Chat {
    pub(super) id: i64,
    #[serde(rename = "type")]
    pub(super) kind: String,
}

impl Chat {
    pub(super) fn is_private(&self) -> bool {
        self.kind == "private"
    }
}

/// A marked part of a text, counted in UTF-16 code units.
#[derive(Debug, Deserialize)]
pub(super) struct Entity {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) user: Option<User>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PhotoSize {
    pub(super) file_id: String,
    #[serde(default)]
    pub(super) width: u32,
    pub(super) file_size: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub(super) file_id: String,
    pub(super) file_name: Option<String>,
    pub(super) mime_type: Option<String>,
    pub(super) file_size: Option<u64>,
    /// Seconds.
    pub(super) duration: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Location {
    pub(super) latitude: f64,
    pub(super) longitude: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallbackQuery {
    pub(super) id: String,
    pub(super) from: User,
    pub(super) message: Option<Message>,
    pub(super) data: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) file_path: Option<String>,
}

/// What was sent.
#[derive(Debug, Deserialize)]
pub(super) struct SentMessage {
    pub(super) message_id: i64,
}
