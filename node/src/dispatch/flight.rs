//! Requests that are being worked on.

use hearth_shared::limits::MAX_IN_FLIGHT;
use hearth_shared::reading::RequestId;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long, and how many.
const EARLY: Duration = Duration::from_secs(10);
const MAX_EARLY: usize = MAX_IN_FLIGHT;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    list: Vec<Entry>,
    /// Withdrawn before their call got to run: a link reads frames faster than tasks begin.
    early: VecDeque<(RequestId, Instant)>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    request: RequestId,
    effect: bool,
    cancel: CancellationToken,
    done: CancellationToken,
}

/// What [`Flights::enter`] found.
#[derive(Debug)]
pub(super) enum Entered<'a> {
    /// The caller works on it.
    Flight(Flight<'a>),
    /// Somebody else does; the token is cancelled when he is through.
    Running(CancellationToken),
    /// Too many at once.
    Full,
}

/// One of them; dropping it ends it.
#[derive(Debug)]
pub(super) struct Flight<'a> {
    flights: &'a Flights,
    number: u64,
    /// Cancelled when the request is withdrawn or the node stops.
    pub(super) cancel: CancellationToken,
}

impl Flights {
    /// Enters a request. One with effects is worked on once at a time; looking twice does no harm.
    pub(super) fn enter(
        &self,
        request: RequestId,
        effect: bool,
        shutdown: &CancellationToken,
    ) -> Entered<'_> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if effect && let Some(entry) = state.list.iter().find(|e| e.effect && e.request == request) {
            return Entered::Running(entry.done.clone());
        }
        if state.list.len() >= MAX_IN_FLIGHT {
            return Entered::Full;
        }
        let number = state.next;
        state.next += 1;
        let cancel = shutdown.child_token();
        if let Some(at) = state.early.iter().position(|(early, _)| *early == request)
            && state.early.remove(at).is_some_and(|(_, since)| since.elapsed() < EARLY)
        {
            cancel.cancel();
        }
        let done = CancellationToken::new();
        state.list.push(Entry { number, request, effect, cancel: cancel.clone(), done });
        Entered::Flight(Flight { flights: self, number, cancel })
    }

    /// Withdraws a request; false when nobody works on it.
    pub(super) fn cancel(&self, request: &RequestId) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = false;
        for entry in state.list.iter().filter(|e| e.request == *request) {
            entry.cancel.cancel();
            found = true;
        }
        found
    }

    /// Remembers for a moment a request that was withdrawn before its call began.
    pub(super) fn withdrawn_early(&self, request: RequestId) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.early.len() >= MAX_EARLY {
            state.early.pop_front();
        }
        state.early.push_back((request, Instant::now()));
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = state.list.iter().position(|e| e.number == self.number) {
            state.list.swap_remove(at).done.cancel();
        }
    }
}
