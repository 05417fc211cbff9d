//! Results too large for the journal: pictures and long outputs, as files, a bounded number of them.
//!
//! A hub whose link was cut asks again and gets the picture that was taken, not another one. The files
//! are not synced: a torn one is told by its hash and counts as gone.

use super::GuardError;
use hearth_shared::identity::Digest;
use hearth_shared::reading::RequestId;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;

/// Files kept; with more, the oldest go.
const MAX_FILES: usize = 32;
/// Bytes kept.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// A larger one is not kept at all.
const MAX_FILE: u64 = MAX_BYTES / 2;

/// A kept file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptFile {
    /// Name in the directory; empty when it was too large to keep.
    name: String,
    /// `image/jpeg` and the like; empty for an outcome.
    pub(super) mime: String,
    size: u64,
    sha256: Digest,
}

/// The directory `results` of the state directory.
#[derive(Debug)]
pub(super) struct Kept {
    dir: PathBuf,
    /// Name and size, oldest first: names begin with a rising number.
    files: Mutex<Vec<(String, u64)>>,
}

impl Kept {
    pub(super) fn open(state_dir: &Path) -> Result<Self, GuardError> {
        let dir = state_dir.join("results");
        let failed = |e: std::io::Error| GuardError::State(format!("cannot use {}: {e}", dir.display()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let (Ok(name), Ok(meta)) = (entry.file_name().into_string(), entry.metadata()) {
                files.push((name, meta.len()));
            }
        }
        files.sort();
        Ok(Self { dir, files: Mutex::new(files) })
    }

    /// Writes a file, dropping old ones to make room.
    pub(super) fn save(&self, request: &RequestId, mime: &str, bytes: &[u8]) -> std::io::Result<KeptFile> {
        let size = bytes.len() as u64;
        let mut kept = KeptFile { name: String::new(), mime: mime.into(), size, sha256: Digest::of(bytes) };
        if size > MAX_FILE {
            return Ok(kept);
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        while files.len() >= MAX_FILES || files.iter().map(|(_, size)| size).sum::<u64>() + size > MAX_BYTES {
            let (oldest, _) = files.remove(0);
            // Gone already is as good.
            let _ = std::fs::remove_file(self.dir.join(oldest));
        }
        let last = files.last().and_then(|(name, _)| u64::from_str_radix(name.get(..16)?, 16).ok());
        kept.name = format!("{:016x}-{request}", last.map_or(0, |n| n.wrapping_add(1)));
        let path = self.dir.join(&kept.name);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        files.push((kept.name.clone(), size));
        file.write_all(bytes)?;
        Ok(kept)
    }

    /// The bytes, when they are still there and whole.
    pub(super) fn load(&self, kept: &KeptFile) -> Option<Vec<u8>> {
        if kept.name.is_empty() || kept.name.contains('/') {
            return None;
        }
        let bytes = std::fs::read(self.dir.join(&kept.name)).ok()?;
        (bytes.len() as u64 == kept.size && Digest::of(&bytes) == kept.sha256).then_some(bytes)
    }

    /// Removes all files.
    pub(super) fn clear(&self) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, _) in files.drain(..) {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_files_make_room_and_damaged_ones_count_as_gone() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::open(dir.path()).unwrap();
        let request = RequestId([1; 16]);
        let first = kept.save(&request, "image/jpeg", b"first").unwrap();
        assert_eq!(kept.load(&first).unwrap(), b"first");
        for i in 0..MAX_FILES {
            kept.save(&request, "image/jpeg", &[i as u8; 100]).unwrap();
        }
        assert_eq!(kept.load(&first), None, "the oldest made room");
        assert_eq!(std::fs::read_dir(dir.path().join("results")).unwrap().count(), MAX_FILES);

        let reopened = Kept::open(dir.path()).unwrap();
        let next = reopened.save(&request, "", b"after a restart").unwrap();
        assert_eq!(reopened.load(&next).unwrap(), b"after a restart");
        std::fs::write(dir.path().join("results").join(&next.name), b"after a_restart").unwrap();
        assert_eq!(reopened.load(&next), None);

        let huge = reopened.save(&request, "", &vec![0; MAX_FILE as usize + 1]).unwrap();
        assert_eq!(reopened.load(&huge), None);
    }
}
