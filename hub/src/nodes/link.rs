//! The hub's end of a node link: handshake, then a session until the link ends.
//!
//! See [`hearth_shared::link`] for the exchange. Here each file is one side of it: [`handshake`] decides
//! who comes in, [`session`] moves frames, [`connection`] is what the rest of the hub calls,
//! [`transfer`] takes attachments.

mod connection;
mod handshake;
mod session;
mod transfer;

pub(super) use connection::LinkConnection;
pub(super) use session::SessionEnd;

use super::Nodes;
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::limits::MAX_PREAUTH_FRAME;
use hearth_shared::link::{LinkError, LinkFrame as _, Refused, RefusedCode, ToHub, ToNode};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// What a last word to the other side may take.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Why a handshake comes to nothing.
#[derive(Debug)]
enum Failed {
    /// The other side went away, or the time was over: nothing to say.
    Gone(&'static str),
    /// It is told why.
    Refused(Refused),
}

impl From<LinkError> for Failed {
    fn from(error: LinkError) -> Self {
        refused(RefusedCode::Protocol, error.to_string(), 0)
    }
}

fn refused(code: RefusedCode, message: impl Into<String>, retry_after_ms: u64) -> Failed {
    Failed::Refused(Refused { code, message: message.into(), retry_after_ms })
}

async fn send<S>(socket: &mut WebSocketStream<S>, frame: &ToNode) -> Result<(), Failed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes = frame.encode()?;
    socket.send(Message::Binary(bytes.into())).await.map_err(|_| Failed::Gone("connection closed"))
}

/// The next frame, of a size that is fit for somebody who has not proved anything.
async fn receive<S>(socket: &mut WebSocketStream<S>) -> Result<ToHub, Failed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match socket.next().await {
            Some(Ok(Message::Binary(bytes))) => {
                if bytes.len() > MAX_PREAUTH_FRAME {
                    return Err(LinkError::TooLong(bytes.len()).into());
                }
                return Ok(ToHub::decode(&bytes)?);
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Text(_) | Message::Frame(_))) => return Err(LinkError::Malformed.into()),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Failed::Gone("connection closed")),
        }
    }
}

fn close_message(code: u16, reason: &str) -> Message {
    // A control frame holds 125 bytes, two of them the code.
    let mut end = reason.len().min(123);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    Message::Close(Some(CloseFrame { code: code.into(), reason: reason[..end].into() }))
}

impl Nodes {
    /// Serves one node link: called by the gateway after the upgrade on the link's path. `exporter` is
    /// the TLS exporter of this connection; `on_admitted` is called when the node has proved itself and is
    /// in. Ends when the link ends.
    pub async fn serve_link<S>(
        &self,
        mut socket: WebSocketStream<S>,
        peer: SocketAddr,
        exporter: [u8; 32],
        on_admitted: impl FnOnce() + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stop = self.inner.tasks.stop.clone();
        let admitted = tokio::select! {
            () = stop.cancelled() => Err(Failed::Gone("the hub stops")),
            admitted = Box::pin(self.handshake(&mut socket, peer, exporter)) => admitted,
        };
        let failed = match admitted {
            Ok(admitted) => match Box::pin(self.begin_session(&mut socket, peer, admitted)).await {
                Ok(session) => {
                    on_admitted();
                    return Box::pin(self.run_session(socket, session)).await;
                }
                Err(failed) => failed,
            },
            Err(failed) => failed,
        };
        let (code, reason) = match &failed {
            Failed::Gone(why) => {
                tracing::debug!(%peer, why, "a node link ended before it was admitted");
                (hearth_shared::frame::close::NORMAL, *why)
            }
            Failed::Refused(refused) => {
                tracing::info!(%peer, code = ?refused.code, message = %refused.message, "a node was not let in");
                (hearth_shared::frame::close::POLICY, "refused")
            }
        };
        let last = async {
            if let Failed::Refused(refused) = failed {
                let _ = send(&mut socket, &ToNode::Refused(refused)).await;
            }
            let _ = socket.send(close_message(code, reason)).await;
        };
        let _ = tokio::time::timeout(LAST_WORD, last).await;
    }
}
