//! Every value of a span, a page at a time: for exports, where nothing may be merged.

use super::{BUCKET_MS, Merger, PART, Part, Point, Readings, bucket, ms, raw_from, sensor_id};
use crate::store::StoreError;
use hearth_shared::identity::DeviceId;
use rusqlite::params;

/// Where a page of a series ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    at: i64,
    epoch: i64,
    seq: i64,
}

impl Cursor {
    /// Behind everything of a bucket.
    fn behind(bucket: i64) -> Self {
        Self { at: bucket + BUCKET_MS - 1, epoch: i64::MAX, seq: i64::MAX }
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.at, self.epoch, self.seq)
    }
}

impl std::str::FromStr for Cursor {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, '.').map(str::parse);
        let mut next = || parts.next().unwrap_or_else(|| "".parse());
        Ok(Self { at: next()?, epoch: next()?, seq: next()? })
    }
}

impl Readings {
    /// At most `limit` values of a span as they are kept, oldest first, behind `after`; nothing is merged. The
    /// cursor is that of the next page, `None` on the last one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn page(
        &self,
        node: DeviceId,
        sensor: &str,
        from_ms: u64,
        to_ms: u64,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Point>, Option<Cursor>), StoreError> {
        let (name, from, to) = (sensor.to_owned(), ms(from_ms), ms(to_ms));
        let limit = limit.max(1);
        self.store
            .read(move |c| {
                let Some(sensor) = sensor_id(c, &node, &name)? else { return Ok((Vec::new(), None)) };
                let raw_from = raw_from(c, sensor)?;
                let mut merger = Merger::new(1);
                let mut last = None;
                // One more than fits tells whether there is another page.
                let mut room = limit + 1;
                let first = after.map_or_else(|| bucket(from), |a| bucket(a.at) + BUCKET_MS);
                let mut statement = c.prepare_cached(&format!(
                    "SELECT {PART}, bucket FROM summaries WHERE sensor = ?1 AND bucket >= ?2 AND bucket < ?3 \
                     ORDER BY bucket LIMIT ?4"
                ))?;
                let mut rows = statement.query(params![sensor, first, to.min(raw_from), room as i64])?;
                while let Some(row) = rows.next()? {
                    room -= 1;
                    if room == 0 {
                        break;
                    }
                    last = Some(Cursor::behind(row.get(8)?));
                    merger.push(Part::row(row)?);
                }
                let start = after.unwrap_or(Cursor { at: from.saturating_sub(1), epoch: i64::MAX, seq: i64::MAX });
                let mut statement = c.prepare_cached(
                    "SELECT value, at_ms, epoch, seq FROM readings WHERE sensor = ?1 AND at_ms >= ?2 AND at_ms < ?3 \
                     AND (at_ms, epoch, seq) > (?4, ?5, ?6) ORDER BY at_ms, epoch, seq LIMIT ?7",
                )?;
                let begin = from.max(raw_from).max(start.at);
                let span = params![sensor, begin, to, start.at, start.epoch, start.seq, room as i64];
                let mut rows = statement.query(span)?;
                while let Some(row) = rows.next()? {
                    room -= 1;
                    if room == 0 {
                        break;
                    }
                    let at = row.get(1)?;
                    last = Some(Cursor { at, epoch: row.get(2)?, seq: row.get(3)? });
                    merger.push(Part::value(row.get(0)?, at));
                }
                Ok((merger.finish(), last.filter(|_| room == 0)))
            })
            .await
    }
}
