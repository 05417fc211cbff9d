//! The guard's part of the state database: one write at a time, on the disk when it returns.

use super::GuardError;
use redb::{
    Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Single values: `hub`, `approvers`, `person`, `powered`, `hub.head`, `audit.head`, `audit.anchor`, `journal.next`, `always.next`.
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

/// Opens the database file; the error is the line a person gets.
type Opener = Box<dyn Fn() -> Result<Database, String> + Send + Sync>;

/// The database, for the guard's tables. After a fault of the disk redb refuses everything until the file
/// is opened again, which happens here with the next use: a card that was full for a while must not
/// leave the node unable to act until somebody restarts it.
#[derive(Clone)]
pub(super) struct Store(Arc<Inner>);

struct Inner {
    opener: Opener,
    /// Closed after a fault.
    database: Mutex<Option<Arc<Database>>>,
    /// Opened again, and what is held in memory was not compared since.
    reopened: AtomicBool,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens the file and makes the tables.
    pub(super) fn open(
        opener: impl Fn() -> Result<Database, String> + Send + Sync + 'static,
    ) -> Result<Self, GuardError> {
        let database = Arc::new(opener().map_err(GuardError::State)?);
        let store = Self(Arc::new(Inner {
            opener: Box::new(opener),
            database: Mutex::new(Some(database)),
            reopened: AtomicBool::new(false),
        }));
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

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.0.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn database(&self) -> Result<Arc<Database>, GuardError> {
        let mut slot = self.slot();
        if let Some(database) = &*slot {
            return Ok(Arc::clone(database));
        }
        let database = Arc::new((self.0.opener)().map_err(GuardError::State)?);
        tracing::info!("the state database is open again");
        self.0.reopened.store(true, Ordering::Release);
        *slot = Some(Arc::clone(&database));
        Ok(database)
    }

    /// Whether the file was opened again since the last call. A commit that reported a fault may have
    /// reached the disk all the same: then what is held in memory is older than the file.
    pub(super) fn take_reopened(&self) -> Result<bool, GuardError> {
        self.database()?;
        Ok(self.0.reopened.swap(false, Ordering::AcqRel))
    }

    /// What is in memory could not be compared after all.
    pub(super) fn mark_reopened(&self) {
        self.0.reopened.store(true, Ordering::Release);
    }

    /// Closes the file after a fault of the database itself.
    fn checked<T>(&self, result: Result<T, GuardError>) -> Result<T, GuardError> {
        if let Err(GuardError::State(why)) = &result
            && self.slot().take().is_some()
        {
            tracing::error!(%why, "the state database is closed until its next use");
        }
        result
    }

    /// All of `work`, synced to the disk, or nothing.
    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, GuardError>,
    ) -> Result<T, GuardError> {
        let database = self.database()?;
        let written = || {
            let mut txn = database.begin_write().map_err(failed)?;
            txn.set_durability(Durability::Immediate).map_err(failed)?;
            let value = work(&txn)?;
            txn.commit().map_err(failed)?;
            Ok(value)
        };
        let result = written();
        drop(database);
        self.checked(result)
    }

    /// A consistent view.
    pub(super) fn read(&self) -> Result<redb::ReadTransaction, GuardError> {
        let begun = self.database()?.begin_read().map_err(failed);
        self.checked(begun)
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
