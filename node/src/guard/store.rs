//! The guard's part of the state database: one write at a time, on the disk when it returns.

use super::GuardError;
use redb::{
    Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Single values: `hub`, `approvers`, `person`, `powered`, `audit.head`, `audit.anchor`, `journal.next`, `always.next`.
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("guard_meta");
/// Request id → journal entry.
pub(super) const JOURNAL: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("guard_journal");
/// Number → request id, in the order they came: what is pruned first.
pub(super) const ORDER: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("guard_journal_order");
/// Number → always-rule.
pub(super) const ALWAYS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("guard_always");
/// Rule key → counter.
pub(super) const USES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("guard_uses");
/// Number → audit record.
pub(super) const AUDIT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("guard_audit");

/// A database error in words a person can act on.
pub(super) fn failed(error: impl std::fmt::Display) -> GuardError {
    GuardError::State(format!(
        "the state database node.db cannot be used: {error}; check free space and the card (`df`, `dmesg`)"
    ))
}

/// A stored value that cannot be read.
pub(super) fn damaged(what: &str) -> GuardError {
    GuardError::State(format!(
        "the state database node.db holds a damaged {what}; restore it, or start anew with `hearth-node reset`"
    ))
}

/// Encodes a value for storing.
pub(super) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, GuardError> {
    postcard::to_allocvec(value).map_err(failed)
}

/// Reads a stored value.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, GuardError> {
    postcard::from_bytes(bytes).map_err(|_| damaged(what))
}

/// The database, for the guard's tables.
#[derive(Debug, Clone)]
pub(super) struct Store(Arc<Database>);

impl Store {
    /// Makes the tables.
    pub(super) fn open(database: Arc<Database>) -> Result<Self, GuardError> {
        let store = Self(database);
        // Not written to when they are there: a command that only looks costs the card nothing.
        if store.read()?.open_table(AUDIT).is_ok() {
            return Ok(store);
        }
        store.write(|txn| {
            txn.open_table(META).map_err(failed)?;
            txn.open_table(JOURNAL).map_err(failed)?;
            txn.open_table(ORDER).map_err(failed)?;
            txn.open_table(ALWAYS).map_err(failed)?;
            txn.open_table(USES).map_err(failed)?;
            txn.open_table(AUDIT).map_err(failed)?;
            Ok(())
        })?;
        Ok(store)
    }

    /// All of `work`, synced to the disk, or nothing.
    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, GuardError>,
    ) -> Result<T, GuardError> {
        let mut txn = self.0.begin_write().map_err(failed)?;
        txn.set_durability(Durability::Immediate).map_err(failed)?;
        let value = work(&txn)?;
        txn.commit().map_err(failed)?;
        Ok(value)
    }

    /// A consistent view.
    pub(super) fn read(&self) -> Result<redb::ReadTransaction, GuardError> {
        self.0.begin_read().map_err(failed)
    }

    /// A single value.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, GuardError> {
        let table = self.read()?.open_table(META).map_err(failed)?;
        let value = table.get(key).map_err(failed)?;
        value.map(|v| decode(v.value(), key)).transpose()
    }
}

/// A single value within a write.
pub(super) fn get<T: DeserializeOwned>(txn: &WriteTransaction, key: &str) -> Result<Option<T>, GuardError> {
    let table = txn.open_table(META).map_err(failed)?;
    let value = table.get(key).map_err(failed)?;
    value.map(|v| decode(v.value(), key)).transpose()
}

/// Sets a single value.
pub(super) fn put<T: Serialize>(txn: &WriteTransaction, key: &str, value: &T) -> Result<(), GuardError> {
    let bytes = encode(value)?;
    txn.open_table(META).map_err(failed)?.insert(key, bytes.as_slice()).map_err(failed)?;
    Ok(())
}
