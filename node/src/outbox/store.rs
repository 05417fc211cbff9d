//! The outbox on disk: pure bookkeeping over a redb database, one transaction per change.
//!
//! ```text
//! record ─► readings │ events ──number──► window (seq 1, 2, 3 …) ──ack──► gone
//!           (may be dropped when full)    (being sent; never dropped)
//! ```
//!
//! Items get their wire number only when a connected hub has told its mark: the numbers the hub sees
//! have no gaps although readings may be dropped before, and after a lost write (an SD card that lied
//! about a flush) no number is ever used for two different items.

use hearth_shared::limits::MAX_OUTBOX_BATCH;
use hearth_shared::reading::{Body, BootId, Epoch, Item, Mark};
use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, TableDefinition,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

type Queue = TableDefinition<'static, u64, &'static [u8]>;
const WINDOW: Queue = TableDefinition::new("window");
const READINGS: Queue = TableDefinition::new("readings");
const EVENTS: Queue = TableDefinition::new("events");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// Items that may be numbered and not acknowledged.
const WINDOW_ITEMS: u64 = MAX_OUTBOX_BATCH as u64;
/// Bytes of one batch: a heartbeat behind it waits no longer than behind two chunks of a picture.
const BATCH_BYTES: usize = 32 * 1024;

/// A database that cannot be used now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// Disk full, I/O fault, or a damaged file.
    #[error("outbox: {0}")]
    Storage(Box<redb::Error>),
    /// An entry does not decode: the file is damaged or from a newer program.
    #[error("outbox: an entry is damaged")]
    Damaged,
    /// No random bytes.
    #[error(transparent)]
    Identity(hearth_shared::identity::IdentityError),
    /// The outbox is stopping.
    #[error("the outbox is closed")]
    Closed,
}

impl<E: Into<redb::Error>> From<E> for OutboxError {
    fn from(error: E) -> Self {
        Self::Storage(Box::new(error.into()))
    }
}

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Items waiting and numbered together.
    pub items: u64,
    /// Their encoded bytes.
    pub bytes: u64,
}

/// When something was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Start of the node.
    pub boot: BootId,
    /// Milliseconds since.
    pub mono_ms: u64,
    /// Unix milliseconds if known.
    pub wall_ms: Option<u64>,
}

/// Persistent counters; written with every change in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Meta {
    epoch: Epoch,
    /// The next number to give.
    next: u64,
    /// Order of arrival of the next item.
    order: u64,
    /// Bytes in all three queues.
    bytes: u64,
    dropped_readings: u64,
    dropped_events: u64,
    dropped_at: Option<Stamp>,
}

/// What to do in one transaction.
#[derive(Debug, Default)]
pub struct Change<'a> {
    /// Items to append; their `seq` is ignored.
    pub new: &'a [Item],
    /// Items lost before they reached the disk, to be counted.
    pub lost_readings: u64,
    /// Likewise.
    pub lost_events: u64,
    /// When the last of them was lost.
    pub lost_at: Option<Stamp>,
    /// Numbers up to this are in the hub's database.
    pub acked: Option<u64>,
    /// A hub is connected and its mark is settled: give numbers.
    pub number: bool,
}

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// This life of the outbox.
    pub epoch: Epoch,
    /// First number that is not acknowledged (equals `next` when there is none).
    pub first: u64,
    /// The number the next item will have.
    pub next: u64,
    /// Items without a number.
    pub waiting: u64,
    /// Bytes of all items.
    pub bytes: u64,
    /// Dropped and not yet reported to the hub.
    pub dropped: u64,
}

/// The database with its counters.
#[derive(Debug)]
pub struct Store {
    database: Arc<Database>,
    meta: Meta,
    bounds: Bounds,
    counts: Counts,
}

impl Store {
    /// Takes over a database, empty or of an earlier start.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn open(database: Database, bounds: Bounds) -> Result<Self, OutboxError> {
        let txn = database.begin_write()?;
        let meta = {
            let mut table = txn.open_table(META)?;
            let stored = table.get("meta")?.map(|v| decode::<Meta>(v.value())).transpose()?;
            let meta = match stored {
                Some(meta) => meta,
                None => Meta {
                    epoch: Epoch::fresh().map_err(OutboxError::Identity)?,
                    next: 1,
                    order: 1,
                    bytes: 0,
                    dropped_readings: 0,
                    dropped_events: 0,
                    dropped_at: None,
                },
            };
            table.insert("meta", encode(&meta).as_slice())?;
            txn.open_table(WINDOW)?;
            txn.open_table(READINGS)?;
            txn.open_table(EVENTS)?;
            meta
        };
        txn.commit()?;
        let mut store = Self { database: Arc::new(database), meta, bounds, counts: Counts::default() };
        store.counts = store.count()?;
        Ok(store)
    }

    /// For reading batches from another thread.
    #[must_use]
    pub fn database(&self) -> Arc<Database> {
        self.database.clone()
    }

    /// What there is after the last change.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Order of arrival of the next item: tells after a fault whether a change reached the disk.
    #[must_use]
    pub fn order(&self) -> u64 {
        self.meta.order
    }

    fn count(&self) -> Result<Counts, OutboxError> {
        let txn = self.database.begin_read()?;
        let window = txn.open_table(WINDOW)?;
        let waiting = txn.open_table(READINGS)?.len()? + txn.open_table(EVENTS)?.len()?;
        let first = window.first()?.map_or(self.meta.next, |(k, _)| k.value());
        Ok(Counts {
            epoch: self.meta.epoch,
            first,
            next: self.meta.next,
            waiting,
            bytes: self.meta.bytes,
            dropped: self.meta.dropped_readings + self.meta.dropped_events,
        })
    }

    /// Makes a change durable. On an error nothing of it happened.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn apply(&mut self, change: &Change<'_>) -> Result<Counts, OutboxError> {
        let mut meta = self.meta.clone();
        let txn = self.database.begin_write()?;
        {
            let mut window = txn.open_table(WINDOW)?;
            let mut readings = txn.open_table(READINGS)?;
            let mut events = txn.open_table(EVENTS)?;
            if let Some(acked) = change.acked {
                while window.first()?.is_some_and(|(k, _)| k.value() <= acked) {
                    if let Some((_, value)) = window.pop_first()? {
                        meta.bytes = meta.bytes.saturating_sub(value.value().len() as u64);
                    }
                }
            }
            for item in change.new {
                let bytes = encode(item);
                meta.bytes += bytes.len() as u64;
                let queue = if is_event(&item.body) { &mut events } else { &mut readings };
                queue.insert(meta.order, bytes.as_slice())?;
                meta.order += 1;
            }
            if change.lost_readings + change.lost_events > 0 {
                meta.dropped_readings += change.lost_readings;
                meta.dropped_events += change.lost_events;
                meta.dropped_at = change.lost_at.or(meta.dropped_at);
            }
            // The oldest readings go first; events only when nothing else is left to drop.
            while window.len()? + readings.len()? + events.len()? > self.bounds.items
                || meta.bytes > self.bounds.bytes
            {
                let dropped = match readings.pop_first()? {
                    Some((_, value)) => {
                        meta.dropped_readings += 1;
                        Some((value.value().len(), decode::<Item>(value.value())?))
                    }
                    None => match events.pop_first()? {
                        Some((_, value)) => {
                            meta.dropped_events += 1;
                            Some((value.value().len(), decode::<Item>(value.value())?))
                        }
                        None => None,
                    },
                };
                let Some((len, item)) = dropped else { break };
                meta.bytes = meta.bytes.saturating_sub(len as u64);
                meta.dropped_at =
                    Some(Stamp { boot: item.boot, mono_ms: item.mono_ms, wall_ms: item.wall_ms });
            }
            if change.number {
                number(&mut meta, &mut window, &mut readings, &mut events)?;
            }
            txn.open_table(META)?.insert("meta", encode(&meta).as_slice())?;
        }
        txn.commit()?;
        self.meta = meta;
        self.counts = self.count()?;
        Ok(self.counts)
    }

    /// Settles with the mark a hub told at connect, then numbers what waits: forgets what the hub has,
    /// and starts a new epoch when the numbers of the two sides cannot be continued.
    ///
    /// # Errors
    /// [`OutboxError`].
    pub fn settle(&mut self, mark: Option<Mark>) -> Result<Counts, OutboxError> {
        let first = self.counts.first;
        let acked = match mark {
            // The hub has this epoch up to a number we gave and did not give away: go on after it.
            Some(mark) if mark.epoch == self.meta.epoch && mark.seq < self.meta.next => {
                if mark.seq + 1 < first {
                    // The hub lost items that it had acknowledged (restored from a backup). They are gone
                    // here; what is left gets a new beginning.
                    self.renumber()?;
                    return self.apply(&Change { number: true, ..Change::default() });
                }
                Some(mark.seq)
            }
            // The hub has more than we ever gave: this outbox lost writes. All that carries a number was
            // sent in the life the hub saw, and is there.
            Some(mark) if mark.epoch == self.meta.epoch => {
                self.apply(&Change { acked: Some(mark.seq), ..Change::default() })?;
                self.renumber()?;
                None
            }
            // The hub knows nothing of this epoch. If its beginning is still here it can be told.
            _ if first == 1 => None,
            _ => {
                self.renumber()?;
                None
            }
        };
        self.apply(&Change { acked, number: true, ..Change::default() })
    }

    /// A new epoch: what has a number gets a new one from 1.
    fn renumber(&mut self) -> Result<(), OutboxError> {
        let mut meta = self.meta.clone();
        meta.epoch = Epoch::fresh().map_err(OutboxError::Identity)?;
        meta.next = 1;
        let txn = self.database.begin_write()?;
        {
            let mut window = txn.open_table(WINDOW)?;
            let mut items = Vec::new();
            while let Some((_, value)) = window.pop_first()? {
                meta.bytes = meta.bytes.saturating_sub(value.value().len() as u64);
                items.push(decode::<Item>(value.value())?);
            }
            for mut item in items {
                item.seq = meta.next;
                let bytes = encode(&item);
                meta.bytes += bytes.len() as u64;
                window.insert(item.seq, bytes.as_slice())?;
                meta.next += 1;
            }
            txn.open_table(META)?.insert("meta", encode(&meta).as_slice())?;
        }
        txn.commit()?;
        self.meta = meta;
        self.counts = self.count()?;
        Ok(())
    }
}

/// Reads numbered items from `from` on: at most 500 and about 32 KiB.
///
/// # Errors
/// [`OutboxError`].
pub fn batch(database: &Database, from: u64) -> Result<Vec<Item>, OutboxError> {
    let window = database.begin_read()?.open_table(WINDOW)?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    for entry in window.range(from..)? {
        let (_, value) = entry?;
        bytes += value.value().len();
        if !items.is_empty() && (bytes > BATCH_BYTES || items.len() >= MAX_OUTBOX_BATCH) {
            break;
        }
        items.push(decode::<Item>(value.value())?);
    }
    Ok(items)
}

type Table<'t> = redb::Table<'t, u64, &'static [u8]>;

/// Moves the oldest items into the window while it has room, a report of dropped ones first.
fn number<'t>(
    meta: &mut Meta,
    window: &mut Table<'t>,
    readings: &mut Table<'t>,
    events: &mut Table<'t>,
) -> Result<(), OutboxError> {
    let mut room = WINDOW_ITEMS.saturating_sub(window.len()?);
    let give = |meta: &mut Meta, window: &mut Table<'t>, mut item: Item| -> Result<(), OutboxError> {
        item.seq = meta.next;
        let bytes = encode(&item);
        meta.bytes += bytes.len() as u64;
        window.insert(item.seq, bytes.as_slice())?;
        meta.next += 1;
        Ok(())
    };
    if let Some(at) = meta.dropped_at.filter(|_| room >= 2) {
        let reports = [
            (meta.dropped_readings > 0).then_some(Body::Dropped { readings: meta.dropped_readings }),
            (meta.dropped_events > 0).then(|| Body::Event {
                kind: "outbox.dropped".into(),
                json: format!("{{\"events\":{}}}", meta.dropped_events),
            }),
        ];
        for body in reports.into_iter().flatten() {
            let item = Item { seq: 0, boot: at.boot, mono_ms: at.mono_ms, wall_ms: at.wall_ms, body };
            give(meta, window, item)?;
            room -= 1;
        }
        (meta.dropped_readings, meta.dropped_events, meta.dropped_at) = (0, 0, None);
    }
    while room > 0 {
        let reading = readings.first()?.map(|(k, _)| k.value());
        let event = events.first()?.map(|(k, _)| k.value());
        let queue = match (reading, event) {
            (Some(r), Some(e)) if e < r => &mut *events,
            (Some(_), _) => &mut *readings,
            (None, Some(_)) => &mut *events,
            (None, None) => break,
        };
        let Some((_, value)) = queue.pop_first()? else { break };
        meta.bytes = meta.bytes.saturating_sub(value.value().len() as u64);
        let item = decode::<Item>(value.value())?;
        drop(value);
        give(meta, window, item)?;
        room -= 1;
    }
    Ok(())
}

fn is_event(body: &Body) -> bool {
    !matches!(body, Body::Reading { .. })
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Plain structs always encode.
    postcard::to_allocvec(value).unwrap_or_default()
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, OutboxError> {
    postcard::from_bytes(bytes).map_err(|_| OutboxError::Damaged)
}

#[cfg(test)]
mod tests;
