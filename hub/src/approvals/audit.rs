//! The hub's audit log: every request, decision, grant, result, pairing and key change, hash-chained.
//!
//! The chain alone shows a record that was changed, removed from the middle or put in. A tail that was
//! cut shows only against somebody who remembers the end: nodes get the hub's head with every request,
//! approvers with every card, and both are compared in [`Audit::verify`]. The other way round the hub
//! remembers the heads of the nodes' own logs, which come signed with every result.
//!
//! Durability: a record of an effect is in the same transaction as the effect's state
//! ([`Audit::append_in`]). Records of requests that only look at something go through a [`batch`], which
//! commits once a second: a power cut may lose the last second of them.

pub mod batch;
mod heads;
mod verify;

use crate::store::{Store, StoreError, now_ms};
use hearth_shared::chain::{Head, Record};
use hearth_shared::identity::{DeviceId, Digest};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde_json::Value;

/// Records that [`Audit::records`] gives at once.
pub const MAX_RECORDS: usize = 1_000;

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Audit {
    store: Store,
}

/// Result of a verification.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// Records read.
    pub records: u64,
    /// The head.
    pub head: Head,
    /// The first fault, in words.
    pub fault: Option<String>,
    /// Per node: name, head last reported, and whether it agrees with what the hub stored.
    pub nodes: Vec<NodeHead>,
    /// Heads of this log that others hold, and whether the log still has them.
    pub holders: Vec<HeldHead>,
    /// Records that no node and no approver has anchored yet.
    pub unanchored: u64,
}

impl AuditReport {
    /// Whether nothing was found wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.fault.is_none()
            && self.nodes.iter().all(|n| n.fault.is_none())
            && self.holders.iter().all(|h| h.fault.is_none())
    }
}

/// A node's side.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHead {
    /// Node name or id.
    pub node: String,
    /// Its last head.
    pub head: Head,
    /// A fault, in words.
    pub fault: Option<String>,
}

/// A head of the hub's log in other hands.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldHead {
    /// `node:<id>` or `approver:<who>`.
    pub holder: String,
    /// The head it holds.
    pub head: Head,
    /// A fault, in words.
    pub fault: Option<String>,
}

impl Audit {
    /// Checks that the end of the log can be read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(store: Store) -> Result<Self, StoreError> {
        let audit = Self { store };
        audit.head().await?;
        Ok(audit)
    }

    /// Appends a record and returns when it is on disk.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn append(&self, kind: &'static str, body: Value) -> Result<Head, StoreError> {
        self.store.write(move |t| Self::append_in(t, kind, &body)).await
    }

    /// Appends inside a caller's transaction, so that a change and its record are committed together.
    /// Several in one transaction cost one sync of the card.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn append_in(transaction: &Transaction<'_>, kind: &str, body: &Value) -> Result<Head, StoreError> {
        let record = head_in(transaction)?.next(now_ms(), kind, body.to_string());
        transaction
            .prepare_cached(
                "INSERT INTO audit (seq, at_ms, kind, body, prev, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                record.seq as i64,
                record.at_ms as i64,
                record.kind,
                record.body,
                record.prev.0,
                record.hash.0
            ])?;
        Ok(record.head())
    }

    /// The present head.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn head(&self) -> Result<Head, StoreError> {
        self.store.read(head_in).await
    }

    /// Notes the head a node named when it connected. Its log only grows: a head that went back, or has
    /// another hash at a number that was seen before, means that the node's log was cut or rewritten.
    /// Such a fault is stored, goes into this log, and is returned in words.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_node_head(&self, node: DeviceId, head: Head) -> Result<Option<String>, StoreError> {
        self.store.write(move |t| heads::note_node(t, &node, head, true)).await
    }

    /// Notes the head of this log that a node says it holds. When this log does not hold it, the log was
    /// cut or an older copy of the database put back; that goes into the log once, and is returned in
    /// words.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_held_by_node(&self, node: DeviceId, head: Head) -> Result<Option<String>, StoreError> {
        self.store.write(move |t| heads::note_held_by_node(t, &node, head)).await
    }

    /// Notes the head that came with a verified receipt. Answers overtake each other on their way through
    /// the hub, so that a smaller number alone is no fault here.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_receipt_in(
        transaction: &Transaction<'_>,
        node: &DeviceId,
        head: Head,
    ) -> Result<Option<String>, StoreError> {
        heads::note_node(transaction, node, head, false)
    }

    /// Forgets a node's heads and faults: it was removed, and comes back as a new device or not at all.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_node_in(transaction: &Transaction<'_>, node: &DeviceId) -> Result<(), StoreError> {
        heads::forget_node(transaction, node)
    }

    /// Notes that somebody else knows this head of the log now: `node:<id>` or `approver:<who>`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_held(&self, holder: String, head: Head) -> Result<(), StoreError> {
        self.store.write(move |t| Self::note_held_in(t, &holder, head)).await
    }

    /// [`Audit::note_held`] inside a caller's transaction.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_held_in(transaction: &Transaction<'_>, holder: &str, head: Head) -> Result<(), StoreError> {
        heads::note_held(transaction, holder, head)
    }

    /// Records from `after` on, oldest first, at most `limit` (and [`MAX_RECORDS`]).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.store.read(move |c| records_in(c, after, limit.min(MAX_RECORDS))).await
    }

    /// Whether the log holds this head: for a head that somebody kept outside this hub. `None` when it
    /// does, else what is wrong, in words.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn compare(&self, head: Head) -> Result<Option<String>, StoreError> {
        self.store.read(move |c| heads::compare(c, head)).await
    }

    /// Walks the whole chain and compares heads.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn verify(&self) -> Result<AuditReport, StoreError> {
        verify::verify(&self.store).await
    }
}

/// How a secret stands in a record: enough to recognise it, nothing to use.
#[must_use]
pub fn digest(secret: &str) -> String {
    format!("sha256:{}", Digest::of(secret.as_bytes()))
}

/// Parameters as they stand in a record: values of environment variables, and of keys that are named like
/// secrets, as digests.
#[must_use]
pub fn redacted(params: &Value) -> Value {
    fn walk(value: &Value, hide: bool) -> Value {
        match value {
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, inner)| {
                        (key.clone(), walk(inner, hide || key == "env" || is_secret_name(key)))
                    })
                    .collect(),
            ),
            Value::Array(list) => Value::Array(list.iter().map(|v| walk(v, hide)).collect()),
            Value::String(text) if hide => Value::String(digest(text)),
            Value::Number(number) if hide => Value::String(digest(&number.to_string())),
            other => other.clone(),
        }
    }
    walk(params, false)
}

fn is_secret_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["password", "passphrase", "secret", "token", "apikey", "api_key", "authorization", "credential"]
        .iter()
        .any(|word| key.contains(word))
}

fn head_in(connection: &Connection) -> Result<Head, StoreError> {
    let row = connection
        .prepare_cached("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok(Head { seq: row.get::<_, i64>(0)? as u64, hash: Digest(row.get(1)?) }))
        .optional()?;
    Ok(row.unwrap_or_default())
}

fn records_in(connection: &Connection, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at_ms, kind, body, prev, hash FROM audit WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    )?;
    let rows = statement.query_map(params![after as i64, limit as i64], record)?;
    rows.collect::<Result<_, _>>().map_err(StoreError::from)
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        seq: row.get::<_, i64>(0)? as u64,
        at_ms: row.get::<_, i64>(1)? as u64,
        kind: row.get(2)?,
        body: row.get(3)?,
        prev: Digest(row.get(4)?),
        hash: Digest(row.get(5)?),
    })
}

#[cfg(test)]
mod tests;
