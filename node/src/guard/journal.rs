//! Requests with effects, by id: started, and how they finished.
//!
//! `started` is on the disk before the effect begins, `finished` before the result leaves the node. A
//! request that comes again gets its stored result; one that only started (the power went in between)
//! is `OUTCOME_UNKNOWN`, and nobody repeats it on his own. Commands that only observe are not
//! journalled. Small outcomes stand in the database, large ones and attachments in [`super::kept`].

use super::GuardError;
use super::kept::KeptFile;
use super::store::{self, JOURNAL, ORDER, Store, damaged, failed};
use hearth_shared::identity::Digest;
use hearth_shared::limits::EFFECT_KEY_TTL_MS;
use hearth_shared::link::Outcome;
use hearth_shared::reading::RequestId;
use redb::{ReadableTable as _, ReadableTableMetadata as _, WriteTransaction};
use serde::{Deserialize, Serialize};

/// Requests kept. Beyond it the oldest finished one goes before its 24 hours of powered time are over.
const MAX_ENTRIES: u64 = 10_000;
/// Larger outcomes become files.
pub(super) const MAX_INLINE: usize = 4 * 1024;

/// One request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Place in the order.
    number: u64,
    /// Hash of command and complete parameters.
    pub(super) fingerprint: Digest,
    /// Powered time.
    started_ms: u64,
    /// None while it runs, and for ever when the power went.
    pub(super) finished: Option<Finished>,
}

/// How it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Finished {
    pub(super) outcome: StoredOutcome,
    pub(super) attachments: Vec<KeptFile>,
}

/// An outcome, here or in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum StoredOutcome {
    Inline(Outcome),
    File(KeptFile),
}

/// What is known of a request.
pub(super) fn lookup(store: &Store, request: &RequestId) -> Result<Option<Entry>, GuardError> {
    let table = store.read()?.open_table(JOURNAL).map_err(failed)?;
    let entry = table.get(request.0.as_slice()).map_err(failed)?;
    entry.map(|e| store::decode(e.value(), "journal entry")).transpose()
}

/// Notes that a request starts. False when it is known already.
pub(super) fn start(
    txn: &WriteTransaction,
    request: &RequestId,
    fingerprint: Digest,
    now_ms: u64,
) -> Result<bool, GuardError> {
    let mut journal = txn.open_table(JOURNAL).map_err(failed)?;
    if journal.get(request.0.as_slice()).map_err(failed)?.is_some() {
        return Ok(false);
    }
    let number = store::get::<u64>(txn, "journal.next")?.unwrap_or(0);
    let entry = Entry { number, fingerprint, started_ms: now_ms, finished: None };
    journal.insert(request.0.as_slice(), store::encode(&entry)?.as_slice()).map_err(failed)?;
    let mut order = txn.open_table(ORDER).map_err(failed)?;
    order.insert(number, request.0.as_slice()).map_err(failed)?;
    store::put(txn, "journal.next", &(number + 1))?;
    prune(&mut journal, &mut order, now_ms)?;
    Ok(true)
}

/// Notes how it ended.
pub(super) fn finish(
    txn: &WriteTransaction,
    request: &RequestId,
    finished: Finished,
) -> Result<(), GuardError> {
    let mut journal = txn.open_table(JOURNAL).map_err(failed)?;
    let mut entry: Entry = {
        let bytes = journal.get(request.0.as_slice()).map_err(failed)?;
        let bytes = bytes.ok_or_else(|| damaged("journal: a finished request never started"))?;
        store::decode(bytes.value(), "journal entry")?
    };
    entry.finished = Some(finished);
    journal.insert(request.0.as_slice(), store::encode(&entry)?.as_slice()).map_err(failed)?;
    Ok(())
}

type Bytes = &'static [u8];

fn prune(
    journal: &mut redb::Table<'_, Bytes, Bytes>,
    order: &mut redb::Table<'_, u64, Bytes>,
    now_ms: u64,
) -> Result<(), GuardError> {
    let mut surplus = journal.len().map_err(failed)?.saturating_sub(MAX_ENTRIES);
    let mut gone = Vec::new();
    for item in order.range::<u64>(..).map_err(failed)? {
        let (number, request) = item.map_err(failed)?;
        let request = request.value().to_vec();
        let entry = journal.get(request.as_slice()).map_err(failed)?;
        let entry: Option<Entry> = entry.map(|e| store::decode(e.value(), "journal entry")).transpose()?;
        let old = entry.as_ref().is_none_or(|e| now_ms.saturating_sub(e.started_ms) > EFFECT_KEY_TTL_MS);
        if old || (surplus > 0 && entry.is_some_and(|e| e.finished.is_some())) {
            gone.push((number.value(), request));
            surplus = surplus.saturating_sub(1);
        } else if surplus == 0 {
            break;
        }
    }
    for (number, request) in gone {
        order.remove(number).map_err(failed)?;
        journal.remove(request.as_slice()).map_err(failed)?;
    }
    Ok(())
}
