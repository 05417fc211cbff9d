//! From a message to a run: the door (duplicates, access), session keys, one lane a session.

pub mod keys;

use crate::agent::Agent;
use crate::channels::Inbound;
use crate::sessions::Sessions;
use crate::store::{Store, StoreError};

/// Why a message is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too long, empty, or over the rate.
    #[error("{0}")]
    Refused(String),
}

/// A message that was taken.
#[derive(Debug, Clone)]
pub struct Routed {
    /// The run: the message's idempotency key.
    pub run_id: String,
    /// Long form.
    pub session_key: String,
    /// `started`, `in_flight` or `ok`: what the same message found.
    pub status: &'static str,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Router {}

impl Router {
    /// Puts the parts together.
    #[must_use]
    pub fn new(_store: Store, _sessions: Sessions, _agent: Agent) -> Self {
        todo!()
    }

    /// Takes a message. It is on disk when this returns.
    ///
    /// # Errors
    /// [`RouteError`].
    pub async fn deliver(&self, _message: Inbound) -> Result<Routed, RouteError> {
        todo!()
    }

    /// `main` becomes `agent:main:main`; long forms stay.
    #[must_use]
    pub fn session_key(_text: &str) -> String {
        todo!()
    }
}
