//! One transcript file: append, page, and the repair of what a power cut left.

use super::{AGENT, Message, SessionInfo};
use crate::routing::keys::kind_of;
use crate::store::{StoreError, now_ms};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The first line of a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    /// Always `session`: tells the header from messages.
    r#type: String,
    version: u32,
    key: String,
    id: String,
    /// Unix milliseconds.
    created_at: u64,
}

/// An open transcript.
#[derive(Debug)]
pub(super) struct Transcript {
    path: PathBuf,
    file: File,
    header: Header,
    /// Where each message's line begins, and last the end of the file.
    offsets: Vec<u64>,
    last_id: Option<String>,
    last_run: Option<String>,
    updated_at: u64,
}

impl Transcript {
    /// Makes a new file; it is in the directory for good when this returns.
    pub(super) fn create(directory: &Path, key: &str, id: String) -> Result<Self, StoreError> {
        let path = directory.join(format!("{id}.jsonl"));
        let fail = |source| file_error(&path, source);
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fail)?;
        let header =
            Header { r#type: "session".into(), version: 1, key: key.into(), id, created_at: now_ms() };
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        let line = json_line(&header, &path)?;
        file.write_all(&line).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        File::open(directory).and_then(|d| d.sync_all()).map_err(fail)?;
        let updated_at = header.created_at;
        let end = line.len() as u64;
        Ok(Self { path, file, header, offsets: vec![end], last_id: None, last_run: None, updated_at })
    }

    /// Opens a file and mends its end. `None` when it is no transcript; then it is left alone.
    fn open(path: PathBuf) -> Result<Option<Self>, StoreError> {
        let fail = |source| file_error(&path, source);
        let mut file = OpenOptions::new().read(true).append(true).open(&path).map_err(fail)?;
        mend(&path, &mut file)?;
        file.seek(SeekFrom::Start(0)).map_err(fail)?;
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        let mut at = reader.read_until(b'\n', &mut line).map_err(fail)? as u64;
        let Some(header) = serde_json::from_slice::<Header>(&line).ok().filter(|h| h.r#type == "session")
        else {
            tracing::warn!(path = %path.display(), "no session header; the file is left as it is");
            return Ok(None);
        };
        let (mut offsets, mut last_id, mut last_run) = (Vec::new(), None, None);
        let mut updated_at = header.created_at;
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(fail)?;
            if read == 0 {
                break;
            }
            match serde_json::from_slice::<Message>(&line) {
                Ok(message) => {
                    offsets.push(at);
                    updated_at = updated_at.max(message.timestamp);
                    last_id = Some(message.id);
                    last_run = message.run_id.or(last_run);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), at, %error, "a damaged line is passed over");
                }
            }
            at += read as u64;
        }
        offsets.push(at);
        drop(reader);
        Ok(Some(Self { path, file, header, offsets, last_id, last_run, updated_at }))
    }

    pub(super) fn append(&mut self, mut message: Message) -> Result<(), StoreError> {
        if message.parent_id.is_none() {
            message.parent_id = self.last_id.clone();
        }
        let line = json_line(&message, &self.path)?;
        let end = self.end();
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // What was half written must not become the beginning of the next line.
            let _ = self.file.set_len(end);
            return Err(file_error(&self.path, source));
        }
        self.offsets.push(end + line.len() as u64);
        self.last_id = Some(message.id);
        self.last_run = message.run_id.or(self.last_run.take());
        self.updated_at = self.updated_at.max(message.timestamp);
        Ok(())
    }

    pub(super) fn page(&mut self, limit: usize, offset: usize) -> Result<(Vec<Message>, u64), StoreError> {
        let total = self.count();
        let to = total.saturating_sub(offset);
        let from = to.saturating_sub(limit);
        let mut messages = Vec::with_capacity(to - from);
        if from < to {
            let (start, end) = (self.offsets[from], self.offsets[to]);
            let fail = |source| file_error(&self.path, source);
            self.file.seek(SeekFrom::Start(start)).map_err(fail)?;
            let reader = BufReader::new((&self.file).take(end - start));
            for line in reader.split(b'\n') {
                if let Ok(message) = serde_json::from_slice(&line.map_err(fail)?) {
                    messages.push(message);
                }
            }
        }
        Ok((messages, total as u64))
    }

    pub(super) fn info(&self) -> SessionInfo {
        SessionInfo {
            key: self.header.key.clone(),
            session_id: self.header.id.clone(),
            kind: kind_of(&self.header.key).into(),
            agent_id: AGENT.into(),
            updated_at: self.updated_at,
            messages: self.count() as u64,
            last_run_id: self.last_run.clone(),
        }
    }

    fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    fn end(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }
}

/// Reads a directory: the youngest transcript of each key.
pub(super) fn scan(directory: &Path) -> Result<HashMap<String, Transcript>, StoreError> {
    let mut newest: HashMap<String, Transcript> = HashMap::new();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(newest),
        Err(source) => return Err(file_error(directory, source)),
    };
    for entry in entries {
        let path = entry.map_err(|source| file_error(directory, source))?.path();
        if path.extension().is_none_or(|e| e != "jsonl") {
            continue;
        }
        // One unreadable file must not keep the hub from starting.
        let transcript = match Transcript::open(path.clone()) {
            Ok(Some(transcript)) => transcript,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a transcript is not readable");
                continue;
            }
        };
        let age = |t: &Transcript| (t.header.created_at, t.header.id.clone());
        let key = transcript.header.key.clone();
        if newest.get(&key).is_none_or(|known| age(known) < age(&transcript)) {
            newest.insert(key, transcript);
        }
    }
    Ok(newest)
}

/// A line without its end was being written when the power went. A whole message only lacks the line
/// end and gets it; anything else is moved to a file beside it, so that nothing is lost silently.
fn mend(path: &Path, file: &mut File) -> Result<(), StoreError> {
    let fail = |source| file_error(path, source);
    let length = file.seek(SeekFrom::End(0)).map_err(fail)?;
    let start = last_line_start(file, length).map_err(fail)?;
    if start == length {
        return Ok(());
    }
    file.seek(SeekFrom::Start(start)).map_err(fail)?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).map_err(fail)?;
    if serde_json::from_slice::<Message>(&tail).is_ok() || serde_json::from_slice::<Header>(&tail).is_ok() {
        file.write_all(b"\n").map_err(fail)?;
    } else {
        let aside = path.with_extension(format!("torn-{}", now_ms()));
        let mut copy = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&aside)
            .map_err(fail)?;
        copy.write_all(&tail).map_err(fail)?;
        copy.sync_all().map_err(fail)?;
        file.set_len(start).map_err(fail)?;
        tracing::warn!(path = %path.display(), kept = %aside.display(), "a half-written line was set aside");
    }
    file.sync_all().map_err(fail)
}

/// Where the last line begins; `length` when the file ends with a line end (or is empty).
fn last_line_start(file: &mut File, length: u64) -> std::io::Result<u64> {
    const BLOCK: u64 = 4096;
    let mut end = length;
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        file.take(end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|b| *b == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn json_line<T: Serialize>(value: &T, path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut line = serde_json::to_vec(value).map_err(|e| file_error(path, e.into()))?;
    line.push(b'\n');
    Ok(line)
}

fn file_error(path: &Path, source: std::io::Error) -> StoreError {
    if source.kind() == std::io::ErrorKind::StorageFull {
        StoreError::Full
    } else {
        StoreError::File { path: path.to_path_buf(), source }
    }
}
