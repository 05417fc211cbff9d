//! A link that is up: frames in, frames out, heartbeat, and the end.
//!
//! All of it is one task made of futures that end together. The reader never waits for anything but the
//! socket: what takes time (disk, database, credit) happens in workers behind bounded queues, so a
//! slow one of them never delays a heartbeat or another answer.

use super::connection::{Known, LinkConnection};
use super::handshake::Admitted;
use super::transfer::Transfers;
use super::{Failed, LAST_WORD, close_message, refused, send};
use crate::bus::Event;
use crate::devices::{DeviceError, DeviceState};
use crate::nodes::outbox::{Batch, Clock, MAX_WAITING_ITEMS};
use crate::nodes::{Arrival, Attached, NodeConnection as _, NodeError, Nodes};
use crate::store::{StoreError, now_ms};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::approver::ApproverSet;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::frame::close;
use hearth_shared::identity::display_safe;
use hearth_shared::link::{
    Declaration, LinkError, LinkFrame as _, Refused, RefusedCode, ToHub, ToNode, Welcome,
};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// Frames of the hub's own that may wait: credit, acknowledgements, pings.
const CONTROL_QUEUE: usize = 128;
/// Requests that may wait behind them.
const CALL_QUEUE: usize = 32;
/// Declarations and lists of approvers that may wait for the database.
const CHORES: usize = 4;
/// Batches of the outbox that may wait for the database; their items are limited as well.
const BATCHES: usize = MAX_WAITING_ITEMS;

/// How a session ends.
#[derive(Debug)]
pub(in crate::nodes) enum SessionEnd {
    /// The other side is gone.
    Gone(String),
    /// This side ends it, with a last frame perhaps.
    Close { code: u16, reason: String, last: Option<Box<ToNode>> },
    /// The node broke the rules of the link.
    Violation(String),
    /// The node signed something false.
    Lie(String),
}
use SessionEnd as End;

impl SessionEnd {
    pub fn violation(why: impl ToString) -> Self {
        Self::Violation(why.to_string())
    }

    pub fn close(code: u16, reason: &str) -> Self {
        Self::Close { code, reason: reason.into(), last: None }
    }
}

enum Chore {
    Declare(Box<Declaration>),
    Approvers(Box<ApproverSet>),
}

/// Everything a session needs, put together before the welcome.
#[derive(Debug)]
pub(super) struct Session {
    connection: Arc<LinkConnection>,
    attached: Attached,
    control: mpsc::Receiver<ToNode>,
    calls: mpsc::Receiver<ToNode>,
    closed: broadcast::Receiver<Event>,
    clock: Clock,
}

type Sink<S> = SplitSink<WebSocketStream<S>, Message>;
type Stream<S> = SplitStream<WebSocketStream<S>>;

impl Nodes {
    /// Lists the node as connected and welcomes it.
    pub(super) async fn begin_session<S>(
        &self,
        socket: &mut WebSocketStream<S>,
        peer: SocketAddr,
        admitted: Admitted,
    ) -> Result<Session, Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Admitted { device, hello, declaration, transcript, newly_paired, heard_ms } = admitted;
        let trouble = |error: NodeError| match error {
            NodeError::Duplicate => refused(RefusedCode::Duplicate, error.to_string(), 60_000),
            NodeError::Restless => refused(RefusedCode::RateLimited, error.to_string(), 10 * 60_000),
            NodeError::Unknown(_) => refused(RefusedCode::Revoked, comeback("device removed", false), 0),
            other => {
                tracing::error!(error = %other, "a node cannot be listed as connected");
                let message = "the hub cannot use its database at the moment; see its log";
                refused(RefusedCode::RateLimited, message, 5_000)
            }
        };
        // From here on a removal is heard; the row is read once more after that.
        let closed = self.inner.bus.subscribe();
        let (control_in, control) = mpsc::channel(CONTROL_QUEUE);
        let (calls_in, calls) = mpsc::channel(CALL_QUEUE);
        let (id, name) = (device.id, device.name.clone());
        let declared = declaration.surface();
        let connection =
            Arc::new(LinkConnection::new(hello.key, name, declared.clone(), control_in, calls_in));
        let arrival = Arrival {
            device,
            version: declaration.version.clone(),
            declaration: Some(declaration),
            declared,
            caps: Vec::new(),
            approvers: hello.approvers.clone(),
            remote: peer,
            connection: connection.clone(),
        };
        let mut attached = self.attach(arrival).await.map_err(trouble)?;
        let view = self.get(id).await.map_err(trouble)?;
        let told = view.approved.clone();
        connection.set_approved(told.clone());
        let store_trouble = |error| trouble(NodeError::Store(error));
        let noted = self.inner.audit.note_node_head(id, hello.head).await;
        if let Some(fault) = unless_full(noted).map_err(store_trouble)?.flatten() {
            let message = format!(
                "the audit log of node `{}` does not go on where it ended: {fault}",
                view.device.name
            );
            tracing::warn!("{message}");
            self.inner.bus.emit(Event::Alarm { message });
        }
        let held = self.inner.audit.note_held_by_node(id, hello.hub_head).await;
        if let Some(fault) = unless_full(held).map_err(store_trouble)?.flatten() {
            let message = format!(
                "this hub's audit log is not the one that node `{}` knows: {fault}, as it is after an older copy \
                 was put back; see `hearth audit verify`",
                view.device.name
            );
            tracing::warn!("{message}");
            self.inner.bus.emit(Event::Alarm { message });
        }
        let clock = Clock::new(id, hello.boot, hello.outbox_next, self.inner.store.clone());
        unless_full(clock.hello(heard_ms, hello.mono_ms, hello.wall_ms).await).map_err(store_trouble)?;
        let mark = self.outbox_mark(id, hello.outbox_epoch).await.map_err(store_trouble)?;
        let welcome = Welcome {
            signature: transcript.sign_as_hub(&self.inner.keys.identity),
            newly_paired,
            approved: view.approved,
            mark,
            tick_ms: self.inner.tick.as_millis() as u64,
            time_ms: now_ms(),
            head: self.inner.audit.head().await.map_err(store_trouble)?,
        };
        send(socket, &ToNode::Welcome(Box::new(welcome))).await?;
        tracing::info!(node = %connection.name, %peer, newly_paired, "node connected");
        attached.announce().await;
        // What was approved since it was read above did not reach the connection.
        match self.get(id).await {
            Ok(now) if now.approved != told => connection.surface(now.approved),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "what is approved could not be read again"),
        }
        Ok(Session { connection, attached, control, calls, closed, clock })
    }

    /// Until the link ends.
    pub(super) async fn run_session<S>(&self, socket: WebSocketStream<S>, session: Session)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Session { connection, mut attached, mut control, mut calls, closed, clock } = session;
        // Whoever waits hears of the end, also when this future is dropped.
        let _ended = Ended(connection.clone());
        let (mut sink, stream) = socket.split();
        let (chores_in, chores) = mpsc::channel(CHORES);
        let (batches_in, batches) = mpsc::channel(BATCHES);
        let (pongs_in, pongs) = mpsc::channel(CHORES);
        let transfers =
            Transfers::new(connection.clone(), self.inner.media.clone(), self.inner.tasks.clone());
        let waiting = Arc::new(AtomicUsize::new(0));
        let reader = Reader {
            connection: connection.clone(),
            transfers,
            chores: chores_in,
            batches: batches_in,
            waiting: waiting.clone(),
            pongs: pongs_in,
            heard: tokio::sync::watch::Sender::new(Instant::now()),
        };
        let heard = reader.heard.subscribe();
        let write_limit = 2 * self.inner.tick;
        let end = tokio::select! {
            biased;
            () = connection.closing.cancelled() => {
                let (code, reason) =
                    connection.asked_to_close().unwrap_or((close::NORMAL, "closed".into()));
                End::Close { code, reason, last: None }
            }
            () = self.inner.tasks.stop.cancelled() => End::Close {
                code: close::RESTART,
                reason: "hub stops".into(),
                last: Some(Box::new(ToNode::Goodbye { reason: "the hub stops or restarts".into() })),
            },
            end = self.watch_device(&connection, closed) => end,
            end = Box::pin(reader.run(stream)) => end,
            end = write(&mut sink, &mut control, &mut calls, write_limit) => end,
            end = beat(&connection, self.inner.tick, heard, &clock) => end,
            end = Box::pin(self.do_chores(&connection, chores)) => end,
            end = Box::pin(self.ingest(&connection, &clock, batches, &waiting)) => end,
            end = clock.measure(pongs) => match end {},
        };
        self.end_session(&connection, &mut attached, sink, end).await;
    }

    async fn end_session<S>(
        &self,
        connection: &LinkConnection,
        attached: &mut Attached,
        mut sink: Sink<S>,
        end: End,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        connection.end();
        let (code, reason, last) = match end {
            End::Gone(reason) => (close::NORMAL, reason, None),
            End::Close { code, reason, last } => (code, reason, last),
            End::Violation(fault) => {
                let message = format!("node `{}` broke the rules of the link: {fault}", connection.name);
                let body = json!({ "device": connection.node, "fault": fault });
                self.alarm(connection.node, "node.violation", body, message).await;
                let message = fault;
                let refused = Refused { code: RefusedCode::Protocol, message, retry_after_ms: 0 };
                (close::POLICY, "protocol violation".into(), Some(Box::new(ToNode::Refused(refused))))
            }
            End::Lie(fault) => {
                let message = format!("node `{}` cannot be believed: {fault}", connection.name);
                let body = json!({ "device": connection.node, "fault": fault });
                self.alarm(connection.node, "node.violation", body, message).await;
                let refused = Refused { code: RefusedCode::Signature, message: fault, retry_after_ms: 0 };
                (close::POLICY, "bad receipt".into(), Some(Box::new(ToNode::Refused(refused))))
            }
        };
        tracing::info!(node = %connection.name, reason, "node disconnected");
        attached.set_reason(&reason);
        let farewell = async {
            if let Some(bytes) = last.and_then(|frame| frame.encode().ok()) {
                let _ = sink.send(Message::Binary(bytes.into())).await;
            }
            let _ = sink.send(close_message(code, &reason)).await;
        };
        let _ = tokio::time::timeout(LAST_WORD, farewell).await;
    }

    /// Ends when the device is removed or revoked, at once.
    async fn watch_device(&self, connection: &LinkConnection, mut events: broadcast::Receiver<Event>) -> End {
        loop {
            match events.recv().await {
                Ok(Event::DeviceClosed { device, code, reason }) if device == connection.node => {
                    let revoked = self.inner.devices.get(connection.node).await.is_ok_and(|d| d.is_some());
                    let message = comeback(&reason, revoked);
                    let refused = Refused { code: RefusedCode::Revoked, message, retry_after_ms: 0 };
                    return End::Close { code, reason, last: Some(Box::new(ToNode::Refused(refused))) };
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    // The event may have been among those that were lost.
                    match self.inner.devices.get(connection.node).await {
                        Ok(Some(device)) if device.state == DeviceState::Accepted => {}
                        Ok(_) => {
                            let reason = "device removed".into();
                            return End::Close { code: close::DEVICE_REMOVED, reason, last: None };
                        }
                        Err(DeviceError::Store(error)) => {
                            tracing::warn!(%error, "cannot look a device up again");
                        }
                        Err(_) => {}
                    }
                }
                Err(broadcast::error::RecvError::Closed) => {
                    return End::Close { code: close::RESTART, reason: "hub stops".into(), last: None };
                }
            }
        }
    }

    async fn do_chores(&self, connection: &LinkConnection, mut chores: mpsc::Receiver<Chore>) -> End {
        while let Some(chore) = chores.recv().await {
            let done = match chore {
                Chore::Declare(declaration) => {
                    let declared = declaration.surface();
                    connection.set_declared(declared.clone());
                    self.redeclare(connection.node, Some(*declaration), declared).await
                }
                Chore::Approvers(set) => self.store_approvers(connection.node, *set).await,
            };
            if let Err(error @ NodeError::Restless) = done {
                return End::Violation(error.to_string());
            }
            if let Err(error) = done {
                tracing::warn!(node = %connection.name, %error, "cannot store what the node says of itself");
            }
        }
        std::future::pending().await
    }
}

struct Ended(Arc<LinkConnection>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How a device that was shut out may come back: one that is still listed must be removed first.
fn comeback(reason: &str, listed: bool) -> String {
    let first = if listed { "run `hearth devices remove` on the hub, then " } else { "" };
    format!("{reason}; to come back, {first}pair again: `hearth-node pair CODE`")
}

/// A full card keeps no node out: what cannot be written now is written at the next occasion.
/// The connection broke. A machine that loses its power says no goodbye: that is no fault to explain.
fn lost(error: &WsError) -> End {
    match error {
        WsError::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            End::Gone("connection lost".into())
        }
        WsError::ConnectionClosed | WsError::AlreadyClosed => End::Gone("connection lost".into()),
        other => End::Gone(format!("connection lost: {other}")),
    }
}

fn unless_full<T>(done: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(StoreError::Full) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Reader {
    connection: Arc<LinkConnection>,
    transfers: Transfers,
    chores: mpsc::Sender<Chore>,
    batches: mpsc::Sender<Batch>,
    /// Items in `batches`.
    waiting: Arc<AtomicUsize>,
    pongs: mpsc::Sender<(u64, Instant, u64, Option<u64>)>,
    heard: tokio::sync::watch::Sender<Instant>,
}

impl Reader {
    async fn run<S>(mut self, mut stream: Stream<S>) -> End
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            let message = stream.next().await;
            self.heard.send_replace(Instant::now());
            self.connection.note_heard();
            let bytes = match message {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(Message::Text(_) | Message::Frame(_))) => {
                    return End::violation(LinkError::Malformed);
                }
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|f| display_safe(&f.reason, 100)).filter(|r| !r.is_empty());
                    return End::Gone(reason.unwrap_or_else(|| "closed by the node".into()));
                }
                Some(Err(WsError::Capacity(_))) => {
                    return End::violation(LinkError::TooLong(hearth_shared::limits::MAX_LINK_FRAME + 1));
                }
                Some(Err(error)) => return lost(&error),
                None => return End::Gone("connection lost".into()),
            };
            match ToHub::decode(&bytes).map(|frame| self.take(frame)) {
                Ok(Ok(())) => {}
                Ok(Err(end)) => return end,
                Err(error) => return End::violation(error),
            }
        }
    }

    fn take(&mut self, frame: ToHub) -> Result<(), End> {
        let rule = |why: &str| Err(End::violation(why));
        match frame {
            ToHub::Result(frame) => {
                let known = self.connection.known(&frame.request);
                if frame.verify(&self.connection.key).is_err() {
                    let fault = format!("the receipt of request {} does not verify", frame.request);
                    let error = CommandError::new(ErrorCode::OutcomeUnknown, fault.clone());
                    self.connection.fault(&frame.request, error);
                    return Err(End::Lie(fault));
                }
                match known {
                    Known::Waiting => self.connection.result(frame),
                    // Too late for who asked; the journal of the node has it under the same id.
                    Known::Late => {}
                    Known::Never => {
                        return Err(End::Lie(format!("request {} was never made", frame.request)));
                    }
                }
            }
            ToHub::Challenge { request, challenge } => {
                if !self.connection.challenge(&request, challenge)
                    && self.connection.known(&request) == Known::Never
                {
                    return Err(End::Lie(format!("request {request} was never made")));
                }
            }
            ToHub::Attachment(attachment) => self.transfers.begin(attachment).map_err(End::violation)?,
            ToHub::Chunk { transfer, bytes } => {
                self.transfers.chunk(transfer, bytes).map_err(End::violation)?;
            }
            ToHub::AbortTransfer { transfer } => self.transfers.abort(transfer),
            ToHub::Outbox { epoch, items } => {
                if items.len() > hearth_shared::limits::MAX_OUTBOX_BATCH {
                    return rule("more than 500 items in one batch of the outbox");
                }
                // Too much waiting means that the node sends on without waiting for acknowledgements.
                // What is left out here is not acknowledged, and the gap is seen in `ingest`.
                let count = items.len();
                if self.waiting.load(Ordering::Relaxed) + count <= MAX_WAITING_ITEMS
                    && self.batches.try_send(Batch { epoch, items }).is_ok()
                {
                    self.waiting.fetch_add(count, Ordering::Relaxed);
                }
            }
            ToHub::Declare { declaration } => {
                let declaration = Declaration::decode(&declaration).map_err(End::violation)?;
                if self.chores.try_send(Chore::Declare(Box::new(declaration))).is_err() {
                    return rule("declares faster than it can be stored");
                }
            }
            ToHub::Approvers(set) => {
                if set.check().is_err() {
                    return rule("its list of approvers is over a limit");
                }
                if self.chores.try_send(Chore::Approvers(Box::new(set.clone()))).is_err() {
                    return rule("changes its approvers faster than it can be stored");
                }
                self.connection.approvers_are(set);
            }
            ToHub::ApproversRefused { message } => {
                let message = display_safe(&message, 300);
                self.connection.approvers_refused(message);
            }
            ToHub::Pong { id, mono_ms, wall_ms } => {
                // A measurement that finds the queue full is one of many.
                let _ = self.pongs.try_send((id, Instant::now(), mono_ms, wall_ms));
            }
            ToHub::Goodbye { reason } => {
                return Err(End::Gone(display_safe(&reason, 100)));
            }
            ToHub::Hello(_) | ToHub::WordsReveal { .. } | ToHub::WordsConfirmed => {
                return rule("a frame of the handshake after the handshake");
            }
        }
        Ok(())
    }
}

/// Writes what waits, the hub's own frames first.
async fn write<S>(
    sink: &mut Sink<S>,
    control: &mut mpsc::Receiver<ToNode>,
    calls: &mut mpsc::Receiver<ToNode>,
    limit: Duration,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = control.recv() => frame,
            Some(frame) = calls.recv() => frame,
            else => return End::Gone("closed".into()),
        };
        let bytes = match frame.encode() {
            Ok(bytes) => bytes,
            Err(error) => {
                // Its request ends by its time limit; parameters are limited before they come here.
                tracing::error!(%error, "a frame for the node is too long");
                continue;
            }
        };
        match tokio::time::timeout(limit, sink.send(Message::Binary(bytes.into()))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return lost(&error),
            Err(_) => return End::Gone("heartbeat_timeout".into()),
        }
    }
}

/// Pings every tick; ends when nothing at all was heard for two.
async fn beat(
    connection: &LinkConnection,
    tick: Duration,
    heard: tokio::sync::watch::Receiver<Instant>,
    clock: &Clock,
) -> End {
    let mut interval = tokio::time::interval(tick);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let silent_until = *heard.borrow() + 2 * tick;
        tokio::select! {
            _ = interval.tick() => {
                let ping = ToNode::Ping { id: clock.ping(), hub_time_ms: now_ms() };
                // A full queue is a stuck writer, which has its own limit.
                let _ = connection.control().try_send(ping);
            }
            () = tokio::time::sleep_until(silent_until) => {
                if heard.borrow().elapsed() >= 2 * tick {
                    return End::Gone("heartbeat_timeout".into());
                }
            }
        }
    }
}
