//! Sessions: transcripts that people can read, one append-only JSON-lines file each.

use crate::home::Home;
use crate::store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {}

impl Sessions {
    /// Opens the transcripts of a home.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(_home: Home, _store: Store) -> Result<Self, StoreError> {
        todo!()
    }

    /// Appends; on disk (fsync) when this returns.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn append(&self, _session_key: &str, _message: Message) -> Result<(), StoreError> {
        todo!()
    }

    /// The last `limit` lines, oldest first, skipping the newest `offset`; and how many there are.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn history(
        &self,
        _session_key: &str,
        _limit: usize,
        _offset: usize,
    ) -> Result<(Vec<Message>, u64), StoreError> {
        todo!()
    }

    /// All sessions, the latest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self) -> Result<Vec<SessionInfo>, StoreError> {
        todo!()
    }
}
