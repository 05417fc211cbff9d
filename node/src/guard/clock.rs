//! The guard's clocks.
//!
//! Challenges live on the boot clock, which no one sets and which goes on while the machine sleeps.
//! Limits and the journal's ages count powered time: what this program ran, summed over its starts. It
//! is stored with every commit, so a crash loses the part since the last one; then limits reach back
//! further than they must, never less far.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// systemd-timesyncd leaves this file while the clock is set by the network. With chrony or a clock chip
/// the owner sets `trust_clock`.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

#[derive(Debug)]
pub(super) struct Clock {
    started_ms: u64,
    powered_before_ms: u64,
    /// The owner says that the machine's clock is right.
    trusted: bool,
    /// Tests move time with it.
    skew_ms: AtomicU64,
}

impl Clock {
    pub(super) fn new(powered_before_ms: u64, trusted: bool) -> Self {
        Self { started_ms: boottime_ms(), powered_before_ms, trusted, skew_ms: AtomicU64::new(0) }
    }

    /// Minute of the day in UTC, when the clock is known to be right.
    pub(super) fn minute_utc(&self) -> Option<u16> {
        let right = self.trusted || std::path::Path::new(SYNCHRONIZED).exists();
        right.then(|| ((wall_ms() / 60_000) % 1440) as u16)
    }

    /// Milliseconds since this was made, on the boot clock.
    pub(super) fn since_start_ms(&self) -> u64 {
        boottime_ms().saturating_sub(self.started_ms) + self.skew_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds of powered time, all starts together.
    pub(super) fn powered_ms(&self) -> u64 {
        self.powered_before_ms + self.since_start_ms()
    }

    #[cfg(test)]
    pub(super) fn advance(&self, ms: u64) {
        self.skew_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Unix milliseconds by the machine's clock, right or wrong.
pub(super) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0))
}
