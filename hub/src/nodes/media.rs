//! Pictures and other attachments in `media/`.
//!
//! Bytes go to a `.part` file while they come, are checked against the announced hash, synced, and only
//! then get their name and their row: a file with a row is whole.

use super::Media;
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::identity::{DeviceId, Digest, random};
use hearth_shared::link::LinkError;
use hearth_shared::link::flow::Receiver;
use hearth_shared::reading::RequestId;
use rusqlite::{OptionalExtension as _, Row, params};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

/// Room that must stay free on the card: the database and the logs need it more than a picture.
const KEEP_FREE: u64 = 64 * 1024 * 1024;

/// Why bytes are not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The card is full.
    #[error(
        "the hub's card has {free_mb} MB left, {KEEP_FREE_MB} MB must stay free; free some space or lower retention.media_mb"
    )]
    Full { free_mb: u64 },
    /// One attachment is larger than the whole budget.
    #[error("attachment of {size} bytes, the whole budget is {budget} (retention.media_mb)")]
    OverBudget { size: u64, budget: u64 },
    /// The file system says no.
    #[error("media: {0}")]
    Io(#[from] std::io::Error),
    /// The bytes are not what was announced.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The sender ended it.
    #[error("the node ended the transfer")]
    Aborted,
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness.
    #[error(transparent)]
    Identity(#[from] hearth_shared::identity::IdentityError),
}

const KEEP_FREE_MB: u64 = KEEP_FREE / (1024 * 1024);

/// A stored attachment and where it came from.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaInfo {
    /// The file.
    #[serde(flatten)]
    pub media: Media,
    /// The node that sent it.
    pub node: DeviceId,
    /// For which request.
    pub request: RequestId,
    /// Unix milliseconds.
    pub created_ms: u64,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct MediaStore {
    store: Store,
    dir: PathBuf,
    budget: u64,
    /// Told when room is needed: the card is full, or the budget is spent.
    room: Arc<Notify>,
}

impl MediaStore {
    /// Files below `dir`, at most `budget_mb` of them.
    #[must_use]
    pub fn new(store: Store, dir: PathBuf, budget_mb: u64) -> Self {
        Self { store, dir, budget: budget_mb.saturating_mul(1024 * 1024), room: Arc::default() }
    }

    /// Bytes that may be stored in all.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Asks for a clean-up, soon.
    pub(super) fn ask_room(&self) {
        self.room.notify_one();
    }

    /// Until a clean-up is asked for.
    pub(super) async fn room_asked(&self) {
        self.room.notified().await;
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes the card has left for a process without privileges; `None` when it cannot be told.
    #[must_use]
    pub fn free(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.dir).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Whether the card is so full that pictures must go whatever their age.
    pub(super) fn is_tight(&self) -> bool {
        self.free().is_some_and(|free| free < KEEP_FREE)
    }

    /// Begins a file of `size` bytes.
    ///
    /// # Errors
    /// [`MediaError::Full`], [`MediaError::OverBudget`], [`MediaError::Io`].
    pub async fn begin(&self, size: u64) -> Result<Incoming, MediaError> {
        if size > self.budget {
            return Err(MediaError::OverBudget { size, budget: self.budget });
        }
        if let Some(free) = self.free()
            && free < KEEP_FREE + size
        {
            self.ask_room();
            return Err(MediaError::Full { free_mb: free / (1024 * 1024) });
        }
        let id = hex::encode(random::<16>()?);
        let part = PartFile(self.dir.join(format!("{id}.part")));
        let file =
            tokio::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part.0).await?;
        Ok(Incoming { id, part, file })
    }

    /// Stores whole bytes, for nodes of the JSON protocol.
    ///
    /// # Errors
    /// [`MediaError`].
    pub async fn put(
        &self,
        node: DeviceId,
        request: RequestId,
        mime: &str,
        bytes: &[u8],
    ) -> Result<Media, MediaError> {
        let mut incoming = self.begin(bytes.len() as u64).await?;
        incoming.write(bytes).await?;
        let sha256 = Digest::of(bytes);
        let facts = Facts { node, request, mime: mime.to_owned(), size: bytes.len() as u64, sha256 };
        self.finish(incoming, facts).await
    }

    /// Gives a complete file its name and its row.
    pub(super) async fn finish(&self, incoming: Incoming, facts: Facts) -> Result<Media, MediaError> {
        let Incoming { id, part, mut file } = incoming;
        file.flush().await?;
        file.sync_all().await?;
        drop(file);
        let mime = clean_mime(&facts.mime);
        let name = format!("{id}.{}", extension(&mime));
        let path = self.dir.join(&name);
        tokio::fs::rename(&part.0, &path).await?;
        let media = Media { id, path: path.clone(), mime, size: facts.size, sha256: facts.sha256 };
        let row = media.clone();
        let stored = self
            .store
            .write(move |t| {
                t.prepare_cached(
                    "INSERT INTO media (id, device, request, file, mime, size, sha256, created_ms) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(params![
                    row.id,
                    facts.node.0,
                    facts.request.0,
                    name,
                    row.mime,
                    row.size as i64,
                    row.sha256.0,
                    now_ms() as i64
                ])?;
                let used: Option<i64> = t.query_row("SELECT sum(size) FROM media", [], |r| r.get(0))?;
                Ok(used.unwrap_or(0) as u64)
            })
            .await;
        match stored {
            Ok(used) if used > self.budget => self.ask_room(),
            Ok(_) => {}
            Err(error) => {
                let _ = tokio::fs::remove_file(&path).await;
                return Err(error.into());
            }
        }
        Ok(media)
    }

    fn info(&self, row: &Row<'_>) -> rusqlite::Result<MediaInfo> {
        Ok(MediaInfo {
            media: Media {
                id: row.get(0)?,
                path: self.dir.join(row.get::<_, String>(3)?),
                mime: row.get(4)?,
                size: row.get::<_, i64>(5)? as u64,
                sha256: Digest(row.get(6)?),
            },
            node: DeviceId(row.get(1)?),
            request: RequestId(row.get(2)?),
            created_ms: row.get::<_, i64>(7)? as u64,
        })
    }

    /// One by its id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn get(&self, id: &str) -> Result<Option<MediaInfo>, StoreError> {
        let (this, id) = (self.clone(), id.to_owned());
        self.store
            .read(move |c| {
                Ok(c.prepare_cached(&format!("SELECT {COLUMNS} FROM media WHERE id = ?1"))?
                    .query_row([id], |r| this.info(r))
                    .optional()?)
            })
            .await
    }

    /// The newest of a node, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn recent(&self, node: DeviceId, limit: usize) -> Result<Vec<MediaInfo>, StoreError> {
        let this = self.clone();
        self.store
            .read(move |c| {
                let mut statement = c.prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM media WHERE device = ?1 ORDER BY rowid DESC LIMIT ?2"
                ))?;
                let rows = statement.query_map(params![node.0, limit as i64], |r| this.info(r))?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }
}

const COLUMNS: &str = "id, device, request, file, mime, size, sha256, created_ms";

/// What is known of a file beside its bytes.
#[derive(Debug)]
pub(super) struct Facts {
    pub node: DeviceId,
    pub request: RequestId,
    pub mime: String,
    pub size: u64,
    pub sha256: Digest,
}

/// A file that is being received; dropped before it is finished, it leaves nothing behind.
#[derive(Debug)]
pub struct Incoming {
    id: String,
    part: PartFile,
    file: tokio::fs::File,
}

impl Incoming {
    /// Appends.
    ///
    /// # Errors
    /// [`MediaError::Io`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), MediaError> {
        Ok(self.file.write_all(bytes).await?)
    }
}

#[derive(Debug)]
struct PartFile(PathBuf);

impl Drop for PartFile {
    fn drop(&mut self) {
        // Gone already when it was renamed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Checks the whole against its announcement.
pub(super) fn verify(receiver: Receiver) -> Result<(), MediaError> {
    Ok(receiver.finish()?)
}

fn clean_mime(text: &str) -> String {
    let ok = text.len() <= 64
        && text.split_once('/').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"/.+-".contains(&b));
    if ok { text.to_owned() } else { "application/octet-stream".into() }
}

fn extension(mime: &str) -> &'static str {
    match mime {
        "image/jpeg" => "jpg",
        "image/png" => "png",
        "image/webp" => "webp",
        "image/gif" => "gif",
        "video/mp4" => "mp4",
        "text/plain" => "txt",
        _ => "bin",
    }
}
