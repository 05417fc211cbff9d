//! Heads in other hands: those of the nodes' logs that the hub remembers, and those of the hub's log
//! that nodes and approvers remember.

use super::Audit;
use crate::store::{StoreError, now_ms};
use hearth_shared::chain::Head;
use hearth_shared::identity::{DeviceId, Digest};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde_json::json;

/// Heads of one node that are kept. Answers that overtake each other are at most
/// [`hearth_shared::limits::MAX_IN_FLIGHT`] apart.
const KEPT_PER_NODE: i64 = 512;

pub(super) fn note_node(
    transaction: &Transaction<'_>,
    node: &DeviceId,
    head: Head,
    in_order: bool,
) -> Result<Option<String>, StoreError> {
    let id = node.to_string();
    let last: Option<i64> = transaction
        .prepare_cached("SELECT MAX(seq) FROM node_heads WHERE node = ?1")?
        .query_row([&id], |row| row.get(0))?;
    let same: Option<[u8; 32]> = transaction
        .prepare_cached("SELECT hash FROM node_heads WHERE node = ?1 AND seq = ?2")?
        .query_row(params![id, head.seq as i64], |row| row.get(0))
        .optional()?;
    let fault = match (same, last) {
        (Some(hash), _) if hash != head.hash.0 => {
            Some(format!("its log had another hash at record {} before: it was rewritten", head.seq))
        }
        (_, Some(last)) if in_order && (head.seq as i64) < last => {
            Some(format!("its log ends at record {} and had {last} before: it was cut or set back", head.seq))
        }
        _ => None,
    };
    if let Some(fault) = &fault {
        let first = transaction.execute(
            "INSERT INTO node_head_faults (node, fault, noted_ms) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            params![id, fault, now_ms() as i64],
        )?;
        // Once is enough: a node that was set back says so at every connection.
        if first > 0 {
            Audit::append_in(
                transaction,
                "node.log.fault",
                &json!({"node": id, "seq": head.seq, "hash": head.hash, "fault": fault}),
            )?;
        }
        return Ok(Some(fault.clone()));
    }
    if same.is_none() {
        transaction
            .prepare_cached("INSERT INTO node_heads (node, seq, hash, noted_ms) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![id, head.seq as i64, head.hash.0, now_ms() as i64])?;
        let newest = last.unwrap_or(0).max(head.seq as i64);
        transaction
            .prepare_cached("DELETE FROM node_heads WHERE node = ?1 AND seq < ?2")?
            .execute(params![id, newest - KEPT_PER_NODE])?;
    }
    Ok(None)
}

pub(super) fn forget_node(transaction: &Transaction<'_>, node: &DeviceId) -> Result<(), StoreError> {
    let id = node.to_string();
    transaction.execute("DELETE FROM node_heads WHERE node = ?1", [&id])?;
    transaction.execute("DELETE FROM node_head_faults WHERE node = ?1", [&id])?;
    transaction.execute("DELETE FROM approver_heads WHERE holder = ?1", [format!("node:{id}")])?;
    Ok(())
}

/// A holder's newest head; an older one that comes late changes nothing.
pub(super) fn note_held(transaction: &Transaction<'_>, holder: &str, head: Head) -> Result<(), StoreError> {
    if head.seq == 0 {
        return Ok(());
    }
    transaction
        .prepare_cached(
            "INSERT INTO approver_heads (holder, seq, hash, noted_ms) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (holder) DO UPDATE SET seq = excluded.seq, hash = excluded.hash,
                noted_ms = excluded.noted_ms WHERE excluded.seq > seq",
        )?
        .execute(params![holder, head.seq as i64, head.hash.0, now_ms() as i64])?;
    Ok(())
}

pub(super) fn note_held_by_node(
    transaction: &Transaction<'_>,
    node: &DeviceId,
    head: Head,
) -> Result<Option<String>, StoreError> {
    let holder = format!("node:{node}");
    let fault = compare(transaction, head)?;
    if let Some(fault) = &fault {
        let noted: Option<(i64, [u8; 32])> = transaction
            .prepare_cached("SELECT seq, hash FROM approver_heads WHERE holder = ?1")?
            .query_row([&holder], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let known = match noted {
            Some((seq, hash)) => compare(transaction, self::head(seq, hash))?.is_some(),
            None => false,
        };
        // Once is enough: a node that lies could fill the log, which is never cut.
        if !known {
            let body = json!({"node": node, "seq": head.seq, "hash": head.hash, "fault": fault});
            Audit::append_in(transaction, "hub.log.fault", &body)?;
        }
    }
    note_held(transaction, &holder, head)?;
    Ok(fault)
}

pub(super) fn compare(connection: &Connection, head: Head) -> Result<Option<String>, StoreError> {
    if head.seq == 0 {
        return Ok(None);
    }
    let hash: Option<[u8; 32]> = connection
        .prepare_cached("SELECT hash FROM audit WHERE seq = ?1")?
        .query_row([head.seq as i64], |row| row.get(0))
        .optional()?;
    Ok(match hash {
        Some(hash) if hash == head.hash.0 => None,
        Some(_) => {
            Some(format!("record {} has another hash than the one held: the log was rewritten", head.seq))
        }
        None => Some(format!("record {} is held but missing: the log was cut", head.seq)),
    })
}

/// Every holder with its head.
pub(super) fn held(connection: &Connection) -> Result<Vec<(String, Head)>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT holder, seq, hash FROM approver_heads ORDER BY holder")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, head(row.get(1)?, row.get(2)?))))?;
    rows.collect::<Result<_, _>>().map_err(StoreError::from)
}

/// Every node with its last head and its fault.
pub(super) fn nodes(connection: &Connection) -> Result<Vec<(String, Head, Option<String>)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT h.node, h.seq, h.hash, f.fault FROM node_heads h
         LEFT JOIN node_head_faults f ON f.node = h.node
         WHERE h.seq = (SELECT MAX(seq) FROM node_heads WHERE node = h.node) ORDER BY h.node",
    )?;
    let rows =
        statement.query_map([], |row| Ok((row.get(0)?, head(row.get(1)?, row.get(2)?), row.get(3)?)))?;
    rows.collect::<Result<_, _>>().map_err(StoreError::from)
}

fn head(seq: i64, hash: [u8; 32]) -> Head {
    Head { seq: seq as u64, hash: Digest(hash) }
}
