//! Approvals and shown cards in the database.

use super::{Approval, ApprovalStatus};
use crate::store::{StoreError, now_ms};
use hearth_shared::chain::Head;
use hearth_shared::challenge::Challenge;
use hearth_shared::command::Need;
use hearth_shared::grant::Decision;
use hearth_shared::identity::Digest;
use hearth_shared::reading::RequestId;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::str::FromStr;

/// Cards kept of one approval.
const KEPT_CARDS: i64 = 8;
/// Approvals in a list.
const MAX_LISTED: i64 = 500;

/// An approval with what only the hub itself needs to know.
#[derive(Debug, Clone)]
pub(crate) struct StoredApproval {
    pub(crate) approval: Approval,
    /// Powered milliseconds.
    pub(crate) deadline: u64,
    pub(crate) by_hub: bool,
    pub(crate) seen: Option<Digest>,
}

/// A card that was shown.
#[derive(Debug, Clone)]
pub(crate) struct ShownCard {
    pub(crate) digest: Digest,
    pub(crate) challenge: Challenge,
    pub(crate) head: Head,
}

pub(crate) fn insert(
    transaction: &Transaction<'_>,
    id: &RequestId,
    sentence: &str,
    need: Need,
    deadline: u64,
) -> Result<(), StoreError> {
    transaction.execute(
        "INSERT INTO approvals (id, sentence, need, status, created_ms, deadline_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            id.to_string(),
            sentence,
            need.as_str(),
            word(&ApprovalStatus::Pending),
            now_ms() as i64,
            deadline as i64
        ],
    )?;
    Ok(())
}

const SELECT: &str = "SELECT p.*, a.node, a.node_name, a.command, a.params, a.class, a.checked_on_node,
    a.host, a.requester, a.reason, a.session_key,
    (SELECT json_extract(c.text, '$.always') IS NOT NULL FROM approval_cards c WHERE c.approval = p.id
        ORDER BY c.number DESC LIMIT 1) AS always FROM approvals p JOIN actions a ON a.id = p.id ";

pub(crate) fn load(
    connection: &Connection,
    id: &RequestId,
    powered: u64,
) -> Result<Option<StoredApproval>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE p.id = ?1"))?;
    let mut rows = statement.query([id.to_string()])?;
    rows.next()?.map(|row| read(row, powered)).transpose()
}

/// Those whose id begins with `prefix` (hex digits only), at most two.
pub(crate) fn with_prefix(
    connection: &Connection,
    prefix: &str,
    powered: u64,
) -> Result<Vec<StoredApproval>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE p.id LIKE ?1 || '%' LIMIT 2"))?;
    let mut rows = statement.query([prefix])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row, powered)?);
    }
    Ok(found)
}

/// The newest first.
pub(crate) fn list(connection: &Connection, all: bool, powered: u64) -> Result<Vec<Approval>, StoreError> {
    let only = if all { "" } else { "WHERE p.status = 'pending'" };
    let sql = format!("{SELECT} {only} ORDER BY p.created_ms DESC, p.id LIMIT {MAX_LISTED}");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row, powered)?.approval);
    }
    Ok(found)
}

/// Those that wait no more, the newest first, behind `before`.
pub(crate) fn history(
    connection: &Connection,
    limit: usize,
    before: Option<&Approval>,
    powered: u64,
) -> Result<Vec<Approval>, StoreError> {
    let sql = format!(
        "{SELECT} WHERE p.status != 'pending' AND (p.created_ms, p.id) < (?1, ?2)
         ORDER BY p.created_ms DESC, p.id DESC LIMIT ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let (created_ms, id) =
        before.map_or((i64::MAX, String::new()), |a| (a.created_ms as i64, a.id.to_string()));
    let mut rows = statement.query(params![created_ms, id, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row, powered)?.approval);
    }
    Ok(found)
}

/// The one statement that decides: it takes effect for whoever comes first. `false` for everybody else.
pub(crate) fn settle(
    transaction: &Transaction<'_>,
    id: &RequestId,
    status: ApprovalStatus,
    decision: Option<(Decision, bool)>,
    by: Option<&str>,
    seen: Option<&Digest>,
) -> Result<bool, StoreError> {
    let changed = transaction.execute(
        "UPDATE approvals SET status = ?1, decision = ?2, by_hub = ?3, decided_by = ?4, decided_ms = ?5, seen = ?6
         WHERE id = ?7 AND status = 'pending'",
        params![
            word(&status),
            decision.map(|(d, _)| d.as_str()),
            decision.map(|(_, by_hub)| by_hub),
            by,
            now_ms() as i64,
            seen.map(ToString::to_string),
            id.to_string()
        ],
    )?;
    Ok(changed > 0)
}

/// Asks again: what was decided could not be used.
pub(crate) fn reopen(
    transaction: &Transaction<'_>,
    id: &RequestId,
    need: Need,
    note: &str,
) -> Result<(), StoreError> {
    transaction.execute(
        "UPDATE approvals SET status = 'pending', need = ?1, note = ?2, decision = NULL, by_hub = NULL,
            decided_by = NULL, decided_ms = NULL, seen = NULL WHERE id = ?3",
        params![need.as_str(), note, id.to_string()],
    )?;
    Ok(())
}

/// The node says by now that it needs somebody else's yes.
pub(crate) fn set_need(transaction: &Transaction<'_>, id: &RequestId, need: Need) -> Result<(), StoreError> {
    transaction.execute(
        "UPDATE approvals SET need = ?1 WHERE id = ?2 AND status = 'pending'",
        params![need.as_str(), id.to_string()],
    )?;
    Ok(())
}

/// Remembers a card before it is shown.
pub(crate) fn add_card(
    transaction: &Transaction<'_>,
    id: &RequestId,
    text: &str,
    head: Head,
) -> Result<(), StoreError> {
    let approval = id.to_string();
    let number: i64 = transaction.query_row(
        "SELECT COALESCE(MAX(number), 0) + 1 FROM approval_cards WHERE approval = ?1",
        [&approval],
        |row| row.get(0),
    )?;
    transaction.execute(
        "INSERT OR REPLACE INTO approval_cards (approval, digest, number, text, head_seq, head_hash)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            approval,
            Digest::of(text.as_bytes()).to_string(),
            number,
            text,
            head.seq as i64,
            head.hash.0
        ],
    )?;
    transaction.execute(
        "DELETE FROM approval_cards WHERE approval = ?1 AND number <= ?2",
        params![approval, number - KEPT_CARDS],
    )?;
    Ok(())
}

/// The card with this digest, or the one shown last.
pub(crate) fn card(
    connection: &Connection,
    id: &RequestId,
    digest: Option<&Digest>,
) -> Result<Option<ShownCard>, StoreError> {
    let row: Option<(String, String, i64, [u8; 32])> = connection
        .prepare_cached(
            "SELECT digest, text, head_seq, head_hash FROM approval_cards
             WHERE approval = ?1 AND (?2 IS NULL OR digest = ?2) ORDER BY number DESC LIMIT 1",
        )?
        .query_row(params![id.to_string(), digest.map(ToString::to_string)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    row.map(|(digest, text, seq, hash)| {
        Ok(ShownCard {
            digest: parse(&digest)?,
            challenge: serde_json::from_str(&text).map_err(|e| StoreError::Corrupt(e.to_string()))?,
            head: Head { seq: seq as u64, hash: Digest(hash) },
        })
    })
    .transpose()
}

fn read(row: &Row<'_>, powered: u64) -> Result<StoredApproval, StoreError> {
    let text = |name: &str| row.get::<_, String>(name);
    let maybe = |name: &str| row.get::<_, Option<String>>(name);
    let deadline = row.get::<_, i64>("deadline_ms")? as u64;
    let decided_ms = row.get::<_, Option<i64>>("decided_ms")?.map(|n| n as u64);
    Ok(StoredApproval {
        approval: Approval {
            id: parse(&text("id")?)?,
            host: from_word(text("host")?)?,
            node: parse(&text("node")?)?,
            node_name: text("node_name")?,
            command: text("command")?,
            params: serde_json::from_str(&text("params")?).map_err(|e| StoreError::Corrupt(e.to_string()))?,
            sentence: text("sentence")?,
            class: from_word(text("class")?)?,
            need: from_word(text("need")?)?,
            checked_on_node: row.get("checked_on_node")?,
            always: row.get("always")?,
            requester: text("requester")?,
            reason: maybe("reason")?,
            session_key: maybe("session_key")?,
            status: from_word(text("status")?)?,
            created_ms: row.get::<_, i64>("created_ms")? as u64,
            expires_ms: decided_ms.unwrap_or_else(|| now_ms() + deadline.saturating_sub(powered)),
            decision: maybe("decision")?.map(from_word).transpose()?,
            decided_by: maybe("decided_by")?,
            decided_ms,
            note: maybe("note")?,
        },
        deadline,
        by_hub: row.get::<_, Option<bool>>("by_hub")?.unwrap_or(false),
        seen: maybe("seen")?.map(|t| parse(&t)).transpose()?,
    })
}

/// An id as it stands in the database.
pub(crate) fn parse<T: FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| StoreError::Corrupt(format!("`{text}` is no id")))
}

/// The word of an enum.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// The other way round.
pub(crate) fn from_word<T: DeserializeOwned>(text: String) -> Result<T, StoreError> {
    serde_json::from_value(Value::String(text)).map_err(|e| StoreError::Corrupt(e.to_string()))
}
