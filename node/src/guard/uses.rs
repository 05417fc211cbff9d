//! Counted uses of limited rules: ever, since the program started, in the last hour of powered time.

use hearth_shared::identity::Digest;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

const HOUR_MS: u64 = 3_600_000;
/// Remembered uses of the last hour; the largest hourly limit a rule may have.
pub(super) const MAX_PER_HOUR: u32 = 1_000;

/// Limits of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Ever.
    pub ever: Option<u32>,
    /// Since the program started.
    pub boot: Option<u32>,
    /// In an hour of powered time.
    pub hour: Option<u32>,
}

/// Counters of all limited rules that were used.
#[derive(Debug, Clone, Default)]
pub struct Uses(HashMap<Digest, Counter>);

/// Counters of one rule. The part since the start is not stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Counter {
    ever: u64,
    /// Powered times of the last hour's uses.
    recent: Vec<u64>,
    #[serde(skip)]
    boot: u64,
}

impl Uses {
    /// From the stored counters.
    pub(super) fn load(stored: impl IntoIterator<Item = (Digest, Counter)>) -> Self {
        Self(stored.into_iter().collect())
    }

    /// The limit of a rule that leaves no further use, in words.
    pub(super) fn reached(&self, key: &Digest, limits: Limits, now_ms: u64) -> Option<String> {
        let counter = self.0.get(key)?;
        let recent = counter.recent.iter().filter(|at| now_ms.saturating_sub(**at) < HOUR_MS).count() as u64;
        [
            (limits.ever, counter.ever, "uses in all"),
            (limits.boot, counter.boot, "uses since the program started"),
            (limits.hour, recent, "uses in an hour of powered time"),
        ]
        .into_iter()
        .find_map(|(limit, used, what)| {
            limit.filter(|limit| used >= u64::from(*limit)).map(|limit| format!("{limit} {what}"))
        })
    }

    /// The counter after one more use; [`Uses::put`] makes it count once it is stored.
    pub(super) fn after_use(&self, key: &Digest, now_ms: u64) -> Counter {
        let mut counter = self.0.get(key).cloned().unwrap_or_default();
        counter.ever += 1;
        counter.boot += 1;
        counter.recent.retain(|at| now_ms.saturating_sub(*at) < HOUR_MS);
        counter.recent.push(now_ms);
        let surplus = counter.recent.len().saturating_sub(MAX_PER_HOUR as usize);
        counter.recent.drain(..surplus);
        counter
    }

    /// See [`Uses::after_use`].
    pub(super) fn put(&mut self, key: Digest, counter: Counter) {
        self.0.insert(key, counter);
    }
}
