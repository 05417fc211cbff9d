//! Runs: a message is answered by intents or by a model with tools. Durable: see the states.

pub mod intents;

use crate::actions::Actions;
use crate::bus::Bus;
use crate::config::Config;
use crate::hub::Tasks;
use crate::nodes::Nodes;
use crate::sessions::Sessions;
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// In its lane.
    Queued,
    /// Understanding, or the model is speaking.
    Thinking,
    /// A tool runs.
    Acting,
    /// A person must decide.
    WaitingApproval,
    /// A node is away.
    WaitingDevice,
    /// Answered.
    Done,
    /// Ended with an error that was told.
    Failed,
    /// Stopped by a person.
    Stopped,
}

/// A run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Equals the message's idempotency key.
    pub run_id: String,
    /// Session.
    pub session_key: String,
    /// State.
    pub state: RunState,
    /// Unix milliseconds.
    pub started_ms: u64,
    /// Unix milliseconds.
    pub ended_ms: Option<u64>,
    /// The reply, when done.
    pub reply: Option<String>,
    /// Media ids and paths in the reply.
    pub media: Vec<crate::nodes::Media>,
    /// The error, when failed.
    pub error: Option<String>,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent {}

impl Agent {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        _store: Store,
        _bus: Bus,
        _config: Arc<Config>,
        _nodes: Nodes,
        _actions: Actions,
        _sessions: Sessions,
        _tasks: Tasks,
    ) -> Self {
        todo!()
    }

    /// After a start: takes up unfinished runs.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resume(&self) -> Result<(), StoreError> {
        todo!()
    }

    /// A run by id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn run(&self, _run_id: &str) -> Result<Option<Run>, StoreError> {
        todo!()
    }

    /// Waits for its end at most this long; `None` when it is still going on (or unknown).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn wait(&self, _run_id: &str, _at_most: Duration) -> Result<Option<Run>, StoreError> {
        todo!()
    }

    /// Stops the runs of a session, or one; returns their ids.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn abort(&self, _session_key: &str, _run_id: Option<&str>) -> Result<Vec<String>, StoreError> {
        todo!()
    }
}
