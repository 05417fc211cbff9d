//! Telegram: a bot that fetches its messages (long polling), so that the hub needs no public address.
//!
//! | file | |
//! | --- | --- |
//! | [`config`] | `[channels.telegram]` |
//! | [`api`] | one call of the Bot API, and what its errors mean |
//! | [`types`] | the few fields that are read; unknown ones are passed over, so that a newer API breaks nothing |
//! | [`updates`] | from an update to a neutral message or press |
//! | [`markup`] | from Markdown to the HTML that Telegram takes |
//! | [`send`] | messages, pictures, cards, edits, and finding a message whose answer got lost |

mod api;
mod config;
mod markup;
mod send;
mod types;
mod updates;

pub use config::TelegramConfig;

use super::adapter::{
    Adapter, Buttons, Channel, ChannelError, Edits, Files, Ground, Messages, Pictures, Recovery, SendError,
    Typing,
};
use super::capabilities::{Capabilities, Limit, Unit};
use super::inbox::Inbox;
use super::message::{Attachment, Conversation};
use crate::config::AccessConfig;
use api::{Api, ApiError};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use types::{File, Me, Update};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Telegram;

/// Telegram counts what is left after markup was read; ours counts before, so that it never is too long.
const TEXT: Limit = Limit { max: 4096, unit: Unit::Utf16 };
const CAPTION: Limit = Limit { max: 1024, unit: Unit::Utf16 };
/// An answer without updates that came sooner than this did not wait: a server that knows no long polling
/// must not be asked without end.
const QUICK: Duration = Duration::from_secs(1);
/// Then wait so long before asking again.
const AFTER_QUICK: Duration = Duration::from_millis(300);
/// What a call may take beside the time for which the server holds a poll.
const CALL_LIMIT: Duration = Duration::from_secs(30);

impl Channel for Telegram {
    const NAME: &'static str = "telegram";
    const CAN: Capabilities = Capabilities {
        text: TEXT,
        pictures: Some(CAPTION),
        buttons: true,
        own_cards: false,
        edits: true,
        typing: true,
        files: true,
        groups: true,
        recovery: true,
    };
    type Config = TelegramConfig;

    fn access(config: &TelegramConfig) -> Option<&AccessConfig> {
        Some(&config.access)
    }

    fn problems(config: &TelegramConfig) -> Vec<(&'static str, String)> {
        config.problems()
    }

    fn open(config: &TelegramConfig, _: &Ground) -> Result<Arc<dyn Adapter>, ChannelError> {
        Ok(Arc::new(Bot {
            api: Api::new(config)?,
            poll: Duration::from_secs(config.poll_s),
            me: OnceLock::new(),
            last_message: AtomicI64::new(0),
        }))
    }
}

#[derive(Debug)]
struct Bot {
    api: Api,
    poll: Duration,
    me: OnceLock<Me>,
    /// The highest message id that was seen in a chat with one person: they share one count.
    last_message: AtomicI64,
}

impl Bot {
    async fn me(&self) -> Result<&Me, ApiError> {
        if let Some(me) = self.me.get() {
            return Ok(me);
        }
        let me = self.api.call("getMe", &json!({}), CALL_LIMIT).await?;
        Ok(self.me.get_or_init(|| me))
    }

    fn saw_message(&self, id: i64) {
        self.last_message.fetch_max(id, Ordering::Relaxed);
    }

    /// Polls until something fails. An update is handed in, then the offset is stored, then the next one is
    /// looked at; Telegram forgets an update when it is asked for the ones behind it.
    async fn poll(&self, inbox: &Inbox) -> Result<(), ChannelError> {
        let mut offset = inbox.cursor().await?.and_then(|c| read_cursor(&c)).map(|(offset, _)| offset);
        let me = self.me().await?;
        tracing::debug!(bot = me.username.as_deref().unwrap_or_default(), "polling");
        // The first poll waits for nothing: the channel is up as soon as it is answered.
        let mut hold = Duration::ZERO;
        loop {
            let began = tokio::time::Instant::now();
            let mut body =
                json!({ "timeout": hold.as_secs(), "allowed_updates": ["message", "callback_query"] });
            if let Some(offset) = offset {
                body["offset"] = offset.into();
            }
            let updates: Vec<Value> = self.api.call("getUpdates", &body, hold + CALL_LIMIT).await?;
            inbox.connected();
            if updates.is_empty() && !hold.is_zero() && began.elapsed() < QUICK {
                tokio::time::sleep(AFTER_QUICK).await;
            }
            hold = self.poll;
            for update in updates {
                let Some(id) = update["update_id"].as_i64() else {
                    return Err(ChannelError::Protocol("an update without `update_id`".into()));
                };
                match serde_json::from_value::<Update>(update) {
                    Ok(update) => self.take(update, me, inbox).await?,
                    // What cannot be read now cannot be read later either.
                    Err(error) => tracing::warn!(id, %error, "an update is passed over"),
                }
                offset = Some(id + 1);
                inbox.advance(format!("{} {}", id + 1, self.last_message.load(Ordering::Relaxed))).await?;
            }
        }
    }

    async fn take(&self, update: Update, me: &Me, inbox: &Inbox) -> Result<(), ChannelError> {
        if let Some(message) = update.message {
            if message.chat.is_private() {
                self.saw_message(message.message_id);
            }
            if let Some(incoming) = updates::incoming(message, me) {
                inbox.message(incoming).await?;
            }
        }
        if let Some(query) = update.callback_query {
            let id = query.id.clone();
            let answer = match updates::press(query) {
                Some(press) => inbox.press(press).await?,
                None => "This button is not valid.".into(),
            };
            // Late answers are refused by Telegram; the decision stands all the same.
            let body = json!({ "callback_query_id": id, "text": answer });
            if let Err(error) = self.api.call::<Value>("answerCallbackQuery", &body, CALL_LIMIT).await {
                tracing::info!(%error, "a press was not answered");
            }
        }
        Ok(())
    }
}

impl Adapter for Bot {
    fn receive<'a>(&'a self, inbox: &'a Inbox) -> BoxFuture<'a, Result<(), ChannelError>> {
        Box::pin(self.poll(inbox))
    }

    fn restore(&self, cursor: &str) {
        if let Some((_, last_message)) = read_cursor(cursor) {
            self.saw_message(last_message);
        }
    }

    fn check(&self) -> BoxFuture<'_, Result<String, ChannelError>> {
        Box::pin(async {
            let me: Me = self.api.call("getMe", &json!({}), CALL_LIMIT).await?;
            Ok(me.username.map_or(me.first_name, |name| format!("@{name}")))
        })
    }

    /// The chat with a person has the person's id.
    fn direct<'a>(&'a self, person: &'a str) -> BoxFuture<'a, Result<Conversation, SendError>> {
        Box::pin(async move {
            match person.parse::<i64>() {
                Ok(id) if id > 0 => Ok(Conversation::direct(id.to_string())),
                _ => Err(SendError::Refused(format!(
                    "`{}` is no numeric Telegram id",
                    hearth_shared::identity::display_safe(person, 40)
                ))),
            }
        })
    }

    fn messages(&self) -> &dyn Messages {
        self
    }
    fn pictures(&self) -> Option<&dyn Pictures> {
        Some(self)
    }
    fn edits(&self) -> Option<&dyn Edits> {
        Some(self)
    }
    fn buttons(&self) -> Option<&dyn Buttons> {
        Some(self)
    }
    fn typing(&self) -> Option<&dyn Typing> {
        Some(self)
    }
    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }
    fn recovery(&self) -> Option<&dyn Recovery> {
        Some(self)
    }
}

/// The next update to ask for, and the last message that was seen then.
fn read_cursor(cursor: &str) -> Option<(i64, i64)> {
    let (offset, last) = cursor.split_once(' ')?;
    Some((offset.parse().ok()?, last.parse().ok()?))
}

impl Typing for Bot {
    fn show_typing<'a>(&'a self, to: &'a Conversation) -> BoxFuture<'a, Result<(), SendError>> {
        Box::pin(async move {
            let mut body = send::address(to)?;
            body["action"] = "typing".into();
            self.api.call::<Value>("sendChatAction", &body, CALL_LIMIT).await?;
            Ok(())
        })
    }
}

impl Files for Bot {
    fn fetch<'a>(
        &'a self,
        attachment: &'a Attachment,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<u8>, SendError>> {
        Box::pin(async move {
            let body = json!({ "file_id": attachment.source });
            let file: File = self.api.call("getFile", &body, CALL_LIMIT).await?;
            let path = file.file_path.ok_or_else(|| SendError::Refused("the file has no address".into()))?;
            Ok(self.api.download(&path, limit).await?)
        })
    }
}
