//! The link to the hub: connect, prove, serve, reconnect.
//!
//! | module | what it settles |
//! | --- | --- |
//! | [`state`] | pure: how long to wait after which end |
//! | [`socket`] | TCP, TLS with the pinned key, WebSocket |
//! | [`handshake`] | hello, proof, welcome |
//! | [`pairing`] | the first handshake, by code or by words |
//! | [`outgoing`] | pure: which frame goes next, transfers, credit |
//! | [`session`] | an admitted connection until it ends |
//!
//! Requests run in tasks of their own that outlive a connection: what finishes after the link died is in
//! the journal, and the hub asks again by request id.

pub mod handshake;
pub mod outgoing;
pub mod pairing;
pub mod session;
pub mod socket;
pub mod state;

use crate::capability::Board;
use crate::dispatch::{Dispatcher, Reply};
use crate::guard::Guard;
use crate::identity::{Clock, HubRecord};
use crate::outbox::Outbox;
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::chain::Head;
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::grant::Grant;
use hearth_shared::identity::SecretKey;
use hearth_shared::limits::MAX_IN_FLIGHT;
use hearth_shared::link::{Declaration, Invoke, Knock};
use hearth_shared::reading::RequestId;
use serde::Serialize;
use state::{End, Machine};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A boxed future: the seam below must be an object, so that the link is compiled once.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The node behind the link. [`Node`] is the real one; tests have their own.
pub trait Local: Send + Sync + std::fmt::Debug {
    /// What it can do now.
    fn declaration(&self) -> Declaration;
    /// Its approvers.
    fn approvers(&self) -> ApproverSet;
    /// Applies a signed change.
    ///
    /// # Errors
    /// One line for people.
    fn change_approvers(&self, change: &ApproversChange) -> Result<ApproverSet, String>;
    /// Head of its audit log.
    fn head(&self) -> Head;
    /// Newest head of the hub's audit log that it holds.
    fn hub_head(&self) -> Head;
    /// The hub proved itself and told the head of its log.
    fn welcomed(&self, hub_head: Head) -> Pending<'_, ()>;
    /// See [`Dispatcher::invoke`].
    fn invoke(&self, invoke: Invoke) -> Pending<'_, Reply>;
    /// See [`Dispatcher::ask_challenge`].
    fn ask_challenge(&self, invoke: Invoke) -> Pending<'_, Result<SignedChallenge, Box<Reply>>>;
    /// See [`Dispatcher::grant`].
    fn grant(&self, request: RequestId, grant: Grant) -> Pending<'_, Reply>;
    /// See [`Dispatcher::cancel`].
    fn cancel(&self, request: &RequestId);
}

/// Guard, board and dispatcher of a running node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Rules, approvers, audit.
    pub guard: Arc<Guard>,
    /// Cameras, pins, sensors.
    pub board: Arc<Board>,
    /// Requests.
    pub dispatcher: Dispatcher,
}

impl Local for Node {
    fn declaration(&self) -> Declaration {
        self.guard.declaration(self.board.inventory())
    }
    fn approvers(&self) -> ApproverSet {
        self.guard.approvers()
    }
    fn change_approvers(&self, change: &ApproversChange) -> Result<ApproverSet, String> {
        self.guard.change_approvers(change).map_err(|e| e.to_string())
    }
    fn head(&self) -> Head {
        self.guard.head()
    }
    fn hub_head(&self) -> Head {
        self.guard.hub_head()
    }
    fn welcomed(&self, hub_head: Head) -> Pending<'_, ()> {
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || guard.welcomed(hub_head)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "the head of the hub's log cannot be kept"),
                Err(error) => tracing::error!(%error, "the head of the hub's log cannot be kept"),
            }
        })
    }
    fn invoke(&self, invoke: Invoke) -> Pending<'_, Reply> {
        Box::pin(self.dispatcher.invoke(invoke))
    }
    fn ask_challenge(&self, invoke: Invoke) -> Pending<'_, Result<SignedChallenge, Box<Reply>>> {
        Box::pin(self.dispatcher.ask_challenge(invoke))
    }
    fn grant(&self, request: RequestId, grant: Grant) -> Pending<'_, Reply> {
        Box::pin(self.dispatcher.grant(request, grant))
    }
    fn cancel(&self, request: &RequestId) {
        self.dispatcher.cancel(request);
    }
}

/// What every connection of this start shares.
#[derive(Debug, Clone)]
pub struct Context {
    /// The node's key.
    pub key: Arc<SecretKey>,
    /// Its clocks.
    pub clock: Clock,
    /// The node itself.
    pub local: Arc<dyn Local>,
    /// Its outbox.
    pub outbox: Outbox,
    /// Told when the declaration may have changed (a reload); it is compared at every heartbeat too.
    pub changed: Arc<Notify>,
    /// Running requests.
    pub tasks: TaskTracker,
    /// Room for [`MAX_IN_FLIGHT`] of them.
    pub room: Arc<Semaphore>,
    /// The node is going down: running requests are cancelled.
    pub stop: CancellationToken,
    /// Randomness of the reconnect delays; tests put their own here.
    pub jitter: fn() -> u64,
}

impl Context {
    /// A context without running requests.
    #[must_use]
    pub fn new(key: Arc<SecretKey>, clock: Clock, local: Arc<dyn Local>, outbox: Outbox) -> Self {
        Self {
            key,
            clock,
            local,
            outbox,
            changed: Arc::new(Notify::new()),
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            stop: CancellationToken::new(),
            // Without entropy the longest delay is the polite one.
            jitter: || hearth_shared::identity::random().map_or(u64::MAX, u64::from_be_bytes),
        }
    }
}

/// How the link is, for `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkStatus {
    /// `connecting`, `online` or `waiting`.
    pub state: &'static str,
    /// The address in use or tried last.
    pub address: Option<String>,
    /// For how long it has been in this state when it was asked.
    pub for_ms: u64,
    /// Why the last connection ended.
    pub last_error: Option<String>,
    /// What of the declaration the hub has approved.
    pub approved: Vec<String>,
    #[serde(skip)]
    since: Instant,
}

impl Default for LinkStatus {
    fn default() -> Self {
        let since = Instant::now();
        Self { state: "connecting", address: None, for_ms: 0, last_error: None, approved: Vec::new(), since }
    }
}

impl LinkStatus {
    /// A copy with `for_ms` up to date.
    #[must_use]
    pub fn now(&self) -> Self {
        let for_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Self { for_ms, ..self.clone() }
    }

    /// The link has ended for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == "stopped"
    }

    fn enter(&mut self, state: &'static str) {
        (self.state, self.since) = (state, Instant::now());
    }
}

/// Keeps the node connected until `context.stop`. Never gives up: what a hub refuses today (revoked,
/// restored from a backup) it may take tomorrow, and the node goes on recording meanwhile.
pub async fn keep(context: &Context, hub: &HubRecord, status: &watch::Sender<LinkStatus>) {
    let mut machine = Machine::new(hub.addresses.len());
    while !context.stop.is_cancelled() {
        let mut online = None;
        status.send_modify(|s| s.enter("connecting"));
        let end = tokio::select! {
            end = Box::pin(connect_once(context, hub, &mut machine, status, &mut online)) => end,
            // A session says goodbye by itself; this is for the time before it.
            () = stopped_while_connecting(context, status) => End::Stopped,
        };
        // Time spent trying is no sign of health.
        let lived =
            online.map_or(0, |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX));
        context.outbox.disconnected();
        if end == End::Stopped {
            break;
        }
        let delay = machine.ended(&end, lived, (context.jitter)());
        tracing::warn!(reason = %end, retry_ms = delay.as_millis() as u64, "not connected to the hub");
        status.send_modify(|s| {
            s.enter("waiting");
            s.last_error = Some(end.to_string());
        });
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = context.stop.cancelled() => break,
        }
    }
    status.send_modify(|s| s.enter("stopped"));
}

async fn stopped_while_connecting(context: &Context, status: &watch::Sender<LinkStatus>) {
    context.stop.cancelled().await;
    if status.borrow().state == "online" {
        std::future::pending::<()>().await;
    }
}

async fn connect_once(
    context: &Context,
    hub: &HubRecord,
    machine: &mut Machine,
    status: &watch::Sender<LinkStatus>,
    online: &mut Option<Instant>,
) -> End {
    let mut last = End::Protocol("the paired hub has no address; pair again".into());
    for index in machine.order() {
        let Some(address) = hub.addresses.get(index) else { continue };
        status.send_modify(|s| s.address = Some(address.clone()));
        let setup = async {
            let socket =
                Box::pin(socket::connect(address, hearth_shared::pin::PinVerifier::pinned(hub.spki))).await?;
            let mut greeted = handshake::greet(socket, context, Knock::Paired, Some(hub.id())).await?;
            let welcome = greeted.welcome().await?;
            Ok::<_, End>((greeted, welcome))
        };
        match tokio::time::timeout(SETUP_DEADLINE, setup).await {
            Ok(Ok((greeted, welcome))) => {
                machine.connected(index);
                *online = Some(Instant::now());
                tracing::info!(%address, hub = %greeted.hub_name(), "connected to the hub");
                status.send_modify(|s| {
                    s.enter("online");
                    s.last_error = None;
                    s.approved.clone_from(&welcome.approved);
                });
                return Box::pin(session::run(greeted, *welcome, context, status)).await;
            }
            // What an answering hub says counts for all its addresses.
            Ok(Err(end @ (End::Refused(_) | End::Version { .. } | End::Goodbye(_)))) => return end,
            Ok(Err(end)) => last = end,
            Err(_) => last = End::Deadline("connecting"),
        }
        tracing::debug!(%address, reason = %last, "address failed");
    }
    last
}

/// From the first packet to the welcome.
const SETUP_DEADLINE: Duration = Duration::from_millis(hearth_shared::limits::HANDSHAKE_TIMEOUT_MS);

#[cfg(test)]
mod tests;
