//! History of sensor readings: raw for days, five-minute minimum, mean and maximum for a year.
//!
//! Summaries are kept up in the transaction that stores a reading, so that questions over months read
//! few rows and never have to wait for a job. A reading that is dated late changes the summary of the
//! time it belongs to.

mod pages;

pub use pages::Cursor;

use crate::store::{Store, StoreError};
use hearth_shared::identity::DeviceId;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde::Serialize;

/// Length of a summary, milliseconds.
pub const BUCKET_MS: i64 = 5 * 60_000;
/// Readings moved at a time when a clock turned out to be wrong.
const CHUNK: i64 = 2_000;
/// Value of `dated` while a reading is being moved.
const MOVING: u8 = 9;

/// What a span of time held. Times are Unix milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Values counted.
    pub count: u64,
    /// Smallest value, and when.
    pub min: f64,
    /// See `min`.
    pub min_at: u64,
    /// Arithmetic mean of the values.
    pub mean: f64,
    /// Largest value, and when.
    pub max: f64,
    /// See `max`.
    pub max_at: u64,
    /// Newest value, and when.
    pub last: f64,
    /// See `last`.
    pub last_at: u64,
}

/// A point of a series: one raw value, or a summary (`min` and `max` differ then).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// Unix milliseconds.
    pub at: u64,
    /// The value, or the mean.
    pub value: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

/// A stored reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    pub sensor: i64,
    pub at_ms: i64,
    pub epoch: i64,
    pub seq: u64,
    pub value: f64,
    pub boot: i64,
    pub source: u8,
}

fn bucket(at_ms: i64) -> i64 {
    at_ms - at_ms.rem_euclid(BUCKET_MS)
}

/// Stores a reading and brings its summary up to date. One that is there already changes nothing. One that
/// comes so late that the raw readings of its time are deleted is summarised only: a lone raw value would
/// stand for all that were there.
pub(super) fn insert(t: &Transaction<'_>, raw: &Raw) -> Result<(), StoreError> {
    let kept_from: i64 = t
        .prepare_cached("SELECT raw_from FROM sensors WHERE id = ?1")?
        .query_row([raw.sensor], |r| r.get(0))?;
    if raw.at_ms < kept_from {
        return summarise(t, raw);
    }
    let new = t
        .prepare_cached(
            "INSERT OR IGNORE INTO readings (sensor, at_ms, epoch, seq, value, boot, dated) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            raw.sensor,
            raw.at_ms,
            raw.epoch,
            raw.seq as i64,
            raw.value,
            raw.boot,
            raw.source
        ])?;
    if new == 0 {
        return Ok(());
    }
    summarise(t, raw)
}

fn summarise(t: &Transaction<'_>, raw: &Raw) -> Result<(), StoreError> {
    t.prepare_cached(
        "INSERT INTO summaries (sensor, bucket, count, sum, min, min_at, max, max_at, last, last_at) \
         VALUES (?1, ?2, 1, ?4, ?4, ?3, ?4, ?3, ?4, ?3) ON CONFLICT (sensor, bucket) DO UPDATE SET \
         count = count + 1, sum = sum + ?4, \
         min_at = iif(?4 < min, ?3, min_at), min = min(min, ?4), \
         max_at = iif(?4 > max, ?3, max_at), max = max(max, ?4), \
         last = iif(?3 >= last_at, ?4, last), last_at = max(last_at, ?3)",
    )?
    .execute(params![raw.sensor, bucket(raw.at_ms), raw.at_ms, raw.value])?;
    t.prepare_cached(
        "UPDATE sensors SET last = ?2, last_at = ?3 WHERE id = ?1 AND (last_at IS NULL OR last_at <= ?3)",
    )?
    .execute(params![raw.sensor, raw.value, raw.at_ms])?;
    Ok(())
}

/// Dates what waited for the clock of a start.
pub(super) fn date_waiting(
    t: &Transaction<'_>,
    boot: i64,
    offset: i64,
    source: u8,
) -> Result<(), StoreError> {
    loop {
        let waiting: Vec<Raw> = {
            let mut statement = t.prepare_cached(
                "SELECT sensor, mono_ms, epoch, seq, value FROM undated WHERE boot = ?1 \
                 ORDER BY epoch, seq LIMIT ?2",
            )?;
            let rows = statement.query_map(params![boot, CHUNK], |r| {
                Ok(Raw {
                    sensor: r.get(0)?,
                    at_ms: (r.get::<_, i64>(1)? + offset).max(0),
                    epoch: r.get(2)?,
                    seq: r.get::<_, i64>(3)? as u64,
                    value: r.get(4)?,
                    boot,
                    source,
                })
            })?;
            rows.collect::<Result<_, _>>()?
        };
        if waiting.is_empty() {
            return Ok(());
        }
        for raw in &waiting {
            insert(t, raw)?;
            t.prepare_cached("DELETE FROM undated WHERE boot = ?1 AND epoch = ?2 AND seq = ?3")?
                .execute(params![boot, raw.epoch, raw.seq as i64])?;
        }
    }
}

/// Moves the readings of a start that were dated by `from` by `delta` milliseconds: the clock they were
/// dated by was wrong. The summaries of both times follow.
pub(super) fn redate(
    t: &Transaction<'_>,
    boot: i64,
    from: u8,
    delta: i64,
    source: u8,
) -> Result<(), StoreError> {
    let marked = t.execute(
        "UPDATE readings SET dated = ?3 WHERE boot = ?1 AND dated = ?2",
        params![boot, from, MOVING],
    )?;
    let mut left = marked as i64;
    while left > 0 {
        let moving: Vec<Raw> = {
            let mut statement = t.prepare_cached(
                "SELECT sensor, at_ms, epoch, seq, value FROM readings WHERE boot = ?1 AND dated = ?2 LIMIT ?3",
            )?;
            let rows = statement.query_map(params![boot, MOVING, CHUNK], |r| {
                Ok(Raw {
                    sensor: r.get(0)?,
                    at_ms: r.get(1)?,
                    epoch: r.get(2)?,
                    seq: r.get::<_, i64>(3)? as u64,
                    value: r.get(4)?,
                    boot,
                    source,
                })
            })?;
            rows.collect::<Result<_, _>>()?
        };
        if moving.is_empty() {
            break;
        }
        left -= moving.len() as i64;
        let mut touched = std::collections::BTreeSet::new();
        for raw in &moving {
            t.prepare_cached(
                "DELETE FROM readings WHERE sensor = ?1 AND at_ms = ?2 AND epoch = ?3 AND seq = ?4",
            )?
            .execute(params![raw.sensor, raw.at_ms, raw.epoch, raw.seq as i64])?;
            touched.insert((raw.sensor, bucket(raw.at_ms)));
        }
        for (sensor, bucket) in touched {
            rebuild(t, sensor, bucket)?;
        }
        for raw in &moving {
            insert(t, &Raw { at_ms: (raw.at_ms + delta).max(0), ..*raw })?;
        }
    }
    // The newest value may have moved.
    t.execute(
        "UPDATE sensors SET (last, last_at) = (SELECT last, last_at FROM summaries WHERE sensor = sensors.id \
         ORDER BY bucket DESC LIMIT 1) WHERE id IN (SELECT DISTINCT sensor FROM readings WHERE boot = ?1)",
        [boot],
    )?;
    Ok(())
}

/// Makes a summary anew from the raw readings, which are complete as long as any of them is kept.
fn rebuild(t: &Transaction<'_>, sensor: i64, bucket: i64) -> Result<(), StoreError> {
    let span = params![sensor, bucket, bucket + BUCKET_MS];
    t.prepare_cached("DELETE FROM summaries WHERE sensor = ?1 AND bucket = ?2")?
        .execute(params![sensor, bucket])?;
    t.prepare_cached(
        "INSERT INTO summaries (sensor, bucket, count, sum, min, min_at, max, max_at, last, last_at) \
         SELECT ?1, ?2, count(*), sum(value), min(value), \
         (SELECT at_ms FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3 ORDER BY value, at_ms LIMIT 1), \
         max(value), \
         (SELECT at_ms FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3 ORDER BY value DESC, at_ms LIMIT 1), \
         (SELECT value FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3 ORDER BY at_ms DESC LIMIT 1), \
         max(at_ms) \
         FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3 HAVING count(*) > 0",
    )?
    .execute(span)?;
    Ok(())
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Readings {
    store: Store,
}

fn ms(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

fn sensor_id(c: &Connection, node: &DeviceId, sensor: &str) -> Result<Option<i64>, StoreError> {
    Ok(c.prepare_cached("SELECT id FROM sensors WHERE device = ?1 AND name = ?2")?
        .query_row(params![node.0, sensor], |r| r.get(0))
        .optional()?)
}

/// Parts of a span: sums that can be added.
#[derive(Debug, Clone, Copy)]
struct Part {
    count: i64,
    sum: f64,
    min: (f64, i64),
    max: (f64, i64),
    last: (f64, i64),
}

impl Part {
    fn row(r: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            count: r.get(0)?,
            sum: r.get(1)?,
            min: (r.get(2)?, r.get(3)?),
            max: (r.get(4)?, r.get(5)?),
            last: (r.get(6)?, r.get(7)?),
        })
    }

    fn value(value: f64, at: i64) -> Self {
        Self { count: 1, sum: value, min: (value, at), max: (value, at), last: (value, at) }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        if other.min.0 < self.min.0 {
            self.min = other.min;
        }
        if other.max.0 > self.max.0 {
            self.max = other.max;
        }
        if other.last.1 >= self.last.1 {
            self.last = other.last;
        }
    }
}

fn add(total: &mut Option<Part>, part: Part) {
    match total {
        Some(total) => total.add(&part),
        None => *total = Some(part),
    }
}

const PART: &str = "count, sum, min, min_at, max, max_at, last, last_at";

/// From this bucket on the raw readings of a sensor are complete.
fn raw_from(c: &Connection, sensor: i64) -> Result<i64, StoreError> {
    let (oldest, kept_from): (Option<i64>, i64) = c
        .prepare_cached(
            "SELECT (SELECT min(at_ms) FROM readings WHERE sensor = ?1), raw_from FROM sensors WHERE id = ?1",
        )?
        .query_row([sensor], |r| Ok((r.get(0)?, r.get(1)?)))?;
    Ok(oldest.map_or(i64::MAX, bucket).max(kept_from))
}

/// Notes, before raw readings are deleted, up to where.
pub(super) fn keep_raw_from(t: &Transaction<'_>, sensor: i64, from: i64) -> Result<(), StoreError> {
    t.prepare_cached("UPDATE sensors SET raw_from = max(raw_from, ?2) WHERE id = ?1")?
        .execute(params![sensor, bucket(from)])?;
    Ok(())
}

impl Readings {
    /// On this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Minimum, mean, maximum and last in `from_ms..to_ms`; `None` when there is nothing. Exact where raw
    /// readings are kept; before that the edges are those of whole five minutes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stats(
        &self,
        node: DeviceId,
        sensor: &str,
        from_ms: u64,
        to_ms: u64,
    ) -> Result<Option<Stats>, StoreError> {
        let (name, from, to) = (sensor.to_owned(), ms(from_ms), ms(to_ms));
        self.store
            .read(move |c| {
                let Some(sensor) = sensor_id(c, &node, &name)? else { return Ok(None) };
                let raw_from = raw_from(c, sensor)?;
                let mut total = None;
                // Whole buckets come from the summaries, whatever is kept raw; raw values fill the edges.
                let first_whole = bucket(from.saturating_add(BUCKET_MS - 1));
                let end_whole = bucket(to);
                let edges = if first_whole >= end_whole {
                    [(from, to), (0, 0)]
                } else {
                    [(from, first_whole), (end_whole, to)]
                };
                if first_whole < end_whole {
                    let mut statement = c.prepare_cached(&format!(
                        "SELECT {PART} FROM summaries WHERE sensor = ?1 AND bucket >= ?2 AND bucket < ?3"
                    ))?;
                    let mut rows = statement.query(params![sensor, first_whole, end_whole])?;
                    while let Some(row) = rows.next()? {
                        add(&mut total, Part::row(row)?);
                    }
                }
                for (from, to) in edges {
                    if from >= to {
                        continue;
                    }
                    let raw = (from.max(raw_from), to);
                    let mut statement = c.prepare_cached(
                        "SELECT value, at_ms FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3",
                    )?;
                    let mut rows = statement.query(params![sensor, raw.0, raw.1])?;
                    while let Some(row) = rows.next()? {
                        add(&mut total, Part::value(row.get(0)?, row.get(1)?));
                    }
                    if from < raw_from {
                        let mut statement = c.prepare_cached(&format!(
                            "SELECT {PART} FROM summaries WHERE sensor = ?1 AND bucket >= ?2 AND bucket < ?3"
                        ))?;
                        let mut rows = statement.query(params![sensor, bucket(from), to.min(raw_from)])?;
                        while let Some(row) = rows.next()? {
                            add(&mut total, Part::row(row)?);
                        }
                    }
                }
                Ok(total.map(|p| Stats {
                    count: p.count as u64,
                    min: p.min.0,
                    min_at: p.min.1 as u64,
                    mean: p.sum / p.count as f64,
                    max: p.max.0,
                    max_at: p.max.1 as u64,
                    last: p.last.0,
                    last_at: p.last.1 as u64,
                }))
            })
            .await
    }

    /// The values of a span, oldest first: raw where they are still kept, summaries before. When there are
    /// more than `limit`, neighbours are merged.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn series(
        &self,
        node: DeviceId,
        sensor: &str,
        from_ms: u64,
        to_ms: u64,
        limit: usize,
    ) -> Result<Vec<Point>, StoreError> {
        let (name, from, to) = (sensor.to_owned(), ms(from_ms), ms(to_ms));
        let limit = limit.max(1);
        self.store
            .read(move |c| {
                let Some(sensor) = sensor_id(c, &node, &name)? else { return Ok(Vec::new()) };
                let raw_from = raw_from(c, sensor)?;
                let mut merger = Merger::new(count(c, sensor, from, to, raw_from)?.div_ceil(limit));
                if from < raw_from {
                    let mut statement = c.prepare_cached(&format!(
                        "SELECT {PART} FROM summaries WHERE sensor = ?1 AND bucket >= ?2 AND bucket < ?3 \
                         ORDER BY bucket"
                    ))?;
                    let mut rows = statement.query(params![sensor, bucket(from), to.min(raw_from)])?;
                    while let Some(row) = rows.next()? {
                        merger.push(Part::row(row)?);
                    }
                }
                let mut statement = c.prepare_cached(
                    "SELECT value, at_ms FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3 \
                     ORDER BY at_ms",
                )?;
                let mut rows = statement.query(params![sensor, from.max(raw_from), to])?;
                while let Some(row) = rows.next()? {
                    merger.push(Part::value(row.get(0)?, row.get(1)?));
                }
                Ok(merger.finish())
            })
            .await
    }

    /// Sensors with any history: node, sensor id, newest value and time.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sensors(&self) -> Result<Vec<(DeviceId, String, f64, u64)>, StoreError> {
        self.store
            .read(|c| {
                let mut statement = c.prepare_cached(
                    "SELECT device, name, last, last_at FROM sensors WHERE last_at IS NOT NULL ORDER BY device, name",
                )?;
                let rows = statement.query_map([], |r| {
                    Ok((DeviceId(r.get(0)?), r.get(1)?, r.get(2)?, r.get::<_, i64>(3)? as u64))
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }
}

fn count(c: &Connection, sensor: i64, from: i64, to: i64, raw_from: i64) -> Result<usize, StoreError> {
    let summaries: i64 = if from < raw_from {
        c.prepare_cached("SELECT count(*) FROM summaries WHERE sensor = ?1 AND bucket >= ?2 AND bucket < ?3")?
            .query_row(params![sensor, bucket(from), to.min(raw_from)], |r| r.get(0))?
    } else {
        0
    };
    let raw: i64 = c
        .prepare_cached("SELECT count(*) FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3")?
        .query_row(params![sensor, from.max(raw_from), to], |r| r.get(0))?;
    Ok((summaries + raw) as usize)
}

/// Merges every `group` neighbours into a point.
struct Merger {
    group: usize,
    held: usize,
    part: Option<Part>,
    first_at: i64,
    points: Vec<Point>,
}

impl Merger {
    fn new(group: usize) -> Self {
        Self { group: group.max(1), held: 0, part: None, first_at: 0, points: Vec::new() }
    }

    fn push(&mut self, part: Part) {
        if self.held == 0 {
            self.first_at = part.min.1.min(part.max.1);
        }
        add(&mut self.part, part);
        self.held += 1;
        if self.held == self.group {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(part) = self.part.take() {
            self.points.push(Point {
                at: self.first_at.max(0) as u64,
                value: part.sum / part.count as f64,
                min: part.min.0,
                max: part.max.0,
            });
        }
        self.held = 0;
    }

    fn finish(mut self) -> Vec<Point> {
        self.flush();
        self.points
    }
}

#[cfg(test)]
mod tests;
