//! Requests from the hub: guard, board, journal, receipt.

use crate::capability::{Board, Bytes};
use crate::guard::Guard;
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::grant::Grant;
use hearth_shared::link::{Invoke, ResultFrame};
use hearth_shared::reading::RequestId;
use std::sync::Arc;

/// A finished request, ready to be sent.
#[derive(Debug)]
pub struct Reply {
    /// The signed result.
    pub frame: ResultFrame,
    /// Attachments to send before it.
    pub attachments: Vec<Bytes>,
}

/// Runs requests. Cheap to clone; owns nothing that the link's end would stop.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    _guard: Arc<Guard>,
    _board: Arc<Board>,
}

impl Dispatcher {
    /// Puts the parts together.
    #[must_use]
    pub fn new(guard: Arc<Guard>, board: Arc<Board>) -> Self {
        Self { _guard: guard, _board: board }
    }

    /// `Invoke`: runs it, or says that a person must decide.
    pub async fn invoke(&self, _invoke: Invoke) -> Reply {
        todo!()
    }

    /// `AskChallenge`: a fresh challenge, or the result that refuses.
    ///
    /// # Errors
    /// The reply to send instead of a challenge.
    pub async fn ask_challenge(&self, _invoke: Invoke) -> Result<SignedChallenge, Box<Reply>> {
        todo!()
    }

    /// `Grant`: checks it and runs (or refuses) the request.
    pub async fn grant(&self, _request: RequestId, _grant: Grant) -> Reply {
        todo!()
    }

    /// `Cancel`: stops a running request; its `invoke` or `grant` call returns the outcome.
    pub fn cancel(&self, _request: &RequestId) {
        todo!()
    }
}
