//! The door: sizes and rates. Duplicates are found by the run with the message's id.

use super::RouteError;
use crate::channels::Inbound;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Longest message in bytes.
pub const MAX_TEXT: usize = 32 * 1024;
/// Longest message id.
const MAX_ID: usize = 200;
/// Messages a sender may send at once, and how many a second come back.
const BURST: f64 = 30.0;
const PER_SECOND: f64 = 1.0;
/// Senders that are remembered; beyond it those with a full bucket are forgotten.
const MAX_SENDERS: usize = 1_000;

/// Shapes and sizes.
pub(super) fn check(message: &Inbound) -> Result<(), RouteError> {
    let refuse = |why: String| Err(RouteError::Refused(why));
    if message.text.trim().is_empty() && message.attachments.is_empty() {
        return refuse("the message is empty".into());
    }
    if message.text.len() > MAX_TEXT {
        return refuse(format!("the message has {} bytes, the limit is {MAX_TEXT}", message.text.len()));
    }
    let id = &message.message_id;
    if id.is_empty() || id.len() > MAX_ID || id.chars().any(char::is_control) {
        return refuse(format!("the message id must have 1 to {MAX_ID} bytes without control characters"));
    }
    if message.sender.len() > MAX_ID || message.channel.len() > MAX_ID {
        return refuse(format!("sender and channel must have at most {MAX_ID} bytes"));
    }
    Ok(())
}

/// One bucket a sender.
#[derive(Debug, Default)]
pub(super) struct Door {
    buckets: Mutex<HashMap<(String, String), Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        self.left = (self.left + now.duration_since(self.at).as_secs_f64() * PER_SECOND).min(BURST);
        self.at = now;
    }
}

impl Door {
    /// Counts a message of a sender.
    pub(super) fn admit(&self, message: &Inbound) -> Result<(), RouteError> {
        self.admit_at(&message.channel, &message.sender, Instant::now())
    }

    fn admit_at(&self, channel: &str, sender: &str, now: Instant) -> Result<(), RouteError> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_SENDERS {
            buckets.retain(|_, b| {
                b.refill(now);
                b.left < BURST
            });
        }
        if buckets.len() >= MAX_SENDERS {
            return Err(RouteError::Busy("too many people write at once; try again in a minute".into()));
        }
        let bucket =
            buckets.entry((channel.to_owned(), sender.to_owned())).or_insert(Bucket { left: BURST, at: now });
        bucket.refill(now);
        if bucket.left < 1.0 {
            return Err(RouteError::Busy(format!(
                "too many messages: at most {BURST} at once and {PER_SECOND} a second; wait a moment"
            )));
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_sender_is_slowed_and_others_are_not() {
        let door = Door::default();
        let now = Instant::now();
        for _ in 0..30 {
            door.admit_at("t", "a", now).unwrap();
        }
        assert!(door.admit_at("t", "a", now).is_err());
        door.admit_at("t", "b", now).unwrap();
        door.admit_at("t", "a", now + Duration::from_secs(2)).unwrap();
    }

    #[test]
    fn the_list_of_senders_is_bounded() {
        let door = Door::default();
        let now = Instant::now();
        for i in 0..MAX_SENDERS {
            door.admit_at("t", &i.to_string(), now).unwrap();
        }
        assert!(door.admit_at("t", "one more", now).is_err());
        door.admit_at("t", "one more", now + Duration::from_secs(5)).unwrap();
    }
}
