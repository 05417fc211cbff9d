//! The methods of the Bot API that a chat needs.

use super::{BOT, Shown, State, html};
use crate::http::Fields;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Code, words, and seconds to wait.
type No = (u16, String, Option<u64>);
/// A result, or a no.
pub(super) type Outcome = Result<Value, No>;

const MAX_TEXT: usize = 4096;
const MAX_CAPTION: usize = 1024;
/// Messages to one chat within a second.
const MAX_A_SECOND: usize = 25;

const COMMON: &[&str] =
    &["chat_id", "message_thread_id", "parse_mode", "reply_markup", "disable_notification"];

fn own_params(method: &str) -> Option<&'static [&'static str]> {
    Some(match method {
        "getMe" => &[],
        "getUpdates" => &["offset", "limit", "timeout", "allowed_updates"],
        "sendMessage" => &["text", "link_preview_options"],
        "sendPhoto" | "sendDocument" => &["caption", "photo", "document"],
        "editMessageText" => &["message_id", "text", "link_preview_options"],
        "editMessageCaption" => &["message_id", "caption"],
        "sendChatAction" => &["action"],
        "answerCallbackQuery" => &["callback_query_id", "text", "show_alert"],
        "getFile" => &["file_id"],
        _ => return None,
    })
}

/// Notes parameters that the real one does not know.
pub(super) fn check_params(state: &mut State, method: &str, fields: &Fields) {
    let own = own_params(method).unwrap_or(&[]);
    for name in fields.values.keys().chain(fields.files.keys()) {
        if !own.contains(&name.as_str()) && !COMMON.contains(&name.as_str()) {
            state.violations.push(format!("{method}: parameter `{name}`"));
        }
    }
}

fn bad(why: &str) -> No {
    (400, format!("Bad Request: {why}"), None)
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

impl State {
    pub(super) fn call(&mut self, method: &str, fields: &Fields) -> Outcome {
        if own_params(method).is_none() {
            self.violations.push(format!("method `{method}`"));
            return Err((404, "Not Found".into(), None));
        }
        check_params(self, method, fields);
        let outcome = match method {
            "getMe" => {
                Ok(json!({ "id": BOT, "is_bot": true, "first_name": "Hearth", "username": "hearth_bot",
                                  "can_join_groups": true }))
            }
            "sendMessage" => self.send(fields, "text", MAX_TEXT, None),
            "sendPhoto" => self.send_file(fields, "photo"),
            "sendDocument" => self.send_file(fields, "document"),
            "editMessageText" => self.edit(fields, "text", MAX_TEXT),
            "editMessageCaption" => self.edit(fields, "caption", MAX_CAPTION),
            "sendChatAction" => self.chat(fields).map(|_| json!(true)),
            "answerCallbackQuery" => self.answer(fields),
            _ => self.file(fields),
        };
        // What a bot should never do is not only refused.
        if let Err((400, why, _)) = &outcome
            && ["too long", "is empty", "BUTTON_DATA_INVALID", "can't parse"].iter().any(|w| why.contains(w))
        {
            self.violations.push(format!("{method}: {why}"));
        }
        outcome
    }

    fn chat(&self, fields: &Fields) -> Result<i64, No> {
        let chat =
            fields.values.get("chat_id").and_then(Value::as_i64).ok_or_else(|| bad("chat_id is empty"))?;
        if self.known.contains(&chat) {
            return Ok(chat);
        }
        if chat > 0 {
            return Err((403, "Forbidden: bot can't initiate conversation with a user".into(), None));
        }
        Err(bad("chat not found"))
    }

    /// The words as they are seen, and the markup.
    fn words(fields: &Fields, key: &str, max: usize) -> Result<(String, Option<String>), No> {
        let given = fields.values.get(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
        let given = given.unwrap_or_default();
        let (text, html) = match fields.values.get("parse_mode").and_then(Value::as_str) {
            None => (given, None),
            Some("HTML") => (html::visible(&given).map_err(|why| (400, why, None))?, Some(given)),
            Some(_) => return Err(bad("unsupported parse_mode")),
        };
        if units(text.trim()) > max {
            let what = if key == "text" { "message is too long" } else { "message caption is too long" };
            return Err(bad(what));
        }
        if key == "text" && text.trim().is_empty() {
            return Err(bad("message text is empty"));
        }
        Ok((text.trim().to_owned(), html))
    }

    fn buttons(fields: &Fields) -> Result<Vec<(String, String)>, No> {
        let Some(markup) = fields.values.get("reply_markup") else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for button in
            markup["inline_keyboard"].as_array().into_iter().flatten().flat_map(|r| r.as_array()).flatten()
        {
            let text = |name: &str| button[name].as_str().unwrap_or_default().to_owned();
            let (label, data) = (text("text"), text("callback_data"));
            if label.is_empty() || data.is_empty() || data.len() > 64 {
                return Err(bad("BUTTON_DATA_INVALID"));
            }
            found.push((label, data));
        }
        Ok(found)
    }

    fn send(&mut self, fields: &Fields, key: &str, max: usize, file: Option<Vec<u8>>) -> Outcome {
        let chat = self.chat(fields)?;
        let (text, html) = Self::words(fields, key, max)?;
        let buttons = Self::buttons(fields)?;
        let now = Instant::now();
        self.sent_at.retain(|(_, at)| now.duration_since(*at) < Duration::from_secs(1));
        if self.sent_at.iter().filter(|(c, _)| *c == chat).count() >= MAX_A_SECOND {
            return Err((429, "Too Many Requests: retry after 1".into(), Some(1)));
        }
        self.sent_at.push((chat, now));
        let id = self.fresh_id(chat);
        let shown = Shown { id, text: text.clone(), html, file, buttons, edits: 0 };
        self.chats.entry(chat).or_default().push(shown);
        let mut message = json!({ "message_id": id, "date": 1_700_000_000, "chat": { "id": chat, "type": "private" },
                                  "from": { "id": BOT, "is_bot": true, "first_name": "Hearth" } });
        message[key] = text.into();
        Ok(message)
    }

    fn send_file(&mut self, fields: &Fields, name: &str) -> Outcome {
        let Some(bytes) = fields.files.get(name) else { return Err(bad("there is no photo in the request")) };
        if name == "photo" && !bytes.starts_with(&[0xff, 0xd8]) && !bytes.starts_with(b"\x89PNG") {
            return Err(bad("PHOTO_INVALID_DIMENSIONS: wrong photo"));
        }
        self.send(fields, "caption", MAX_CAPTION, Some(bytes.clone()))
    }

    fn edit(&mut self, fields: &Fields, key: &str, max: usize) -> Outcome {
        let chat = self.chat(fields)?;
        let id = fields.values.get("message_id").and_then(Value::as_i64).unwrap_or_default();
        let found = self.chats.get_mut(&chat).and_then(|all| all.iter_mut().find(|m| m.id == id));
        let Some(shown) = found else { return Err(bad("message to edit not found")) };
        if key == "text" && shown.file.is_some() {
            return Err(bad("there is no text in the message to edit"));
        }
        if key == "caption" && shown.file.is_none() {
            return Err(bad("there is no caption in the message to edit"));
        }
        let (text, html) = Self::words(fields, key, max)?;
        let buttons = Self::buttons(fields)?;
        if (&shown.text, &shown.buttons) == (&text, &buttons) {
            return Err(bad(
                "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message",
            ));
        }
        (shown.text, shown.html, shown.buttons) = (text, html, buttons);
        shown.edits += 1;
        Ok(json!({ "message_id": id, "date": 1_700_000_000, "chat": { "id": chat, "type": "private" } }))
    }

    fn answer(&mut self, fields: &Fields) -> Outcome {
        let text =
            |name: &str| fields.values.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let words = text("text");
        if units(&words) > 200 {
            return Err(bad("MESSAGE_TOO_LONG"));
        }
        match self.callbacks.get_mut(&text("callback_query_id")) {
            Some(answer @ None) => {
                *answer = Some(words);
                Ok(json!(true))
            }
            _ => Err(bad("query is too old and response timeout expired or query ID is invalid")),
        }
    }

    fn file(&mut self, fields: &Fields) -> Outcome {
        let id = fields.values.get("file_id").and_then(Value::as_str).unwrap_or_default();
        if !self.files.contains_key(id) {
            return Err(bad("wrong file_id or the file is temporarily unavailable"));
        }
        Ok(json!({ "file_id": id, "file_unique_id": "u", "file_path": id }))
    }
}
