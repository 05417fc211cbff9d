//! Rates: requests of clients that are in, and wrong secrets of those that are not.

use hearth_shared::identity::DeviceId;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Buckets kept before idle ones are swept out.
const MAX_KEPT: usize = 4096;

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// A device that proved its key, over all its connections.
    Device(DeviceId),
    /// Clients without a device, by address.
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// Requests a second, with bursts of four times that.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    rate: f64,
    buckets: Mutex<HashMap<Who, Bucket>>,
}

impl RequestLimits {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { rate: f64::from(per_second.max(1)), buckets: Mutex::default() }
    }

    /// Takes one request, or tells how long to wait.
    pub(crate) fn take(&self, who: Who, now: Instant) -> Result<(), Duration> {
        let burst = self.rate * 4.0;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_KEPT {
            // A bucket that has refilled says nothing any more.
            buckets.retain(|_, b| now.duration_since(b.at).as_secs_f64() * self.rate < burst - b.tokens);
        }
        let bucket = buckets.entry(who).or_insert(Bucket { tokens: burst, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * self.rate).min(burst);
        bucket.at = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.rate))
        }
    }
}

/// Kinds of secrets; failures of one never block another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Secret {
    /// The gateway token.
    Shared,
    /// Setup codes.
    Bootstrap,
    /// Device tokens, counted per device (which proved its key), never per address: nobody can lock out
    /// a device whose key he does not hold.
    Device,
}

/// Wrong secrets allowed within [`WINDOW`].
pub(crate) const MAX_FAILURES: u32 = 10;
/// Failures are forgotten after this.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// Wrong secrets, counted per kind and origin.
#[derive(Debug, Default)]
pub(crate) struct AuthLimits {
    failures: Mutex<HashMap<(Secret, Who), (u32, Instant)>>,
}

impl AuthLimits {
    /// How long this origin must wait, if it must.
    pub(crate) fn blocked(&self, kind: Secret, who: Who, now: Instant) -> Option<Duration> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, since) = failures.get(&(kind, who))?;
        let left = WINDOW.checked_sub(now.saturating_duration_since(*since))?;
        (*count >= MAX_FAILURES && !left.is_zero()).then_some(left)
    }

    /// Counts a wrong secret.
    pub(crate) fn failed(&self, kind: Secret, who: Who, now: Instant) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_KEPT {
            shrink(&mut failures, now);
        }
        let entry = failures.entry((kind, who)).or_insert((0, now));
        if now.saturating_duration_since(entry.1) >= WINDOW {
            *entry = (0, now);
        }
        entry.0 += 1;
    }

    /// A right secret ends the count.
    pub(crate) fn succeeded(&self, kind: Secret, who: Who) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&(kind, who));
    }
}

fn shrink<K: Eq + Hash>(failures: &mut HashMap<K, (u32, Instant)>, now: Instant) {
    failures.retain(|_, (_, since)| now.saturating_duration_since(*since) < WINDOW);
    if failures.len() >= MAX_KEPT {
        // Many origins at once: a fresh start keeps memory bounded; 256-bit secrets are not guessed anyway.
        failures.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Who = Who::Address(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    #[test]
    fn bursts_pass_and_the_rate_holds() {
        let limits = RequestLimits::new(10);
        let start = Instant::now();
        let burst = (0..100).filter(|_| limits.take(WHO, start).is_ok()).count();
        assert_eq!(burst, 40);
        let wait = limits.take(WHO, start).unwrap_err();
        assert!(wait <= Duration::from_millis(100));
        assert!(limits.take(WHO, start + Duration::from_millis(101)).is_ok());
    }

    #[test]
    fn kinds_and_origins_are_counted_apart() {
        let limits = AuthLimits::default();
        let now = Instant::now();
        for _ in 0..MAX_FAILURES {
            assert!(limits.blocked(Secret::Shared, WHO, now).is_none());
            limits.failed(Secret::Shared, WHO, now);
        }
        assert!(limits.blocked(Secret::Shared, WHO, now).is_some());
        assert!(limits.blocked(Secret::Device, WHO, now).is_none());
        assert!(limits.blocked(Secret::Shared, Who::Device(DeviceId([1; 32])), now).is_none());
        assert!(limits.blocked(Secret::Shared, WHO, now + WINDOW).is_none(), "time heals");
        limits.succeeded(Secret::Shared, WHO);
        assert!(limits.blocked(Secret::Shared, WHO, now).is_none());
    }
}
