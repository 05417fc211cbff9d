//! How a channel stands: shared by its tasks, shown to people.

use super::adapter::ChannelError;
use crate::store::now_ms;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a channel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not tried yet.
    Starting,
    /// The platform answers.
    Up,
    /// It does not, or refuses.
    Down,
}

impl State {
    /// As written in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// What is known of a channel's health.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Now.
    pub state: State,
    /// Unix milliseconds: since when.
    pub since_ms: u64,
    /// Why it is down, or what went wrong with sending last.
    pub error: Option<String>,
    /// Unix milliseconds of the last message or press.
    pub received_ms: Option<u64>,
    /// Unix milliseconds of the last message that was sent.
    pub sent_ms: Option<u64>,
}

/// Shared by the tasks of a channel.
#[derive(Debug)]
pub(crate) struct Health {
    channel: &'static str,
    condition: Mutex<Condition>,
}

impl Health {
    pub(super) fn new(channel: &'static str, state: State) -> Self {
        let condition =
            Condition { state, since_ms: now_ms(), error: None, received_ms: None, sent_ms: None };
        Self { channel, condition: Mutex::new(condition) }
    }

    fn lock(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn up(&self) {
        let mut condition = self.lock();
        if condition.state != State::Up {
            tracing::info!(channel = self.channel, "the channel is up");
            (condition.state, condition.since_ms, condition.error) = (State::Up, now_ms(), None);
        }
    }

    pub(super) fn down(&self, error: &ChannelError) {
        let mut condition = self.lock();
        let error = Some(error.to_string());
        if condition.state != State::Down || condition.error != error {
            tracing::warn!(channel = self.channel, error, "the channel is down");
            condition.since_ms = now_ms();
        }
        (condition.state, condition.error) = (State::Down, error);
    }

    pub(super) fn received(&self) {
        self.lock().received_ms = Some(now_ms());
    }

    pub(super) fn sent(&self) {
        let mut condition = self.lock();
        condition.sent_ms = Some(now_ms());
        if condition.state == State::Up {
            condition.error = None;
        }
    }

    pub(super) fn failed_to_send(&self, why: &str) {
        self.lock().error = Some(why.to_owned());
    }

    /// As it is now.
    pub(super) fn now(&self) -> Condition {
        self.lock().clone()
    }
}
