//! An admitted connection until it ends: one reader, one writer, many requests.

use super::handshake::Greeted;
use super::outgoing::{Next, Outgoing};
use super::socket::{Stream, read, why};
use super::state::End;
use super::{Context, LinkStatus};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::approver::ApproverSet;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::Grant;
use hearth_shared::identity::Digest;
use hearth_shared::limits::{MAX_IN_FLIGHT, MAX_TIMEOUT_MS};
use hearth_shared::link::{Invoke, LinkFrame as _, Outcome, ResultFrame, ToHub, ToNode, Welcome};
use hearth_shared::reading::{Epoch, Mark, RequestId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_tungstenite::tungstenite::Message;
use tracing::Instrument as _;

/// How long a node that stops waits for running requests to end and their results to leave.
const GRACE: Duration = Duration::from_secs(5);
/// How often stalled transfers are looked for.
const CHECK: Duration = Duration::from_secs(5);

/// Serves an admitted connection until it ends or `context.stop`.
pub async fn run(
    greeted: Greeted,
    welcome: Welcome,
    context: &Context,
    status: &watch::Sender<LinkStatus>,
) -> End {
    // Two missed heartbeats are the end. A hub cannot make a node wait for ever, nor make it spin.
    context.local.welcomed(welcome.head).await;
    let liveness = Duration::from_millis(welcome.tick_ms.clamp(50, MAX_TIMEOUT_MS) * 2);
    let (sink, stream) = greeted.socket.stream.split();
    let shared = Session {
        context,
        status,
        outgoing: Arc::new(Outgoing::default()),
        declared: Mutex::new(greeted.declared),
        approvers: Mutex::new(greeted.approvers),
        position: watch::channel(None).0,
        acked: AtomicU64::new(0),
        liveness,
    };
    tokio::select! {
        end = shared.reader(stream) => end,
        end = shared.writer(sink) => end,
        end = shared.settle(welcome.mark) => end,
        end = shared.redeclare() => end,
    }
}

struct Session<'a> {
    context: &'a Context,
    status: &'a watch::Sender<LinkStatus>,
    outgoing: Arc<Outgoing>,
    /// Digest of the declaration the hub has.
    declared: Mutex<Digest>,
    /// The list of approvers the hub has.
    approvers: Mutex<ApproverSet>,
    /// Epoch and first number to send, once the outbox is settled with the hub's mark.
    position: watch::Sender<Option<(Epoch, u64)>>,
    /// The last number the hub acknowledged on this connection.
    acked: AtomicU64,
    liveness: Duration,
}

impl Session<'_> {
    async fn reader(&self, mut stream: SplitStream<Stream>) -> End {
        loop {
            let message = match tokio::time::timeout(self.liveness, stream.next()).await {
                Ok(message) => message,
                Err(_) => return End::Silent(self.liveness.as_millis() as u64),
            };
            let result = read(message).and_then(|frame| frame.map_or(Ok(()), |f| self.handle(f)));
            if let Err(end) = result {
                return end;
            }
        }
    }

    fn handle(&self, frame: ToNode) -> Result<(), End> {
        match frame {
            ToNode::Invoke(invoke) => self.invoke(invoke),
            ToNode::AskChallenge(invoke) => self.ask_challenge(invoke),
            ToNode::Grant { request, grant } => self.grant(request, grant),
            ToNode::Cancel { request } => {
                self.context.local.cancel(&request);
                self.outgoing.with(|queue| queue.cancel(&request));
                Ok(())
            }
            ToNode::Credit { transfer, bytes } => {
                let now = self.context.clock.mono_ms();
                self.outgoing.with(|queue| queue.credit(transfer, bytes, now));
                Ok(())
            }
            ToNode::OutboxAck(mark) => {
                self.context.outbox.ack(mark);
                if self.position.borrow().is_some_and(|(epoch, _)| epoch == mark.epoch) {
                    self.acked.fetch_max(mark.seq, Ordering::Relaxed);
                    self.outgoing.wake.notify_one();
                }
                Ok(())
            }
            ToNode::ChangeApprovers(change) => {
                match self.context.local.change_approvers(&change) {
                    Ok(set) => {
                        self.approvers.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&set);
                        self.control(ToHub::Approvers(set))?;
                    }
                    Err(message) => self.control(ToHub::ApproversRefused { message })?,
                }
                // Need `person` may have come into force or gone.
                self.tell_changes()
            }
            ToNode::Surface { approved } => {
                self.status.send_modify(|s| s.approved = approved);
                Ok(())
            }
            ToNode::Ping { id, .. } => {
                let clock = &self.context.clock;
                let pong = ToHub::Pong { id, mono_ms: clock.mono_ms(), wall_ms: clock.wall_ms() };
                self.outgoing.with(|queue| queue.pong(pong));
                self.tell_changes()
            }
            ToNode::Goodbye { reason } => Err(End::Goodbye(reason)),
            ToNode::Refused(refused) => Err(End::Refused(refused)),
            ToNode::Hello(_) | ToNode::Welcome(_) | ToNode::WordsNonce { .. } => {
                Err(End::Protocol("a handshake frame after the handshake".into()))
            }
        }
    }

    fn control(&self, frame: ToHub) -> Result<(), End> {
        if self.outgoing.with(|queue| queue.control(frame)) {
            Ok(())
        } else {
            Err(End::Protocol("the hub asks without reading the answers".into()))
        }
    }

    /// Sends what the hub does not have yet: a list of approvers that was changed on the node, a new
    /// declaration.
    fn tell_changes(&self) -> Result<(), End> {
        let set = self.context.local.approvers();
        let mut known = self.approvers.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != set {
            known.clone_from(&set);
            drop(known);
            tracing::info!(epoch = set.epoch, "the list of approvers has changed; the hub is told");
            self.control(ToHub::Approvers(set))?;
        } else {
            drop(known);
        }
        self.declare_if_changed()
    }

    /// Sends the declaration when it is not the one the hub has.
    fn declare_if_changed(&self) -> Result<(), End> {
        let declaration = self.context.local.declaration().encode();
        let digest = Digest::of(&declaration);
        let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        if *declared == digest {
            return Ok(());
        }
        *declared = digest;
        drop(declared);
        tracing::info!("what this node can do has changed; the hub is told");
        self.control(ToHub::Declare { declaration })
    }

    async fn redeclare(&self) -> End {
        loop {
            self.context.changed.notified().await;
            if let Err(end) = self.tell_changes() {
                return end;
            }
        }
    }

    /// Settles the outbox with the hub's mark; when the disk does not take it, again once it does.
    async fn settle(&self, mark: Option<Mark>) -> End {
        let mut progress = self.context.outbox.watch();
        loop {
            match self.context.outbox.settle(mark).await {
                Ok(counts) => {
                    self.position.send_replace(Some((counts.epoch, counts.first)));
                    return std::future::pending().await;
                }
                Err(error) => tracing::warn!(%error, "the outbox cannot be sent yet"),
            }
            if progress.wait_for(|p| p.fault.is_none()).await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// A place among the requests in flight, or the refusal was queued.
    fn room(&self, request: RequestId) -> Result<Option<OwnedSemaphorePermit>, End> {
        if let Ok(permit) = self.context.room.clone().try_acquire_owned() {
            return Ok(Some(permit));
        }
        let why = format!("{MAX_IN_FLIGHT} requests are in flight, which is the limit; retry later");
        let failed = self.failed(request, CommandError::new(ErrorCode::Busy, why));
        self.control(failed).map(|()| None)
    }

    fn failed(&self, request: RequestId, error: CommandError) -> ToHub {
        let head = self.context.local.head();
        let frame = ResultFrame::sign(&self.context.key, request, Outcome::Failed(error), 0, head);
        ToHub::Result(Box::new(frame))
    }

    fn invoke(&self, invoke: Invoke) -> Result<(), End> {
        let Some(room) = self.room(invoke.request)? else { return Ok(()) };
        let span = request_span(&invoke);
        let (context, request) = (self.context.clone(), invoke.request);
        self.reply_later(request, room, span, async move { context.local.invoke(invoke).await });
        Ok(())
    }

    fn grant(&self, request: RequestId, grant: Grant) -> Result<(), End> {
        let Some(room) = self.room(request)? else { return Ok(()) };
        // Correlation and command stand in the request that was kept; the dispatcher fills them in.
        let span = tracing::info_span!(
            "grant",
            correlation = tracing::field::Empty,
            request = %request,
            command = tracing::field::Empty,
            signer = %grant.signer.short(),
        );
        let context = self.context.clone();
        self.reply_later(request, room, span, async move { context.local.grant(request, grant).await });
        Ok(())
    }

    /// Runs a request to its end, whatever becomes of this connection.
    fn reply_later(
        &self,
        request: RequestId,
        room: OwnedSemaphorePermit,
        span: tracing::Span,
        work: impl Future<Output = crate::dispatch::Reply> + Send + 'static,
    ) {
        let context = self.context.clone();
        let outgoing = Arc::downgrade(&self.outgoing);
        let task = async move {
            let mut work = std::pin::pin!(work);
            let reply = tokio::select! {
                reply = &mut work => reply,
                () = context.stop.cancelled() => {
                    context.local.cancel(&request);
                    work.await
                }
            };
            match outgoing.upgrade() {
                Some(outgoing) => {
                    let now = context.clock.mono_ms();
                    outgoing.with(|queue| queue.reply(reply, Some(room), now));
                }
                None => tracing::info!("finished after the connection ended; the hub will ask for it again"),
            }
        };
        self.context.tasks.spawn(task.instrument(span));
    }

    fn ask_challenge(&self, invoke: Invoke) -> Result<(), End> {
        let Some(room) = self.room(invoke.request)? else { return Ok(()) };
        let (context, span, request) = (self.context.clone(), request_span(&invoke), invoke.request);
        let outgoing = Arc::downgrade(&self.outgoing);
        let task = async move {
            let answer = context.local.ask_challenge(invoke).await;
            let Some(outgoing) = outgoing.upgrade() else { return };
            let now = context.clock.mono_ms();
            outgoing.with(|queue| match answer {
                Ok(challenge) => {
                    if !queue.control(ToHub::Challenge { request, challenge }) {
                        tracing::warn!("challenge dropped: the hub does not read");
                    }
                }
                Err(reply) => queue.reply(*reply, Some(room), now),
            });
        };
        self.context.tasks.spawn(task.instrument(span));
        Ok(())
    }

    async fn writer(&self, mut sink: SplitSink<Stream, Message>) -> End {
        let mut cursor = Cursor { position: None, sent: 0, acked: &self.acked, outbox: &self.context.outbox };
        let mut positions = self.position.subscribe();
        let mut progress = self.context.outbox.watch();
        let mut check = tokio::time::interval(CHECK);
        let stopping = self.stopping();
        tokio::pin!(stopping);
        loop {
            // Everything urgent goes before and between the two kinds of bulk.
            let batch = match self.send_urgent(&mut sink).await {
                Ok(()) => cursor.next(),
                Err(end) => return end,
            };
            if let Some(batch) = &batch {
                let sent = self.send(&mut sink, batch).await;
                if let Err(end) = sent.and(self.send_urgent(&mut sink).await) {
                    return end;
                }
            }
            let now = self.context.clock.mono_ms();
            let chunk = self.outgoing.lock().bulk(now);
            if let Some(chunk) = &chunk
                && let Err(end) = self.send(&mut sink, chunk).await
            {
                return end;
            }
            if batch.is_some() || chunk.is_some() {
                continue;
            }
            tokio::select! {
                () = self.outgoing.wake.notified() => {}
                _ = positions.changed() => cursor.begin(*positions.borrow_and_update()),
                changed = progress.changed() => if changed.is_err() {
                    return End::Protocol("the outbox is closed".into());
                },
                _ = check.tick() => {
                    let now = self.context.clock.mono_ms();
                    self.outgoing.lock().expire(now);
                }
                () = &mut stopping => {
                    let farewell = async {
                        self.send(&mut sink, &ToHub::Goodbye { reason: "the node stops".into() }).await?;
                        sink.close().await.map_err(|e| End::Lost(e.to_string()))
                    };
                    if tokio::time::timeout(Duration::from_secs(2), farewell).await.is_err() {
                        tracing::debug!("goodbye not delivered in time");
                    }
                    return End::Stopped;
                }
            }
        }
    }

    async fn send_urgent(&self, sink: &mut SplitSink<Stream, Message>) -> Result<(), End> {
        while let Some(frame) = self.urgent() {
            self.send(sink, &frame).await?;
        }
        Ok(())
    }

    /// The next frame that goes before bulk; a failure in place of a result is signed here.
    fn urgent(&self) -> Option<ToHub> {
        let next = self.outgoing.lock().urgent();
        match next? {
            Next::Frame(frame) => Some(frame),
            Next::Failed(request, error) => Some(self.failed(request, error)),
        }
    }

    /// The node stops and nothing is left to report, or the grace is over.
    async fn stopping(&self) {
        self.context.stop.cancelled().await;
        let finished = async {
            // All places free: no request runs and no reply waits.
            let all = u32::try_from(MAX_IN_FLIGHT).unwrap_or(u32::MAX);
            drop(self.context.room.acquire_many(all).await);
        };
        if tokio::time::timeout(GRACE, finished).await.is_err() {
            tracing::warn!("requests were still running when the node stopped; the journal has them");
        }
    }

    async fn send(&self, sink: &mut SplitSink<Stream, Message>, frame: &ToHub) -> Result<(), End> {
        let bytes = frame.encode().map_err(|e| End::Protocol(e.to_string()))?;
        match tokio::time::timeout(self.liveness, sink.send(Message::Binary(bytes.into()))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(End::Lost(why(&error))),
            Err(_) => Err(End::Silent(self.liveness.as_millis() as u64)),
        }
    }
}

/// Which outbox items this connection has sent. One batch is on its way at a time: a hub with a slow card
/// then sets the pace, and a day's backlog does not stand in its memory.
struct Cursor<'a> {
    position: Option<(Epoch, u64)>,
    sent: u64,
    acked: &'a AtomicU64,
    outbox: &'a crate::outbox::Outbox,
}

impl Cursor<'_> {
    fn begin(&mut self, position: Option<(Epoch, u64)>) {
        self.position = position;
    }

    /// The next batch, if there are committed items that were not sent and the batch before is acknowledged.
    fn next(&mut self) -> Option<ToHub> {
        let (epoch, from) = self.position?;
        if self.acked.load(Ordering::Relaxed) < self.sent || self.outbox.position().1 <= from {
            return None;
        }
        match self.outbox.batch(from) {
            Ok(items) => {
                let last = items.last()?.seq;
                (self.position, self.sent) = (Some((epoch, last + 1)), last);
                Some(ToHub::Outbox { epoch, items })
            }
            Err(error) => {
                // The writer comes back with the next commit.
                tracing::debug!(%error, "outbox not readable now");
                None
            }
        }
    }
}

fn request_span(invoke: &Invoke) -> tracing::Span {
    tracing::info_span!(
        "request",
        correlation = %invoke.correlation,
        request = %invoke.request,
        command = %hearth_shared::identity::display_safe(&invoke.command, 64),
    )
}
