//! Requests from the hub: guard, board, journal, receipt.
//!
//! ```text
//! Invoke ─► parse ─► known? ─► prepare ─► rules ─┬─ allow ─► started on disk ─► run ─► finished on disk ─► Result
//!                                                └─ ask ──► Result(ApprovalRequired)
//! AskChallenge ─► parse ─► known? ─► prepare ─► rules ─► Challenge
//! Grant ─► challenge open, signer ─► prepare again, same facts ─► started on disk ─► run ─► …
//! ```
//!
//! Every path ends in a signed result. The work runs in tasks of its own: when the link dies, a request
//! goes on and its result waits in the journal for the hub to ask again.

mod bounds;
mod flight;
mod runs;

pub use runs::Runs;

use crate::capability::{Board, Bytes, Prepared};
use crate::guard::Guard;
use crate::guard::request::{Authority, Recall, Ruling, fingerprint};
use bounds::{bounded, shorten, time_limit};
use flight::{Entered, Flight, Flights};
use hearth_shared::chain::Head;
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::command::{Class, Invocation, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::Digest;
use hearth_shared::link::{Invoke, Outcome, ResultFrame};
use hearth_shared::reading::RequestId;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// Longest look at the board before a request is decided (a slow bus, a large executable to hash).
const PREPARE_TIMEOUT: Duration = Duration::from_secs(20);
/// What the board may take beyond a command's own time limit to stop it.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// A finished request, ready to be sent.
#[derive(Debug)]
pub struct Reply {
    /// The signed result.
    pub frame: ResultFrame,
    /// Attachments to send before it.
    pub attachments: Vec<Bytes>,
}

/// Runs requests. Cheap to clone; owns nothing that the link's end would stop.
#[derive(Debug)]
pub struct Dispatcher<B = Board> {
    inner: Arc<Inner<B>>,
}

impl<B> Clone for Dispatcher<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<B> {
    guard: Arc<Guard>,
    board: Arc<B>,
    flights: Flights,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// How a request ended, before it is signed.
#[derive(Debug)]
struct Ended {
    outcome: Outcome,
    attachments: Vec<Bytes>,
    /// The head that covers it; the present one when it left no record.
    head: Option<Head>,
}

impl From<CommandError> for Ended {
    fn from(error: CommandError) -> Self {
        Self { outcome: Outcome::Failed(error), attachments: Vec::new(), head: None }
    }
}

/// A command that may be looked up, judged and run.
#[derive(Debug)]
struct Known {
    invocation: Invocation,
    fingerprint: Digest,
}

impl<B: Runs> Dispatcher<B> {
    /// Puts the parts together.
    #[must_use]
    pub fn new(guard: Arc<Guard>, board: Arc<B>) -> Self {
        let inner = Inner {
            guard,
            board,
            flights: Flights::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// `Invoke`: runs it, or says that a person must decide. The work goes on when this future is
    /// dropped; a second call with the same request waits for the same run.
    pub async fn invoke(&self, invoke: Invoke) -> Reply {
        let request = invoke.request;
        self.detached(request, move |inner| async move { inner.invoke(invoke).await }).await
    }

    /// `AskChallenge`: a fresh challenge, or the result that refuses.
    ///
    /// # Errors
    /// The reply to send instead of a challenge.
    pub async fn ask_challenge(&self, invoke: Invoke) -> Result<SignedChallenge, Box<Reply>> {
        let request = invoke.request;
        match self.inner.ask_challenge(invoke).await {
            Ok(challenge) => Ok(challenge),
            Err(ended) => Err(Box::new(self.inner.reply(request, *ended))),
        }
    }

    /// `Grant`: checks it and runs (or refuses) the request. The work goes on when this future is dropped.
    pub async fn grant(&self, request: RequestId, grant: Grant) -> Reply {
        self.detached(request, move |inner| async move { inner.grant(request, grant).await }).await
    }

    /// `Cancel`: stops a running request and voids an open challenge; the request's `invoke` or `grant`
    /// call returns the outcome.
    pub fn cancel(&self, request: &RequestId) {
        let running = self.inner.flights.cancel(request);
        let open = self.inner.guard.withdraw(request);
        if !running && !open {
            self.inner.flights.withdrawn_early(*request);
        }
        if open {
            let (guard, request) = (Arc::clone(&self.inner.guard), *request);
            self.inner.tasks.spawn_blocking(move || {
                if let Err(error) =
                    guard.audit("challenge.withdrawn", serde_json::json!({ "request": request }))
                {
                    tracing::error!(%error, "the audit log cannot be written");
                }
            });
        }
    }

    /// Stops what runs and waits until every result is in the journal, at most `patience`. New requests
    /// are answered with `CANCELLED`.
    pub async fn shutdown(&self, patience: Duration) {
        self.inner.shutdown.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(patience, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!(
                tasks = self.inner.tasks.len(),
                "requests still run at the end; their outcome is unknown"
            );
        }
    }

    async fn detached<F>(&self, request: RequestId, work: impl FnOnce(Arc<Inner<B>>) -> F) -> Reply
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        // The caller's span holds the correlation id, and its task may be gone before this one.
        let work = work(Arc::clone(&self.inner)).in_current_span();
        let ended = self.inner.tasks.spawn(work).await.unwrap_or_else(|error| {
            tracing::error!(%error, %request, "a request's task failed");
            CommandError::new(ErrorCode::Internal, "a fault in the node; its log has more").into()
        });
        self.inner.reply(request, ended)
    }
}

impl<B: Runs> Inner<B> {
    async fn invoke(self: Arc<Self>, invoke: Invoke) -> Ended {
        let known = match self.recognise(&invoke) {
            Ok(known) => known,
            Err(error) => return error.into(),
        };
        self.guard.heard(invoke.head);
        let effect = known.invocation.class() != Class::Observe;
        let flight = match self.enter(invoke.request, effect, Some(known.fingerprint)).await {
            Ok(flight) => flight,
            Err(ended) => return *ended,
        };
        if effect && let Some(ended) = self.recall(invoke.request, Some(known.fingerprint)).await {
            return ended;
        }
        let prepared = match self.prepare(known.invocation, &flight).await {
            Ok(prepared) => prepared,
            Err(error) => return error.into(),
        };
        let guard = Arc::clone(&self.guard);
        let raise = invoke.raise;
        let ruled = blocking(move || {
            let ruling = guard.rule(&prepared.invocation, raise, &prepared);
            (ruling, prepared)
        });
        match ruled.await {
            Ok((Ok(Ruling::Run(authority)), prepared)) => {
                self.run(invoke, known.fingerprint, prepared, authority, flight).await
            }
            Ok((Ok(Ruling::Ask { need, rule }), prepared)) => {
                // What observes is journalled only when somebody decided on it.
                if !effect && let Some(ended) = self.recall(invoke.request, Some(known.fingerprint)).await {
                    return ended;
                }
                let class = prepared.invocation.class();
                tracing::info!(need = need.as_str(), "needs a yes");
                let note = serde_json::json!({ "need": need, "rule": rule });
                let head = self.note("request.asked", invoke, note).await;
                let outcome = Outcome::ApprovalRequired { need, class, rule };
                Ended { outcome, attachments: Vec::new(), head }
            }
            Ok((Err(error), _)) => self.refused(invoke, error, effect).await,
            Err(error) => error.into(),
        }
    }

    async fn ask_challenge(self: &Arc<Self>, invoke: Invoke) -> Result<SignedChallenge, Box<Ended>> {
        let boxed = |error: CommandError| Box::new(Ended::from(error));
        let known = self.recognise(&invoke).map_err(boxed)?;
        let flight = self.enter(invoke.request, true, Some(known.fingerprint)).await?;
        if let Some(ended) = self.recall(invoke.request, Some(known.fingerprint)).await {
            return Err(Box::new(ended));
        }
        let prepared = self.prepare(known.invocation, &flight).await.map_err(boxed)?;
        let guard = Arc::clone(&self.guard);
        let asked = invoke.clone();
        let issued = blocking(move || {
            // Rules first, so that what is denied or can be granted by nobody is never shown.
            guard.rule(&prepared.invocation, asked.raise.max(Need::Hub), &prepared)?;
            guard.issue(asked, known.fingerprint, prepared)
        });
        match issued.await.and_then(|issued| issued) {
            Ok(challenge) if flight.cancel.is_cancelled() => {
                drop(challenge);
                self.guard.withdraw(&invoke.request);
                Err(boxed(cancelled()))
            }
            Ok(challenge) => Ok(challenge),
            Err(error) => Err(Box::new(self.refused(invoke, error, true).await)),
        }
    }

    async fn grant(self: Arc<Self>, request: RequestId, grant: Grant) -> Ended {
        let flight = match self.enter(request, true, None).await {
            Ok(flight) => flight,
            Err(ended) => return *ended,
        };
        if let Some(ended) = self.recall(request, None).await {
            return ended;
        }
        let guard = Arc::clone(&self.guard);
        let presented = grant.clone();
        let claimed = blocking(move || {
            let open = guard.claim(&request, &presented)?;
            let denied = (presented.decision == Decision::Deny).then(|| guard.deny(&open, &presented));
            Ok((open, denied))
        });
        let (open, denied) = match claimed.await.and_then(|claimed| claimed) {
            Ok(claimed) => claimed,
            Err(error) => return error.into(),
        };
        tracing::Span::current()
            .record("correlation", tracing::field::display(&open.invoke.correlation))
            .record("command", open.invocation.name());
        if let Some((outcome, head)) = denied {
            tracing::info!("denied");
            return Ended { outcome, attachments: Vec::new(), head: Some(head) };
        }
        let prepared = match self.prepare(open.invocation.clone(), &flight).await {
            Ok(prepared) => prepared,
            Err(error) => {
                // The challenge is used up: the log says what became of the grant.
                let (guard, why) = (Arc::clone(&self.guard), error.to_string());
                return match blocking(move || guard.refuse_grant(&request, &grant, &why)).await {
                    Ok(_) => error.into(),
                    Err(fault) => fault.into(),
                };
            }
        };
        let guard = Arc::clone(&self.guard);
        let checked = blocking(move || {
            guard.same_facts(&open, &grant, &prepared)?;
            let remember = (grant.decision == Decision::AllowAlways)
                .then(|| open.challenge.always.clone().map(Box::new))
                .flatten();
            let need = open.challenge.need;
            Ok((open, prepared, Authority::Grant { grant: Box::new(grant), need, remember }))
        });
        match checked.await.and_then(|checked| checked) {
            Ok((open, prepared, authority)) => {
                self.run(open.invoke, open.fingerprint, prepared, authority, flight).await
            }
            Err(error) => error.into(),
        }
    }

    /// Parses the command and makes sure that this board has it. A picture from "the first camera" is
    /// one from the camera that is first now, so that rules and cards name it.
    fn recognise(&self, invoke: &Invoke) -> Result<Known, CommandError> {
        let mut invocation = Invocation::parse(&invoke.command, &invoke.params)?;
        let inventory = self.board.inventory();
        if !inventory.commands.contains(&invocation.name()) {
            return Err(CommandError::new(
                ErrorCode::UnknownCommand,
                format!("this board has no `{}`; see `hearth-node status`", invocation.name()),
            ));
        }
        let fingerprint = fingerprint(&invocation);
        if let Invocation::CameraSnap(snap) = &mut invocation
            && snap.device_id.is_none()
        {
            snap.device_id = inventory.cameras.first().map(|camera| camera.id.clone());
        }
        Ok(Known { invocation, fingerprint })
    }

    /// Registers the request as being worked on. One with effects that is worked on already is waited
    /// for, and its stored outcome given.
    async fn enter(
        &self,
        request: RequestId,
        effect: bool,
        fingerprint: Option<Digest>,
    ) -> Result<Flight<'_>, Box<Ended>> {
        loop {
            if self.shutdown.is_cancelled() {
                let error =
                    CommandError::new(ErrorCode::Cancelled, "the node stops; ask again when it is back");
                return Err(Box::new(error.into()));
            }
            match self.flights.enter(request, effect, &self.shutdown) {
                Entered::Flight(flight) => return Ok(flight),
                Entered::Full => {
                    let error = CommandError::new(ErrorCode::Busy, "too many requests at once on this node");
                    return Err(Box::new(error.into()));
                }
                Entered::Running(done) => {
                    done.cancelled().await;
                    if let Some(ended) = self.recall(request, fingerprint).await {
                        return Err(Box::new(ended));
                    }
                    // It ended without an effect (refused, asked for): this call tries by itself.
                }
            }
        }
    }

    /// The stored outcome of a request that was here before.
    async fn recall(&self, request: RequestId, fingerprint: Option<Digest>) -> Option<Ended> {
        let guard = Arc::clone(&self.guard);
        let recalled = blocking(move || guard.recall(&request, fingerprint.as_ref())).await;
        match recalled.and_then(|recalled| recalled) {
            Ok(Recall::New) => None,
            Ok(Recall::Finished(outcome, attachments)) => Some(Ended { outcome, attachments, head: None }),
            Err(error) => Some(error.into()),
        }
    }

    async fn prepare(&self, invocation: Invocation, flight: &Flight<'_>) -> Result<Prepared, CommandError> {
        let prepared = tokio::time::timeout(PREPARE_TIMEOUT, self.board.prepare(invocation));
        tokio::select! {
            biased;
            () = flight.cancel.cancelled() => Err(cancelled()),
            prepared = prepared => prepared.map_err(|_| {
                let limit = PREPARE_TIMEOUT.as_secs();
                CommandError::new(ErrorCode::Timeout, format!("the board did not answer within {limit} s; nothing was done"))
            })?,
        }
    }

    /// Starts, runs and finishes a request that may run.
    async fn run(
        &self,
        invoke: Invoke,
        fingerprint: Digest,
        prepared: Prepared,
        authority: Authority,
        flight: Flight<'_>,
    ) -> Ended {
        if flight.cancel.is_cancelled() {
            return cancelled().into();
        }
        let request = invoke.request;
        let observes = prepared.invocation.class() == Class::Observe;
        let effect = !observes || matches!(authority, Authority::Grant { .. });
        let timeout = time_limit(invoke.timeout_ms);
        let mut prepared = prepared;
        if effect {
            let guard = Arc::clone(&self.guard);
            let begun = blocking(move || {
                let begun = guard.begin(&invoke, fingerprint, &prepared.invocation, &authority);
                if let (Err(error), Authority::Grant { grant, .. }) = (&begun, &authority) {
                    guard.refuse_grant(&invoke.request, grant, &error.message);
                }
                begun.map(|()| prepared)
            });
            prepared = match begun.await.and_then(|begun| begun) {
                Ok(prepared) => prepared,
                Err(error) => return error.into(),
            };
        }
        let started = Instant::now();
        tracing::debug!("runs");
        let run = self.board.run(prepared, timeout, flight.cancel.clone());
        let result = tokio::time::timeout(timeout + STOP_GRACE, run).await.unwrap_or_else(|_| {
            let code = if observes { ErrorCode::Timeout } else { ErrorCode::OutcomeUnknown };
            let seconds = timeout.as_secs();
            Err(CommandError::new(
                code,
                format!("the board neither ended within {seconds} s nor stopped after that"),
            ))
        });
        let (outcome, attachments) = bounded(result);
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &outcome {
            Outcome::Failed(error) => tracing::warn!(code = ?error.code, elapsed_ms, "failed"),
            _ if effect => tracing::info!(elapsed_ms, "done"),
            // Readings are asked for all day long.
            _ => tracing::debug!(elapsed_ms, "done"),
        }
        if !effect {
            return Ended { outcome, attachments, head: None };
        }
        let guard = Arc::clone(&self.guard);
        let finished = blocking(move || {
            let head = guard.finish(&request, &outcome, &attachments, elapsed_ms);
            Ended { outcome, attachments, head: Some(head) }
        });
        finished.await.unwrap_or_else(Ended::from)
    }

    /// Notes a refusal of a request with effects and makes it the outcome.
    async fn refused(&self, invoke: Invoke, error: CommandError, effect: bool) -> Ended {
        tracing::info!(code = ?error.code, "refused");
        let mut ended = Ended::from(error.clone());
        if effect {
            let why = serde_json::json!({ "code": error.code, "message": error.message });
            ended.head = self.note("request.refused", invoke, why).await;
        }
        ended
    }

    async fn note(&self, kind: &'static str, invoke: Invoke, why: serde_json::Value) -> Option<Head> {
        let guard = Arc::clone(&self.guard);
        blocking(move || guard.note(kind, &invoke, &why)).await.ok()
    }

    fn reply(&self, request: RequestId, ended: Ended) -> Reply {
        let Ended { mut outcome, attachments, head } = ended;
        if let Outcome::Failed(error) = &mut outcome {
            shorten(&mut error.message);
        }
        let count = u32::try_from(attachments.len()).unwrap_or(u32::MAX);
        let head = head.unwrap_or_else(|| self.guard.head());
        Reply { frame: self.guard.receipt(request, outcome, count, head), attachments }
    }
}

fn cancelled() -> CommandError {
    CommandError::new(ErrorCode::Cancelled, "withdrawn before it started; nothing was done")
}

/// Runs what syncs the disk beside the runtime's only thread, which has heartbeats to answer.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CommandError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a step of a request failed");
        CommandError::new(ErrorCode::Internal, "a fault in the node; its log has more")
    })
}

#[cfg(test)]
mod tests;
