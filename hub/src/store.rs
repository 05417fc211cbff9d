//! The SQLite database `hub.db`.
//!
//! One thread owns the connection; everybody else sends it closures over a bounded queue and awaits the
//! answer, so no lock is held across an await and SQLite never blocks the runtime. Writes run in a
//! transaction each. Write-ahead log with `synchronous=FULL`: what was answered is on the card.

mod migrations;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Closures that may wait for the database thread.
const QUEUE: usize = 1024;

/// A database that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// SQLite says no.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The card is full. Reading goes on.
    #[error("the card is full: the database cannot be written; free some space (see `hearth status`)")]
    Full,
    /// A transcript or another file of the state directory.
    #[error("{}: {source}", path.display())]
    File { path: std::path::PathBuf, source: std::io::Error },
    /// Made by a newer hub.
    #[error("hub.db has schema version {found}, this hub knows up to {known}; update hearth")]
    TooNew { found: usize, known: usize },
    /// Cut short.
    #[error("hub.db is damaged: it was cut short; bring it back with `hearth restore --force FILE`")]
    Damaged,
    /// The database thread has ended: the hub is stopping.
    #[error("the hub is stopping")]
    Closed,
    /// A stored value is not what it should be.
    #[error("hub.db holds a value that cannot be read: {0}; run `hearth doctor`")]
    Corrupt(String),
    /// An operation failed by a fault of this program; nothing of it was kept.
    #[error("the hub failed inside and kept nothing of this; its log says where, please report it")]
    Fault,
    /// The thread could not be started.
    #[error("cannot start the database thread: {0}")]
    Thread(std::io::Error),
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Handle to the database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
}

impl Store {
    /// Opens (or makes) the database and brings it to the current schema.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // SQLite takes a file shorter than its header for an empty database, and would begin anew in it.
        if std::fs::metadata(path).is_ok_and(|m| (1..512).contains(&m.len())) {
            return Err(StoreError::Damaged);
        }
        let mut connection = match connect(path, false) {
            Err(error) if needs_space(&error) => {
                tracing::warn!(%error, "no space for the database's index: it is kept in memory, and other programs cannot open hub.db until the hub is started again");
                connect(path, true)?
            }
            other => other?,
        };
        migrations::run(&mut connection)?;
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        std::thread::Builder::new()
            .name("store".into())
            .spawn(move || {
                while let Some(job) = queue.blocking_recv() {
                    job(&mut connection);
                }
            })
            .map_err(StoreError::Thread)?;
        Ok(Self { jobs })
    }

    /// Runs a read.
    ///
    /// # Errors
    /// What `f` returns, or [`StoreError::Closed`].
    pub async fn read<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.run(move |connection| f(connection)).await
    }

    /// Runs a write in a transaction: all of it is committed, or nothing. Once the closure is queued it
    /// runs even if the caller stops waiting.
    ///
    /// # Errors
    /// What `f` returns, [`StoreError::Full`] on a full card, or [`StoreError::Closed`].
    pub async fn write<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.run(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = f(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })
        .await
        .map_err(|error| match error {
            StoreError::Sqlite(rusqlite::Error::SqliteFailure(e, _))
                if e.code == rusqlite::ErrorCode::DiskFull =>
            {
                StoreError::Full
            }
            other => other,
        })
    }

    async fn run<T, F>(&self, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, wait) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // A fault in one operation must not take the database from everybody else. Unwinding drops the
            // transaction, which rolls it back, so the connection is as it was before.
            let done = catch_unwind(AssertUnwindSafe(|| f(connection)));
            let _ = answer.send(done.unwrap_or(Err(StoreError::Fault)));
        });
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        wait.await.map_err(|_| StoreError::Closed)?
    }
}

/// Opens the file. `alone` keeps the index of the write-ahead log in memory instead of in `hub.db-shm`,
/// which cannot be made on a full card; nobody else can open the database then.
fn connect(path: &Path, alone: bool) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    restrict(path);
    connection.busy_timeout(Duration::from_secs(5))?;
    if alone {
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // 2 MiB of page cache: the hub's whole budget at rest is 25 MB.
    connection.pragma_update(None, "cache_size", -2048)?;
    connection.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024)?;
    Ok(connection)
}

fn needs_space(error: &StoreError) -> bool {
    use rusqlite::ErrorCode::{DiskFull, SystemIoFailure};
    let StoreError::Sqlite(rusqlite::Error::SqliteFailure(error, _)) = error else { return false };
    matches!(error.code, DiskFull | SystemIoFailure)
}

/// Version of the schema that this program knows.
#[must_use]
pub fn schema_version() -> usize {
    migrations::version()
}

/// The database holds names, times and habits: for the owner's eyes only.
fn restrict(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
}

/// Unix milliseconds now.
#[must_use]
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fault_in_one_operation_is_rolled_back_and_the_next_one_runs() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("hub.db")).unwrap();
        store.write(|t| Ok(t.execute_batch("PRAGMA application_id = 7")?)).await.unwrap();
        let fault: Result<(), _> = store
            .write(move |t| {
                t.execute_batch("PRAGMA application_id = 8")?;
                panic!("a fault")
            })
            .await;
        assert!(matches!(fault, Err(StoreError::Fault)));
        let id = store.read(|c| Ok(c.query_row("PRAGMA application_id", [], |r| r.get::<_, i64>(0))?)).await;
        assert_eq!(id.unwrap(), 7);
    }
}
