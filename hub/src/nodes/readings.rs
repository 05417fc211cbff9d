//! History of sensor readings: raw for days, five-minute minimum, mean and maximum for a year.

use crate::store::{Store, StoreError};
use hearth_shared::identity::DeviceId;
use serde::Serialize;

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

/// A point of a series: one raw value, or a five-minute summary (`min` and `max` differ then).
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

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Readings {}

impl Readings {
    /// On this database.
    #[must_use]
    pub fn new(_store: Store) -> Self {
        todo!()
    }

    /// Minimum, mean, maximum and last in `from_ms..to_ms`; `None` when there is nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stats(
        &self,
        _node: DeviceId,
        _sensor: &str,
        _from_ms: u64,
        _to_ms: u64,
    ) -> Result<Option<Stats>, StoreError> {
        todo!()
    }

    /// The values of a span, oldest first: raw where they are still kept, summaries before. When there are
    /// more than `limit`, neighbours are merged.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn series(
        &self,
        _node: DeviceId,
        _sensor: &str,
        _from_ms: u64,
        _to_ms: u64,
        _limit: usize,
    ) -> Result<Vec<Point>, StoreError> {
        todo!()
    }

    /// Sensors with any history: node, sensor id, newest value and time.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sensors(&self) -> Result<Vec<(DeviceId, String, f64, u64)>, StoreError> {
        todo!()
    }
}
