//! The connection of a page whose browser refuses `wss`: the same JSON frames over plain HTTP requests.
//!
//! Some browsers let a person click a certificate's warning away for the page and still refuse its sockets.
//! So the same session can run over `fetch`:
//!
//! ```text
//! POST /stream        ──► 200, a body that stays open, one line each (`\n`):
//!                         {"type":"stream","id":…,"secret":…}   the first
//!                         a JSON frame                          connect.challenge, answers, events
//!                         (empty)                               a ping, to be answered by an empty POST
//!                         {"type":"close","code":…,"reason":…}  the last
//! POST /stream/<id>   Authorization: Bearer <secret>
//!                     body: frames, one a line; empty is a pong; one request at a time
//!                 ──► 204
//! ```
//!
//! Handshake, rights, limits, deadlines and close codes are those of sockets, because the code is: only the
//! carrier differs ([`Wire`]). The session lives as long as the answer to the first request; its connection
//! holds the place that a socket would.

#[cfg(test)]
mod tests;

use super::{Conn, error_body, guard::Origin, json_response};
use crate::gateway::{handshake, session, uuid};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::routing::post;
use futures_util::{Sink, Stream};
use hearth_shared::identity::SecretText;
use hearth_shared::limits::{HANDSHAKE_TIMEOUT_MS, LIVENESS_TIMEOUT_MS, MAX_PAYLOAD, MAX_PREAUTH_FRAME};
use serde_json::json;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::PollSender;

/// Frames on their way from a request to the session.
const INBOX: usize = 16;
/// Lines on their way from the session to the connection; what waits before is counted in bytes.
const OUTBOX: usize = 4;

/// Sessions over HTTP, by id.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Mutex<HashMap<String, Arc<Entry>>>,
}

/// What a later request needs to know of a session.
#[derive(Debug)]
struct Entry {
    secret: SecretText,
    inbox: mpsc::Sender<Message>,
    /// The handshake is over: frames may be large.
    admitted: AtomicBool,
    /// Requests of one session come one after the other, so that frames keep their order.
    turn: Semaphore,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn routes() -> Router<Conn> {
    Router::new().route("/stream", post(open)).route("/stream/{id}", post(take))
}

/// Whether a path takes POST.
pub(super) fn takes(path: &str) -> bool {
    path == "/stream" || path.starts_with("/stream/")
}

/// Begins a session; the answer's body is what it sends.
async fn open(State(mut conn): State<Conn>, Extension(origin): Extension<Origin>) -> Response<Body> {
    let (Ok(id), Ok(secret)) = (uuid(), SecretText::random()) else {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "no random bytes from the operating system",
        );
    };
    let (inbox, incoming) = mpsc::channel(INBOX);
    let (outgoing, lines) = mpsc::channel(OUTBOX);
    let first = json!({ "type": "stream", "id": id, "secret": secret.expose() });
    // The channel is empty: there is room.
    let _ = outgoing.try_send(line(&first.to_string()));
    let entry = Arc::new(Entry { secret, inbox, admitted: AtomicBool::new(false), turn: Semaphore::new(1) });
    conn.gateway.streams.lock().insert(id.clone(), Arc::clone(&entry));
    // When the connection ends, so does the entry, and with it the session's inbox.
    let listed = Listed { conn: conn.clone(), id };
    conn.streaming.store(true, Ordering::Relaxed);
    // The connection may have served files before: the time to authenticate begins now.
    conn.deadline = Instant::now() + Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
    let wire = Wire { incoming, outgoing: PollSender::new(outgoing) };
    let admitted = Arc::downgrade(&entry);
    drop(entry);
    let tasks = conn.gateway.hub.tasks.clone();
    tasks.spawn(async move {
        let mut wire = wire;
        let settled = handshake::settle(&mut wire, &conn, origin.local_trust).await;
        if let Some(client) = settled {
            if let Some(entry) = admitted.upgrade() {
                entry.admitted.store(true, Ordering::Relaxed);
            }
            conn.ticket.authenticated();
            Box::pin(session::run(Arc::clone(&conn.gateway), wire, client)).await;
        }
    });
    let body = futures_util::stream::unfold((lines, listed), |(mut lines, listed)| async move {
        let line: Bytes = lines.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), (lines, listed)))
    });
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

/// Takes a session off the list when its connection ends.
struct Listed {
    conn: Conn,
    id: String,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.conn.gateway.streams.lock().remove(&self.id);
    }
}

/// Frames from the page.
async fn take(
    State(conn): State<Conn>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "))
        .unwrap_or_default();
    let found = conn.gateway.streams.lock().get(&id).cloned();
    // The same answer for no session and a wrong secret.
    let Some(entry) = found.filter(|entry| entry.secret.matches(bearer)) else {
        let message = "there is no such session, or `Authorization: Bearer` does not hold its secret";
        return refuse(StatusCode::UNAUTHORIZED, "unauthorized", message);
    };
    let admitted = entry.admitted.load(Ordering::Relaxed);
    let (limit, time) = if admitted {
        conn.ticket.authenticated();
        (MAX_PAYLOAD, LIVENESS_TIMEOUT_MS)
    } else {
        (MAX_PREAUTH_FRAME, HANDSHAKE_TIMEOUT_MS)
    };
    let Ok(_turn) = entry.turn.try_acquire() else {
        let message = "one request of a session at a time, so that frames keep their order";
        return refuse(StatusCode::CONFLICT, "conflict", message);
    };
    let deliver = async {
        let Ok(bytes) = axum::body::to_bytes(body, limit).await else {
            let message = format!("at most {limit} bytes at a time");
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message));
        };
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Err(refuse(StatusCode::BAD_REQUEST, "not_text", "frames are UTF-8 text"));
        };
        let mut frames: Vec<Message> = text.lines().filter(|l| !l.is_empty()).map(Message::text).collect();
        if frames.is_empty() {
            frames.push(Message::Pong(Bytes::new()));
        }
        for frame in frames {
            if entry.inbox.send(frame).await.is_err() {
                return Err(refuse(StatusCode::GONE, "ended", "the session has ended"));
            }
        }
        Ok(())
    };
    match tokio::time::timeout(Duration::from_millis(time), deliver).await {
        Ok(Ok(())) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Ok(Err(refusal)) => refusal,
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "timeout", "the frames did not come in time"),
    }
}

fn refuse(status: StatusCode, kind: &str, message: &str) -> Response<Body> {
    json_response(status, &error_body(kind, message))
}

fn line(text: &str) -> Bytes {
    Bytes::from(format!("{text}\n"))
}

/// A session's two directions, in the shape of a socket.
#[derive(Debug)]
struct Wire {
    incoming: mpsc::Receiver<Message>,
    outgoing: PollSender<Bytes>,
}

impl Stream for Wire {
    type Item = Result<Message, WsError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.incoming.poll_recv(cx).map(|message| message.map(Ok))
    }
}

impl Sink<Message> for Wire {
    type Error = WsError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        self.outgoing.poll_reserve(cx).map_err(|_| WsError::ConnectionClosed)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), WsError> {
        let bytes = match message {
            Message::Text(text) => line(&text),
            Message::Ping(_) => line(""),
            Message::Close(frame) => {
                let (code, reason) =
                    frame.map_or((1005, String::new()), |f| (u16::from(f.code), f.reason.to_string()));
                // `type` first: a page need not read every frame to know this one.
                line(&format!(r#"{{"type":"close","code":{code},"reason":{}}}"#, json!(reason)))
            }
            // The gateway sends none of these.
            Message::Binary(_) | Message::Pong(_) | Message::Frame(_) => return Ok(()),
        };
        self.outgoing.send_item(bytes).map_err(|_| WsError::ConnectionClosed)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        self.outgoing.close();
        Poll::Ready(Ok(()))
    }
}
