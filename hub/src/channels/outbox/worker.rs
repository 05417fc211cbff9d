//! The task that empties the outbox of one channel: one message at a time.

use super::{MAX_TRIES, rows};
use crate::channels::adapter::{Adapter, SendError};
use crate::channels::capabilities::{Capabilities, in_words};
use crate::channels::draft::Drafts;
use crate::channels::health::Health;
use crate::channels::message::{Conversation, MessageId, Part, Text};
use crate::channels::split::split;
use crate::store::{Store, StoreError};
use rows::Queued;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest that one message may take, a picture over a slow line included.
const SEND_LIMIT: Duration = Duration::from_secs(120);
/// What is being sent when the hub stops may come to its end for so long.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// Pauses after a failed try grow to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Longest that a platform may make us wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// After a fault of the database.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) channel: &'static str,
    pub(crate) can: Capabilities,
    pub(crate) adapter: Arc<dyn Adapter>,
    pub(crate) store: Store,
    pub(crate) wake: Arc<Notify>,
    pub(crate) drafts: Arc<Drafts>,
    pub(crate) health: Arc<Health>,
    pub(crate) stop: CancellationToken,
}

/// Conversations that have to wait, and until when.
type Pauses = HashMap<Conversation, Instant>;

impl Worker {
    /// Until the hub stops.
    pub(crate) async fn run(self) {
        let mut pauses = Pauses::new();
        while !self.stop.is_cancelled() {
            let now = Instant::now();
            pauses.retain(|_, until| *until > now);
            match self.step(&mut pauses).await {
                Ok(true) => {}
                Ok(false) => {
                    let due = pauses.values().min().copied().into_iter().chain(self.drafts.next_due()).min();
                    self.rest(due).await;
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(channel = self.channel, %error, "the outbox cannot be read or written");
                    self.rest(Some(Instant::now() + STORE_PAUSE)).await;
                }
            }
        }
    }

    async fn rest(&self, until: Option<Instant>) {
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.wake.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    /// Serves one message or one draft; `false` when there is none.
    async fn step(&self, pauses: &mut Pauses) -> Result<bool, StoreError> {
        let (channel, paused) = (self.channel, pauses.keys().cloned().collect::<Vec<_>>());
        if let Some(queued) = self.store.read(move |c| rows::next(c, channel, &paused)).await? {
            self.serve(queued, pauses).await?;
            return Ok(true);
        }
        let Some(due) = self.drafts.take_due(Instant::now()) else { return Ok(false) };
        if !pauses.contains_key(&due.to.conversation) {
            self.write_draft(due, pauses).await?;
        }
        Ok(true)
    }

    async fn serve(&self, queued: Queued, pauses: &mut Pauses) -> Result<(), StoreError> {
        let id = queued.id;
        let outcome = match self.settle(&queued).await? {
            Some(outcome) => outcome,
            None => self.post(&queued).await?,
        };
        match outcome {
            Ok(message) => {
                self.health.sent();
                self.store
                    .write(move |t| {
                        rows::posted(t, id, &message)?;
                        rows::end(t, id, None)
                    })
                    .await
            }
            Err(error) => self.failed(&queued, error, pauses).await,
        }
    }

    /// What need not be sent anew: edits of known messages, and messages that are found to be there.
    async fn settle(&self, queued: &Queued) -> Result<Option<Result<MessageId, SendError>>, StoreError> {
        let to = &queued.conversation;
        let known = match &queued.part {
            Part::Edit { of, .. } => {
                let of = of.clone();
                match self.store.read(move |c| rows::message(c, &of)).await? {
                    Some(message) => Some(message),
                    None => {
                        return Ok(Some(Err(SendError::Refused(
                            "what it would change was never sent".into(),
                        ))));
                    }
                }
            }
            _ => queued.message.clone(),
        };
        if let Some(message) = known {
            let text = queued.part.text();
            return Ok(Some(match self.adapter.edits() {
                Some(edits) => self.within(edits.edit(to, &message, text)).await.map(|()| message),
                None => self.within(self.adapter.messages().send(to, text)).await,
            }));
        }
        if queued.begun
            && let (Some(recovery), Some(mark)) = (self.adapter.recovery(), &queued.mark)
        {
            return Ok(self.within(recovery.find(to, &queued.part, mark)).await.transpose());
        }
        Ok(None)
    }

    async fn post(&self, queued: &Queued) -> Result<Result<MessageId, SendError>, StoreError> {
        let (id, to) = (queued.id, &queued.conversation);
        let mark = self.adapter.recovery().and_then(|r| r.mark(to));
        self.store.write(move |t| rows::begin(t, id, mark.as_deref())).await?;
        let messages = self.adapter.messages();
        Ok(match &queued.part {
            Part::Text { text } | Part::Edit { text, .. } => self.within(messages.send(to, text)).await,
            Part::Picture { picture, caption } => match self.adapter.pictures() {
                Some(pictures) => self.within(pictures.send_picture(to, picture, caption)).await,
                None => Err(SendError::Refused("no pictures here".into())),
            },
            Part::Card { text, buttons } => match self.adapter.buttons() {
                Some(facet) => self.within(facet.send_card(to, text, buttons)).await,
                None => self.within(messages.send(to, text)).await,
            },
        })
    }

    /// With its deadline; what is under way when the hub stops gets a moment.
    async fn within<T>(&self, work: impl Future<Output = Result<T, SendError>>) -> Result<T, SendError> {
        let mut work = std::pin::pin!(tokio::time::timeout(SEND_LIMIT, work));
        let late = |_| Err(SendError::Unknown(format!("nothing within {} s", SEND_LIMIT.as_secs())));
        tokio::select! {
            biased;
            outcome = &mut work => outcome.unwrap_or_else(late),
            () = self.stop.cancelled() => match tokio::time::timeout(STOP_GRACE, work).await {
                Ok(outcome) => outcome.unwrap_or_else(late),
                Err(_) => Err(SendError::Unknown("the hub stopped meanwhile".into())),
            },
        }
    }

    async fn failed(&self, queued: &Queued, error: SendError, pauses: &mut Pauses) -> Result<(), StoreError> {
        let (id, why) = (queued.id, error.to_string());
        let again = |tries: u32| {
            let pause = Duration::from_secs(1 << tries.min(6)).min(LONGEST_PAUSE);
            Instant::now() + pause
        };
        match error {
            SendError::Slow { wait } => {
                tracing::info!(channel = self.channel, wait_s = wait.as_secs(), "the platform asks to wait");
                pauses.insert(queued.conversation.clone(), Instant::now() + wait.min(LONGEST_WAIT));
                self.store.write(move |t| rows::not_posted(t, id, &why, false)).await
            }
            SendError::Refused(_) => {
                if let Part::Picture { picture, caption } = &queued.part {
                    tracing::warn!(channel = self.channel, %why, "a picture is sent in words");
                    let words = format!("{}\n{}", caption.body, in_words(picture));
                    let part = Part::Text { text: Text::plain(words.trim()) };
                    return self.store.write(move |t| rows::replace(t, id, &part, &why)).await;
                }
                tracing::warn!(channel = self.channel, %why, "a message cannot be sent");
                self.health.failed_to_send(&why);
                self.store.write(move |t| rows::end(t, id, Some(&why))).await
            }
            _ if queued.tries >= MAX_TRIES => {
                self.health.failed_to_send(&why);
                self.store.write(move |t| rows::end(t, id, Some(&why))).await
            }
            SendError::Unreachable(_) => {
                self.health.failed_to_send(&why);
                pauses.insert(queued.conversation.clone(), again(queued.tries));
                self.store.write(move |t| rows::not_posted(t, id, &why, true)).await
            }
            SendError::Unknown(_) => {
                self.health.failed_to_send(&why);
                pauses.insert(queued.conversation.clone(), again(queued.tries));
                self.store.write(move |t| rows::unanswered(t, id, &why)).await
            }
        }
    }

    /// Shows how far an answer has come. Not durable: the answer itself replaces it.
    async fn write_draft(
        &self,
        due: super::super::draft::Due,
        pauses: &mut Pauses,
    ) -> Result<(), StoreError> {
        let Some(edits) = self.adapter.edits() else { return Ok(()) };
        let (run_id, to) = (due.run_id.clone(), due.to.clone());
        let Some(draft) = self.store.write(move |t| rows::draft(t, &run_id, &to)).await? else {
            self.drafts.end(&due.run_id);
            return Ok(());
        };
        let to = &due.to.conversation;
        let mut pieces = split(&due.text, self.can.text, self.can.text);
        if pieces.is_empty() {
            return Ok(());
        }
        let text = Text::markdown(pieces.swap_remove(0));
        let id = draft.id;
        let outcome = match draft.message {
            Some(message) => self.within(edits.edit(to, &message, &text)).await,
            // It was begun and no answer came: the finished answer will settle it.
            None if draft.begun => Err(SendError::Unknown("not answered yet".into())),
            None => {
                let mark = self.adapter.recovery().and_then(|r| r.mark(to));
                self.store.write(move |t| rows::begin(t, id, mark.as_deref())).await?;
                match self.within(self.adapter.messages().send(to, &text)).await {
                    Ok(message) => {
                        self.store.write(move |t| rows::posted(t, id, &message)).await?;
                        Ok(())
                    }
                    Err(SendError::Unknown(why)) => Err(SendError::Unknown(why)),
                    Err(error) => {
                        let why = error.to_string();
                        self.store.write(move |t| rows::not_posted(t, id, &why, false)).await?;
                        Err(error)
                    }
                }
            }
        };
        match outcome {
            Ok(()) => self.drafts.written(&due.run_id, Instant::now() + edits.pace()),
            Err(SendError::Slow { wait }) => {
                pauses.insert(to.clone(), Instant::now() + wait.min(LONGEST_WAIT));
            }
            Err(error) => {
                tracing::debug!(channel = self.channel, %error, "an answer is not shown while it is written");
                self.drafts.end(&due.run_id);
            }
        }
        Ok(())
    }
}
