//! What waits to be sent to one client.

use super::{CLOSE_GRACE, close_frame};
use futures_util::{Sink, SinkExt as _};
use hearth_shared::frame::{ErrorShape, Frame, Response, StateVersion, close};
use hearth_shared::limits::MAX_BUFFERED;
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::CancellationToken;

/// WebSocket pings; the peer's pong is what keeps a silent client alive.
const PING_EVERY: Duration = Duration::from_secs(25);
/// Counted for each message on top of its text, so that many tiny ones are bounded too.
const OVERHEAD: usize = 64;

/// Something to send.
#[derive(Debug)]
enum Item {
    Text(String),
    Ping,
}

impl Item {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + OVERHEAD,
            Self::Ping => OVERHEAD,
        }
    }

    fn into_message(self) -> Message {
        match self {
            Self::Text(text) => Message::text(text),
            Self::Ping => Message::Ping(bytes::Bytes::new()),
        }
    }
}

/// The sending side; shared by everybody who has something for the client.
#[derive(Debug)]
pub(crate) struct Outbound {
    queue: mpsc::UnboundedSender<Item>,
    shared: Arc<Shared>,
    /// Number of the next broadcast event.
    seq: Mutex<u64>,
}

#[derive(Debug, Default)]
struct Shared {
    buffered: AtomicUsize,
    closing: CancellationToken,
    reason: OnceLock<(u16, String)>,
}

/// The receiving side, for the writer task.
#[derive(Debug)]
pub(crate) struct OutboundQueue {
    queue: mpsc::UnboundedReceiver<Item>,
    shared: Arc<Shared>,
}

impl Outbound {
    pub(crate) fn new() -> (Self, OutboundQueue) {
        // Unbounded in messages: it is bounded in bytes by `push`.
        let (sender, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let queue = OutboundQueue { queue: receiver, shared: Arc::clone(&shared) };
        (Self { queue: sender, shared, seq: Mutex::new(0) }, queue)
    }

    fn push(&self, text: String) {
        self.queue(Item::Text(text));
    }

    /// Asks the other end for a sign of life, at once.
    pub(crate) fn ping(&self) {
        self.queue(Item::Ping);
    }

    fn queue(&self, item: Item) {
        let size = item.size();
        let before = self.shared.buffered.fetch_add(size, Ordering::Relaxed);
        if before + size > MAX_BUFFERED {
            self.shared.buffered.fetch_sub(size, Ordering::Relaxed);
            self.close(close::POLICY, "slow consumer");
            return;
        }
        // A closed queue means that the writer has ended: nobody is left to tell.
        let _ = self.queue.send(item);
    }

    /// A successful answer.
    pub(crate) fn answer(&self, id: &str, payload: Value) {
        self.respond(Response { id: id.into(), ok: true, payload: Some(payload), error: None });
    }

    /// A refusal.
    pub(crate) fn fail(&self, id: &str, error: ErrorShape) {
        self.respond(Response { id: id.into(), ok: false, payload: None, error: Some(error) });
    }

    fn respond(&self, response: Response) {
        // Strings and JSON values always encode.
        self.push(serde_json::to_string(&Frame::Response(response)).unwrap_or_default());
    }

    /// A broadcast event: it gets this connection's next number.
    pub(crate) fn event(&self, event: &str, payload: &str, version: Option<StateVersion>) {
        let mut seq = self.seq.lock().unwrap_or_else(PoisonError::into_inner);
        *seq += 1;
        let version = version.map_or_else(String::new, |v| {
            format!(r#","stateVersion":{{"presence":{},"health":{}}}"#, v.presence, v.health)
        });
        // Queued under the lock, so that numbers leave in order.
        self.push(format!(
            r#"{{"type":"event","event":"{event}","payload":{payload},"seq":{seq}{version}}}"#
        ));
    }

    /// An event for this client alone: no number.
    pub(crate) fn targeted(&self, event: &str, payload: &Value) {
        self.push(format!(r#"{{"type":"event","event":"{event}","payload":{payload}}}"#));
    }

    /// Ends the connection; the first reason counts. What is queued before is still sent, except to a
    /// client that does not read.
    pub(crate) fn close(&self, code: u16, reason: &str) {
        let _ = self.shared.reason.set((code, reason.to_owned()));
        self.shared.closing.cancel();
    }

    /// Resolves when the connection is to end.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + use<> {
        self.shared.closing.clone().cancelled_owned()
    }
}

impl OutboundQueue {
    /// Sends until the connection is to end, then says why.
    pub(super) async fn write_to<W>(mut self, mut sink: W)
    where
        W: Sink<Message, Error = WsError> + Unpin,
    {
        let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let closing = self.shared.closing.clone();
        loop {
            let (item, queued) = tokio::select! {
                biased;
                () = closing.cancelled() => break,
                item = self.queue.recv() => match item {
                    Some(item) => (item, true),
                    None => break,
                },
                _ = ping.tick() => (Item::Ping, false),
            };
            let size = item.size();
            tokio::select! {
                sent = sink.send(item.into_message()) => {
                    if queued {
                        self.shared.buffered.fetch_sub(size, Ordering::Relaxed);
                    }
                    if sent.is_err() {
                        return closing.cancel();
                    }
                }
                () = closing.cancelled() => break,
            }
        }
        let _ = tokio::time::timeout(CLOSE_GRACE, self.farewell(&mut sink)).await;
    }

    async fn farewell<W>(&mut self, sink: &mut W) -> Result<(), WsError>
    where
        W: Sink<Message, Error = WsError> + Unpin,
    {
        let (code, reason) = self.shared.reason.get().cloned().unwrap_or((close::NORMAL, String::new()));
        if code != close::POLICY {
            while let Ok(item) = self.queue.try_recv() {
                sink.send(item.into_message()).await?;
            }
        }
        sink.send(close_frame(code, &reason)).await?;
        sink.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_read_is_closed_and_the_queue_stays_bounded() {
        let (outbound, mut queue) = Outbound::new();
        let payload = format!("\"{}\"", "x".repeat(1024 * 1024));
        for _ in 0..100 {
            outbound.event("chat", &payload, None);
        }
        assert!(queue.shared.closing.is_cancelled());
        assert_eq!(queue.shared.reason.get().map(|r| r.0), Some(close::POLICY));
        let mut queued = 0;
        while let Ok(item) = queue.queue.try_recv() {
            queued += item.size();
        }
        assert!(queued <= MAX_BUFFERED);
    }

    #[test]
    fn events_are_numbered_and_targeted_ones_are_not() {
        let (outbound, mut queue) = Outbound::new();
        outbound.event("tick", "{}", None);
        outbound.targeted("node.invoke.request", &serde_json::json!({ "id": "x" }));
        outbound.event("presence", "{}", Some(StateVersion { presence: 2, health: 1 }));
        let frames: Vec<Frame> = std::iter::from_fn(|| queue.queue.try_recv().ok())
            .map(|i| serde_json::from_str(&i.into_message().into_text().unwrap()).unwrap())
            .collect();
        let seqs: Vec<Option<u64>> = frames
            .iter()
            .map(|f| match f {
                Frame::Event(e) => e.seq,
                _ => panic!("an event"),
            })
            .collect();
        assert_eq!(seqs, [Some(1), None, Some(2)]);
        assert!(matches!(&frames[2], Frame::Event(e) if e.state_version.unwrap().presence == 2));
    }
}
