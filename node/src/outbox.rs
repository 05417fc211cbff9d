//! Store and forward: what the board records goes to disk first, to the hub when there is one.
//!
//! [`Outbox`] implements [`Recorder`]. A thread of its own owns the database, so that a slow card never
//! holds up the runtime (and with it heartbeats): readings are committed in groups of a second, events
//! at once. The database is a file of its own, for two reasons: a full or faulty card leaves redb unusable until
//! it is opened again, which the outbox can do alone, and its commits never wait for those of the guard.

pub mod store;

use crate::identity::Clock;
use crate::recorder::Recorder;
use crate::state::{Home, private_file};
use hearth_shared::limits::OUTBOX_GROUP_MS;
use hearth_shared::reading::{Body, Epoch, Item, Mark};
use redb::Database;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{Bounds, Change, Counts, OutboxError, Stamp, Store};
use tokio::sync::{oneshot, watch};

/// Cache of `outbox.db`; the outbox reads what it has just written.
const CACHE: usize = 256 * 1024;
/// Items held in memory while the disk does not take them.
const MEMORY_ITEMS: usize = 4_096;
/// Longest JSON text of an event.
const EVENT_BYTES: usize = 4 * 1024;
/// Longest wait between attempts to write to a faulty disk.
const RETRY_CAP: Duration = Duration::from_secs(60);

/// Opens the database; called again after a fault.
type Opener = Box<dyn FnMut() -> Result<Database, OutboxError> + Send>;
type Settled = oneshot::Sender<Result<Counts, OutboxError>>;

/// The state others may watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Counts after the last commit.
    pub counts: Counts,
    /// Items in memory that the disk has not taken yet.
    pub unwritten: u64,
    /// Why the disk does not take them.
    pub fault: Option<String>,
}

#[derive(Debug, Default)]
struct Inbox {
    items: VecDeque<Item>,
    /// Items put in since the start, and how many of the front are urgent (an event is among them).
    urgent: bool,
    oldest: Option<Instant>,
    lost_readings: u64,
    lost_events: u64,
    lost_at: Option<Stamp>,
    acked: Option<Mark>,
    settle: Option<(Option<Mark>, Settled)>,
    /// A hub is connected and settled.
    online: bool,
    flush: Vec<oneshot::Sender<()>>,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    inbox: Mutex<Inbox>,
    wake: Condvar,
    progress: watch::Sender<Progress>,
    database: Mutex<Option<Arc<Database>>>,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle to the outbox. Cheap to clone; the thread ends with [`Outbox::close`].
#[derive(Debug, Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Outbox {
    /// Opens `outbox.db` in `home`. A damaged file is put aside as `outbox.db.damaged` and a new one
    /// begun: a node goes on recording after any power cut.
    ///
    /// # Errors
    /// [`OutboxError`] when neither works.
    pub fn open(home: &Home, bounds: Bounds, clock: Clock) -> Result<Self, OutboxError> {
        let path = home.outbox();
        let mut opener: Opener = {
            let path = path.clone();
            Box::new(move || {
                private_file(&path).map_err(redb::Error::Io)?;
                // Checked whole: redb may panic over a damaged page in a file that it trusts.
                let mut builder = redb::Builder::new();
                Ok(builder.set_cache_size(CACHE).set_check_integrity_on_open(true).create(&path)?)
            })
        };
        match opener().and_then(|database| Store::open(database, bounds)) {
            Ok(store) => Self::start(store, opener, bounds, clock),
            Err(error) if is_damage(&error) => {
                let aside = path.with_extension("db.damaged");
                tracing::error!(%error, aside = %aside.display(), "the outbox is damaged; it is put aside and a new one begun");
                std::fs::rename(&path, &aside).map_err(redb::Error::Io)?;
                let store = Store::open(opener()?, bounds)?;
                Self::start(store, opener, bounds, clock)
            }
            Err(error) => Err(error),
        }
    }

    fn start(store: Store, opener: Opener, bounds: Bounds, clock: Clock) -> Result<Self, OutboxError> {
        let (progress, _) = watch::channel(Progress { counts: store.counts(), ..Progress::default() });
        let shared = Arc::new(Shared {
            clock,
            inbox: Mutex::default(),
            wake: Condvar::new(),
            progress,
            database: Mutex::new(Some(store.database())),
        });
        let writer = Writer {
            shared: shared.clone(),
            store: Some(store),
            opener,
            bounds,
            pending: Pending::default(),
        };
        let thread = std::thread::Builder::new()
            .name("outbox".into())
            .stack_size(256 * 1024)
            .spawn(move || writer.run())
            .map_err(redb::Error::Io)?;
        Ok(Self { shared, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Changes after every commit.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Progress> {
        self.shared.progress.subscribe()
    }

    /// Epoch and next number, for the hello.
    #[must_use]
    pub fn position(&self) -> (Epoch, u64) {
        let progress = self.shared.progress.borrow();
        (progress.counts.epoch, progress.counts.next)
    }

    /// A hub is connected and has this outbox up to `mark`: settles and begins to number items.
    ///
    /// # Errors
    /// [`OutboxError`] when the disk does not take it; the connection can go on without the outbox.
    pub async fn settle(&self, mark: Option<Mark>) -> Result<Counts, OutboxError> {
        let (reply, settled) = oneshot::channel();
        self.shared.inbox().settle = Some((mark, reply));
        self.shared.wake.notify_one();
        settled.await.map_err(|_| OutboxError::Closed)?
    }

    /// The connection ended: items wait without numbers again.
    pub fn disconnected(&self) {
        self.shared.inbox().online = false;
    }

    /// The hub has everything up to `mark`.
    pub fn ack(&self, mark: Mark) {
        let counts = self.shared.progress.borrow().counts;
        if mark.epoch != counts.epoch || mark.seq >= counts.next {
            tracing::warn!(
                seq = mark.seq,
                next = counts.next,
                "acknowledgement of items that were never sent; ignored"
            );
            return;
        }
        // What is shown is right at once; on disk it follows with the next commit.
        self.shared.progress.send_if_modified(|p| {
            p.counts.first = p.counts.first.max(mark.seq + 1);
            false
        });
        let mut inbox = self.shared.inbox();
        let newer = inbox.acked.is_none_or(|a| a.epoch != mark.epoch || a.seq < mark.seq);
        if newer {
            inbox.acked = Some(mark);
            drop(inbox);
            self.shared.wake.notify_one();
        }
    }

    /// Committed, numbered items from `from` on: at most 500 and about 32 KiB.
    ///
    /// # Errors
    /// [`OutboxError`] while the disk is faulty.
    pub fn batch(&self, from: u64) -> Result<Vec<Item>, OutboxError> {
        let database = self.shared.database.lock().unwrap_or_else(PoisonError::into_inner).clone();
        store::batch(&*database.ok_or(OutboxError::Closed)?, from)
    }

    /// Waits until everything recorded so far is on disk, or the attempt failed.
    pub async fn flush(&self) {
        let (reply, done) = oneshot::channel();
        self.shared.inbox().flush.push(reply);
        self.shared.wake.notify_one();
        let _ = done.await;
    }

    /// Commits what is left and ends the thread. Blocks for one commit.
    pub fn close(&self) {
        self.shared.inbox().stop = true;
        self.shared.wake.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the outbox thread panicked");
        }
    }

    fn push(&self, body: Body) {
        let clock = &self.shared.clock;
        let stamp = Stamp { boot: clock.boot(), mono_ms: clock.mono_ms(), wall_ms: clock.wall_ms() };
        let item = Item { seq: 0, boot: stamp.boot, mono_ms: stamp.mono_ms, wall_ms: stamp.wall_ms, body };
        let mut inbox = self.shared.inbox();
        let urgent = !matches!(item.body, Body::Reading { .. });
        if inbox.items.len() >= MEMORY_ITEMS {
            // The disk has not taken anything for a while. Readings give way to what is newer, an event
            // only to other events.
            let victim = inbox.items.iter().position(|i| matches!(i.body, Body::Reading { .. })).unwrap_or(0);
            match inbox.items.remove(victim).map(|i| i.body) {
                Some(Body::Reading { .. }) => inbox.lost_readings += 1,
                _ => inbox.lost_events += 1,
            }
            inbox.lost_at = Some(stamp);
        }
        inbox.items.push_back(item);
        let first = inbox.oldest.is_none();
        inbox.oldest.get_or_insert_with(Instant::now);
        inbox.urgent |= urgent;
        drop(inbox);
        if urgent || first {
            self.shared.wake.notify_one();
        }
    }
}

fn is_damage(error: &OutboxError) -> bool {
    match error {
        OutboxError::Damaged => true,
        OutboxError::Storage(e) => match &**e {
            redb::Error::Io(e) => e.kind() == std::io::ErrorKind::InvalidData,
            redb::Error::Corrupted(_) | redb::Error::TableTypeMismatch { .. } => true,
            _ => false,
        },
        _ => false,
    }
}

impl Recorder for Outbox {
    fn reading(&self, sensor: &str, value: f64) {
        if value.is_finite() {
            self.push(Body::Reading { sensor: sensor.into(), value });
        }
    }

    fn event(&self, kind: &str, json: String) {
        let json = if json.len() > EVENT_BYTES {
            tracing::error!(kind, bytes = json.len(), "event details over 4 KiB are left out");
            "{\"truncated\":true}".into()
        } else {
            json
        };
        self.push(Body::Event { kind: kind.into(), json });
    }
}

/// What was taken from the inbox and is not on disk yet.
#[derive(Debug, Default)]
struct Pending {
    items: Vec<Item>,
    lost_readings: u64,
    lost_events: u64,
    lost_at: Option<Stamp>,
    acked: Option<u64>,
    online: bool,
    failures: u32,
    retry_at: Option<Instant>,
    /// [`Store::order`] before the change that failed.
    order: Option<u64>,
}

struct Writer {
    shared: Arc<Shared>,
    store: Option<Store>,
    opener: Opener,
    bounds: Bounds,
    pending: Pending,
}

/// What one round has to do beside the pending items.
struct Round {
    settle: Option<(Option<Mark>, Settled)>,
    flush: Vec<oneshot::Sender<()>>,
    stop: bool,
}

impl Writer {
    fn run(mut self) {
        loop {
            let round = self.wait();
            if let Some((mark, reply)) = round.settle {
                let result = self.settle(mark);
                let online = result.is_ok();
                self.pending.online = online;
                self.shared.inbox().online = online;
                let _ = reply.send(result);
            }
            self.commit();
            for reply in round.flush {
                let _ = reply.send(());
            }
            if round.stop {
                // Closing the file is what lets the next start open it without a repair.
                *self.shared.database.lock().unwrap_or_else(PoisonError::into_inner) = None;
                return;
            }
        }
    }

    /// Waits until there is something to write, and takes it.
    fn wait(&mut self) -> Round {
        let group = Duration::from_millis(OUTBOX_GROUP_MS);
        let mut inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            let counts = self.shared.progress.borrow().counts;
            // An acknowledgement alone is written only when numbers are short: otherwise it waits for
            // the next commit, which spares the card.
            let acked = inbox.acked.is_some() && counts.waiting > 0;
            let commanded = inbox.settle.is_some() || !inbox.flush.is_empty() || inbox.stop;
            let due = inbox.oldest.map(|at| at + group);
            let ready = inbox.urgent || acked || due.is_some_and(|at| at <= now) || self.retrying();
            let wait = match self.pending.retry_at {
                Some(at) if at > now => Some(at - now),
                _ if ready => None,
                _ => Some(due.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(now))),
            };
            match wait {
                Some(wait) if !commanded => {
                    inbox = self
                        .shared
                        .wake
                        .wait_timeout(inbox, wait)
                        .map_or_else(|e| e.into_inner().0, |(guard, _)| guard);
                }
                _ => break,
            }
        }
        let pending = &mut self.pending;
        let room = MEMORY_ITEMS.saturating_sub(pending.items.len());
        let take = inbox.items.len().min(room);
        pending.items.extend(inbox.items.drain(..take));
        if inbox.items.is_empty() {
            (inbox.urgent, inbox.oldest) = (false, None);
        }
        pending.lost_readings += std::mem::take(&mut inbox.lost_readings);
        pending.lost_events += std::mem::take(&mut inbox.lost_events);
        pending.lost_at = inbox.lost_at.take().or(pending.lost_at);
        pending.online = inbox.online;
        let epoch = self.shared.progress.borrow().counts.epoch;
        if let Some(mark) = inbox.acked.take().filter(|m| m.epoch == epoch) {
            pending.acked = Some(pending.acked.unwrap_or(0).max(mark.seq));
        }
        Round { settle: inbox.settle.take(), flush: std::mem::take(&mut inbox.flush), stop: inbox.stop }
    }

    fn retrying(&self) -> bool {
        self.pending.retry_at.is_some_and(|at| at <= Instant::now())
    }

    fn settle(&mut self, mark: Option<Mark>) -> Result<Counts, OutboxError> {
        // An acknowledgement taken before belongs to the connection before; the mark says it all.
        self.pending.acked = None;
        let result = self.opened().and_then(|store| store.settle(mark));
        match &result {
            Ok(_) => self.succeeded(),
            Err(error) => self.failed(error),
        }
        result
    }

    fn commit(&mut self) {
        let pending = &self.pending;
        let counts = self.shared.progress.borrow().counts;
        let lost = pending.lost_readings + pending.lost_events > 0;
        let numbers = pending.online && counts.waiting > 0 && pending.acked.is_some();
        if pending.items.is_empty() && !lost && !numbers && pending.retry_at.is_none() {
            return;
        }
        if let Err(error) = self.opened() {
            self.failed(&error);
            return;
        }
        let items = std::mem::take(&mut self.pending.items);
        let change = Change {
            new: &items,
            lost_readings: self.pending.lost_readings,
            lost_events: self.pending.lost_events,
            lost_at: self.pending.lost_at,
            acked: self.pending.acked,
            number: self.pending.online,
        };
        match self.opened().and_then(|store| store.apply(&change)) {
            Ok(_) => {
                self.pending = Pending { online: self.pending.online, ..Pending::default() };
                self.succeeded();
            }
            Err(error) => {
                self.pending.items = items;
                self.failed(&error);
            }
        }
    }

    fn opened(&mut self) -> Result<&mut Store, OutboxError> {
        if self.store.is_none() {
            let store = Store::open((self.opener)()?, self.bounds)?;
            *self.shared.database.lock().unwrap_or_else(PoisonError::into_inner) = Some(store.database());
            // A commit that reported a fault may have reached the disk all the same: then its items are
            // there and must not be written again.
            if let Some(before) = self.pending.order.take()
                && store.order() > before
            {
                let written = usize::try_from(store.order() - before).unwrap_or(usize::MAX);
                let written = written.min(self.pending.items.len());
                self.pending.items.drain(..written);
                (self.pending.lost_readings, self.pending.lost_events) = (0, 0);
            }
            self.store = Some(store);
        }
        self.store.as_mut().ok_or(OutboxError::Closed)
    }

    fn succeeded(&mut self) {
        if self.pending.failures > 0 {
            tracing::info!("the outbox writes again");
        }
        (self.pending.failures, self.pending.retry_at) = (0, None);
        let counts = self.store.as_ref().map(Store::counts).unwrap_or_default();
        let unwritten = self.pending.items.len() as u64;
        self.shared.progress.send_replace(Progress { counts, unwritten, fault: None });
    }

    /// Keeps what is pending, closes the database (redb does not go on after a fault), retries later.
    fn failed(&mut self, error: &OutboxError) {
        if self.pending.failures == 0 {
            tracing::error!(%error, "readings cannot be written; they are kept in memory, up to {MEMORY_ITEMS}, until the disk takes them");
        }
        if let Some(store) = self.store.take() {
            self.pending.order = Some(store.order());
        }
        *self.shared.database.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let wait = Duration::from_secs(1 << self.pending.failures.min(6)).min(RETRY_CAP);
        self.pending.failures += 1;
        self.pending.retry_at = Some(Instant::now() + wait);
        let fault = Some(error.to_string());
        let unwritten = self.pending.items.len() as u64;
        self.shared.progress.send_modify(|p| (p.fault, p.unwritten) = (fault, unwritten));
    }
}

#[cfg(test)]
mod tests;
