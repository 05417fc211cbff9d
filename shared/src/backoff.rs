//! Reconnect backoff: exponential with full jitter, so that a thousand nodes that lost one hub do not
//! come back in step.

use crate::limits::{BACKOFF_BASE_MS, BACKOFF_CAP_MS, BACKOFF_FACTOR, HEALTHY_AFTER_MS};

/// Pure state: the caller sleeps and supplies randomness.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The largest delay the next attempt may wait: `base * factor^failures`, capped.
    #[must_use]
    pub fn ceiling_ms(&self) -> u64 {
        let factor = u64::from(BACKOFF_FACTOR).checked_pow(self.failures).unwrap_or(u64::MAX);
        BACKOFF_BASE_MS.saturating_mul(factor).min(BACKOFF_CAP_MS)
    }

    /// Delay before the next attempt, evenly drawn from `0..=ceiling` by `random` ("full jitter").
    pub fn next_delay_ms(&mut self, random: u64) -> u64 {
        let ceiling = self.ceiling_ms();
        self.failures = self.failures.saturating_add(1);
        random % (ceiling + 1)
    }

    /// Tells how long the connection that just ended had lived. A healthy one starts the count afresh;
    /// a hub that accepts and drops at once does not.
    pub fn connection_ended(&mut self, lived_ms: u64) {
        if lived_ms >= HEALTHY_AFTER_MS {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_and_resets_only_after_health() {
        let mut backoff = Backoff::default();
        let ceilings: Vec<u64> = (0..11)
            .map(|_| {
                let ceiling = backoff.ceiling_ms();
                assert!(backoff.next_delay_ms(u64::MAX) <= ceiling);
                ceiling
            })
            .collect();
        assert_eq!(ceilings[..5], [1_000, 2_000, 4_000, 8_000, 16_000]);
        assert_eq!(ceilings[9..], [300_000, 300_000]);
        backoff.connection_ended(1_000);
        assert_eq!(backoff.ceiling_ms(), 300_000);
        backoff.connection_ended(60_000);
        assert_eq!(backoff.ceiling_ms(), 1_000);
    }
}
