//! The file: a tar of regular files, with a manifest of their digests as its last entry.

use crate::cli::error::Failure;
use hearth_shared::identity::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Version of the form.
pub(super) const FORM: u32 = 1;
/// Name of the last entry.
pub(super) const MANIFEST: &str = "manifest.json";
/// Longest manifest that is read.
const MAX_MANIFEST: u64 = 64 * 1024 * 1024;

/// What goes in.
#[derive(Debug)]
pub(super) struct Entry {
    /// Name in the archive, relative to the home.
    pub(super) name: String,
    /// Where it is now.
    pub(super) path: PathBuf,
}

/// The last entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) form: u32,
    /// Program that wrote it.
    pub(super) version: String,
    /// Unix milliseconds.
    pub(super) created_ms: u64,
    /// Whether the hub's keys are in it.
    pub(super) keys: bool,
    /// SHA-256 of every other entry.
    pub(super) files: BTreeMap<String, Digest>,
}

/// All regular files below `root/folder`.
pub(super) fn collect(root: &Path, folder: &Path, entries: &mut Vec<Entry>) -> Result<(), Failure> {
    let here = root.join(folder);
    let failed = |e: std::io::Error| {
        Failure::failed(format!("{}: {e}", here.display()), "check that it belongs to you")
    };
    let list = match std::fs::read_dir(&here) {
        Ok(list) => list,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(e)),
    };
    let mut names = Vec::new();
    for entry in list {
        let entry = entry.map_err(failed)?;
        names.push((entry.file_name(), entry.file_type().map_err(failed)?));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, kind) in names {
        let inner = folder.join(&name);
        if kind.is_dir() {
            collect(root, &inner, entries)?;
        } else if kind.is_file()
            && let Some(name) = inner.to_str()
        {
            entries.push(Entry { name: name.to_owned(), path: root.join(&inner) });
        }
    }
    Ok(())
}

/// Writes an archive; it has its name only once it is whole.
pub(super) struct Writer {
    tar: tar::Builder<File>,
    path: PathBuf,
    temporary: PathBuf,
    files: BTreeMap<String, Digest>,
}

impl Writer {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let temporary = path.with_extension("tar.part");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|e| unwritable(&temporary, &e))?;
        Ok(Self { tar: tar::Builder::new(file), path: path.into(), temporary, files: BTreeMap::new() })
    }

    /// Adds a file as long as it is now; what is appended meanwhile is left out.
    pub(super) fn add(&mut self, entry: &Entry) -> Result<(), Failure> {
        let unreadable = |e: std::io::Error| {
            Failure::failed(format!("{}: {e}", entry.path.display()), "check that it belongs to you")
        };
        let file = match File::open(&entry.path) {
            Ok(file) => file,
            // A picture that was cleared away since it was listed.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(unreadable(e)),
        };
        let size = file.metadata().map_err(unreadable)?.len();
        let mut hashing = Hashing { inner: file.take(size), hash: Sha256::new() };
        let mut header = header(size);
        self.tar
            .append_data(&mut header, &entry.name, &mut hashing)
            .map_err(|e| unwritable(&self.temporary, &e))?;
        self.files.insert(entry.name.clone(), Digest(hashing.hash.finalize().into()));
        Ok(())
    }

    /// Writes the manifest and gives the file its name. Returns its size.
    pub(super) fn finish(mut self, keys: bool) -> Result<u64, Failure> {
        let manifest = Manifest {
            form: FORM,
            version: hearth_shared::VERSION.into(),
            created_ms: crate::store::now_ms(),
            keys,
            files: std::mem::take(&mut self.files),
        };
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|e| Failure::failed(format!("cannot write the manifest: {e}"), "report this fault"))?;
        let mut end = || -> std::io::Result<u64> {
            self.tar.append_data(&mut header(text.len() as u64), MANIFEST, text.as_slice())?;
            self.tar.finish()?;
            let file = self.tar.get_mut();
            file.flush()?;
            file.sync_all()?;
            std::fs::rename(&self.temporary, &self.path)?;
            Ok(file.metadata()?.len())
        };
        end().map_err(|e| unwritable(&self.path, &e))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(
        format!("{}: {error}", path.display()),
        "name a file that you may write, on a disk with space",
    )
}

fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o600);
    header.set_mtime(crate::store::now_ms() / 1000);
    header
}

/// Hashes what is read through it.
pub(super) struct Hashing<R> {
    pub(super) inner: R,
    pub(super) hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

/// Unpacks an archive into an empty directory and checks every digest.
///
/// # Errors
/// When it is no backup, is damaged, or holds anything but regular files below the directory.
pub(super) fn unpack(path: &Path, into: &Path) -> Result<Manifest, Failure> {
    let damaged = |why: String| {
        Failure::failed(
            format!("{} cannot be used: {why}", path.display()),
            "take another backup; this one is damaged or is none",
        )
    };
    let file = File::open(path).map_err(|e| damaged(e.to_string()))?;
    let mut archive = tar::Archive::new(file);
    let mut found = BTreeMap::new();
    let mut manifest: Option<Manifest> = None;
    for entry in archive.entries().map_err(|e| damaged(e.to_string()))? {
        let mut entry = entry.map_err(|e| damaged(e.to_string()))?;
        let name = entry.path().map_err(|e| damaged(e.to_string()))?.into_owned();
        if manifest.is_some() {
            return Err(damaged("something follows the manifest".into()));
        }
        if entry.header().entry_type() != tar::EntryType::Regular || !is_inside(&name) {
            return Err(damaged(format!("`{}` is no plain file below the home", name.display())));
        }
        if name == Path::new(MANIFEST) {
            let mut text = Vec::new();
            (&mut entry).take(MAX_MANIFEST).read_to_end(&mut text).map_err(|e| damaged(e.to_string()))?;
            manifest =
                Some(serde_json::from_slice(&text).map_err(|e| damaged(format!("its manifest: {e}")))?);
            continue;
        }
        let target = into.join(&name);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(|e| unwritable(parent, &e))?;
        }
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .map_err(|e| unwritable(&target, &e))?;
        let mut hashing = Hashing { inner: &mut entry, hash: Sha256::new() };
        std::io::copy(&mut hashing, &mut out)
            .and_then(|_| out.sync_all())
            .map_err(|e| unwritable(&target, &e))?;
        let name = name.to_string_lossy().into_owned();
        found.insert(name, Digest(hashing.hash.finalize().into()));
    }
    let manifest =
        manifest.ok_or_else(|| damaged("it has no manifest; it was cut, or is no backup".into()))?;
    if manifest.form != FORM {
        return Err(damaged(format!("form {}, this program knows {FORM}; update hearth", manifest.form)));
    }
    if manifest.files != found {
        return Err(damaged("its files are not those of its manifest".into()));
    }
    Ok(manifest)
}

fn is_inside(name: &Path) -> bool {
    name.components().next().is_some() && name.components().all(|c| matches!(c, Component::Normal(_)))
}
