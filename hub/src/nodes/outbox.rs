//! Readings and events from nodes' outboxes into the database, each exactly once.
//!
//! A batch's items and the advance of the mark are one transaction; only then is it acknowledged, and
//! only then may the node forget it. What the mark covers is ignored, so a batch that comes again after a
//! lost acknowledgement changes nothing. A gap is refused: the link is ended, and the node sends anew
//! from what it still holds. Only the first batch of a connection may begin beyond the mark: then the
//! node dropped its oldest (its outbox was full), or this database is an old backup; the loss is counted.
//!
//! A node that sends too fast is slowed down by late acknowledgements. When the card is full the batch is
//! held and tried again: nothing is lost, and everything else on the link goes on.

mod dating;

use dating::{BootRow, Dated};
pub(super) use dating::{Clock, PLAUSIBLE_MS};

use super::{Nodes, readings};
use crate::bus::Event;
use crate::nodes::link::{LinkConnection, SessionEnd};
use crate::store::{StoreError, now_ms};
use hearth_shared::frame::close;
use hearth_shared::identity::DeviceId;
use hearth_shared::limits::{MAX_NAME_CHARS, MAX_OUTBOX_BATCH};
use hearth_shared::link::ToNode;
use hearth_shared::reading::{Body, BootId, Epoch, Item, Mark};
use rusqlite::{OptionalExtension as _, Transaction, params};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Items (see [`cost`]) a node may send a second on average; the first batches after a time offline may be faster.
const ITEMS_PER_SECOND: f64 = 1_000.0;
const BURST: f64 = 10_000.0;
/// Sensors a node may have had in its life.
const MAX_SENSORS: i64 = 1_024;
/// Lives of its outbox; one more comes with a new or an old card.
const MAX_EPOCHS: i64 = 256;
/// What counts as lost in one of them at most: the sum over all nodes stays a number of the database.
const MAX_LOST: u64 = 1 << 40;
/// Largest amount of a reading; sums and means of such values are still numbers.
const MAX_VALUE: f64 = 1e100;
/// Details of one event.
const MAX_EVENT_JSON: usize = 4 * 1024;
/// Pause before a full card is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Items that may wait for the database on one link. An honest node has at most one batch's worth
/// unacknowledged, perhaps in many small batches.
pub(super) const MAX_WAITING_ITEMS: usize = 2 * MAX_OUTBOX_BATCH;

/// What a node sent.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub epoch: Epoch,
    pub items: Vec<Item>,
}

/// What a batch came to.
#[derive(Debug)]
enum Taken {
    Stored {
        mark: Mark,
        events: Vec<NodeEvent>,
        lost: u64,
    },
    /// It begins its outbox anew too often.
    Restless,
    /// It begins beyond the mark.
    Gap {
        mark: u64,
        first: u64,
    },
}

#[derive(Debug)]
struct NodeEvent {
    kind: String,
    json: String,
    at_ms: Option<u64>,
}

impl Nodes {
    /// How far this epoch of a node is stored.
    pub(super) async fn outbox_mark(&self, node: DeviceId, epoch: Epoch) -> Result<Option<Mark>, StoreError> {
        self.inner
            .store
            .read(move |c| {
                let seq = c
                    .prepare_cached("SELECT seq FROM epochs WHERE device = ?1 AND epoch = ?2")?
                    .query_row(params![node.0, epoch.0], |r| r.get::<_, i64>(0))
                    .optional()?;
                Ok(seq.map(|seq| Mark { epoch, seq: seq as u64 }))
            })
            .await
    }

    /// Stores batches as they come, until the link ends.
    pub(super) async fn ingest(
        &self,
        connection: &LinkConnection,
        clock: &Clock,
        mut batches: mpsc::Receiver<Batch>,
        waiting: &AtomicUsize,
    ) -> SessionEnd {
        let mut first = true;
        let mut pace = Pace::new();
        while let Some(batch) = batches.recv().await {
            if !batch.items.windows(2).all(|w| w[0].seq.checked_add(1) == Some(w[1].seq)) {
                return SessionEnd::violation("the numbers in a batch of the outbox have gaps");
            }
            if batch.items.is_empty() {
                continue;
            }
            let count = batch.items.len();
            let cost = batch.items.iter().map(cost).sum();
            let taken = self.store_batch(connection, clock, batch, first).await;
            waiting.fetch_sub(count, Ordering::Relaxed);
            match taken {
                Ok(Taken::Stored { mark, events, lost }) => {
                    first = false;
                    if lost > 0 {
                        tracing::warn!(node = %connection.name, lost, "items of the node's outbox were lost before they came here");
                    }
                    for NodeEvent { kind, json, at_ms } in events {
                        self.inner.bus.emit(Event::NodeEvent { node: connection.node, kind, json, at_ms });
                    }
                    pace.wait(cost).await;
                    if connection.control().send(ToNode::OutboxAck(mark)).await.is_err() {
                        break;
                    }
                }
                Ok(Taken::Restless) => {
                    return SessionEnd::violation(format!(
                        "began its outbox anew more than {MAX_EPOCHS} times; remove it and pair it again"
                    ));
                }
                Ok(Taken::Gap { mark, first }) => {
                    tracing::warn!(node = %connection.name, mark, first, "the node's outbox is out of step; it sends anew");
                    return SessionEnd::close(close::TRY_LATER, "outbox out of step");
                }
                Err(StoreError::Closed) => break,
                Err(error) => {
                    tracing::error!(node = %connection.name, %error, "a batch of readings cannot be stored");
                    return SessionEnd::close(close::TRY_LATER, "readings cannot be stored");
                }
            }
        }
        std::future::pending().await
    }

    /// Stores a batch; waits out a full card.
    async fn store_batch(
        &self,
        connection: &LinkConnection,
        clock: &Clock,
        batch: Batch,
        may_skip: bool,
    ) -> Result<Taken, StoreError> {
        let node = connection.node;
        let mut told = false;
        loop {
            let (batch, drained) = (batch.clone(), clock.drains_at());
            let boot = clock.boot();
            let result = self
                .inner
                .store
                .write(move |t| {
                    let taken = store(t, node, &batch, may_skip)?;
                    if let Taken::Stored { mark, .. } = &taken {
                        dating::estimate(t, &node, &boot, mark.epoch, mark.seq >= drained)?;
                    }
                    Ok(taken)
                })
                .await;
            match result {
                Err(StoreError::Full) => {
                    if !told {
                        told = true;
                        tracing::error!(node = %connection.name, "the card is full: readings wait on the node");
                    }
                    self.inner.media.ask_room();
                    tokio::time::sleep(RETRY).await;
                }
                other => return other,
            }
        }
    }
}

fn store(t: &Transaction<'_>, node: DeviceId, batch: &Batch, may_skip: bool) -> Result<Taken, StoreError> {
    let row = t
        .prepare_cached("SELECT id, seq FROM epochs WHERE device = ?1 AND epoch = ?2")?
        .query_row(params![node.0, batch.epoch.0], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)? as u64)))
        .optional()?;
    let (epoch, mark) = match row {
        Some(row) => row,
        None => {
            let epochs: i64 = t
                .prepare_cached("SELECT count(*) FROM epochs WHERE device = ?1")?
                .query_row([node.0], |r| r.get(0))?;
            if epochs >= MAX_EPOCHS {
                return Ok(Taken::Restless);
            }
            t.execute(
                "INSERT INTO epochs (device, epoch, seq) VALUES (?1, ?2, 0)",
                params![node.0, batch.epoch.0],
            )?;
            (t.last_insert_rowid(), 0)
        }
    };
    let new: Vec<&Item> = batch.items.iter().filter(|i| i.seq > mark).collect();
    let (Some(first), Some(last)) = (new.first(), new.last()) else {
        let mark = Mark { epoch: batch.epoch, seq: mark };
        return Ok(Taken::Stored { mark, events: Vec::new(), lost: 0 });
    };
    let lost = first.seq - mark - 1;
    if lost > 0 && !may_skip {
        return Ok(Taken::Gap { mark, first: first.seq });
    }
    let mut writer = Writer {
        t,
        node,
        epoch,
        boots: HashMap::new(),
        sensors: HashMap::new(),
        refused: 0,
        dropped: 0,
        events: Vec::new(),
    };
    for item in &new {
        writer.item(item)?;
    }
    let Writer { boots, refused, dropped, events, .. } = writer;
    for row in boots.values() {
        row.save(t)?;
    }
    // Both are the node's word.
    let lost = lost.saturating_add(dropped);
    t.prepare_cached(
        "UPDATE epochs SET seq = ?2, refused = refused + ?3, lost = min(lost + ?4, ?5) WHERE id = ?1",
    )?
    .execute(params![
        epoch,
        last.seq as i64,
        refused as i64,
        lost.min(MAX_LOST) as i64,
        MAX_LOST as i64
    ])?;
    let mark = Mark { epoch: batch.epoch, seq: last.seq };
    Ok(Taken::Stored { mark, events, lost })
}

/// One batch on its way into the tables.
struct Writer<'a> {
    t: &'a Transaction<'a>,
    node: DeviceId,
    epoch: i64,
    boots: HashMap<BootId, BootRow>,
    sensors: HashMap<String, Option<i64>>,
    refused: u64,
    dropped: u64,
    events: Vec<NodeEvent>,
}

impl Writer<'_> {
    fn item(&mut self, item: &Item) -> Result<(), StoreError> {
        let boot = self.boot(item)?;
        let dated = self.date(item, boot)?;
        match &item.body {
            Body::Reading { sensor, value } => {
                // Not a number is no amount either.
                let id = if value.abs() <= MAX_VALUE { self.sensor(sensor)? } else { None };
                let Some(sensor) = id else {
                    self.refused += 1;
                    return Ok(());
                };
                match dated {
                    Some(Dated { at_ms, source }) => {
                        let raw = readings::Raw {
                            sensor,
                            at_ms,
                            epoch: self.epoch,
                            seq: item.seq,
                            value: *value,
                            boot,
                            source,
                        };
                        readings::insert(self.t, &raw)?;
                    }
                    None => {
                        self.t
                            .prepare_cached(
                                "INSERT OR IGNORE INTO undated (boot, epoch, seq, mono_ms, sensor, value) \
                                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                            )?
                            .execute(params![
                                boot,
                                self.epoch,
                                item.seq as i64,
                                clamp(item.mono_ms),
                                sensor,
                                value
                            ])?;
                    }
                }
            }
            Body::Event { kind, json } => self.event(item, boot, dated, kind, json)?,
            Body::Dropped { readings } => {
                self.dropped = self.dropped.saturating_add(*readings);
                let json = format!("{{\"readings\":{readings}}}");
                self.event(item, boot, dated, "outbox.dropped", &json)?;
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        item: &Item,
        boot: i64,
        dated: Option<Dated>,
        kind: &str,
        json: &str,
    ) -> Result<(), StoreError> {
        let kind_ok = is_id(kind);
        if !kind_ok
            || json.len() > MAX_EVENT_JSON
            || serde_json::from_str::<serde::de::IgnoredAny>(json).is_err()
        {
            self.refused += 1;
            return Ok(());
        }
        let at_ms = dated.map(|d| d.at_ms);
        self.t
            .prepare_cached(
                "INSERT OR IGNORE INTO node_events (device, epoch, seq, kind, json, at_ms, boot, mono_ms, received_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                self.node.0,
                self.epoch,
                item.seq as i64,
                kind,
                json,
                at_ms,
                boot,
                clamp(item.mono_ms),
                clamp(now_ms())
            ])?;
        let at_ms = at_ms.map(|ms| ms as u64);
        self.events.push(NodeEvent { kind: kind.to_owned(), json: json.to_owned(), at_ms });
        Ok(())
    }

    fn boot(&mut self, item: &Item) -> Result<i64, StoreError> {
        if !self.boots.contains_key(&item.boot) {
            let row = BootRow::get_or_insert(self.t, &self.node, &item.boot)?;
            self.boots.insert(item.boot, row);
        }
        let row = self.boots.get_mut(&item.boot).ok_or_else(|| StoreError::Corrupt("boots".into()))?;
        row.note_item(self.epoch, item, clamp(item.mono_ms));
        Ok(row.id)
    }

    fn date(&mut self, item: &Item, boot: i64) -> Result<Option<Dated>, StoreError> {
        let wall = item.wall_ms.filter(|wall| dating::plausible(*wall));
        if let Some(wall) = wall {
            let offset = clamp(wall) - clamp(item.mono_ms);
            let row = self.boots.get_mut(&item.boot).filter(|r| r.source() != Some(dating::NODE_CLOCK));
            if let Some(row) = row {
                dating::set_offset(self.t, boot, offset, dating::NODE_CLOCK)?;
                row.set(offset, dating::NODE_CLOCK);
            }
            return Ok(Some(Dated { at_ms: clamp(wall), source: dating::NODE_CLOCK }));
        }
        Ok(self.boots.get(&item.boot).and_then(|row| row.date(clamp(item.mono_ms))))
    }

    /// The row of a sensor; `None` when its name is no id or the node has had too many.
    fn sensor(&mut self, name: &str) -> Result<Option<i64>, StoreError> {
        if let Some(known) = self.sensors.get(name) {
            return Ok(*known);
        }
        let found = self
            .t
            .prepare_cached("SELECT id FROM sensors WHERE device = ?1 AND name = ?2")?
            .query_row(params![self.node.0, name], |r| r.get(0))
            .optional()?;
        let id = match found {
            Some(id) => Some(id),
            None if !is_id(name) => None,
            None => {
                let count: i64 = self
                    .t
                    .prepare_cached("SELECT count(*) FROM sensors WHERE device = ?1")?
                    .query_row([self.node.0], |r| r.get(0))?;
                if count >= MAX_SENSORS {
                    None
                } else {
                    self.t.execute(
                        "INSERT INTO sensors (device, name) VALUES (?1, ?2)",
                        params![self.node.0, name],
                    )?;
                    Some(self.t.last_insert_rowid())
                }
            }
        };
        self.sensors.insert(name.to_owned(), id);
        Ok(id)
    }
}

/// Ids and kinds come from outside: short, and of plain characters.
fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_CHARS
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:".contains(&b))
}

/// SQLite's integers are signed; a time beyond them is nonsense anyway.
fn clamp(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// What an item takes of a node's share. A long event takes the room of many readings.
fn cost(item: &Item) -> f64 {
    match &item.body {
        Body::Event { json, .. } => 1.0 + json.len().min(MAX_EVENT_JSON) as f64 / 64.0,
        Body::Reading { .. } | Body::Dropped { .. } => 1.0,
    }
}

/// Slows a node down that sends more than its share.
struct Pace {
    tokens: f64,
    at: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { tokens: BURST, at: Instant::now() }
    }

    async fn wait(&mut self, items: f64) {
        let now = Instant::now();
        let refill = now.duration_since(self.at).as_secs_f64() * ITEMS_PER_SECOND;
        self.tokens = (self.tokens + refill).min(BURST) - items;
        self.at = now;
        if self.tokens < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.tokens / ITEMS_PER_SECOND)).await;
        }
    }
}
