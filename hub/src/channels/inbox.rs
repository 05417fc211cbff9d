//! What an adapter hands in.
//!
//! A message is judged by the access rules, its files are fetched, and it becomes a run: on disk when
//! [`Inbox::message`] returns. Then the adapter moves its cursor. A hub that is killed in between gets the
//! message again and finds the run by the message's id: nothing is lost and nothing is done twice.

use super::adapter::{Adapter, ChannelError};
use super::cards::Cards;
use super::draft::Drafts;
use super::health::Health;
use super::message::{Conversation, Inbound, Incoming, Part, Press, ReplyTo, Text};
use super::outbox::rows;
use super::people::People;
use crate::config::AccessConfig;
use crate::nodes::Media;
use crate::nodes::media::MediaStore;
use crate::routing::access::{self, Verdict};
use crate::routing::{RouteError, Router};
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::identity::{DeviceId, display_safe};
use hearth_shared::reading::RequestId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Files of one message that are kept.
const MAX_FILES: usize = 10;
/// Bytes of one file; Telegram gives bots no larger ones either.
const MAX_FILE: u64 = 20 * 1024 * 1024;
/// Longest that one file may take.
const FETCH_LIMIT: Duration = Duration::from_secs(120);
/// Longest that "is writing" may take; it is only a courtesy.
const TYPING_LIMIT: Duration = Duration::from_secs(2);
/// A conversation is told at most once in this time that a message was not taken.
const REFUSAL_EVERY_MS: u64 = 60_000;

pub(super) async fn cursor(store: &Store, channel: &'static str) -> Result<Option<String>, StoreError> {
    use rusqlite::OptionalExtension as _;
    let sql = "SELECT cursor FROM channel_cursors WHERE channel = ?1";
    store.read(move |c| Ok(c.query_row(sql, [channel], |r| r.get(0)).optional()?)).await
}

/// The hub's end of one channel.
#[derive(Debug)]
pub struct Inbox {
    pub(super) channel: &'static str,
    pub(super) access: AccessConfig,
    pub(super) adapter: Arc<dyn Adapter>,
    pub(super) store: Store,
    pub(super) people: People,
    pub(super) router: Router,
    pub(super) media: MediaStore,
    pub(super) cards: Cards,
    pub(super) drafts: Arc<Drafts>,
    pub(super) health: Arc<Health>,
    pub(super) wake: Arc<Notify>,
    pub(super) hub: DeviceId,
}

impl Inbox {
    /// The cursor that was stored last.
    ///
    /// # Errors
    /// [`ChannelError::Store`].
    pub async fn cursor(&self) -> Result<Option<String>, ChannelError> {
        Ok(cursor(&self.store, self.channel).await?)
    }

    /// Stores how far was received: everything before it was handed in.
    ///
    /// # Errors
    /// [`ChannelError::Store`].
    pub async fn advance(&self, cursor: String) -> Result<(), ChannelError> {
        let channel = self.channel;
        self.store
            .write(move |t| {
                let sql = "INSERT OR REPLACE INTO channel_cursors (channel, cursor) VALUES (?1, ?2)";
                t.execute(sql, [channel, cursor.as_str()])?;
                Ok(())
            })
            .await?;
        Ok(())
    }

    /// The platform answered: the account works.
    pub fn connected(&self) {
        self.health.up();
    }

    /// Takes a message. What the rules refuse is no error.
    ///
    /// # Errors
    /// [`ChannelError::Store`] when it could not be stored; hand it in again.
    pub async fn message(&self, message: Incoming) -> Result<(), ChannelError> {
        self.health.received();
        let known = self.people.known(self.channel, &message.sender.id).await?;
        match access::judge(&self.access, known, self.channel, &message) {
            Verdict::Ignore(why) => {
                tracing::debug!(channel = self.channel, sender = message.sender.id, why, "not answered");
                Ok(())
            }
            Verdict::Knock => self.knock(&message).await,
            Verdict::Admit { session, may_decide } => self.admit(message, session, may_decide).await,
        }
    }

    async fn knock(&self, message: &Incoming) -> Result<(), ChannelError> {
        let sender = &message.sender;
        let Some(code) = self.people.knock(self.channel, &sender.id, &sender.name).await? else {
            return Ok(());
        };
        let text = format!(
            "This is a private assistant. Give its owner this code, and he can let you in:\n\n{code}\n\n\
             He types: hearth channels allow {} {code}\nThe code is good for an hour.",
            self.channel
        );
        self.queue(format!("knock/{}/{code}", self.channel), &message.conversation, text).await
    }

    async fn admit(&self, message: Incoming, session: String, may_decide: bool) -> Result<(), ChannelError> {
        let Incoming { id, conversation, sender, text, attachments, .. } = message;
        let run_id = format!("{}:{}:{id}", self.channel, conversation.id);
        let reply_to = ReplyTo { channel: self.channel.into(), conversation: conversation.clone() };
        let mut kept = Vec::new();
        for attachment in attachments.iter().take(MAX_FILES) {
            if let Some(media) = self.keep(attachment).await {
                kept.push((display_safe(&attachment.label, 64), media));
            }
        }
        if text.trim().is_empty() && kept.is_empty() {
            if !attachments.is_empty() {
                let text =
                    format!("This file could not be kept; the limit is {} MB.", MAX_FILE / (1024 * 1024));
                return self.queue(format!("file/{run_id}"), &conversation, text).await;
            }
            return Ok(());
        }
        self.drafts.follow(&run_id, &reply_to, may_decide);
        let inbound = Inbound {
            channel: self.channel.into(),
            // A name is the platform's word; the id behind it is what rules are about.
            sender: format!("{} ({})", display_safe(&sender.name, 40), display_safe(&sender.id, 40)),
            session,
            message_id: run_id.clone(),
            text,
            attachments: kept,
            may_decide,
            reply_to: Some(reply_to),
        };
        // Side by side: a platform that is slow to show it must not hold the message up.
        let (delivered, ()) = tokio::join!(self.router.deliver(inbound), self.show_typing(&conversation));
        match delivered {
            Ok(_) => Ok(()),
            Err(RouteError::Store(error)) => Err(error.into()),
            // The platform gave the message twice, and it was edited in between: the first text counts.
            Err(RouteError::KeyReused) => Ok(()),
            Err(RouteError::Refused(why) | RouteError::Busy(why)) => {
                self.drafts.end(&run_id);
                let key =
                    format!("refused/{}/{}/{}", self.channel, conversation.id, now_ms() / REFUSAL_EVERY_MS);
                self.queue(key, &conversation, format!("This was not taken: {why}.")).await
            }
        }
    }

    async fn keep(&self, attachment: &super::message::Attachment) -> Option<Media> {
        let files = self.adapter.files()?;
        if attachment.size.is_some_and(|size| size > MAX_FILE) {
            return None;
        }
        let fetched = tokio::time::timeout(FETCH_LIMIT, files.fetch(attachment, MAX_FILE)).await;
        let bytes = match fetched {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                tracing::warn!(channel = self.channel, %error, "a file was not fetched");
                return None;
            }
            Err(_) => {
                tracing::warn!(channel = self.channel, "a file took too long");
                return None;
            }
        };
        let request = RequestId::fresh().ok()?;
        match self.media.put(self.hub, request, &attachment.mime, &bytes).await {
            Ok(media) => Some(media),
            Err(error) => {
                tracing::warn!(channel = self.channel, %error, "a file was not kept");
                None
            }
        }
    }

    async fn show_typing(&self, to: &Conversation) {
        if let Some(typing) = self.adapter.typing()
            && let Ok(Err(error)) = tokio::time::timeout(TYPING_LIMIT, typing.show_typing(to)).await
        {
            tracing::debug!(channel = self.channel, %error, "typing is not shown");
        }
    }

    async fn queue(&self, key: String, to: &Conversation, text: String) -> Result<(), ChannelError> {
        let (channel, to) = (self.channel, to.clone());
        let part = Part::Text { text: Text::plain(text) };
        self.store.write(move |t| rows::enqueue(t, &key, channel, &to, &part)).await?;
        self.wake.notify_one();
        Ok(())
    }

    /// Takes the press of a button; gives the line that the person who pressed gets to see.
    ///
    /// # Errors
    /// [`ChannelError::Store`] when nothing could be decided; hand it in again.
    pub async fn press(&self, press: Press) -> Result<String, ChannelError> {
        self.health.received();
        let known = self.people.known(self.channel, &press.person.id).await?;
        let may_decide = access::may_decide(&self.access, &press.person.id, known);
        let outcome: Result<String, StoreError> = self.cards.press(self.channel, &press, may_decide).await;
        Ok(outcome?)
    }
}
