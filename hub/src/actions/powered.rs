//! The hub's powered clock: milliseconds it has been running in all its starts.
//!
//! Lifetimes count on it, so that a hub that was off for the night does not let every request expire. It
//! is saved every [`SAVE_EVERY`] while something waits, and at the stop; a crash gives requests at most
//! that much longer.

use crate::store::{Store, StoreError};
use rusqlite::OptionalExtension as _;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Interval of saving.
pub(super) const SAVE_EVERY: Duration = Duration::from_secs(15);

/// See the module.
#[derive(Debug)]
pub(super) struct Powered {
    store: Store,
    started: Instant,
    /// What earlier starts came to.
    before: OnceCell<u64>,
}

impl Powered {
    pub(super) fn new(store: Store) -> Self {
        Self { store, started: Instant::now(), before: OnceCell::new() }
    }

    /// Powered milliseconds now.
    pub(super) async fn now(&self) -> Result<u64, StoreError> {
        let before = self
            .before
            .get_or_try_init(|| {
                self.store.read(|c| {
                    let total: Option<i64> =
                        c.query_row("SELECT total_ms FROM powered", [], |row| row.get(0)).optional()?;
                    Ok(total.unwrap_or(0) as u64)
                })
            })
            .await?;
        Ok(before + self.started.elapsed().as_millis() as u64)
    }

    /// Time left until `deadline`; zero when it has passed.
    pub(super) async fn left(&self, deadline: u64) -> Result<Duration, StoreError> {
        Ok(Duration::from_millis(deadline.saturating_sub(self.now().await?)))
    }

    /// Writes the clock down.
    pub(super) async fn save(&self) -> Result<(), StoreError> {
        let now = self.now().await? as i64;
        self.store
            .write(move |t| {
                t.execute(
                    "INSERT INTO powered (one, total_ms) VALUES (1, ?1)
                     ON CONFLICT (one) DO UPDATE SET total_ms = MAX(total_ms, excluded.total_ms)",
                    [now],
                )?;
                Ok(())
            })
            .await
    }
}
