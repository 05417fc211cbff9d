//! Approvals in chat: a card for everybody who may decide, in his direct chat, with buttons.
//!
//! A card is made from the challenge that the node signed, in plain text without markup. Its buttons carry a
//! random token of 128 bits; what counts besides is who pressed (the platform's id), where, and under which
//! message. What is too long to be shown whole gets no buttons: it is for the page. Once decided, wherever
//! that was, every card says so and loses its buttons.

mod compose;
pub(crate) mod rows;

use super::adapter::{Adapter, SendError};
use super::capabilities::Capabilities;
use super::message::{ConversationKind, Part, Press, Text};
use super::outbox;
use super::people::People;
use crate::actions::{ActionError, Actions};
use crate::approvals::{ApprovalStatus, Card, Decider};
use crate::bus::{Bus, Event};
use crate::config::AccessConfig;
use crate::hub::Tasks;
use crate::store::{Store, StoreError};
use compose::{compose, cut, outcome, read_data};
use hearth_shared::identity::{DeviceId, Digest, random};
use hearth_shared::reading::RequestId;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Longest that opening a card may take: the node is asked for its challenge.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// Longest that finding a person's conversation may take.
const DIRECT_LIMIT: Duration = Duration::from_secs(30);

/// A channel on which cards can be shown.
#[derive(Debug, Clone)]
pub(super) struct Board {
    pub(super) name: &'static str,
    pub(super) can: Capabilities,
    pub(super) access: AccessConfig,
    pub(super) adapter: Arc<dyn Adapter>,
    pub(super) wake: Arc<Notify>,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Cards {
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    store: Store,
    bus: Bus,
    actions: Actions,
    people: People,
    tasks: Tasks,
    boards: Mutex<Vec<Board>>,
    /// Approvals whose cards are being made.
    posting: Mutex<HashSet<RequestId>>,
}

/// Who gets a card.
struct Recipient {
    board: Board,
    person: String,
}

impl Cards {
    pub(super) fn new(store: Store, bus: Bus, actions: Actions, people: People, tasks: Tasks) -> Self {
        let (boards, posting) = (Mutex::default(), Mutex::default());
        Self { parts: Arc::new(Parts { store, bus, actions, people, tasks, boards, posting }) }
    }

    /// Tells which channels there are.
    pub(super) fn set_boards(&self, boards: Vec<Board>) {
        *self.parts.boards.lock().unwrap_or_else(PoisonError::into_inner) = boards;
    }

    fn boards(&self) -> Vec<Board> {
        self.parts.boards.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn recipients(&self) -> Result<Vec<Recipient>, StoreError> {
        let mut found = Vec::new();
        for board in self.boards() {
            let mut people: Vec<String> = board.access.approvers.clone();
            for member in self.parts.people.members(board.name).await? {
                if member.may_decide && !people.contains(&member.person) {
                    people.push(member.person);
                }
            }
            people.sort();
            people.dedup();
            found.extend(people.into_iter().map(|person| Recipient { board: board.clone(), person }));
        }
        Ok(found)
    }

    /// Counts the people who may decide in chat, for "is there anybody to ask".
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn count_approvers(&self) -> Result<(), StoreError> {
        let count = self.recipients().await?.len();
        self.parts.actions.chat_approvers(count);
        Ok(())
    }

    /// After a start, and when events were lost: every approval that waits has its cards, and no other.
    pub(super) async fn reconcile(&self) -> Result<(), StoreError> {
        let pending = match self.parts.actions.approvals(false).await {
            Ok(pending) => pending,
            Err(ActionError::Store(error)) => return Err(error),
            Err(error) => return Err(StoreError::Corrupt(error.to_string())),
        };
        for id in self.parts.store.read(rows::open_approvals).await? {
            if !pending.iter().any(|a| a.id == id) {
                self.resolved(id).await?;
            }
        }
        for approval in pending {
            self.requested(approval.id);
        }
        Ok(())
    }

    /// A node is back: cards that were made without its challenge make way for real ones.
    pub(super) async fn node_back(&self, node: DeviceId) -> Result<(), StoreError> {
        for id in self.parts.store.read(rows::without_challenge).await? {
            let approval = self.parts.actions.approval(&id.to_string()).await.ok();
            if approval.is_some_and(|a| a.node == node && a.checked_on_node) {
                self.resolved(id).await?;
                self.requested(id);
            }
        }
        Ok(())
    }

    /// An approval waits: makes its cards, in a task of its own, because the node is asked.
    pub(super) fn requested(&self, id: RequestId) {
        if !self.parts.posting.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
            return;
        }
        let cards = self.clone();
        let stop = self.parts.tasks.stop.clone();
        self.parts.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                outcome = cards.post(id) => {
                    if let Err(error) = outcome {
                        tracing::warn!(%id, %error, "cards of an approval cannot be sent");
                    }
                }
            }
            cards.parts.posting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
    }

    async fn post(&self, id: RequestId) -> Result<(), ActionError> {
        let recipients = self.recipients().await?;
        if recipients.is_empty() {
            return Ok(());
        }
        let opened = tokio::time::timeout(OPEN_LIMIT, self.parts.actions.card(&id.to_string())).await;
        let card = match opened {
            Ok(card) => card?,
            // The node does not answer: what the hub knows is better than silence, and is marked so.
            Err(_) => {
                let approval = self.parts.actions.approval(&id.to_string()).await?;
                Card { approval, challenge: None, shown: None, head: hearth_shared::chain::Head::default() }
            }
        };
        if card.approval.status != ApprovalStatus::Pending {
            return Ok(());
        }
        for Recipient { board, person } in recipients {
            let found = tokio::time::timeout(DIRECT_LIMIT, board.adapter.direct(&person)).await;
            let late = Err(SendError::Unreachable("no answer in time".into()));
            let conversation = match found.unwrap_or(late) {
                Ok(conversation) => conversation,
                Err(error) => {
                    tracing::warn!(channel = board.name, person, %error, "an approver is not reached");
                    continue;
                }
            };
            let token = random::<16>().map_err(|e| StoreError::Corrupt(e.to_string()))?;
            let (part, body) = compose(&card, &board.can, &hex::encode(token));
            let new = rows::NewCard {
                approval: id,
                channel: board.name,
                person,
                conversation,
                token: Digest::of(&token),
                seen: card.challenge.as_ref().map(hearth_shared::challenge::SignedChallenge::digest),
                body,
            };
            if self.parts.store.write(move |t| rows::insert(t, &new, &part)).await? {
                board.wake.notify_one();
            }
        }
        Ok(())
    }

    /// An approval was decided, expired or withdrawn: its cards say so and lose their buttons.
    pub(super) async fn resolved(&self, id: RequestId) -> Result<(), StoreError> {
        let approval = match self.parts.actions.approval(&id.to_string()).await {
            Ok(approval) => Some(approval),
            Err(ActionError::Store(error)) => return Err(error),
            Err(_) => None,
        };
        let outcome = outcome(approval.as_ref());
        let channels = self.parts.store.write(move |t| rows::close(t, &id, &outcome)).await?;
        for board in self.boards().iter().filter(|b| channels.iter().any(|c| c == b.name)) {
            board.wake.notify_one();
        }
        Ok(())
    }

    /// Somebody pressed a button. Gives the line he gets to see.
    pub(super) async fn press(
        &self,
        channel: &'static str,
        press: &Press,
        may_decide: bool,
    ) -> Result<String, StoreError> {
        const NOT_VALID: &str = "This button is not valid.";
        let refuse = |why: &str| {
            tracing::warn!(channel, person = press.person.id, why, "a button is refused");
            Ok(NOT_VALID.to_owned())
        };
        let Some((decision, token)) = read_data(&press.data) else { return refuse("no token") };
        let digest = Digest::of(&token);
        let Some(card) = self.parts.store.read(move |c| rows::by_token(c, &digest)).await? else {
            return refuse("unknown token");
        };
        if card.channel != channel || card.person != press.person.id {
            return refuse("another person's button");
        }
        if press.conversation.kind != ConversationKind::Direct || card.conversation != press.conversation {
            return refuse("another conversation");
        }
        match &card.message {
            Some(message) if *message == press.message => {}
            Some(_) => return refuse("another message"),
            // It was sent and the platform's answer got lost; it is being looked for.
            None => return Ok("One moment: try again in a few seconds.".into()),
        }
        if !may_decide {
            return refuse("not an approver any more");
        }
        let id = card.approval;
        if card.closed {
            let approval = self.parts.actions.approval(&id.to_string()).await.ok();
            return Ok(cut(&outcome(approval.as_ref())));
        }
        let who = format!(
            "{channel}: {} ({})",
            hearth_shared::identity::display_safe(&press.person.name, 40),
            press.person.id
        );
        let by = Decider::Hub { who, seen: card.seen };
        Ok(match self.parts.actions.decide(&id.to_string(), decision, by).await {
            Ok(approval) => cut(&outcome(Some(&approval))),
            Err(ActionError::Store(error)) => return Err(error),
            Err(ActionError::Changed) => {
                self.resolved(id).await?;
                self.parts.bus.emit(Event::ApprovalRequested { id });
                "The request changed since it was shown; a new card follows.".into()
            }
            Err(error) => {
                if matches!(error, ActionError::AlreadyDecided { .. }) {
                    self.resolved(id).await?;
                }
                cut(&error.to_string())
            }
        })
    }
}

/// Key of a card's message in the outbox.
pub(super) fn key(id: i64) -> String {
    format!("card/{id}")
}

/// How a card looks when it is closed.
pub(super) fn closed_part(id: i64, body: &str, outcome: &str) -> (String, Part) {
    let text = Text::plain(format!("{body}\n\n{outcome}"));
    (format!("{}/closed", key(id)), Part::Edit { of: key(id), text })
}

pub(super) use outbox::rows as outbox_rows;
