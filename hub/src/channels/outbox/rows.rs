//! The table `outbox`.

use super::{KEEP_MS, MAX_WAITING};
use crate::approvals::rows::from_word;
use crate::channels::capabilities::Capabilities;
use crate::channels::message::{Conversation, MessageId, Part, Reply, ReplyTo, Text};
use crate::channels::plan;
use crate::store::{StoreError, now_ms};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Runs whose answers are taken over at once.
const HAND_OVER: i64 = 100;
/// A message that was begun this long ago has scrolled away: the answer comes as a new one.
const SEEN_FOR_MS: u64 = 120_000;

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) id: i64,
    pub(crate) conversation: Conversation,
    pub(crate) part: Part,
    pub(crate) message: Option<MessageId>,
    pub(crate) begun: bool,
    pub(crate) mark: Option<String>,
    pub(crate) tries: u32,
}

/// A message that is still being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) id: i64,
    pub(crate) message: Option<MessageId>,
    pub(crate) begun: bool,
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::Corrupt(e.to_string()))
}

pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Corrupt(e.to_string()))
}

/// Key of the n-th message of a run's answer.
pub(crate) fn run_key(run_id: &str, n: usize) -> String {
    format!("run/{run_id}/{n}")
}

/// Queues a message once: `false` when there is one with this key, or no room.
pub(crate) fn enqueue(
    t: &Transaction<'_>,
    key: &str,
    channel: &str,
    conversation: &Conversation,
    part: &Part,
) -> Result<bool, StoreError> {
    let waiting: i64 = t
        .prepare_cached("SELECT count(*) FROM outbox WHERE channel = ?1 AND state = 'waiting'")?
        .query_row([channel], |r| r.get(0))?;
    if waiting >= MAX_WAITING {
        tracing::error!(channel, key, "a message is not queued: {MAX_WAITING} wait already");
        return Ok(false);
    }
    insert(t, key, channel, conversation, part, "waiting")
}

fn insert(
    t: &Transaction<'_>,
    key: &str,
    channel: &str,
    conversation: &Conversation,
    part: &Part,
    state: &str,
) -> Result<bool, StoreError> {
    let inserted = t
        .prepare_cached(
            "INSERT OR IGNORE INTO outbox (key, channel, conversation, part, state, created_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![key, channel, json(conversation)?, json(part)?, state, now_ms() as i64])?;
    Ok(inserted == 1)
}

/// A row as it stands.
type Raw = (i64, String, String, Option<String>, bool, Option<String>, u32);

fn read(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?))
}

/// The next message of a channel in a conversation that is not among `paused`. What waits behind another
/// of its conversation is not next.
pub(crate) fn next(
    c: &Connection,
    channel: &str,
    paused: &[Conversation],
) -> Result<Option<Queued>, StoreError> {
    let paused = paused.iter().map(json).collect::<Result<Vec<_>, _>>()?;
    let paused = json(&paused)?;
    let row = c
        .prepare_cached(
            "SELECT id, conversation, part, message, begun, mark, tries FROM outbox \
             WHERE channel = ?1 AND state = 'waiting' \
               AND conversation NOT IN (SELECT value FROM json_each(?2)) ORDER BY id LIMIT 1",
        )?
        .query_row(params![channel, paused], read)
        .optional()?;
    row.map(|(id, conversation, part, message, begun, mark, tries)| {
        Ok(Queued {
            id,
            conversation: from_json(&conversation)?,
            part: from_json(&part)?,
            message: message.map(MessageId),
            begun,
            mark,
            tries,
        })
    })
    .transpose()
}

/// Sending begins.
pub(crate) fn begin(t: &Transaction<'_>, id: i64, mark: Option<&str>) -> Result<(), StoreError> {
    t.execute("UPDATE outbox SET begun = 1, mark = ?2 WHERE id = ?1", params![id, mark])?;
    Ok(())
}

/// It is there. A draft stays a draft; its answer may be planned by now.
pub(crate) fn posted(t: &Transaction<'_>, id: i64, message: &MessageId) -> Result<(), StoreError> {
    t.execute("UPDATE outbox SET begun = 0, message = ?2 WHERE id = ?1", params![id, message.0])?;
    Ok(())
}

/// It is surely not there; once more later.
pub(crate) fn not_posted(t: &Transaction<'_>, id: i64, error: &str, counts: bool) -> Result<(), StoreError> {
    t.execute(
        "UPDATE outbox SET begun = 0, mark = NULL, error = ?2, tries = tries + ?3 WHERE id = ?1",
        params![id, error, counts],
    )?;
    Ok(())
}

/// It may be there; looked for later.
pub(crate) fn unanswered(t: &Transaction<'_>, id: i64, error: &str) -> Result<(), StoreError> {
    t.execute("UPDATE outbox SET error = ?2, tries = tries + 1 WHERE id = ?1", params![id, error])?;
    Ok(())
}

/// Done with it: `None` when it was sent, else why it never will be. What was in it (words, the tokens of
/// buttons) is not needed any more and not kept.
pub(crate) fn end(t: &Transaction<'_>, id: i64, error: Option<&str>) -> Result<(), StoreError> {
    let state = if error.is_some() { "failed" } else { "sent" };
    t.execute(
        "UPDATE outbox SET state = ?2, part = '{}', begun = 0, mark = NULL, error = ?3, ended_ms = ?4 WHERE id = ?1",
        params![id, state, error, now_ms() as i64],
    )?;
    Ok(())
}

/// Sent as something else, because the platform refused it as it was.
pub(crate) fn replace(t: &Transaction<'_>, id: i64, part: &Part, error: &str) -> Result<(), StoreError> {
    t.execute(
        "UPDATE outbox SET part = ?2, begun = 0, mark = NULL, error = ?3 WHERE id = ?1",
        params![id, json(part)?, error],
    )?;
    Ok(())
}

/// The platform's id of a message by its key: `None` when there is none yet, or never will be.
pub(crate) fn message(c: &Connection, key: &str) -> Result<Option<MessageId>, StoreError> {
    let found: Option<Option<String>> = c
        .prepare_cached("SELECT message FROM outbox WHERE key = ?1")?
        .query_row([key], |r| r.get(0))
        .optional()?;
    Ok(found.flatten().map(MessageId))
}

/// The row of an answer that is being written, made if need be; `None` when the answer is planned already.
pub(crate) fn draft(t: &Transaction<'_>, run_id: &str, to: &ReplyTo) -> Result<Option<Draft>, StoreError> {
    let key = run_key(run_id, 0);
    let handed: Option<bool> =
        t.query_row("SELECT handed_over FROM runs WHERE run_id = ?1", [run_id], |r| r.get(0)).optional()?;
    if handed == Some(true) {
        return Ok(None);
    }
    let empty = Part::Text { text: Text::plain("") };
    insert(t, &key, &to.channel, &to.conversation, &empty, "draft")?;
    let found = t
        .query_row("SELECT id, message, begun FROM outbox WHERE key = ?1 AND state = 'draft'", [key], |r| {
            Ok(Draft {
                id: r.get(0)?,
                message: r.get::<_, Option<String>>(1)?.map(MessageId),
                begun: r.get(2)?,
            })
        })
        .optional()?;
    Ok(found)
}

/// Takes the answers of ended runs into the outbox, each once: the same transaction marks the run. Gives the
/// channels that have something to send now, and whether that was all.
pub(crate) fn hand_over(
    t: &Transaction<'_>,
    can: fn(&str) -> Capabilities,
) -> Result<(Vec<String>, bool), StoreError> {
    let now = now_ms();
    type Ended = (String, String, Option<String>, String, Option<String>, String);
    let ended: Vec<Ended> = t
        .prepare_cached(
            "SELECT run_id, state, reply, media, error, reply_to FROM runs \
             WHERE ended_ms IS NOT NULL AND reply_to IS NOT NULL AND handed_over = 0 ORDER BY ended_ms LIMIT ?1",
        )?
        .query_map([HAND_OVER], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?))
        })?
        .collect::<Result<_, _>>()?;
    let all = (ended.len() as i64) < HAND_OVER;
    let mut channels = Vec::new();
    for (run_id, state, reply, media, error, reply_to) in ended {
        t.execute("UPDATE runs SET handed_over = 1 WHERE run_id = ?1", [&run_id])?;
        let to: ReplyTo = from_json(&reply_to)?;
        let first = run_key(&run_id, 0);
        // What was begun long ago stands as it is: an answer in its place would not be seen.
        t.execute(
            "UPDATE outbox SET key = key || '/begun', state = 'sent', ended_ms = ?2 \
             WHERE key = ?1 AND state = 'draft' AND message IS NOT NULL AND created_ms < ?3",
            params![first, now as i64, now.saturating_sub(SEEN_FOR_MS) as i64],
        )?;
        let begun: Option<(i64, bool)> = t
            .query_row(
                "SELECT id, message IS NOT NULL OR begun FROM outbox WHERE key = ?1 AND state = 'draft'",
                [&first],
                |r| Ok((r.get(0)?, r.get(1)?)),
            )
            .optional()?;
        let text = match from_word(state)? {
            crate::agent::RunState::Failed => error.unwrap_or_default(),
            // Whoever stopped it was told; only what stands half written gets its end.
            crate::agent::RunState::Stopped if begun.is_some() => "Stopped.".into(),
            crate::agent::RunState::Stopped => continue,
            _ => reply.unwrap_or_default(),
        };
        let reply = Reply { text, media: from_json(&media)?, failure: None };
        let visible = begun.is_some_and(|(_, visible)| visible);
        let parts = plan::parts(&reply, &can(&to.channel), visible);
        if let Some((id, _)) = begun.filter(|_| !visible || parts.is_empty()) {
            // Nothing of it was ever seen, or there is nothing to say.
            t.execute("DELETE FROM outbox WHERE id = ?1", [id])?;
        }
        for (n, part) in parts.iter().enumerate() {
            if n == 0 && visible {
                t.execute(
                    "UPDATE outbox SET part = ?2, state = 'waiting' WHERE key = ?1",
                    params![first, json(part)?],
                )?;
            } else {
                enqueue(t, &run_key(&run_id, n), &to.channel, &to.conversation, part)?;
            }
        }
        if !channels.contains(&to.channel) {
            channels.push(to.channel);
        }
    }
    if !channels.is_empty() {
        let before = now.saturating_sub(KEEP_MS) as i64;
        t.execute("DELETE FROM outbox WHERE ended_ms < ?1", [before])?;
    }
    Ok((channels, all))
}

/// Messages of a channel that wait, and that failed within the time rows are kept.
pub(crate) fn counts(c: &Connection, channel: &str) -> Result<(u64, u64), StoreError> {
    let count = |state: &str| -> rusqlite::Result<u64> {
        c.prepare_cached("SELECT count(*) FROM outbox WHERE channel = ?1 AND state = ?2")?
            .query_row([channel, state], |r| r.get::<_, i64>(0))
            .map(|n| n as u64)
    };
    Ok((count("waiting")?, count("failed")?))
}
