//! The life of a client that is in: requests in, answers and events out, until either side ends it.
//!
//! Two tasks share the socket: this one reads and runs the methods (many at once, answered in any order),
//! the writer sends what is queued. The queue is bounded by bytes, not by waiting: a client that does not
//! read is closed instead of holding up everybody else.

mod outbound;

pub(crate) use outbound::{Outbound, OutboundQueue};

use super::Gateway;
use super::answer::{invalid, unavailable};
use super::clients::Client;
use super::handshake::{Admitted, Carrier};
use super::json_node;
use super::methods::{self, Call};
use crate::bus::Event;
use futures_util::StreamExt as _;
use futures_util::stream::SplitStream;
use hearth_shared::connect::Role;
use hearth_shared::frame::{Frame, Request, close};
use hearth_shared::limits::LIVENESS_TIMEOUT_MS;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// How long a close handshake may take.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// Requests of one client that may be running; waiting for an approval counts.
const MAX_RUNNING: usize = 64;
/// Longest close reason (RFC 6455, 5.5).
const MAX_CLOSE_REASON: usize = 123;

/// A close message; reasons are cut to what the protocol can carry.
pub(crate) fn close_frame(code: u16, reason: &str) -> Message {
    let mut end = reason.len().min(MAX_CLOSE_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    Message::Close(Some(CloseFrame { code: code.into(), reason: reason[..end].into() }))
}

/// Serves a client until it ends.
pub(super) async fn run<T>(gateway: Arc<Gateway>, socket: T, admitted: Admitted)
where
    T: Carrier + Send + 'static,
{
    let Admitted { client, outbound, node } = admitted;
    let (sink, stream) = socket.split();
    let writer = tokio::spawn(outbound.write_to(sink));
    gateway.clients.add(&client);
    let _registered = Registered { gateway: Arc::clone(&gateway), client: Arc::clone(&client) };
    if let Some(device) = client.device_id()
        && let Err(error) = gateway.hub.devices.seen(device, "connect").await
    {
        tracing::warn!(%error, "cannot note that a device came");
    }
    // The device may have been removed between its handshake and the line above that lists it.
    if let Some(device) = client.device_id() {
        match gateway.hub.devices.get(device).await {
            Ok(Some(d)) if d.state == crate::devices::DeviceState::Accepted => {}
            _ => client.outbound.close(close::DEVICE_REMOVED, "device removed"),
        }
    }
    let attached = match node {
        Some(claims) => json_node::attach(&gateway, &client, claims).await,
        None => None,
    };
    announce(&gateway, &client).await;
    let reason = Box::pin(read(&gateway, &client, stream)).await;
    client.outbound.close(close::NORMAL, "");
    drop(attached);
    if writer.await.is_err() {
        tracing::debug!(client = client.conn_id, "writer ended early");
    }
    if let Some(device) = client.device_id() {
        let _ = gateway.hub.devices.seen(device, reason).await;
    }
}

/// Takes a client off the list again, however its session ends.
struct Registered {
    gateway: Arc<Gateway>,
    client: Arc<Client>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.gateway.clients.remove(&self.client);
        self.gateway.approvers_changed();
        if self.client.is_listed() {
            self.gateway.hub.bus.emit(Event::PresenceChanged);
        }
    }
}

impl Gateway {
    /// Tells the layer below how many people could be asked now.
    pub(crate) fn approvers_changed(&self) {
        self.hub.actions.approvers_connected(self.clients.approvers());
    }
}

/// First events of a connection: snapshots, so that a client need not ask.
async fn announce(gateway: &Gateway, client: &Client) {
    gateway.approvers_changed();
    if let Ok(health) = methods::health::snapshot(gateway).await {
        client.outbound.event("health", &health.to_string(), Some(gateway.presence.version()));
    }
    if client.is_listed() {
        gateway.hub.bus.emit(Event::PresenceChanged);
    } else if client.may(crate::devices::Scope::Read) {
        let presence = serde_json::json!({ "presence": gateway.presence.list(gateway).await });
        client.outbound.event("presence", &presence.to_string(), Some(gateway.presence.version()));
    }
}

/// Reads until the end; gives the reason for the device's record.
async fn read<T: Carrier>(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    mut stream: SplitStream<T>,
) -> &'static str {
    // Dropping the set aborts what still runs: a caller who leaves withdraws his requests.
    let mut running = JoinSet::new();
    let mut closing = std::pin::pin!(client.outbound.closed());
    loop {
        let message = tokio::select! {
            () = &mut closing => break,
            Some(_) = running.join_next() => continue,
            message = tokio::time::timeout(Duration::from_millis(LIVENESS_TIMEOUT_MS), stream.next()) => message,
        };
        if matches!(message, Ok(Some(Ok(_)))) {
            client.heard();
        }
        match message {
            Err(_) => {
                client.outbound.close(close::NORMAL, "heartbeat_timeout");
                return "heartbeat_timeout";
            }
            Ok(None) => return "disconnect",
            Ok(Some(Err(error))) => {
                refuse_frame(client, &error);
                return "disconnect";
            }
            Ok(Some(Ok(Message::Text(text)))) => {
                if let Some(call) = accept(gateway, client, &text, running.len()) {
                    running.spawn(methods::run(call));
                }
            }
            Ok(Some(Ok(Message::Binary(_)))) => {
                client.outbound.close(close::POLICY, "text frames only");
                break;
            }
            Ok(Some(Ok(Message::Close(_)))) => return "disconnect",
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
        }
    }
    // The other side answers our close; until then its frames are read and thrown away.
    let _ = tokio::time::timeout(CLOSE_GRACE, async { while let Some(Ok(_)) = stream.next().await {} }).await;
    "closed"
}

fn refuse_frame(client: &Client, error: &WsError) {
    match error {
        WsError::Capacity(_) => client.outbound.close(close::TOO_BIG, "frame over the limit"),
        WsError::Protocol(_) | WsError::Utf8(_) => client.outbound.close(close::PROTOCOL, "bad frame"),
        _ => {}
    }
}

/// Reads a request and decides whether it may run.
fn accept(gateway: &Arc<Gateway>, client: &Arc<Client>, text: &str, running: usize) -> Option<Call> {
    let request = match serde_json::from_str(text) {
        Ok(Frame::Request(request)) if !request.id.is_empty() => request,
        _ => {
            client.outbound.close(close::POLICY, "invalid request frame");
            return None;
        }
    };
    let Request { id, method, params } = request;
    if method == "connect" {
        client.outbound.fail(&id, invalid("connect is only valid as the first request"));
        return None;
    }
    // Answers of a node are never turned away: losing one would lose a result.
    let answer = client.role == Role::Node && method.starts_with("node.invoke.");
    if !answer {
        if let Err(wait) = gateway.request_limits.take(client.who(), Instant::now()) {
            let mut error = unavailable(format!(
                "too many requests; the limit is {} a second (`gateway.requests_per_second`)",
                gateway.hub.config.gateway.requests_per_second
            ));
            error.retryable = Some(true);
            error.retry_after_ms = u64::try_from(wait.as_millis()).ok();
            client.outbound.fail(&id, error);
            return None;
        }
        if running >= MAX_RUNNING {
            let mut error = unavailable(format!("{MAX_RUNNING} of your requests are still running"));
            error.retryable = Some(true);
            client.outbound.fail(&id, error);
            return None;
        }
    }
    Some(Call { gateway: Arc::clone(gateway), client: Arc::clone(client), id, method, params })
}
