//! From an update to a neutral message or press.

use super::types::{CallbackQuery, Chat, Document, Entity, Me, Message, User};
use crate::channels::message::{
    Attachment, Conversation, ConversationKind, Incoming, MessageId, Person, Press,
};

/// Telegram's own account behind anonymous administrators of groups.
const ANONYMOUS_ADMIN: i64 = 1_087_968_824;

/// A message of a person; none for what channels, bots and Telegram itself write.
pub(super) fn incoming(message: Message, me: &Me) -> Option<Incoming> {
    let attachments = attachments(&message);
    let from = message.from.as_ref()?;
    if from.is_bot || from.id == ANONYMOUS_ADMIN || message.sender_chat.is_some() {
        return None;
    }
    let conversation = conversation(&message.chat, &message)?;
    let direct = conversation.kind == ConversationKind::Direct;
    let (text, entities) = match (&message.text, &message.caption) {
        (Some(text), _) => (text.as_str(), &message.entities),
        (None, Some(caption)) => (caption.as_str(), &message.caption_entities),
        (None, None) => ("", &message.entities),
    };
    let answers_us =
        message.reply_to_message.as_ref().and_then(|m| m.from.as_ref()).is_some_and(|u| u.id == me.id);
    let (mut text, mentioned) = without_mention(text, entities, me);
    if let Some(place) = &message.location {
        text = format!("{text}\n(location: {}, {})", place.latitude, place.longitude).trim().to_owned();
    }
    if text.is_empty() && attachments.is_empty() {
        return None;
    }
    Some(Incoming {
        id: message.message_id.to_string(),
        sender: person(from),
        addressed: direct || mentioned || answers_us,
        genuine: message.forward_origin.is_none()
            && !message.is_automatic_forward
            && message.via_bot.is_none(),
        conversation,
        text,
        attachments,
    })
}

/// A press of a button under one of our messages.
pub(super) fn press(query: CallbackQuery) -> Option<Press> {
    let message = query.message?;
    let conversation = conversation(&message.chat, &message)?;
    Some(Press {
        data: query.data?,
        message: MessageId(message.message_id.to_string()),
        conversation,
        person: person(&query.from),
    })
}

fn person(user: &User) -> Person {
    Person { id: user.id.to_string(), name: user.name() }
}

fn conversation(chat: &Chat, message: &Message) -> Option<Conversation> {
    let kind = match chat.kind.as_str() {
        "private" => ConversationKind::Direct,
        "group" | "supergroup" => ConversationKind::Group,
        _ => return None,
    };
    let thread = message.message_thread_id.filter(|_| message.is_topic_message);
    Some(Conversation { id: chat.id.to_string(), kind, thread: thread.map(|t| t.to_string()) })
}

/// Takes mentions of the bot out of the text; whether there were any. A command with the bot's name behind
/// it (`/stop@bot`) becomes the command.
fn without_mention(text: &str, entities: &[Entity], me: &Me) -> (String, bool) {
    let units: Vec<u16> = text.encode_utf16().collect();
    let at_name = me.username.as_deref().map(|name| format!("@{}", name.to_lowercase()));
    let mut keep = vec![true; units.len()];
    let mut found = false;
    for entity in entities {
        let Some(end) = entity.offset.checked_add(entity.length).filter(|e| *e <= units.len()) else {
            continue;
        };
        let part = String::from_utf16_lossy(&units[entity.offset..end]).to_lowercase();
        let name = at_name.as_deref().unwrap_or("\0");
        let from = match entity.kind.as_str() {
            "mention" if part == name => entity.offset,
            "text_mention" if entity.user.as_ref().is_some_and(|u| u.id == me.id) => entity.offset,
            "bot_command" if part.ends_with(name) => end - name.encode_utf16().count(),
            _ => continue,
        };
        found = true;
        keep[from..end].fill(false);
    }
    let left: Vec<u16> = units.iter().zip(&keep).filter_map(|(u, keep)| keep.then_some(*u)).collect();
    (String::from_utf16_lossy(&left).trim().to_owned(), found)
}

fn attachments(message: &Message) -> Vec<Attachment> {
    let mut found = Vec::new();
    if let Some(photo) = message.photo.iter().max_by_key(|p| p.width) {
        found.push(Attachment {
            source: photo.file_id.clone(),
            mime: "image/jpeg".into(),
            size: photo.file_size,
            label: "picture".into(),
        });
    }
    let mut add = |file: &Option<Document>, what: &str, mime: &str| {
        if let Some(file) = file {
            let mut label = what.to_owned();
            if let Some(seconds) = file.duration {
                label.push_str(&format!(", {seconds} s"));
            }
            if let Some(name) = &file.file_name {
                label.push_str(&format!(", {name}"));
            }
            found.push(Attachment {
                source: file.file_id.clone(),
                mime: file.mime_type.clone().unwrap_or_else(|| mime.into()),
                size: file.file_size,
                label,
            });
        }
    };
    add(&message.voice, "voice note", "audio/ogg");
    add(&message.audio, "sound", "audio/mpeg");
    add(&message.video, "video", "video/mp4");
    add(&message.video_note, "video", "video/mp4");
    // An animation stands in `document` too.
    add(if message.animation.is_some() { &message.animation } else { &message.document }, "file", "");
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn me() -> Me {
        Me { id: 99, first_name: "Hearth".into(), username: Some("Hearth_Bot".into()) }
    }

    fn read(change: Value) -> Option<Incoming> {
        let mut message = json!({
            "message_id": 5, "date": 1, "text": "hello", "unknown_field": {"x": 1},
            "from": {"id": 7, "is_bot": false, "first_name": "Ann", "last_name": "B"},
            "chat": {"id": 7, "type": "private", "first_name": "Ann"},
        });
        for (key, value) in change.as_object().unwrap() {
            message[key] = value.clone();
        }
        incoming(serde_json::from_value(message).unwrap(), &me())
    }

    #[test]
    fn a_direct_message() {
        let message = read(json!({})).unwrap();
        assert_eq!(message.conversation, Conversation::direct("7"));
        assert_eq!((message.id.as_str(), message.text.as_str()), ("5", "hello"));
        assert_eq!(message.sender, Person { id: "7".into(), name: "Ann B".into() });
        assert!(message.addressed && message.genuine);
    }

    #[test]
    fn what_a_person_did_not_write_here_is_not_genuine_or_nothing() {
        let origin =
            json!({"type": "user", "date": 1, "sender_user": {"id": 8, "is_bot": false, "first_name": "E"}});
        assert!(!read(json!({"forward_origin": origin})).unwrap().genuine);
        assert!(!read(json!({"via_bot": {"id": 1, "is_bot": true, "first_name": "b"}})).unwrap().genuine);
        assert!(read(json!({"sender_chat": {"id": -5, "type": "supergroup"}})).is_none());
        assert!(read(json!({"from": {"id": ANONYMOUS_ADMIN, "is_bot": true, "first_name": "G"}})).is_none());
        assert!(read(json!({"chat": {"id": -9, "type": "channel"}})).is_none());
    }

    #[test]
    fn groups_know_when_the_bot_is_spoken_to() {
        let group = json!({"id": -5, "type": "supergroup"});
        let said = read(json!({"chat": group})).unwrap();
        assert!(!said.addressed);
        assert_eq!(said.conversation.kind, ConversationKind::Group);
        let mention = json!([{"type": "mention", "offset": 3, "length": 11}]);
        let said =
            read(json!({"chat": group, "text": "😀 @hearth_bot status", "entities": mention})).unwrap();
        assert!(said.addressed);
        assert_eq!(said.text, "😀  status");
        let command = json!([{"type": "bot_command", "offset": 0, "length": 16}]);
        let said = read(json!({"chat": group, "text": "/stop@hearth_bot", "entities": command})).unwrap();
        assert_eq!((said.addressed, said.text.as_str()), (true, "/stop"));
        let other = json!([{"type": "mention", "offset": 0, "length": 6}]);
        assert!(!read(json!({"chat": group, "text": "@other x", "entities": other})).unwrap().addressed);
        let ours = json!({"message_id": 4, "from": {"id": 99, "is_bot": true}, "chat": group});
        assert!(read(json!({"chat": group, "reply_to_message": ours})).unwrap().addressed);
        let far = json!([{"type": "mention", "offset": 400, "length": 6}]);
        assert!(!read(json!({"chat": group, "entities": far})).unwrap().addressed);
        let topic = read(json!({"chat": group, "message_thread_id": 3, "is_topic_message": true})).unwrap();
        assert_eq!(topic.conversation.thread.as_deref(), Some("3"));
    }

    #[test]
    fn files_are_named_and_not_fetched() {
        let photo = json!([{"file_id": "s", "width": 90}, {"file_id": "l", "width": 800, "file_size": 5}]);
        let message = read(json!({"text": null, "caption": "look", "photo": photo})).unwrap();
        assert_eq!(message.text, "look");
        assert_eq!(message.attachments[0].source, "l");
        let voice = json!({"file_id": "v", "duration": 12, "mime_type": "audio/ogg"});
        let message = read(json!({"text": null, "voice": voice})).unwrap();
        assert_eq!((message.text.as_str(), message.attachments[0].label.as_str()), ("", "voice note, 12 s"));
        assert!(read(json!({"text": null})).is_none(), "a member joined, a pin was set");
    }
}
