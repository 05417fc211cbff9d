//! The hub's audit log: every request, decision, grant, result, pairing and key change, hash-chained.

use crate::store::{Store, StoreError};
use hearth_shared::chain::{Head, Record};
use serde_json::Value;

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Audit {}

/// Result of a verification.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// Records read.
    pub records: u64,
    /// The head.
    pub head: Head,
    /// The first fault, in words.
    pub fault: Option<String>,
    /// Per node: name, head last reported, and whether it agrees with what the hub stored.
    pub nodes: Vec<NodeHead>,
    /// Records that no node and no approver has anchored yet.
    pub unanchored: u64,
}

/// A node's side.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHead {
    /// Node name or id.
    pub node: String,
    /// Its last head.
    pub head: Head,
    /// A fault, in words.
    pub fault: Option<String>,
}

impl Audit {
    /// Reads the head.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(_store: Store) -> Result<Self, StoreError> {
        todo!()
    }

    /// Appends a record and returns when it is on disk.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn append(&self, _kind: &'static str, _body: Value) -> Result<Head, StoreError> {
        todo!()
    }

    /// Appends inside a caller's transaction, so that a change and its record are committed together.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn append_in(
        _transaction: &rusqlite::Transaction<'_>,
        _kind: &str,
        _body: &Value,
    ) -> Result<Head, StoreError> {
        todo!()
    }

    /// The present head.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn head(&self) -> Result<Head, StoreError> {
        todo!()
    }

    /// Notes the head a node reported with its receipt.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_node_head(
        &self,
        _node: hearth_shared::identity::DeviceId,
        _head: Head,
    ) -> Result<(), StoreError> {
        todo!()
    }

    /// Records from `after` on, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn records(&self, _after: u64, _limit: usize) -> Result<Vec<Record>, StoreError> {
        todo!()
    }

    /// Walks the whole chain and compares heads.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn verify(&self) -> Result<AuditReport, StoreError> {
        todo!()
    }
}
