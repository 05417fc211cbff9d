//! Actions in progress: who waits for them, who drives them, and how many there may be.

use super::Action;
use crate::store::StoreError;
use hearth_shared::challenge::{Challenge, SignedChallenge};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::Grant;
use hearth_shared::identity::DeviceId;
use hearth_shared::reading::RequestId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Actions in progress, over all requesters.
pub(super) const MAX_OPEN: usize = 256;
/// Actions in progress of one requester.
pub(super) const MAX_OPEN_EACH: usize = 64;
/// Finished actions that were never on disk stay readable this long, within these bounds.
const KEEP_FINISHED: Duration = Duration::from_secs(60);
const MAX_FINISHED: usize = 512;
const MAX_FINISHED_BYTES: usize = 4 * 1024 * 1024;

/// A challenge fresh from the node, checked.
#[derive(Debug, Clone)]
pub(super) struct Fresh {
    pub(super) signed: SignedChallenge,
    pub(super) challenge: Challenge,
    pub(super) at: Instant,
}

impl Fresh {
    /// Whether the node will still take a grant for it when somebody needs this long until then.
    pub(super) fn lasts(&self, time: Duration) -> bool {
        self.at.elapsed() + time < Duration::from_millis(u64::from(self.challenge.valid_ms))
    }
}

/// One action in progress.
#[derive(Debug)]
pub(super) struct Entry {
    owner: String,
    pub(super) node: DeviceId,
    /// Wakes its driver: something in the database, or about the node, changed.
    pub(super) wake: Notify,
    /// An action that is not on disk, while it runs.
    pub(super) looking: Mutex<Option<Action>>,
    /// Withdraws an action that is not on disk.
    pub(super) cancel: CancellationToken,
    /// One conversation with the node about this request at a time: links refuse a second one.
    pub(super) talk: Semaphore,
    /// The challenge that the node holds open, as far as is known.
    pub(super) fresh: Mutex<Option<Fresh>>,
    /// A person's grant on its way to the node.
    pub(super) grant: Mutex<Option<Grant>>,
    /// It was begun in an earlier start of the hub.
    pub(super) restored: bool,
    /// Tries to deliver a grant.
    tries: AtomicU32,
    finished: watch::Sender<Option<Arc<Action>>>,
}

impl Entry {
    /// Counts a try; the number of this one, from 1.
    pub(super) fn count_try(&self) -> u32 {
        self.tries.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn forget_tries(&self) {
        self.tries.store(0, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub(super) async fn finished(&self) -> Result<Arc<Action>, StoreError> {
        let mut receiver = self.finished.subscribe();
        match receiver.wait_for(Option::is_some).await {
            Ok(value) => value.clone().ok_or(StoreError::Closed),
            Err(_) => Err(StoreError::Closed),
        }
    }
}

/// The value of a mutex; a holder that panicked left it whole, because every use is one assignment.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<RequestId, Arc<Entry>>,
    finished: VecDeque<(Instant, usize, Arc<Action>)>,
    finished_bytes: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Open {
    table: Mutex<Table>,
}

impl Open {
    /// Makes room for a new action.
    ///
    /// # Errors
    /// `RATE_LIMITED` over the limits.
    pub(super) fn add(
        &self,
        id: RequestId,
        owner: String,
        node: DeviceId,
    ) -> Result<Arc<Entry>, CommandError> {
        let mut table = lock(&self.table);
        let limited = |n: usize, who: &str| {
            let message = format!(
                "{n} requests {who} are open, the limit; decide or cancel some with `hearth approvals`"
            );
            Err(CommandError::new(ErrorCode::RateLimited, message))
        };
        if table.entries.len() >= MAX_OPEN {
            return limited(MAX_OPEN, "of all");
        }
        if table.entries.values().filter(|e| e.owner == owner).count() >= MAX_OPEN_EACH {
            return limited(MAX_OPEN_EACH, "of this requester");
        }
        Ok(table.put(id, owner, node, false))
    }

    /// Takes up an action of an earlier start; limits were kept then. `true` when nobody did before.
    pub(super) fn restore(&self, id: RequestId, owner: String, node: DeviceId) -> (Arc<Entry>, bool) {
        let mut table = lock(&self.table);
        match table.entries.get(&id) {
            Some(entry) => (entry.clone(), false),
            None => (table.put(id, owner, node, true), true),
        }
    }

    pub(super) fn get(&self, id: &RequestId) -> Option<Arc<Entry>> {
        lock(&self.table).entries.get(id).cloned()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.table).entries.is_empty()
    }

    /// Takes an action off that never began.
    pub(super) fn remove(&self, id: &RequestId) {
        lock(&self.table).entries.remove(id);
    }

    /// A node came or was removed: wakes the drivers of its actions, or of all. What it held open before
    /// may be void.
    pub(super) fn node_changed(&self, node: Option<&DeviceId>) {
        for entry in lock(&self.table).entries.values() {
            if node.is_none_or(|n| *n == entry.node) {
                lock(&entry.fresh).take();
                entry.wake.notify_one();
            }
        }
    }

    /// Tells who waits, and forgets it; `keep` those that are not on disk for a while.
    pub(super) fn finish(&self, action: Action, keep: bool) {
        let action = Arc::new(action);
        let mut table = lock(&self.table);
        let entry = table.entries.remove(&action.id);
        if keep {
            table.keep(action.clone());
        }
        drop(table);
        if let Some(entry) = entry {
            entry.finished.send_replace(Some(action));
        }
    }

    /// An action that runs and is not on disk.
    pub(super) fn looking(&self, id: &RequestId) -> Option<Action> {
        let entry = self.get(id)?;
        lock(&entry.looking).clone()
    }

    /// A finished action that is kept.
    pub(super) fn kept(&self, id: &RequestId) -> Option<Action> {
        let mut table = lock(&self.table);
        table.expire();
        table.finished.iter().find(|(_, _, a)| a.id == *id).map(|(_, _, a)| (**a).clone())
    }
}

impl Table {
    fn put(&mut self, id: RequestId, owner: String, node: DeviceId, restored: bool) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            owner,
            node,
            wake: Notify::new(),
            looking: Mutex::default(),
            cancel: CancellationToken::new(),
            talk: Semaphore::new(1),
            fresh: Mutex::default(),
            grant: Mutex::default(),
            restored,
            tries: AtomicU32::new(0),
            finished: watch::Sender::new(None),
        });
        self.entries.insert(id, entry.clone());
        entry
    }

    fn keep(&mut self, action: Arc<Action>) {
        let size = 512 + action.result.as_ref().map_or(0, |r| r.to_string().len());
        self.finished_bytes += size;
        self.finished.push_back((Instant::now(), size, action));
        self.expire();
    }

    fn expire(&mut self) {
        while let Some((since, size, _)) = self.finished.front() {
            let over = self.finished.len() > MAX_FINISHED || self.finished_bytes > MAX_FINISHED_BYTES;
            // The newest always stays: somebody is about to fetch it.
            if self.finished.len() == 1 || !(over || since.elapsed() > KEEP_FINISHED) {
                break;
            }
            self.finished_bytes -= size;
            self.finished.pop_front();
        }
    }
}
