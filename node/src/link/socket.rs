//! TCP, TLS 1.3 with the pinned key, WebSocket.

use super::state::End;
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::connect::EXPORTER_LABEL;
use hearth_shared::identity::Digest;
use hearth_shared::limits::{CHUNK_SIZE, LIVENESS_TIMEOUT_MS, MAX_LINK_FRAME, WS_READ_BUFFER};
use hearth_shared::link::{LinkFrame as _, PATH, SUBPROTOCOL, ToHub, ToNode};
use hearth_shared::pin::PinVerifier;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

/// A WebSocket over TLS; boxed, because the TLS state is too large to be moved from future to future.
pub type Stream = WebSocketStream<Box<TlsStream<TcpStream>>>;

/// Longest wait for a TCP connection.
const TCP_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes the kernel may hold unsent. Small on purpose: what is written cannot be overtaken, so this and one
/// chunk are all that a heartbeat can be behind (0.4 s at 1 Mbit/s).
const SEND_BUFFER: usize = 32 * 1024;

/// A connection before or after the handshake.
#[derive(Debug)]
pub struct Socket {
    /// Frames.
    pub stream: Stream,
    /// TLS exporter of this connection.
    pub exporter: [u8; 32],
    /// SHA-256 of the TLS key the peer showed and proved.
    pub spki: Digest,
    /// As dialled.
    pub address: String,
}

/// Connects to `address` (`host:port`).
///
/// # Errors
/// [`End::Unreachable`], [`End::WrongKey`], [`End::NotAHub`].
pub async fn connect(address: &str, verifier: Arc<PinVerifier>) -> Result<Socket, End> {
    let unreachable = |why: String| End::Unreachable { address: address.into(), why };
    let not_a_hub = |why: String| End::NotAHub { address: address.into(), why };
    let tcp = tokio::time::timeout(TCP_DEADLINE, TcpStream::connect(address))
        .await
        .map_err(|_| unreachable("no answer within 10 s".into()))?
        .map_err(|e| unreachable(e.to_string()))?;
    let tuned = tcp
        .set_nodelay(true)
        .and_then(|()| Ok(rustix::net::sockopt::set_socket_send_buffer_size(&tcp, SEND_BUFFER)?))
        .and_then(|()| {
            let ms = u32::try_from(LIVENESS_TIMEOUT_MS).unwrap_or(u32::MAX);
            Ok(rustix::net::sockopt::set_tcp_user_timeout(&tcp, ms)?)
        });
    tuned.map_err(|e| unreachable(e.to_string()))?;

    let config = verifier.client_config().map_err(|e| not_a_hub(e.to_string()))?;
    // The name proves nothing and is not looked at; a constant one tells an observer nothing.
    let name = ServerName::try_from("hearth").map_err(|e| not_a_hub(e.to_string()))?;
    let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|e| {
        let rustls = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match rustls {
            Some(rustls::Error::InvalidCertificate(
                rustls::CertificateError::ApplicationVerificationFailure,
            )) => End::WrongKey { address: address.into() },
            _ => not_a_hub(format!("TLS: {e}")),
        }
    })?;
    tls.get_mut().1.set_buffer_limit(Some(2 * CHUNK_SIZE));
    let spki = verifier.seen().ok_or_else(|| not_a_hub("TLS without a certificate".into()))?;
    let exporter = tls
        .get_ref()
        .1
        .export_keying_material([0; 32], EXPORTER_LABEL, None)
        .map_err(|e| not_a_hub(format!("TLS exporter: {e}")))?;

    let mut request = format!("wss://{address}{PATH}")
        .into_client_request()
        .map_err(|e| unreachable(format!("not an address: {e}")))?;
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let config = WebSocketConfig::default()
        .read_buffer_size(WS_READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_LINK_FRAME)
        .max_message_size(Some(MAX_LINK_FRAME))
        .max_frame_size(Some(MAX_LINK_FRAME));
    let (stream, _) = tokio_tungstenite::client_async_with_config(request, Box::new(tls), Some(config))
        .await
        .map_err(|e| not_a_hub(e.to_string()))?;
    Ok(Socket { stream, exporter, spki, address: address.into() })
}

/// What a WebSocket message means for the link; `None`: nothing but a sign of life.
pub(super) fn read(message: Option<Result<Message, tungstenite::Error>>) -> Result<Option<ToNode>, End> {
    match message {
        Some(Ok(Message::Binary(bytes))) => {
            ToNode::decode(&bytes).map(Some).map_err(|e| End::Protocol(e.to_string()))
        }
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
        Some(Ok(Message::Close(frame))) => {
            let reason = frame.map(|f| f.reason.as_str().to_owned()).filter(|r| !r.is_empty());
            Err(End::Lost(match reason {
                Some(reason) => {
                    format!("closed by the hub: {}", hearth_shared::identity::display_safe(&reason, 120))
                }
                None => "closed by the hub".into(),
            }))
        }
        Some(Ok(_)) => Err(End::Protocol("a text message".into())),
        Some(Err(error)) => Err(End::Lost(why(&error))),
        None => Err(End::Lost("closed".into())),
    }
}

/// An error of the connection in words for people; a hub that was killed says no goodbye.
pub(super) fn why(error: &tungstenite::Error) -> String {
    match error {
        tungstenite::Error::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the hub ended without a goodbye".into()
        }
        other => other.to_string(),
    }
}

impl Socket {
    /// The next frame. The caller has a deadline.
    ///
    /// # Errors
    /// [`End`].
    pub async fn receive(&mut self) -> Result<ToNode, End> {
        loop {
            if let Some(frame) = read(self.stream.next().await)? {
                return Ok(frame);
            }
        }
    }

    /// Sends a frame. The caller has a deadline.
    ///
    /// # Errors
    /// [`End`].
    pub async fn send(&mut self, frame: &ToHub) -> Result<(), End> {
        let bytes = frame.encode().map_err(|e| End::Protocol(e.to_string()))?;
        self.stream.send(Message::Binary(bytes.into())).await.map_err(|e| End::Lost(why(&e)))
    }

    /// Says why and closes; waits no longer than two seconds.
    pub async fn goodbye(mut self, reason: &str) {
        let farewell = async {
            self.send(&ToHub::Goodbye { reason: reason.into() }).await?;
            self.stream.close(None).await.map_err(|e| End::Lost(e.to_string()))
        };
        match tokio::time::timeout(Duration::from_secs(2), farewell).await {
            Ok(Ok(())) => {}
            Ok(Err(end)) => tracing::debug!(%end, "goodbye not delivered"),
            Err(_) => tracing::debug!("goodbye not delivered in time"),
        }
    }
}
