//! The table `channel_cards`.

use super::{closed_part, key, outbox_rows as outbox};
use crate::approvals::rows::parse;
use crate::channels::message::{Conversation, MessageId, Part};
use crate::store::{StoreError, now_ms};
use hearth_shared::identity::Digest;
use hearth_shared::reading::RequestId;
use outbox::{from_json, json};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

/// A card to be sent.
#[derive(Debug)]
pub(crate) struct NewCard {
    pub(crate) approval: RequestId,
    pub(crate) channel: &'static str,
    pub(crate) person: String,
    pub(crate) conversation: Conversation,
    pub(crate) token: Digest,
    pub(crate) seen: Option<Digest>,
    pub(crate) body: String,
}

/// A card that was sent, found by its token.
#[derive(Debug)]
pub(crate) struct SentCard {
    pub(crate) approval: RequestId,
    pub(crate) channel: String,
    pub(crate) person: String,
    pub(crate) conversation: Conversation,
    pub(crate) seen: Option<Digest>,
    pub(crate) closed: bool,
    pub(crate) message: Option<MessageId>,
}

/// Stores a card and queues its message; `false` when the person has an open one of this approval, or the
/// approval was decided meanwhile.
pub(crate) fn insert(t: &Transaction<'_>, card: &NewCard, part: &Part) -> Result<bool, StoreError> {
    let approval = card.approval.to_string();
    let wanted: bool = t.query_row(
        "SELECT EXISTS (SELECT 1 FROM approvals WHERE id = ?1 AND status = 'pending') AND NOT EXISTS \
         (SELECT 1 FROM channel_cards WHERE approval = ?1 AND channel = ?2 AND person = ?3 AND closed = 0)",
        params![approval, card.channel, card.person],
        |r| r.get(0),
    )?;
    if !wanted {
        return Ok(false);
    }
    t.execute(
        "INSERT INTO channel_cards (approval, channel, person, conversation, token, seen, body, created_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            approval,
            card.channel,
            card.person,
            json(&card.conversation)?,
            card.token.0,
            card.seen.as_ref().map(ToString::to_string),
            card.body,
            now_ms() as i64
        ],
    )?;
    outbox::enqueue(t, &key(t.last_insert_rowid()), card.channel, &card.conversation, part)
}

pub(crate) fn by_token(c: &Connection, token: &Digest) -> Result<Option<SentCard>, StoreError> {
    type Found = (i64, String, String, String, String, Option<String>, bool);
    let found: Option<Found> = c
        .prepare_cached(
            "SELECT id, approval, channel, person, conversation, seen, closed FROM channel_cards WHERE token = ?1",
        )?
        .query_row([token.0], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?, r.get(6)?))
        })
        .optional()?;
    found
        .map(|(id, approval, channel, person, conversation, seen, closed)| {
            Ok(SentCard {
                approval: parse(&approval)?,
                channel,
                person,
                conversation: from_json(&conversation)?,
                seen: seen.as_deref().map(parse).transpose()?,
                closed,
                message: outbox::message(c, &key(id))?,
            })
        })
        .transpose()
}

/// Approvals that have open cards.
pub(crate) fn open_approvals(c: &Connection) -> Result<Vec<RequestId>, StoreError> {
    ids(c, "SELECT DISTINCT approval FROM channel_cards WHERE closed = 0")
}

/// Approvals with open cards that were made without a challenge.
pub(crate) fn without_challenge(c: &Connection) -> Result<Vec<RequestId>, StoreError> {
    ids(c, "SELECT DISTINCT approval FROM channel_cards WHERE closed = 0 AND seen IS NULL")
}

fn ids(c: &Connection, sql: &str) -> Result<Vec<RequestId>, StoreError> {
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([], |r| r.get::<_, String>(0))?;
    rows.map(|id| parse(&id?)).collect()
}

/// Closes the cards of an approval and queues what they become; gives the channels they are on. Cards that
/// were closed long ago are forgotten.
pub(crate) fn close(
    t: &Transaction<'_>,
    approval: &RequestId,
    outcome: &str,
) -> Result<Vec<String>, StoreError> {
    let open: Vec<(i64, String, String, String)> = t
        .prepare_cached(
            "SELECT id, channel, conversation, body FROM channel_cards WHERE approval = ?1 AND closed = 0",
        )?
        .query_map([approval.to_string()], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?
        .collect::<Result<_, _>>()?;
    let mut channels = Vec::new();
    for (id, channel, conversation, body) in open {
        t.execute("UPDATE channel_cards SET closed = 1 WHERE id = ?1", [id])?;
        let (key, part) = closed_part(id, &body, outcome);
        outbox::enqueue(t, &key, &channel, &from_json(&conversation)?, &part)?;
        channels.push(channel);
    }
    let before = now_ms().saturating_sub(crate::channels::outbox::KEEP_MS) as i64;
    t.execute("DELETE FROM channel_cards WHERE closed = 1 AND created_ms < ?1", [before])?;
    Ok(channels)
}
