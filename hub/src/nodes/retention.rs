//! How long things are kept, and what happens when the card is full.
//!
//! Once an hour, at the start, and whenever a write finds the card full: raw readings, summaries and
//! events that are too old go, and pictures over the budget, the oldest first. When little room is left
//! on the card, pictures go whatever the budget says: the database and the logs need the room more.
//! Deleting is done in small transactions, so that questions are answered in between.

use super::Nodes;
use super::media::MediaStore;
use super::outbox::PLAUSIBLE_MS;
use super::readings::{BUCKET_MS, keep_raw_from};
use crate::config::RetentionConfig;
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::identity::DeviceId;
use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(3600);
/// Others fill the card as well: how often the room that is left is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Not more often than this, however often it is asked for.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);
/// Rows deleted in one transaction.
const CHUNK: i64 = 5_000;
/// Files deleted before their rows go.
const FILES: i64 = 64;
const DAY_MS: i64 = 24 * 3_600_000;
/// Counting large tables takes a while on a card; figures this old are good enough for `status`.
const USAGE_AGE: Duration = Duration::from_secs(60);

/// What is stored, for `status`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Raw readings.
    pub readings: u64,
    /// The oldest of them, Unix milliseconds.
    pub readings_oldest_ms: Option<u64>,
    /// Readings whose time is not known yet.
    pub readings_undated: u64,
    /// Five-minute summaries.
    pub summaries: u64,
    /// The oldest of them.
    pub summaries_oldest_ms: Option<u64>,
    /// Node events.
    pub events: u64,
    /// Pictures and other attachments.
    pub media: u64,
    /// Their bytes.
    pub media_bytes: u64,
    /// The oldest of them.
    pub media_oldest_ms: Option<u64>,
    /// Bytes of `hub.db`.
    pub database_bytes: u64,
    /// Bytes left on the card.
    pub free_bytes: Option<u64>,
    /// True while so little is left that pictures are refused and old ones go.
    pub card_full: bool,
    /// Items lost before they came here, over all nodes: outboxes that were full.
    pub lost: u64,
    /// Items refused: no numbers, or beyond a limit.
    pub refused: u64,
    /// As configured.
    pub limits: RetentionConfig,
}

#[derive(Debug, Default)]
pub(super) struct Figures(Option<(Instant, Usage)>);

impl Nodes {
    /// Starts the background work: cleaning up.
    pub fn start(&self) {
        let (nodes, stop) = (self.clone(), self.inner.tasks.stop.clone());
        self.inner.tasks.spawn(async move {
            loop {
                nodes.clean_up().await;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = nodes.wait_for_work() => {}
                }
            }
        });
    }

    async fn wait_for_work(&self) {
        let due = Instant::now() + EVERY;
        tokio::time::sleep(AT_MOST_EVERY).await;
        while Instant::now() < due {
            tokio::select! {
                () = self.inner.media.room_asked() => return,
                () = tokio::time::sleep(LOOK_EVERY) => if self.inner.media.is_tight() {
                    return;
                }
            }
        }
    }

    async fn clean_up(&self) {
        let (store, media) = (&self.inner.store, &self.inner.media);
        // Pictures first: on a full card even deleting rows needs a little room.
        for (what, done) in [
            ("media", trim_media(store, media).await),
            ("stray media", sweep_strays(store, media).await),
            ("readings", trim_history(store, &self.inner.config.retention).await),
        ] {
            match done {
                Ok(0) => {}
                Ok(gone) => tracing::debug!(what, gone, "cleaned up"),
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(what, %error, "cannot clean up"),
            }
        }
    }

    /// What is stored; figures may be a minute old.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn usage(&self) -> Result<Usage, StoreError> {
        let lock = || self.inner.figures.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((at, usage)) = &lock().0
            && at.elapsed() < USAGE_AGE
        {
            return Ok(usage.clone());
        }
        let mut usage = self.inner.store.read(count).await?;
        usage.free_bytes = self.inner.media.free();
        usage.card_full = self.inner.media.is_tight();
        usage.limits = self.inner.config.retention.clone();
        lock().0 = Some((Instant::now(), usage.clone()));
        Ok(usage)
    }

    /// Items of one node that were lost before they came here, and that were refused.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn losses(&self, node: DeviceId) -> Result<(u64, u64), StoreError> {
        self.inner
            .store
            .read(move |c| {
                Ok(c.query_row(
                    "SELECT coalesce(sum(lost), 0), coalesce(sum(refused), 0) FROM epochs WHERE device = ?1",
                    [node.0],
                    |r| Ok((r.get::<_, i64>(0)? as u64, r.get::<_, i64>(1)? as u64)),
                )?)
            })
            .await
    }
}

fn count(c: &rusqlite::Connection) -> Result<Usage, StoreError> {
    let number = |sql: &str| -> Result<u64, StoreError> {
        Ok(c.prepare_cached(sql)?.query_row([], |r| r.get::<_, Option<i64>>(0))?.unwrap_or(0) as u64)
    };
    let time = |sql: &str| -> Result<Option<u64>, StoreError> {
        Ok(c.prepare_cached(sql)?.query_row([], |r| r.get::<_, Option<i64>>(0))?.map(|ms| ms as u64))
    };
    // The keys begin with the sensor: the oldest of each, then the oldest of those.
    let oldest_reading =
        "SELECT min((SELECT min(at_ms) FROM readings WHERE sensor = sensors.id)) FROM sensors";
    let oldest_summary =
        "SELECT min((SELECT min(bucket) FROM summaries WHERE sensor = sensors.id)) FROM sensors";
    Ok(Usage {
        readings: number("SELECT count(*) FROM readings")?,
        readings_oldest_ms: time(oldest_reading)?,
        readings_undated: number("SELECT count(*) FROM undated")?,
        summaries: number("SELECT count(*) FROM summaries")?,
        summaries_oldest_ms: time(oldest_summary)?,
        events: number("SELECT count(*) FROM node_events")?,
        media: number("SELECT count(*) FROM media")?,
        media_bytes: number("SELECT sum(size) FROM media")?,
        media_oldest_ms: time("SELECT min(created_ms) FROM media")?,
        database_bytes: number("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")?,
        lost: number("SELECT sum(lost) FROM epochs")?,
        refused: number("SELECT sum(refused) FROM epochs")?,
        ..Usage::default()
    })
}

/// Readings, summaries and events that are too old.
async fn trim_history(store: &Store, keep: &RetentionConfig) -> Result<usize, StoreError> {
    let now = now_ms() as i64;
    if now < PLAUSIBLE_MS as i64 {
        // The hub's clock is not set: nothing is too old by it.
        return Ok(0);
    }
    // Whole summaries: raw readings of one are either all there or all gone.
    let raw_before = now - i64::from(keep.readings_days) * DAY_MS;
    let raw_before = raw_before - raw_before.rem_euclid(BUCKET_MS);
    let summaries_before = now - i64::from(keep.summaries_days) * DAY_MS;
    let events_before = now - i64::from(keep.events_days) * DAY_MS;
    let sensors: Vec<i64> = store
        .read(|c| {
            let mut statement = c.prepare_cached("SELECT id FROM sensors")?;
            let rows = statement.query_map([], |r| r.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await?;
    let mut gone = 0;
    for sensor in sensors {
        store.write(move |t| keep_raw_from(t, sensor, raw_before)).await?;
        for (table, column, before) in
            [("readings", "at_ms", raw_before), ("summaries", "bucket", summaries_before)]
        {
            gone += trim_sensor(store, table, column, sensor, before).await?;
        }
    }
    gone += store
        .write(move |t| {
            // What came while the hub's clock was not set came at the latest now.
            t.execute(
                "UPDATE node_events SET received_ms = ?1 WHERE received_ms < ?2",
                [now, PLAUSIBLE_MS as i64],
            )?;
            let events = t.execute("DELETE FROM node_events WHERE received_ms < ?1", [events_before])?;
            let boots = t.execute(
                "DELETE FROM boots WHERE offset_ms + max_mono < ?1 AND NOT EXISTS \
                 (SELECT 1 FROM undated WHERE undated.boot = boots.id)",
                [raw_before.min(events_before)],
            )?;
            Ok(events + boots)
        })
        .await?;
    Ok(gone)
}

async fn trim_sensor(
    store: &Store,
    table: &'static str,
    column: &'static str,
    sensor: i64,
    before: i64,
) -> Result<usize, StoreError> {
    let mut gone = 0;
    loop {
        let (deleted, more) = store
            .write(move |t| {
                let step: Option<i64> = t
                    .prepare_cached(&format!(
                        "SELECT {column} FROM {table} WHERE sensor = ?1 AND {column} < ?2 \
                         ORDER BY {column} LIMIT 1 OFFSET ?3"
                    ))?
                    .query_row(params![sensor, before, CHUNK], |r| r.get(0))
                    .optional()?;
                let deleted = t
                    .prepare_cached(&format!("DELETE FROM {table} WHERE sensor = ?1 AND {column} < ?2"))?
                    .execute(params![sensor, step.unwrap_or(before)])?;
                Ok((deleted, step.is_some()))
            })
            .await?;
        gone += deleted;
        // Thousands of values of one millisecond would make no progress.
        if !more || deleted == 0 {
            return Ok(gone);
        }
    }
}

/// Pictures over the budget, and as many more as it takes when the card is full.
async fn trim_media(store: &Store, media: &MediaStore) -> Result<usize, StoreError> {
    let mut gone = 0;
    loop {
        let (used, oldest): (u64, Vec<(String, String, u64)>) = store
            .read(|c| {
                let used: Option<i64> = c.query_row("SELECT sum(size) FROM media", [], |r| r.get(0))?;
                let mut statement =
                    c.prepare_cached("SELECT id, file, size FROM media ORDER BY rowid LIMIT ?1")?;
                let rows = statement
                    .query_map([FILES], |r| Ok((r.get(0)?, r.get(1)?, r.get::<_, i64>(2)? as u64)))?;
                Ok((used.unwrap_or(0) as u64, rows.collect::<Result<_, _>>()?))
            })
            .await?;
        let mut used = used;
        let mut ids = Vec::new();
        for (id, file, size) in oldest {
            if used <= media.budget() && !media.is_tight() {
                break;
            }
            match tokio::fs::remove_file(media.dir().join(&file)).await {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(file, %error, "cannot delete a picture"),
            }
            used = used.saturating_sub(size);
            ids.push(id);
        }
        if ids.is_empty() {
            return Ok(gone);
        }
        gone += ids.len();
        store
            .write(move |t| {
                for id in &ids {
                    t.prepare_cached("DELETE FROM media WHERE id = ?1")?.execute([id])?;
                }
                Ok(())
            })
            .await?;
    }
}

/// Files without a row (the power went between the two) and unfinished ones of an earlier start.
async fn sweep_strays(store: &Store, media: &MediaStore) -> Result<usize, StoreError> {
    let known: HashSet<String> = store
        .read(|c| {
            let mut statement = c.prepare_cached("SELECT file FROM media")?;
            let rows = statement.query_map([], |r| r.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await?;
    let Ok(mut entries) = tokio::fs::read_dir(media.dir()).await else { return Ok(0) };
    let mut gone = 0;
    while let Ok(Some(entry)) = entries.next_entry().await {
        let Ok(name) = entry.file_name().into_string() else { continue };
        // What is young may be on its way to its row.
        let old = match entry.metadata().await {
            Ok(m) if m.is_file() => m.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > EVERY)),
            _ => false,
        };
        if old
            && is_ours(&name)
            && !known.contains(&name)
            && tokio::fs::remove_file(entry.path()).await.is_ok()
        {
            gone += 1;
        }
    }
    Ok(gone)
}

/// `<32 hex digits>.<extension>`: nothing else in the folder is touched.
fn is_ours(name: &str) -> bool {
    name.split_once('.').is_some_and(|(id, _)| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests;
