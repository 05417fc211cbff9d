//! The node's files: where they are, how they are written, and the lock that keeps a second node off.
//!
//! | file | what | written |
//! | --- | --- | --- |
//! | `node.toml` | the owner's configuration | by hand |
//! | `node.key` | the seed of the node's key, 64 hex digits, 0600 | once |
//! | `hub.json` | the hub it is paired with, 0600 | at pairing |
//! | `node.db` | approvers, journal, always-rules, audit log (redb) | by the guard |
//! | `results/` | attachments of finished requests, for a hub that asks again | by the guard |
//! | `outbox.db` | readings and events that the hub does not have yet (redb) | by the outbox |
//! | `node.lock` | held by the running node; holds its process id | at start |
//! | `control.sock` | the running node's answers to `status` and `approvers`, 0600 | at start |

use rustix::fs::{Mode, OFlags};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Cache of `node.db`. The library's default of 1 GiB is more memory than a small board has.
const DATABASE_CACHE: usize = 1024 * 1024;

const RESTORE: &str = "restore it from a copy, or move it away and run `hearth-node reset` to pair anew: the \
     node must not act without its list of approvers and its journal";

/// A home directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A file or directory.
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// Other users could read or change it.
    #[error("{path} is open to other users (mode {mode:03o}); run `chmod go-rwx {path}`")]
    Exposed { path: PathBuf, mode: u32 },
    /// It belongs to somebody else.
    #[error("{path} belongs to user {owner}, this is user {me}; run as that user or give another --home")]
    Foreign { path: PathBuf, owner: u32, me: u32 },
    /// A node runs on this home.
    #[error(
        "a node is already running on {path}{}; stop it first, or give another --home",
        pid.map(|p| format!(" (process {p})")).unwrap_or_default()
    )]
    Locked { path: PathBuf, pid: Option<u32> },
    /// A file holds something else than it should.
    #[error("{path} is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
    /// The state database.
    #[error("cannot open {path}: {why}")]
    Database { path: PathBuf, why: String },
    /// No random bytes.
    #[error(transparent)]
    Identity(#[from] hearth_shared::identity::IdentityError),
}

impl StateError {
    /// An I/O error with what was tried on what.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

/// The node's state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// Chooses the directory: `flag` (`--home` or `$HEARTH_NODE_HOME`), the directory systemd made for
    /// the service, `$XDG_STATE_HOME/hearth-node`, `~/.local/state/hearth-node`, `/var/lib/hearth-node`.
    #[must_use]
    pub fn locate(flag: Option<PathBuf>) -> Self {
        let env = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let dir = flag
            .or_else(|| env("STATE_DIRECTORY"))
            .or_else(|| env("XDG_STATE_HOME").map(|d| d.join("hearth-node")))
            .or_else(|| env("HOME").map(|d| d.join(".local/state/hearth-node")))
            .unwrap_or_else(|| PathBuf::from("/var/lib/hearth-node"));
        Self { dir }
    }

    /// Makes the directory (0700) if it is missing and checks that nobody else can read it.
    ///
    /// # Errors
    /// [`StateError::Io`], [`StateError::Exposed`] or [`StateError::Foreign`].
    pub fn prepare(&self) -> Result<(), StateError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(StateError::io("make", &self.dir))?;
        let meta = std::fs::metadata(&self.dir).map_err(StateError::io("read", &self.dir))?;
        let me = rustix::process::geteuid().as_raw();
        if meta.uid() != me {
            return Err(StateError::Foreign { path: self.dir.clone(), owner: meta.uid(), me });
        }
        // What others could write to may hold what they put there. What they could only read (a service
        // manager makes state directories 0755) is closed now.
        if meta.mode() & 0o022 != 0 {
            return Err(StateError::Exposed { path: self.dir.clone(), mode: meta.mode() & 0o777 });
        }
        if meta.mode() & 0o077 != 0 {
            std::fs::set_permissions(&self.dir, std::fs::Permissions::from_mode(0o700))
                .map_err(StateError::io("close", &self.dir))?;
        }
        Ok(())
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// `node.toml`
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.dir.join("node.toml")
    }
    /// `node.key`
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.dir.join("node.key")
    }
    /// `hub.json`
    #[must_use]
    pub fn hub(&self) -> PathBuf {
        self.dir.join("hub.json")
    }
    /// `node.db`
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.dir.join("node.db")
    }
    /// `outbox.db`
    #[must_use]
    pub fn outbox(&self) -> PathBuf {
        self.dir.join("outbox.db")
    }
    /// `control.sock`
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Takes the home for this process until the lock is dropped.
    ///
    /// # Errors
    /// [`StateError::Locked`] with the other's process id.
    pub fn lock(&self) -> Result<Lock, StateError> {
        let path = self.dir.join("node.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(StateError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(StateError::Locked { path: self.dir.clone(), pid: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(e)) => return Err(StateError::io("lock", &path)(e)),
        }
        let pid = std::process::id();
        file.set_len(0).and_then(|()| writeln!(file, "{pid}")).map_err(StateError::io("write", &path))?;
        Ok(Lock { _file: file })
    }

    /// Opens `node.db`, made if missing, with a small cache.
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn open_database(&self) -> Result<redb::Database, StateError> {
        let path = self.database();
        let failed = |why: String| StateError::Database { path: path.clone(), why };
        private_file(&path).map_err(StateError::io("open", &path))?;
        // Checked whole at each start: redb trusts an unchecked file and may panic over a page that a worn
        // card changed.
        redb::Builder::new()
            .set_cache_size(DATABASE_CACHE)
            .set_check_integrity_on_open(true)
            .create(&path)
            .map_err(|e| {
                failed(match redb::Error::from(e) {
                    redb::Error::Corrupted(why) => format!("it is damaged ({why}); {RESTORE}"),
                    redb::Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => {
                        format!("it is damaged ({e}); {RESTORE}")
                    }
                    other => other.to_string(),
                })
            })
    }
}

/// Held while this process owns the home; the kernel releases it when the process ends in any way.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Opens a file for reading and writing, made 0600 if missing.
///
/// # Errors
/// From the operating system.
pub fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Writes a whole file so that after a power cut either the old or the new content is there: temporary
/// file (0600), fsync, rename, fsync of the directory.
///
/// # Errors
/// From the operating system; the old content stays.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let temporary = dir.join(name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&temporary, path)?;
    sync_dir(dir)
}

/// Removes a file that may be missing, durably.
///
/// # Errors
/// From the operating system.
pub fn remove_durably(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(()) => sync_dir(path.parent().unwrap_or(Path::new("."))),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    let fd = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fsync(fd)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::ReadableDatabase as _;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path().join("a/b")));
        home.prepare().unwrap();
        (dir, home)
    }

    #[test]
    fn directory_is_private_and_a_writable_one_is_refused() {
        let (_dir, home) = home();
        let mode = || std::fs::metadata(home.dir()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        std::fs::set_permissions(home.dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
        home.prepare().unwrap();
        assert_eq!(mode(), 0o700);
        std::fs::set_permissions(home.dir(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(home.prepare(), Err(StateError::Exposed { mode: 0o777, .. })));
    }

    #[test]
    fn a_second_lock_is_refused_and_names_the_process() {
        let (_dir, home) = home();
        let first = home.lock().unwrap();
        let error = home.lock().unwrap_err();
        assert!(matches!(error, StateError::Locked { pid: Some(p), .. } if p == std::process::id()));
        assert!(error.to_string().contains("already running"));
        drop(first);
        home.lock().unwrap();
    }

    #[test]
    fn atomic_write_replaces_and_is_private() {
        let (_dir, home) = home();
        write_atomically(&home.key(), b"one").unwrap();
        write_atomically(&home.key(), b"two").unwrap();
        assert_eq!(std::fs::read(home.key()).unwrap(), b"two");
        assert_eq!(std::fs::metadata(home.key()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(home.dir()).unwrap().count(), 1, "no temporary file is left");
        remove_durably(&home.key()).unwrap();
        remove_durably(&home.key()).unwrap();
    }

    #[test]
    fn database_opens_twice_in_a_row_but_not_at_once() {
        let (_dir, home) = home();
        let first = home.open_database().unwrap();
        assert!(matches!(home.open_database(), Err(StateError::Database { .. })));
        drop(first);
        home.open_database().unwrap();
    }

    #[test]
    fn a_damaged_page_is_named_and_never_a_panic() {
        const TABLE: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("t");
        let (_dir, home) = home();
        let database = home.open_database().unwrap();
        let txn = database.begin_write().unwrap();
        for n in 0..200 {
            txn.open_table(TABLE).unwrap().insert(n, [7; 100].as_slice()).unwrap();
        }
        txn.commit().unwrap();
        drop(database);
        let whole = std::fs::read(home.database()).unwrap();
        for page in 1..whole.len() / 4096 {
            let mut bytes = whole.clone();
            bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
            std::fs::write(home.database(), &bytes).unwrap();
            match home.open_database() {
                Ok(database) => {
                    let txn = database.begin_read().unwrap();
                    if let Ok(table) = txn.open_table(TABLE) {
                        assert!(table.range(0..).unwrap().all(|entry| entry.unwrap().1.value() == [7; 100]));
                    }
                }
                Err(error) => assert!(error.to_string().contains("node.db"), "{error}"),
            }
        }
        std::fs::write(home.database(), [0x5a; 8192]).unwrap();
        let garbage = home.open_database().unwrap_err().to_string();
        assert!(garbage.contains("damaged") && garbage.contains("reset"), "{garbage}");
    }
}
