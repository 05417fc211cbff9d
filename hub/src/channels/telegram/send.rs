//! Messages, pictures, cards, edits.

use super::api::ApiError;
use super::types::SentMessage;
use super::{Bot, CALL_LIMIT, markup};
use crate::channels::adapter::{Buttons, Edits, Messages, Pictures, Recovery, SendError, Sent};
use crate::channels::message::{Button, Conversation, ConversationKind, Markup, MessageId, Part, Text};
use crate::nodes::Media;
use futures_util::future::BoxFuture;
use reqwest::multipart::{Form, Part as FormPart};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Telegram takes about one change of a message a second; a little less leaves room for answers.
const PACE: Duration = Duration::from_millis(1_500);
/// Largest picture that is sent as one; larger ones are sent as files.
const MAX_PHOTO: u64 = 10 * 1024 * 1024;
/// Message ids that are looked at for a message whose answer got lost: others of the same account that were
/// sent meanwhile lie in between.
const LOOK_AHEAD: i64 = 8;

/// `chat_id`, and the topic of a group.
pub(super) fn address(to: &Conversation) -> Result<Value, SendError> {
    let chat: i64 = to.id.parse().map_err(|_| SendError::Refused("no Telegram chat".into()))?;
    let mut body = json!({ "chat_id": chat });
    if let Some(thread) = to.thread.as_deref().and_then(|t| t.parse::<i64>().ok()) {
        body["message_thread_id"] = thread.into();
    }
    Ok(body)
}

/// Puts words into a call, as `text` or `caption`.
fn put_words(body: &mut Value, key: &str, text: &Text) {
    match text.markup {
        Markup::Plain => body[key] = text.body.as_str().into(),
        Markup::Markdown => {
            body[key] = markup::html(&text.body).into();
            body["parse_mode"] = "HTML".into();
        }
    }
    if key == "text" {
        // A preview would show a page nobody asked for, fetched by a stranger.
        body["link_preview_options"] = json!({ "is_disabled": true });
    }
}

fn keyboard(buttons: &[Button]) -> Value {
    let row: Vec<Value> =
        buttons.iter().map(|b| json!({ "text": b.label, "callback_data": b.data })).collect();
    json!({ "inline_keyboard": [row] })
}

/// Whether Telegram could not read the markup.
fn is_markup_fault(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { code: 400, why, .. } if why.contains("can't parse entities"))
}

fn is_unchanged(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { code: 400, why, .. } if why.contains("message is not modified"))
}

/// A no to an edit that says: there is no such message of ours.
fn is_not_ours(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { code: 400, why, .. }
        if ["not found", "can't be edited", "no text in the message", "no caption in the message", "MESSAGE_ID_INVALID"]
            .iter().any(|w| why.contains(w)))
}

impl Bot {
    /// Calls with words; once more without markup when Telegram cannot read it.
    async fn call_with_words(
        &self,
        method: &str,
        mut body: Value,
        key: &str,
        text: &Text,
    ) -> Result<Value, ApiError> {
        put_words(&mut body, key, text);
        match self.api.call::<Value>(method, &body, CALL_LIMIT).await {
            Err(error) if is_markup_fault(&error) => {
                tracing::debug!(%error, "sent without markup");
                body[key] = text.body.as_str().into();
                if let Some(object) = body.as_object_mut() {
                    object.remove("parse_mode");
                }
                self.api.call(method, &body, CALL_LIMIT).await
            }
            other => other,
        }
    }

    /// Remembers and names what was sent.
    fn sent(&self, to: &Conversation, answer: Value) -> Result<MessageId, SendError> {
        let sent: SentMessage =
            serde_json::from_value(answer).map_err(|e| SendError::Unknown(e.to_string()))?;
        if to.kind == ConversationKind::Direct {
            self.saw_message(sent.message_id);
        }
        Ok(MessageId(sent.message_id.to_string()))
    }

    async fn send_words(
        &self,
        to: &Conversation,
        text: &Text,
        buttons: Option<&[Button]>,
    ) -> Result<MessageId, SendError> {
        let mut body = address(to)?;
        if let Some(buttons) = buttons {
            body["reply_markup"] = keyboard(buttons);
        }
        let answer = self.call_with_words("sendMessage", body, "text", text).await?;
        self.sent(to, answer)
    }

    async fn send_file(
        &self,
        to: &Conversation,
        picture: &Media,
        caption: &Text,
    ) -> Result<MessageId, SendError> {
        let photo = picture.size <= MAX_PHOTO && matches!(picture.mime.as_str(), "image/jpeg" | "image/png");
        let outcome = self.upload(to, picture, caption, photo).await;
        match outcome {
            // Too large a side, an odd format: as a file it goes through.
            Err(ApiError::Refused { code: 400, why, .. })
                if photo && why.to_lowercase().contains("photo") =>
            {
                let answer = self.upload(to, picture, caption, false).await?;
                self.sent(to, answer)
            }
            other => self.sent(to, other?),
        }
    }

    async fn upload(
        &self,
        to: &Conversation,
        picture: &Media,
        caption: &Text,
        photo: bool,
    ) -> Result<Value, ApiError> {
        let no = |why: String| ApiError::Refused { code: 400, why, retry_after: None };
        let mut fields = address(to).map_err(|e| no(e.to_string()))?;
        if !caption.body.is_empty() {
            put_words(&mut fields, "caption", caption);
        }
        let (method, name) = if photo { ("sendPhoto", "photo") } else { ("sendDocument", "document") };
        let mut plain = false;
        loop {
            let mut form = Form::new();
            for (key, value) in fields.as_object().into_iter().flatten() {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                form = form.text(key.clone(), value);
            }
            let part = FormPart::file(&picture.path)
                .await
                .and_then(|part| part.mime_str(&picture.mime).map_err(std::io::Error::other))
                .map_err(|e| no(format!("the picture cannot be read: {e}")))?;
            match self.api.upload::<Value>(method, form.part(name, part)).await {
                Err(error) if is_markup_fault(&error) && !plain => {
                    plain = true;
                    fields["caption"] = caption.body.as_str().into();
                    if let Some(fields) = fields.as_object_mut() {
                        fields.remove("parse_mode");
                    }
                }
                other => return other,
            }
        }
    }

    async fn edit_words(&self, method: &str, body: Value, key: &str, text: &Text) -> Result<(), ApiError> {
        match self.call_with_words(method, body, key, text).await {
            Err(error) if is_unchanged(&error) => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

impl Messages for Bot {
    fn send<'a>(&'a self, to: &'a Conversation, text: &'a Text) -> Sent<'a> {
        Box::pin(self.send_words(to, text, None))
    }
}

impl Buttons for Bot {
    fn send_card<'a>(&'a self, to: &'a Conversation, text: &'a Text, buttons: &'a [Button]) -> Sent<'a> {
        Box::pin(self.send_words(to, text, Some(buttons)))
    }
}

impl Pictures for Bot {
    fn send_picture<'a>(&'a self, to: &'a Conversation, picture: &'a Media, caption: &'a Text) -> Sent<'a> {
        Box::pin(self.send_file(to, picture, caption))
    }
}

impl Edits for Bot {
    fn pace(&self) -> Duration {
        PACE
    }

    fn edit<'a>(
        &'a self,
        to: &'a Conversation,
        message: &'a MessageId,
        text: &'a Text,
    ) -> BoxFuture<'a, Result<(), SendError>> {
        Box::pin(async move {
            let mut body = address(to)?;
            body["message_id"] = number(message)?.into();
            Ok(self.edit_words("editMessageText", body, "text", text).await?)
        })
    }
}

fn number(message: &MessageId) -> Result<i64, SendError> {
    message.0.parse().map_err(|_| SendError::Refused("no Telegram message".into()))
}

/// Telegram has no call to read a bot's own messages. But a message can be found by changing it into itself:
/// "not modified" says that it is there, "not found" that it is not. Ids of the chats with single people
/// share one count, so that a message sent after the mark has one of the next numbers.
impl Recovery for Bot {
    fn mark(&self, to: &Conversation) -> Option<String> {
        let last = self.last_message.load(Ordering::Relaxed);
        (to.kind == ConversationKind::Direct && last > 0).then(|| last.to_string())
    }

    fn find<'a>(
        &'a self,
        to: &'a Conversation,
        part: &'a Part,
        mark: &'a str,
    ) -> BoxFuture<'a, Result<Option<MessageId>, SendError>> {
        Box::pin(async move {
            let Ok(mark) = mark.parse::<i64>() else { return Ok(None) };
            for id in mark + 1..=mark + LOOK_AHEAD {
                let mut body = address(to)?;
                if let Some(body) = body.as_object_mut() {
                    body.remove("message_thread_id");
                }
                body["message_id"] = id.into();
                let outcome = match part {
                    Part::Text { text } | Part::Edit { text, .. } => {
                        self.edit_words("editMessageText", body, "text", text).await
                    }
                    Part::Card { text, buttons } => {
                        body["reply_markup"] = keyboard(buttons);
                        self.edit_words("editMessageText", body, "text", text).await
                    }
                    Part::Picture { caption, .. } => {
                        self.edit_words("editMessageCaption", body, "caption", caption).await
                    }
                };
                match outcome {
                    Ok(()) => {
                        self.saw_message(id);
                        return Ok(Some(MessageId(id.to_string())));
                    }
                    Err(error) if is_not_ours(&error) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(None)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_carry_no_markup_and_markdown_becomes_html() {
        let mut body = json!({});
        put_words(&mut body, "text", &Text::plain("<b>**x**"));
        assert_eq!((body["text"].as_str(), body.get("parse_mode")), (Some("<b>**x**"), None));
        assert_eq!(body["link_preview_options"]["is_disabled"], true);
        put_words(&mut body, "caption", &Text::markdown("**x**"));
        assert_eq!((body["caption"].as_str(), body["parse_mode"].as_str()), (Some("<b>x</b>"), Some("HTML")));
    }
}
