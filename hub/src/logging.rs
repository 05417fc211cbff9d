//! Log lines: to stderr for whoever started the hub, and to `hub.log` for `hearth logs`.
//!
//! Every message gets a correlation id when it is taken at the door; spans carry it down to the node
//! command, so one `grep` follows a request. Secrets are redacted by their types, not by filters.

use crate::config::{LogConfig, LogFormat};
use crate::home::{Home, HomeError};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Logging that cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// `hub.log` cannot be written.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The filter is not one.
    #[error("log level `{0}` is no filter; see `hearth config example`")]
    Filter(String),
    /// A subscriber is there already.
    #[error("logging was started twice")]
    Twice,
}

/// Starts logging for this process. With `quiet`, nothing goes to stderr.
///
/// # Errors
/// [`LogError`].
pub fn start(home: &Home, config: &LogConfig, quiet: bool) -> Result<(), LogError> {
    let filter: Targets = config.level.parse().map_err(|_| LogError::Filter(config.level.clone()))?;
    let file = RotatingFile::open(home.log(), config.max_mb * 1024 * 1024)?;
    let mut layers = Vec::new();
    let form = tracing_subscriber::fmt::layer::<Registry>().log_internal_errors(false);
    layers.push(match config.format {
        LogFormat::Human => form.with_ansi(false).with_writer(file).boxed(),
        LogFormat::Json => form.json().flatten_event(true).with_writer(file).boxed(),
    });
    if !quiet {
        let form = tracing_subscriber::fmt::layer::<Registry>().with_writer(std::io::stderr);
        layers.push(match config.format {
            LogFormat::Human => form.with_ansi(std::io::stderr().is_terminal()).boxed(),
            LogFormat::Json => form.json().flatten_event(true).boxed(),
        });
    }
    tracing_subscriber::registry().with(layers.with_filter(filter)).try_init().map_err(|_| LogError::Twice)
}

/// A file that is renamed to `*.1` when it is full; one old file is kept, so the card never fills.
#[derive(Debug)]
pub struct RotatingFile {
    path: PathBuf,
    limit: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
}

impl RotatingFile {
    /// Opens it for appending, readable by the owner only.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub fn open(path: PathBuf, limit: u64) -> Result<Self, HomeError> {
        let open = open(&path).map_err(|source| HomeError::Io { path: path.clone(), source })?;
        Ok(Self { path, limit, open: Mutex::new(open) })
    }
}

fn open(path: &Path) -> std::io::Result<Open> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok(Open { file, size })
}

/// Where an old log goes.
#[must_use]
pub fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// Writes one event.
#[derive(Debug)]
pub struct Line<'a> {
    log: &'a RotatingFile,
    open: MutexGuard<'a, Open>,
}

impl<'a> MakeWriter<'a> for RotatingFile {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { log: self, open: self.open.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.open.size > 0 && self.open.size + bytes.len() as u64 > self.log.limit {
            std::fs::rename(&self.log.path, rotated(&self.log.path))?;
            *self.open = open(&self.log.path)?;
        }
        let written = self.open.file.write(bytes)?;
        self.open.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.open.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_full_file_is_rotated_and_one_old_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.log");
        let log = RotatingFile::open(path.clone(), 100).unwrap();
        for i in 0..30 {
            log.make_writer().write_all(format!("line number {i:02}\n").as_bytes()).unwrap();
        }
        let new = std::fs::read_to_string(&path).unwrap();
        let old = std::fs::read_to_string(rotated(&path)).unwrap();
        assert!(new.ends_with("line number 29\n"));
        assert!(new.len() <= 100 && old.len() <= 100);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A restart goes on where it was.
        drop(log);
        let log = RotatingFile::open(path.clone(), 1000).unwrap();
        log.make_writer().write_all(b"after\n").unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("line number 29\nafter\n"));
    }
}
