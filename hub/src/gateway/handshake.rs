//! From an upgraded socket to a client that may ask.
//!
//! ```text
//! hub    ──► connect.challenge {nonce, ts}
//! client ──► connect {…}                      the first request, within 15 s, at most 64 KiB
//!            schema ► versions ► role ► device key ► secrets ► known device     each may refuse and close
//! hub    ──► hello-ok {…}
//! ```
//!
//! A refusal is an ordinary error response with `details.code`, then a close.

mod auth;
mod device;
mod hello;
pub(crate) mod params;
#[cfg(test)]
mod tests;

use super::answer::invalid;
use super::clients::{Client, Identity};
use super::frame_gate::FrameGate;
use super::http::{Conn, websocket_config};
use super::params as method_params;
use super::session::close_frame;
use super::uuid;
use crate::store::now_ms;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use hearth_shared::connect::Role;
use hearth_shared::frame::{
    ErrorShape, EventFrame, Frame, MIN_NODE_PROTOCOL, PROTOCOL, Request, Response, close,
};
use hearth_shared::limits::{MAX_PAYLOAD, MAX_PREAUTH_FRAME};
use params::{ClientMode, ConnectParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role as Side;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// Time a refusal may take to reach the client.
const REFUSAL_GRACE: Duration = Duration::from_secs(2);

/// Why a client is not let in.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: Box<ErrorShape>,
    pub(crate) close: u16,
    /// Close reason where it says more than the message.
    pub(crate) reason: Option<String>,
}

impl From<ErrorShape> for Refusal {
    fn from(error: ErrorShape) -> Self {
        Self { error: Box::new(error), close: close::POLICY, reason: None }
    }
}

/// A client that is in.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) client: Arc<Client>,
    pub(crate) outbound: super::session::OutboundQueue,
    /// Of a node: what it declares.
    pub(crate) node: Option<NodeClaims>,
}

/// What a JSON node declares.
#[derive(Debug, Clone)]
pub(crate) struct NodeClaims {
    pub(crate) caps: Vec<String>,
    pub(crate) commands: Vec<String>,
}

/// Runs the handshake of a WebSocket. `None` when the client was refused or went away; it has been told.
pub(super) async fn run<S>(
    stream: S,
    conn: &Conn,
    local_trust: bool,
) -> Option<(WebSocketStream<S>, Admitted)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = websocket_config(MAX_PREAUTH_FRAME);
    let mut socket =
        WebSocketStream::from_raw_socket(FrameGate::new(stream), Side::Server, Some(config)).await;
    let admitted = settle(&mut socket, conn, local_trust).await?;
    // Nothing is left in the first instance's buffer; see `frame_gate`.
    let stream = socket.into_inner().into_inner();
    let config = websocket_config(MAX_PAYLOAD);
    Some((WebSocketStream::from_raw_socket(stream, Side::Server, Some(config)).await, admitted))
}

/// Whatever carries messages both ways.
pub(super) trait Carrier:
    Stream<Item = Result<Message, WsError>> + Sink<Message, Error = WsError> + Unpin
{
}

impl<T> Carrier for T where T: Stream<Item = Result<Message, WsError>> + Sink<Message, Error = WsError> + Unpin
{}

/// The handshake over any carrier. `None` when the client was refused or went away; it has been told.
pub(super) async fn settle<T: Carrier>(socket: &mut T, conn: &Conn, local_trust: bool) -> Option<Admitted> {
    let outcome = tokio::time::timeout_at(conn.deadline, negotiate(socket, conn, local_trust)).await;
    let (code, reason) = match outcome {
        Ok(Ok(admitted)) => return Some(admitted),
        Ok(Err(End::Gone)) => return None,
        Ok(Err(End::Close(code, reason))) => (code, reason),
        Err(_) => (close::POLICY, "handshake timeout".into()),
    };
    let _ = tokio::time::timeout(REFUSAL_GRACE, farewell(socket, code, &reason)).await;
    None
}

/// How a handshake ends without a client.
enum End {
    Gone,
    Close(u16, String),
}

impl From<WsError> for End {
    fn from(error: WsError) -> Self {
        match error {
            WsError::Capacity(_) => {
                Self::Close(close::TOO_BIG, "frame over 65536 bytes before connect".into())
            }
            WsError::Protocol(_) | WsError::Utf8(_) => {
                Self::Close(close::PROTOCOL, "not a WebSocket message".into())
            }
            _ => Self::Gone,
        }
    }
}

async fn farewell<T: Carrier>(socket: &mut T, code: u16, reason: &str) {
    if socket.send(close_frame(code, reason)).await.is_ok() {
        // Reading on until the peer has answered, so that its last frames do not reset the connection.
        while let Some(Ok(_)) = socket.next().await {}
    }
}

async fn negotiate<T: Carrier>(socket: &mut T, conn: &Conn, local_trust: bool) -> Result<Admitted, End> {
    let nonce = uuid().map_err(|_| End::Gone)?;
    let challenge = Frame::Event(EventFrame {
        event: "connect.challenge".into(),
        payload: Some(json!({ "nonce": nonce, "ts": now_ms() })),
        seq: None,
        state_version: None,
    });
    socket.send(text(&challenge)).await?;
    let request = first_request(socket).await?;
    let id = request.id.clone();
    match Box::pin(admit(request, conn, local_trust, &nonce)).await {
        Ok((admitted, hello)) => {
            let response = Response { id, ok: true, payload: Some(hello), error: None };
            socket.send(text(&Frame::Response(response))).await?;
            Ok(admitted)
        }
        Err(refusal) => {
            let reason = refusal.reason.unwrap_or_else(|| refusal.error.message.clone());
            tracing::info!(peer = %conn.peer, reason, "client refused");
            let response = Response { id, ok: false, payload: None, error: Some(*refusal.error) };
            socket.send(text(&Frame::Response(response))).await?;
            Err(End::Close(refusal.close, reason))
        }
    }
}

fn text(frame: &Frame) -> Message {
    // Frames of strings, numbers and JSON values always encode.
    Message::text(serde_json::to_string(frame).unwrap_or_default())
}

/// The first message must be a request; pings may come before it.
async fn first_request<T: Carrier>(socket: &mut T) -> Result<Request, End> {
    loop {
        match socket.next().await.ok_or(End::Gone)?? {
            Message::Text(text) => {
                return match serde_json::from_str(&text) {
                    Ok(Frame::Request(request)) if !request.id.is_empty() => Ok(request),
                    _ => Err(End::Close(close::POLICY, "invalid request frame".into())),
                };
            }
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Binary(_) => return Err(End::Close(close::POLICY, "text frames only".into())),
            Message::Close(_) | Message::Frame(_) => return Err(End::Gone),
        }
    }
}

async fn admit(
    request: Request,
    conn: &Conn,
    local_trust: bool,
    nonce: &str,
) -> Result<(Admitted, Value), Refusal> {
    if request.method != "connect" {
        return Err(invalid("invalid handshake: first request must be connect").into());
    }
    let params: ConnectParams = method_params::read("connect", request.params)?;
    params.check().map_err(|why| invalid(format!("invalid connect params: {why}")))?;
    versions(&params)?;
    let role = match params.role.as_deref() {
        None | Some("operator") => Role::Operator,
        Some("node") => Role::Node,
        Some(_) => return Err(invalid("invalid role").into()),
    };
    let proved = device::check(&params, nonce, now_ms())?;
    let grant = auth::authorise(conn, &params, role, proved, local_trust).await?;
    let identity = Identity {
        conn_id: uuid().map_err(|_| invalid("no random bytes from the operating system"))?,
        peer: conn.peer,
        role,
        scopes: grant.scopes,
        device: grant.device,
        local: local_trust,
        client: params.client,
        connected_ms: now_ms(),
        caps: params.caps.clone(),
    };
    let (client, outbound) = Client::new(identity);
    let client = Arc::new(client);
    let hello = hello::payload(&conn.gateway, &client, grant.method, grant.token.as_ref()).await;
    let node = (role == Role::Node).then_some(NodeClaims { caps: params.caps, commands: params.commands });
    Ok((Admitted { client, outbound, node }, hello))
}

/// Operators speak our version; nodes and probes may be one behind.
fn versions(params: &ConnectParams) -> Result<(), Refusal> {
    let range = params.min_protocol..=params.max_protocol;
    let node = params.role.as_deref() == Some("node") && params.client.mode == ClientMode::Node;
    let lenient = node || params.client.mode == ClientMode::Probe;
    if range.contains(&PROTOCOL) || (lenient && range.contains(&MIN_NODE_PROTOCOL)) {
        return Ok(());
    }
    let error = invalid("protocol mismatch").with_details(json!({
        "code": "PROTOCOL_MISMATCH",
        "clientMinProtocol": params.min_protocol,
        "clientMaxProtocol": params.max_protocol,
        "expectedProtocol": PROTOCOL,
        "minimumProbeProtocol": MIN_NODE_PROTOCOL,
    }));
    Err(Refusal { close: close::PROTOCOL, ..error.into() })
}
