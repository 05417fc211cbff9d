//! Channels: how people write to the hub, and what a reply may be made of on each.
//!
//! A reply is neutral ([`Reply`]); what a channel cannot show becomes words it can ([`Channel::text_of`]):
//! a picture becomes a line with its path, a button a command to type. A new channel is one value of
//! [`Channel`] with what it can do, and one line in [`CHANNELS`].

use crate::nodes::Media;
use hearth_shared::error::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One neutral message.
#[derive(Debug, Clone)]
pub struct Inbound {
    /// `terminal`, `webchat`.
    pub channel: String,
    /// Who writes, as the channel knows him.
    pub sender: String,
    /// The conversation: a session key or its short form.
    pub session: String,
    /// Unique per message: duplicates are dropped for 7 days.
    pub message_id: String,
    /// What he writes.
    pub text: String,
    /// Whether the sender may decide approvals: the gateway knows (scope `operator.approvals`), the text
    /// never does. Without it `/approve` is refused.
    pub may_decide: bool,
}

/// What goes back, on whatever channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// Plain text.
    pub text: String,
    /// Pictures.
    pub media: Vec<Media>,
    /// Code of the command that the reply says failed: programs tell a "no" from an answer by it.
    pub failure: Option<ErrorCode>,
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

/// What a channel can show.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Pictures in the conversation.
    pub images: bool,
    /// Buttons under a message.
    pub buttons: bool,
}

/// A channel.
#[derive(Debug, Clone, Copy)]
pub struct Channel {
    /// Its name in [`Inbound::channel`].
    pub name: &'static str,
    /// See there.
    pub can: Capabilities,
}

/// All channels. The first is the plainest, and stands in for one that is not known.
pub const CHANNELS: &[Channel] = &[
    Channel { name: "terminal", can: Capabilities { images: false, buttons: false } },
    Channel { name: "webchat", can: Capabilities { images: true, buttons: true } },
];

impl Channel {
    /// A channel by name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        CHANNELS.iter().find(|c| c.name == name).copied().unwrap_or(CHANNELS[0])
    }

    /// The text of a reply here: pictures that cannot be shown become a line each.
    #[must_use]
    pub fn text_of(&self, reply: &Reply) -> String {
        let mut text = reply.text.clone();
        if !self.can.images {
            for media in &reply.media {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(&format!(
                    "{} ({}, {} KB)",
                    media.path.display(),
                    media.mime,
                    media.size.div_ceil(1024)
                ));
            }
        }
        text
    }

    /// How a person decides here: nothing to say where there are buttons, else the command to type.
    #[must_use]
    pub fn how_to_decide(&self, prompt: &ApprovalPrompt) -> Option<String> {
        let short = prompt.id.get(..8).unwrap_or(&prompt.id);
        (!self.can.buttons).then(|| format!("/approve {short} allow-once | allow-always | deny"))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_channel_cannot_show_becomes_words() {
        let media = Media {
            id: "m".into(),
            path: "/x/a.jpg".into(),
            mime: "image/jpeg".into(),
            size: 2000,
            sha256: hearth_shared::identity::Digest([0; 32]),
        };
        let reply = Reply { text: "Here.".into(), media: vec![media], failure: None };
        assert_eq!(Channel::of("terminal").text_of(&reply), "Here.\n/x/a.jpg (image/jpeg, 2 KB)");
        assert_eq!(Channel::of("webchat").text_of(&reply), "Here.");
        let prompt = ApprovalPrompt { id: "0123456789abcdef".into(), sentence: "x".into() };
        assert!(Channel::of("terminal").how_to_decide(&prompt).unwrap().starts_with("/approve 01234567 "));
        assert!(Channel::of("webchat").how_to_decide(&prompt).is_none());
        assert_eq!(reply.content()[1]["mediaId"], "m");
    }
}
