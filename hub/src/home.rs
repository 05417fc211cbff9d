//! The state directory: where everything is, who may read it, and the lock that keeps a second hub out.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

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

    /// Makes the directory (0700) if it is missing.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub fn create(&self) -> Result<(), HomeError> {
        for dir in [self.root.clone(), self.media()] {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(|source| HomeError::Io { path: dir, source })?;
        }
        Ok(())
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
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                return Err(HomeError::Locked { path: self.root.clone(), pid: pid.trim().into() });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(io(source)),
        }
        file.set_len(0).map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(HomeLock { _file: file })
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
    /// `tls.pem`: P-256 key and certificate.
    #[must_use]
    pub fn tls(&self) -> PathBuf {
        self.root.join("tls.pem")
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
