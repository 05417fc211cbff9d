//! Recording intervals that were set from outside; they survive restarts.

use hearth_shared::error::{CommandError, ErrorCode};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The file `sensor-intervals.json`: sensor id to milliseconds.
#[derive(Debug)]
pub(super) struct Intervals {
    folder: PathBuf,
    set: Mutex<BTreeMap<String, u64>>,
}

const NAME: &str = "sensor-intervals.json";

impl Intervals {
    /// A missing file is empty; so is one that cannot be read, with a warning: the configured intervals
    /// then hold, and the node works.
    pub(super) fn load(folder: &Path) -> Self {
        let path = folder.join(NAME);
        let set = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "ignored: not the intervals of sensors");
                BTreeMap::new()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "intervals of sensors cannot be read");
                BTreeMap::new()
            }
        };
        Self { folder: folder.into(), set: Mutex::new(set) }
    }

    pub(super) fn get(&self, sensor: &str) -> Option<u64> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).get(sensor).copied()
    }

    /// Stores one setting; blocking. The lock is held while writing, so that two settings made at once
    /// are both in the file.
    pub(super) fn set(&self, sensor: &str, interval_ms: u64) -> Result<(), CommandError> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = set.clone();
        next.insert(sensor.into(), interval_ms);
        let failed = |what: String| {
            let path = self.folder.join(NAME);
            CommandError::new(ErrorCode::Internal, format!("{}: {what}; not changed", path.display()))
        };
        let text = serde_json::to_vec(&next).map_err(|e| failed(e.to_string()))?;
        self.replace(&text).map_err(|e| failed(e.to_string()))?;
        *set = next;
        Ok(())
    }

    /// After a power cut the file is the old one or the new one.
    fn replace(&self, text: &[u8]) -> std::io::Result<()> {
        let temporary = self.folder.join(".sensor-intervals.json.new");
        let mut file = File::create(&temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&temporary, self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_a_restart_and_a_spoilt_file_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let intervals = Intervals::load(folder.path());
        intervals.set("a", 500).unwrap();
        intervals.set("b", 0).unwrap();
        let again = Intervals::load(folder.path());
        assert_eq!((again.get("a"), again.get("b"), again.get("c")), (Some(500), Some(0), None));
        std::fs::write(folder.path().join(NAME), "{").unwrap();
        assert_eq!(Intervals::load(folder.path()).get("a"), None);
    }

    #[test]
    fn a_setting_that_cannot_be_stored_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let intervals = Intervals::load(&folder.path().join("missing"));
        assert_eq!(intervals.set("a", 500).unwrap_err().code, ErrorCode::Internal);
        assert_eq!(intervals.get("a"), None);
    }
}
