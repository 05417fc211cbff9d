//! The node's own audit log: a hash chain whose ends the node signs.
//!
//! Written: pairing and changes of approvers, requests with effects (started, finished, refused),
//! challenges, grants, always-rules. Commands that only observe are not written one by one: a hub that
//! polls a sensor would wear out the card. Parameters and results stand in it as digests.
//!
//! It is bounded: when it reaches [`MAX_RECORDS`] the oldest quarter goes, and a signed anchor keeps
//! the place where the rest begins, so that it still verifies. The hub holds the head of every result.

use super::GuardError;
use super::store::{self, AUDIT, Store, damaged, failed};
use hearth_shared::chain::{ChainError, Head, Record, Verifier};
use hearth_shared::identity::{SecretKey, Signature};
use redb::{ReadableTable as _, WriteTransaction};
use serde::{Deserialize, Serialize};

/// Records kept; about 8 MB.
pub const MAX_RECORDS: u64 = if cfg!(test) { 40 } else { 20_000 };
const CUT: u64 = MAX_RECORDS / 4;
/// Longest details of a record.
const MAX_BODY: usize = 2 * 1024;
const DOMAIN: &[u8] = b"hearth-audit-head-v1\0";

/// An end of the chain, signed by the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHead {
    /// The end.
    pub head: Head,
    /// Over `"hearth-audit-head-v1\0" ‖ seq u64 big-endian ‖ hash32`.
    pub signature: Signature,
}

impl SignedHead {
    fn bytes(head: &Head) -> Vec<u8> {
        [DOMAIN, &head.seq.to_be_bytes(), &head.hash.0].concat()
    }

    fn sign(key: &SecretKey, head: Head) -> Self {
        Self { head, signature: key.sign(&Self::bytes(&head)) }
    }

    fn holds(&self, key: &SecretKey) -> bool {
        key.public().verify(&Self::bytes(&self.head), &self.signature).is_ok()
    }
}

/// A log that does not verify.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditFault {
    /// The chain breaks.
    #[error("the audit log of this node was tampered with or damaged: {0}")]
    Chain(#[from] ChainError),
    /// An end of it is not the one the node signed.
    #[error("the audit log of this node was cut: {0}")]
    Cut(String),
    /// It cannot be read.
    #[error(transparent)]
    State(#[from] GuardError),
}

/// A log that verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AuditReport {
    /// Where the kept part begins: the last record that was cut.
    pub anchor: Head,
    /// Where it ends.
    pub head: Head,
}

/// Appends a record; it counts when `txn` is committed.
pub(super) fn append(
    txn: &WriteTransaction,
    key: &SecretKey,
    at_ms: u64,
    kind: &str,
    body: &serde_json::Value,
) -> Result<Head, GuardError> {
    let last: Head = store::get::<SignedHead>(txn, "audit.head")?.map_or_else(Head::default, |s| s.head);
    let mut text = body.to_string();
    if text.len() > MAX_BODY {
        text = serde_json::json!({ "tooLong": text.len() }).to_string();
    }
    let record = last.next(at_ms, kind, text);
    let mut table = txn.open_table(AUDIT).map_err(failed)?;
    table.insert(record.seq, store::encode(&record)?.as_slice()).map_err(failed)?;
    let anchor = store::get::<SignedHead>(txn, "audit.anchor")?.map_or(0, |a| a.head.seq);
    if record.seq - anchor > MAX_RECORDS {
        let to = anchor + CUT;
        let bytes = table.get(to).map_err(failed)?.ok_or_else(|| damaged("audit log"))?;
        let cut: Record = store::decode(bytes.value(), "audit record")?;
        drop(bytes);
        table.retain_in(..=to, |_, _| false).map_err(failed)?;
        store::put(txn, "audit.anchor", &SignedHead::sign(key, cut.head()))?;
    }
    let head = record.head();
    store::put(txn, "audit.head", &SignedHead::sign(key, head))?;
    Ok(head)
}

/// Head of the log.
pub(super) fn head(store: &Store) -> Result<Head, GuardError> {
    Ok(store.get::<SignedHead>("audit.head")?.map_or_else(Head::default, |s| s.head))
}

/// Records after number `after`, at most `limit`.
pub(super) fn records(store: &Store, after: u64, limit: usize) -> Result<Vec<Record>, GuardError> {
    let table = store.read()?.open_table(AUDIT).map_err(failed)?;
    let range = table.range(after.saturating_add(1)..).map_err(failed)?;
    range.take(limit).map(|entry| store::decode(entry.map_err(failed)?.1.value(), "audit record")).collect()
}

/// Walks the whole kept log.
pub(super) fn verify(store: &Store, key: &SecretKey) -> Result<AuditReport, AuditFault> {
    let default = SignedHead::sign(key, Head::default());
    let anchor = store.get::<SignedHead>("audit.anchor")?.unwrap_or(default);
    let head = store.get::<SignedHead>("audit.head")?.unwrap_or(default);
    if !anchor.holds(key) || !head.holds(key) {
        return Err(AuditFault::Cut("an end of it does not bear this node's signature".into()));
    }
    let mut verifier = Verifier::after(anchor.head);
    loop {
        let page = records(store, verifier.head().seq, 256)?;
        if page.is_empty() {
            break;
        }
        for record in &page {
            verifier.check(record)?;
        }
    }
    if verifier.head() != head.head {
        return Err(AuditFault::Cut(format!(
            "it ends with record {}, the node signed record {}",
            verifier.head().seq,
            head.head.seq
        )));
    }
    Ok(AuditReport { anchor: anchor.head, head: head.head })
}
