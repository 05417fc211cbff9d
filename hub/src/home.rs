//! The state directory: where everything is, who may read it, and the lock that keeps a second hub out.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often, and with what pause, a taken lock is tried again: whoever only looks holds it for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A copy that `hearth backup` makes on its way is no longer being written after this.
const BACKUP_TAKES: Duration = Duration::from_secs(3600);

/// What can be wrong with the state directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// A file or folder cannot be used.
    #[error("{path}: {source}; check that it exists and belongs to you")]
    Io { path: PathBuf, source: std::io::Error },
    /// Another hub runs on it.
    #[error("another hub (pid {pid}) is using {path}; stop it, or name another directory with --home")]
    Locked { path: PathBuf, pid: String },
    /// Other users could change it: what is in it may be theirs.
    #[error(
        "{path} can be written by other users (mode {mode:03o}); look who did, then run `chmod go-rwx {path}`"
    )]
    Exposed { path: PathBuf, mode: u32 },
    /// It is somebody else's.
    #[error(
        "{path} belongs to user {owner}, this is user {me}; run as that user, or name another with --home"
    )]
    Foreign { path: PathBuf, owner: u32, me: u32 },
    /// A restore had taken the old database away and not yet put the new one in its place.
    #[error(
        "a restore into {path} was cut off; run `hearth restore FILE --force` again, or move what is in its newest \
         folder before-restore-* back and remove restore-*.tmp"
    )]
    RestoreCut { path: PathBuf },
}

/// Paths below `$HEARTH_HOME`.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// `--home`, else `$HEARTH_HOME`, else the XDG state directory (`~/.local/state/hearth`).
    #[must_use]
    pub fn locate(explicit: Option<&Path>) -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = explicit
            .map(Path::to_path_buf)
            .or_else(|| var("HEARTH_HOME"))
            .or_else(|| var("XDG_STATE_HOME").map(|d| d.join("hearth")))
            .or_else(|| var("HOME").map(|d| d.join(".local/state/hearth")))
            .unwrap_or_else(|| PathBuf::from("/var/lib/hearth"));
        Self { root }
    }

    /// Makes the directory (0700) if it is missing, and sees to it that it is this user's alone.
    ///
    /// # Errors
    /// [`HomeError::Io`]; [`HomeError::Exposed`] or [`HomeError::Foreign`] when others may have put
    /// something into it.
    pub fn create(&self) -> Result<(), HomeError> {
        for dir in [self.root.clone(), self.media()] {
            let io = |source| HomeError::Io { path: dir.clone(), source };
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io)?;
            let meta = std::fs::metadata(&dir).map_err(io)?;
            let me = rustix::process::geteuid().as_raw();
            if meta.uid() != me {
                return Err(HomeError::Foreign { path: dir, owner: meta.uid(), me });
            }
            // What others could write to may hold what they put there. What they could only read (a
            // service manager makes state directories 0755) is closed now.
            let mode = meta.mode() & 0o777;
            if mode & 0o022 != 0 {
                return Err(HomeError::Exposed { path: dir, mode });
            }
            if mode & 0o077 != 0 {
                std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).map_err(io)?;
            }
        }
        Ok(())
    }

    /// Whether a hub runs on this home.
    #[must_use]
    pub fn in_use(&self) -> bool {
        let Ok(file) = File::open(self.root.join("hub.lock")) else { return false };
        matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock))
    }

    /// Takes the lock; it is held as long as the value lives, and the kernel frees it after any crash.
    ///
    /// # Errors
    /// [`HomeError::Locked`] with the other's process id.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let path = self.root.join("hub.lock");
        let io = |source| HomeError::Io { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        let mut tries = LOCK_TRIES;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(std::fs::TryLockError::WouldBlock) if tries > 1 => {
                    tries -= 1;
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    let mut pid = String::new();
                    let _ = file.read_to_string(&mut pid);
                    return Err(HomeError::Locked { path: self.root.clone(), pid: pid.trim().into() });
                }
                Err(std::fs::TryLockError::Error(source)) => return Err(io(source)),
            }
        }
        // The number is for people; a full card must not keep the hub from starting.
        let pid = format!("{}\n", std::process::id());
        let noted = file
            .rewind()
            .and_then(|()| file.write_all(pid.as_bytes()))
            .and_then(|()| file.set_len(pid.len() as u64));
        if let Err(error) = noted {
            tracing::warn!(path = %path.display(), %error, "the process id cannot be noted");
        }
        Ok(HomeLock { _file: file })
    }

    /// Removes what a backup or restore that was cut off left. The caller holds the lock, so that no
    /// restore is at work.
    ///
    /// # Errors
    /// [`HomeError::RestoreCut`] when it was cut off between the old database and the new one: a hub that
    /// starts now would begin anew.
    pub fn clear_leftovers(&self) -> Result<(), HomeError> {
        let io = |source| HomeError::Io { path: self.root.clone(), source };
        for entry in std::fs::read_dir(&self.root).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let removed = if name.starts_with("restore-") && name.ends_with(".tmp") {
                if !self.database().exists() {
                    return Err(HomeError::RestoreCut { path: self.root.clone() });
                }
                std::fs::remove_dir_all(entry.path())
            } else if name.starts_with("backup-")
                && (name.ends_with(".tmp") || name.ends_with(".tmp-journal"))
            {
                // Backups take no lock: one may be at work.
                let age = entry.metadata().and_then(|m| m.modified()).map_err(io)?.elapsed();
                if age.is_ok_and(|age| age < BACKUP_TAKES) {
                    continue;
                }
                std::fs::remove_file(entry.path())
            } else {
                continue;
            };
            if let Err(error) = removed {
                tracing::warn!(path = %entry.path().display(), %error, "what a cut-off run left cannot be removed");
            }
        }
        Ok(())
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// `config.toml`
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }
    /// `hub.db`
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.root.join("hub.db")
    }
    /// `hub.key`: the hub's Ed25519 seed.
    #[must_use]
    pub fn hub_key(&self) -> PathBuf {
        self.root.join("hub.key")
    }
    /// `tls.pem`: the P-256 key that serves TLS.
    #[must_use]
    pub fn tls(&self) -> PathBuf {
        self.root.join("tls.pem")
    }
    /// `tls.crt`: the certificate over it; made anew whenever it is missing.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.root.join("tls.crt")
    }
    /// `authority.pem`: key and certificate of the authority that browsers are told to trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.root.join("authority.pem")
    }
    /// `push.pem`: the P-256 key that names this hub to push services.
    #[must_use]
    pub fn push_key(&self) -> PathBuf {
        self.root.join("push.pem")
    }
    /// `token`: the shared gateway token of this machine's owner.
    #[must_use]
    pub fn token(&self) -> PathBuf {
        self.root.join("token")
    }
    /// `cli.key`: the device key of this machine's own command line.
    #[must_use]
    pub fn cli_key(&self) -> PathBuf {
        self.root.join("cli.key")
    }
    /// `media/`: pictures.
    #[must_use]
    pub fn media(&self) -> PathBuf {
        self.root.join("media")
    }
    /// `agents/<id>/sessions/`: transcripts.
    #[must_use]
    pub fn sessions(&self, agent: &str) -> PathBuf {
        self.root.join("agents").join(agent).join("sessions")
    }
    /// `hub.addr`: where a running hub listens, one address a line; for this machine's command line.
    #[must_use]
    pub fn address(&self) -> PathBuf {
        self.root.join("hub.addr")
    }
    /// `hub.log`
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.root.join("hub.log")
    }
}

/// Held while a hub runs.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

/// Writes a private file (0600) so that a power cut leaves the old one or the new one, never half.
///
/// # Errors
/// [`HomeError::Io`].
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), HomeError> {
    let io = |source| HomeError::Io { path: path.to_path_buf(), source };
    let temporary = path.with_extension("tmp");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(io)?;
    file.write_all(bytes).map_err(io)?;
    file.sync_all().map_err(io)?;
    std::fs::rename(&temporary, path).map_err(io)?;
    if let Some(parent) = path.parent() {
        File::open(parent).and_then(|d| d.sync_all()).map_err(io)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_of_others_is_refused_and_a_readable_one_closed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(&dir.path().join("home")));
        home.create().unwrap();
        let mode = || std::fs::metadata(home.root()).unwrap().permissions().mode() & 0o777;
        let set = |mode| {
            std::fs::set_permissions(home.root(), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o755);
        home.create().unwrap();
        assert_eq!(mode(), 0o700);
        set(0o777);
        assert!(matches!(home.create(), Err(HomeError::Exposed { mode: 0o777, .. })));
        set(0o700);
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(home.root(), Some(12_345), None).unwrap();
        assert!(matches!(home.create(), Err(HomeError::Foreign { owner: 12_345, .. })));
    }

    #[test]
    fn the_lock_names_its_holder_and_shows_that_the_home_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        assert!(!home.in_use());
        let lock = home.lock().unwrap();
        assert!(home.in_use());
        let Err(HomeError::Locked { pid, .. }) = home.lock() else { panic!("taken twice") };
        assert_eq!(pid, std::process::id().to_string());
        drop(lock);
        assert!(!home.in_use());
    }
}
