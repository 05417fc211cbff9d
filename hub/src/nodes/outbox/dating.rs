//! When was it? Items carry the node's monotonic time since its start; this turns them into Unix time.
//!
//! A board without a battery clock starts in the past and jumps when the network tells it the time. So
//! each start (boot) of a node has an offset from its monotonic clock to Unix time, from one of three
//! sources, the better one winning:
//!
//! 1. the node's own clock, once the network has set it (from its items, hello and pongs);
//! 2. the hub's clock at the moment of a hello or a pong, less half the round trip;
//! 3. an estimate for a start that was over before the hub ever heard it: it is taken to have ended when
//!    the next start began, which is the latest it can have been.
//!
//! Readings of a start without an offset wait in `undated` and are dated when there is one. The hub may
//! itself start in the past: an offset from a clock before 2025 is not taken, and when the hub's clock
//! jumps forward by more than ten seconds, readings that were dated by it move along. A jump back is
//! believed only when it lasts, because time does not run backwards and clocks that were not set yet do
//! show the past.

use crate::nodes::readings;
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::identity::DeviceId;
use hearth_shared::reading::{Body, BootId, Epoch, Item};
use rusqlite::{OptionalExtension as _, Transaction, params};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// See the module's text.
pub(in crate::nodes) const NODE_CLOCK: u8 = 1;
const HUB_CLOCK: u8 = 2;
const ESTIMATE: u8 = 3;

/// 2025-01-01: a clock before it was never set.
pub(in crate::nodes) const PLAUSIBLE_MS: u64 = 1_735_689_600_000;
/// A node's clock may be ahead of the hub's by so much before it is taken for wrong.
const MAX_AHEAD_MS: u64 = 24 * 3_600_000;
/// Differences up to this are drift and left alone.
const DRIFT_MS: i64 = 1_000;
/// Beyond this a clock has jumped, and what was dated by it moves along.
const JUMP_MS: i64 = 10_000;
/// Measurements in a row that must agree before a jump back is believed: an hour of pings.
const BACKWARD_PONGS: u32 = 120;
/// A measurement over a slower round trip says too little.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(10);

/// Whether a clock that shows this has been set.
pub(super) fn plausible(wall_ms: u64) -> bool {
    let now = now_ms();
    wall_ms >= PLAUSIBLE_MS && (now < PLAUSIBLE_MS || wall_ms <= now + MAX_AHEAD_MS)
}

/// A time and where it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dated {
    pub at_ms: i64,
    pub source: u8,
}

/// A row of `boots`.
#[derive(Debug)]
pub(super) struct BootRow {
    pub id: i64,
    offset: Option<(i64, u8)>,
    epoch: Option<i64>,
    first_seq: i64,
    last_seq: i64,
    max_mono: i64,
}

impl BootRow {
    pub fn get_or_insert(t: &Transaction<'_>, node: &DeviceId, boot: &BootId) -> Result<Self, StoreError> {
        let found = t
            .prepare_cached(
                "SELECT id, offset_ms, source, epoch, first_seq, last_seq, max_mono FROM boots \
                 WHERE device = ?1 AND boot = ?2",
            )?
            .query_row(params![node.0, boot.0], |r| {
                Ok(Self {
                    id: r.get(0)?,
                    offset: r.get::<_, Option<i64>>(1)?.zip(r.get::<_, Option<u8>>(2)?),
                    epoch: r.get(3)?,
                    first_seq: r.get(4)?,
                    last_seq: r.get(5)?,
                    max_mono: r.get(6)?,
                })
            })
            .optional()?;
        if let Some(row) = found {
            return Ok(row);
        }
        t.prepare_cached("INSERT INTO boots (device, boot) VALUES (?1, ?2)")?
            .execute(params![node.0, boot.0])?;
        let id = t.last_insert_rowid();
        Ok(Self { id, offset: None, epoch: None, first_seq: 0, last_seq: 0, max_mono: 0 })
    }

    pub fn source(&self) -> Option<u8> {
        self.offset.map(|(_, source)| source)
    }

    pub fn set(&mut self, offset: i64, source: u8) {
        self.offset = Some((offset, source));
    }

    pub fn date(&self, mono_ms: i64) -> Option<Dated> {
        self.offset.map(|(offset, source)| Dated { at_ms: (mono_ms + offset).max(0), source })
    }

    /// Readings are numbered in the order in which they were made; events overtake them and say nothing
    /// about the order of starts.
    pub fn note_item(&mut self, epoch: i64, item: &Item, mono_ms: i64) {
        self.max_mono = self.max_mono.max(mono_ms);
        if !matches!(item.body, Body::Reading { .. }) {
            return;
        }
        let seq = item.seq as i64;
        if self.epoch != Some(epoch) {
            (self.epoch, self.first_seq) = (Some(epoch), seq);
        }
        self.last_seq = seq;
    }

    /// Stores what [`BootRow::note_item`] noted.
    pub fn save(&self, t: &Transaction<'_>) -> Result<(), StoreError> {
        t.prepare_cached(
            "UPDATE boots SET epoch = ?2, first_seq = ?3, last_seq = ?4, max_mono = ?5 WHERE id = ?1",
        )?
        .execute(params![self.id, self.epoch, self.first_seq, self.last_seq, self.max_mono])?;
        Ok(())
    }
}

/// Learns the offset of a start. Dates what waited for it, and moves what was dated by a clock that has
/// jumped since. A worse source never replaces a better one.
pub(super) fn set_offset(t: &Transaction<'_>, boot: i64, offset: i64, source: u8) -> Result<(), StoreError> {
    let before = t
        .prepare_cached("SELECT offset_ms, source FROM boots WHERE id = ?1")?
        .query_row([boot], |r| Ok(r.get::<_, Option<i64>>(0)?.zip(r.get::<_, Option<u8>>(1)?)))?;
    if let Some((old, old_source)) = before {
        if source > old_source {
            return Ok(());
        }
        let delta = offset - old;
        let moves = match old_source {
            NODE_CLOCK => false,
            HUB_CLOCK => delta.abs() > JUMP_MS,
            _ => delta != 0,
        };
        if moves {
            readings::redate(t, boot, old_source, delta, source)?;
            t.execute(
                "UPDATE node_events SET at_ms = at_ms + ?2 WHERE boot = ?1 AND at_ms = mono_ms + ?3",
                params![boot, delta, old],
            )?;
        }
    }
    t.prepare_cached("UPDATE boots SET offset_ms = ?2, source = ?3 WHERE id = ?1")?
        .execute(params![boot, offset, source])?;
    readings::date_waiting(t, boot, offset, source)?;
    t.prepare_cached(
        "UPDATE node_events SET at_ms = max(0, mono_ms + ?2) WHERE boot = ?1 AND at_ms IS NULL",
    )?
    .execute(params![boot, offset])?;
    Ok(())
}

/// Dates starts that were over before the hub ever heard them: the latest first, each by the one after
/// it. Only when all of a start's items are here is its end known: when an item of another start follows,
/// or when the outbox is `drained`.
pub(super) fn estimate(
    t: &Transaction<'_>,
    node: &DeviceId,
    current: &BootId,
    epoch: Epoch,
    drained: bool,
) -> Result<(), StoreError> {
    let unknown: Vec<(i64, i64, i64)> = {
        let mut statement = t.prepare_cached(
            "SELECT b.id, b.last_seq, b.max_mono FROM boots b JOIN epochs e ON e.id = b.epoch \
             WHERE b.device = ?1 AND b.offset_ms IS NULL AND b.boot <> ?2 AND e.epoch = ?3 \
             ORDER BY b.last_seq DESC",
        )?;
        let rows = statement
            .query_map(params![node.0, current.0, epoch.0], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    for (boot, last_seq, max_mono) in unknown {
        let next = t
            .prepare_cached(
                "SELECT b.offset_ms FROM boots b JOIN epochs e ON e.id = b.epoch \
                 WHERE b.device = ?1 AND e.epoch = ?2 AND b.first_seq > ?3 ORDER BY b.first_seq LIMIT 1",
            )?
            .query_row(params![node.0, epoch.0, last_seq], |r| r.get::<_, Option<i64>>(0))
            .optional()?;
        let next = match next {
            Some(offset) => offset,
            None if drained => t
                .prepare_cached("SELECT offset_ms FROM boots WHERE device = ?1 AND boot = ?2")?
                .query_row(params![node.0, current.0], |r| r.get::<_, Option<i64>>(0))
                .optional()?
                .flatten(),
            None => None,
        };
        // The next start's offset is the Unix time at which it began.
        if let Some(began) = next {
            set_offset(t, boot, began - max_mono, ESTIMATE)?;
        }
    }
    Ok(())
}

/// Measures the clock of the start that is connected.
#[derive(Debug)]
pub(in crate::nodes) struct Clock {
    node: DeviceId,
    boot: BootId,
    store: Store,
    next_ping: AtomicU64,
    /// Pings on their way.
    pings: Mutex<VecDeque<(u64, Instant)>>,
    /// The offset as stored, its source, and measurements in a row that were far behind it.
    known: Mutex<Option<(i64, u8, u32)>>,
    outbox_next: u64,
}

/// Pings that are remembered.
const MAX_PINGS: usize = 4;

impl Clock {
    pub fn new(node: DeviceId, boot: BootId, outbox_next: u64, store: Store) -> Self {
        let (pings, known) = (Mutex::default(), Mutex::default());
        Self { node, boot, store, next_ping: AtomicU64::new(1), pings, known, outbox_next }
    }

    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// With this number stored, everything that was in the outbox at the hello is here.
    pub fn drains_at(&self) -> u64 {
        self.outbox_next.saturating_sub(1)
    }

    /// The id of the next ping, which is sent now.
    pub fn ping(&self) -> u64 {
        let id = self.next_ping.fetch_add(1, Ordering::Relaxed);
        let mut pings = self.pings.lock().unwrap_or_else(PoisonError::into_inner);
        if pings.len() >= MAX_PINGS {
            pings.pop_front();
        }
        pings.push_back((id, Instant::now()));
        id
    }

    /// The first measurement. A node that is not paired yet may take minutes to be let in, so the moment
    /// of its hello counts.
    pub async fn hello(&self, heard_ms: u64, mono_ms: u64, wall_ms: Option<u64>) -> Result<(), StoreError> {
        let (node, boot) = (self.node, self.boot);
        let stored = self.store.write(move |t| Ok(BootRow::get_or_insert(t, &node, &boot)?.offset)).await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            stored.map(|(offset, source)| (offset, source, 0));
        self.learn(heard_ms, mono_ms, wall_ms).await
    }

    /// Takes pongs for measurements, until the link ends.
    pub async fn measure(&self, mut pongs: mpsc::Receiver<(u64, Instant, u64, Option<u64>)>) -> Infallible {
        while let Some((id, at, mono_ms, wall_ms)) = pongs.recv().await {
            let sent = {
                let mut pings = self.pings.lock().unwrap_or_else(PoisonError::into_inner);
                let sent = pings.iter().find(|(ping, _)| *ping == id).map(|(_, sent)| *sent);
                pings.retain(|(ping, _)| *ping != id);
                sent
            };
            let Some(round_trip) = sent.map(|sent| at.duration_since(sent)) else { continue };
            if round_trip > MAX_ROUND_TRIP {
                continue;
            }
            let ago = at.elapsed() + round_trip / 2;
            let heard_ms = now_ms().saturating_sub(ago.as_millis() as u64);
            if let Err(error) = self.learn(heard_ms, mono_ms, wall_ms).await {
                // The next pong says the same.
                tracing::debug!(%error, "cannot store a node's clock");
            }
        }
        std::future::pending().await
    }

    async fn learn(&self, heard_ms: u64, mono_ms: u64, wall_ms: Option<u64>) -> Result<(), StoreError> {
        let mono = super::clamp(mono_ms);
        let (offset, source) = match wall_ms.filter(|wall| plausible(*wall)) {
            Some(wall) => (super::clamp(wall) - mono, NODE_CLOCK),
            None if heard_ms >= PLAUSIBLE_MS => (super::clamp(heard_ms) - mono, HUB_CLOCK),
            None => return Ok(()),
        };
        if !self.is_news(offset, source) {
            return Ok(());
        }
        let (node, boot) = (self.node, self.boot);
        self.store
            .write(move |t| {
                let row = BootRow::get_or_insert(t, &node, &boot)?;
                set_offset(t, row.id, offset, source)
            })
            .await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((offset, source, 0));
        Ok(())
    }

    fn is_news(&self, offset: i64, source: u8) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((old, old_source, behind)) = known.as_mut() else { return true };
        if source != *old_source {
            return source < *old_source;
        }
        let delta = offset - *old;
        if source == HUB_CLOCK && delta < -JUMP_MS {
            *behind += 1;
            return *behind >= BACKWARD_PONGS;
        }
        *behind = 0;
        delta.abs() > DRIFT_MS
    }
}
