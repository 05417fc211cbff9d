//! Sessions: transcripts that people can read, one append-only JSON-lines file each.
//!
//! `agents/<agent>/sessions/<id>.jsonl`, 0600. The first line is a header with the session key; every
//! further line is a [`Message`] with the id of the line before it. There is no second place that could
//! disagree: the index is read from the files when the hub starts. A session key may have several files
//! (`/new` starts another one); the youngest is the one that is written.

mod file;

use crate::home::Home;
use crate::store::{Store, StoreError, now_ms};
use file::Transcript;
use hearth_shared::reading::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// One line of a transcript.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Unique in the session.
    pub id: String,
    /// The line before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// `user`, `assistant`, `toolResult`, `system`.
    pub role: String,
    /// Text, or parts (`text`, `toolCall`, `image`).
    pub content: Value,
    /// Unix milliseconds.
    pub timestamp: u64,
    /// The run that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Tool results: the call they answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Tool results: the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Tool results: whether it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

/// A session in the list.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// For example `agent:main:main`.
    pub key: String,
    /// File name stem.
    pub session_id: String,
    /// `main`, `direct`, `group`, `thread`.
    pub kind: String,
    /// Agent.
    pub agent_id: String,
    /// Unix milliseconds.
    pub updated_at: u64,
    /// Lines.
    pub messages: u64,
    /// Last run.
    pub last_run_id: Option<String>,
}

type Shared = Arc<Mutex<Transcript>>;

/// Handle; cheap to clone. All file work runs on blocking threads.
#[derive(Debug, Clone)]
pub struct Sessions {
    directory: Arc<PathBuf>,
    // The youngest transcript of each key. Transcripts have locks of their own, so that one session's
    // fsync does not hold up another's.
    open: Arc<Mutex<HashMap<String, Shared>>>,
}

/// The only agent there is.
const AGENT: &str = "main";

impl Sessions {
    /// Opens the transcripts of a home: reads every file once, mends what a power cut left.
    ///
    /// # Errors
    /// [`StoreError::File`].
    pub async fn open(home: Home, _store: Store) -> Result<Self, StoreError> {
        let directory = home.sessions(AGENT);
        blocking(move || {
            let open = file::scan(&directory)?
                .into_iter()
                .map(|(key, transcript)| (key, Arc::new(Mutex::new(transcript))))
                .collect();
            Ok(Self { directory: Arc::new(directory), open: Arc::new(Mutex::new(open)) })
        })
        .await
    }

    /// Appends; on disk (fsync) when this returns. A missing `parent_id` becomes the line before.
    ///
    /// # Errors
    /// [`StoreError::File`], [`StoreError::Full`].
    pub async fn append(&self, session_key: &str, message: Message) -> Result<(), StoreError> {
        let (sessions, key) = (self.clone(), session_key.to_owned());
        blocking(move || {
            let transcript = sessions.find_or_create(&key)?;
            lock(&transcript).append(message)
        })
        .await
    }

    /// The last `limit` lines, oldest first, skipping the newest `offset`; and how many there are.
    ///
    /// # Errors
    /// [`StoreError::File`].
    pub async fn history(
        &self,
        session_key: &str,
        limit: usize,
        offset: usize,
    ) -> Result<(Vec<Message>, u64), StoreError> {
        let Some(transcript) = lock(&self.open).get(session_key).cloned() else {
            return Ok((Vec::new(), 0));
        };
        blocking(move || lock(&transcript).page(limit, offset)).await
    }

    /// All sessions, the latest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self) -> Result<Vec<SessionInfo>, StoreError> {
        let all: Vec<Shared> = lock(&self.open).values().cloned().collect();
        blocking(move || {
            let mut list: Vec<SessionInfo> = all.iter().map(|t| lock(t).info()).collect();
            list.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.key.cmp(&b.key)));
            Ok(list)
        })
        .await
    }

    /// Starts a new transcript for the key; the old one stays on disk. Returns the new file's id.
    ///
    /// # Errors
    /// [`StoreError::File`].
    pub async fn reset(&self, session_key: &str) -> Result<String, StoreError> {
        let (sessions, key) = (self.clone(), session_key.to_owned());
        blocking(move || {
            let transcript = Transcript::create(&sessions.directory, &key, fresh_id()?)?;
            let id = transcript.info().session_id;
            lock(&sessions.open).insert(key, Arc::new(Mutex::new(transcript)));
            Ok(id)
        })
        .await
    }

    fn find_or_create(&self, key: &str) -> Result<Shared, StoreError> {
        let mut open = lock(&self.open);
        if let Some(transcript) = open.get(key) {
            return Ok(transcript.clone());
        }
        let transcript = Arc::new(Mutex::new(Transcript::create(&self.directory, key, fresh_id()?)?));
        open.insert(key.to_owned(), transcript.clone());
        Ok(transcript)
    }
}

fn fresh_id() -> Result<String, StoreError> {
    let id = RequestId::fresh().map_err(|e| StoreError::Thread(std::io::Error::other(e)))?;
    Ok(format!("{}-{}", now_ms(), &id.to_string()[..12]))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?
}

#[cfg(test)]
mod tests;
