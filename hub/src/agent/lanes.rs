//! Lanes: one run at a time in a session, first come first served; sessions side by side, up to a limit.
//!
//! A run that waits for a person or a device gives its place back, so that "how warm is it?" is answered
//! while a picture waits for a yes; when it goes on, it queues again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Messages that may wait in one session.
pub(super) const MAX_WAITING: usize = 32;

#[derive(Debug)]
pub(super) struct Lanes {
    // A key is here while its lane is taken; the queue holds who is next.
    lanes: Mutex<HashMap<String, VecDeque<oneshot::Sender<Turn>>>>,
    all: Arc<Semaphore>,
}

/// A place in the queue of a lane. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct Ticket {
    lanes: Arc<Lanes>,
    turn: oneshot::Receiver<Turn>,
}

/// The lane is ours until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    lanes: Arc<Lanes>,
    key: String,
}

/// The lane and one of the places of the global limit.
#[derive(Debug)]
pub(super) struct Permit {
    _turn: Turn,
    _place: Option<OwnedSemaphorePermit>,
}

impl Lanes {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { lanes: Mutex::default(), all: Arc::new(Semaphore::new(limit.clamp(1, 1024))) })
    }

    /// Queues; the order of these calls is the order of the runs. `None` when too many wait already.
    pub(super) fn queue(self: &Arc<Self>, key: &str, limit: usize) -> Option<Ticket> {
        let (give, turn) = oneshot::channel();
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        match lanes.get_mut(key) {
            Some(waiting) if waiting.len() >= limit => return None,
            Some(waiting) => waiting.push_back(give),
            None => {
                lanes.insert(key.to_owned(), VecDeque::new());
                // The receiver is in our hands: this cannot fail.
                let _ = give.send(Turn { lanes: self.clone(), key: key.to_owned() });
            }
        }
        drop(lanes);
        Some(Ticket { lanes: self.clone(), turn })
    }
}

impl Ticket {
    /// Waits for its turn. Cancelling gives the place up.
    pub(super) async fn wait(self) -> Option<Permit> {
        let turn = self.turn.await.ok()?;
        // Only the first of a lane waits for the global limit, so that a full session blocks no other.
        let place = self.lanes.all.clone().acquire_owned().await.ok();
        Some(Permit { _turn: turn, _place: place })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut lanes = self.lanes.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            let next = lanes.get_mut(&self.key).and_then(VecDeque::pop_front);
            if next.is_none() {
                lanes.remove(&self.key);
            }
            next
        };
        if let Some(next) = next {
            // Whoever gave up drops the turn it is sent, and so passes it on. Outside the lock: that
            // drop comes back here.
            let _ = next.send(Turn { lanes: self.lanes.clone(), key: std::mem::take(&mut self.key) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn soon<T>(f: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(30), f).await.ok()
    }

    #[tokio::test]
    async fn one_at_a_time_in_order_and_sessions_in_parallel() {
        let lanes = Lanes::new(8);
        let [first, second, third] = [0, 1, 2].map(|_| lanes.queue("a", 8).unwrap());
        let other = lanes.queue("b", 8).unwrap();
        let permit = first.wait().await.unwrap();
        assert!(soon(other.wait()).await.is_some(), "another session runs");
        // The second gives up; the third still waits for the first.
        drop(second);
        let mut third = Box::pin(third.wait());
        assert!(soon(&mut third).await.is_none());
        drop(permit);
        assert!(soon(third).await.is_some());
        assert!(lanes.lanes.lock().unwrap().is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn the_limits_hold() {
        let lanes = Lanes::new(1);
        let permit = lanes.queue("a", 1).unwrap().wait().await.unwrap();
        let mut b = Box::pin(lanes.queue("b", 1).unwrap().wait());
        assert!(soon(&mut b).await.is_none(), "one run in all");
        let waiting = lanes.queue("a", 1);
        assert!(waiting.is_some() && lanes.queue("a", 1).is_none(), "one waits in a session");
        drop(permit);
        assert!(soon(b).await.is_some());
    }
}
