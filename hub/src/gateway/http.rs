//! HTTP on the gateway's port: who may ask at all, small routes, the page's files, and the upgrades.

mod guard;
mod media;
pub(crate) mod stream;
mod trust;

use super::Gateway;
use super::admission::Ticket;
use super::{handshake, session};
use axum::Router;
use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{Method, Request, Response, StatusCode, Uri};
use axum::routing::get;
use guard::Origin;
use hearth_shared::limits::{MAX_LINK_FRAME, WS_READ_BUFFER};
use hearth_shared::link;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Header block of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// A connection that stays plain HTTP ends after this, so that idle ones do not gather.
const HTTP_LIFETIME: Duration = Duration::from_secs(300);

/// What is known about a connection before it says anything.
#[derive(Debug, Clone)]
pub(crate) struct Conn {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// Of TLS connections; `None` on plain loopback.
    pub(crate) exporter: Option<[u8; 32]>,
    pub(crate) ticket: Arc<Ticket>,
    /// Until then it must have authenticated.
    pub(crate) deadline: Instant,
    /// Its answer is a session ([`stream`]): it ends with that, not by its age.
    pub(crate) streaming: Arc<AtomicBool>,
}

/// Serves HTTP/1.1 on a stream; ends when it is upgraded or closed.
pub(super) async fn serve<S>(stream: S, conn: Conn)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (peer, streaming) = (conn.peer, Arc::clone(&conn.streaming));
    let routes = TowerToHyperService::new(routes(conn.clone()));
    let service = service_fn(move |request| answer(request, conn.clone(), routes.clone()));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut ended = tokio::time::timeout(HTTP_LIFETIME, connection.as_mut()).await;
    if ended.is_err() && streaming.load(Ordering::Relaxed) {
        connection.as_mut().graceful_shutdown();
        ended = Ok(connection.await);
    }
    if let Ok(Err(error)) = ended {
        tracing::debug!(%peer, %error, "HTTP connection");
    }
}

fn routes(conn: Conn) -> Router {
    Router::new()
        .route("/healthz", get(|| async { json_response(StatusCode::OK, &json!({ "ok": true })) }))
        .route("/readyz", get(ready))
        .route("/media/{id}", get(media::serve))
        .merge(trust::routes())
        .merge(stream::routes())
        .fallback(page)
        .with_state(conn)
}

/// A file of the web page, for anybody: it holds no secret and no state.
async fn page(uri: Uri, headers: HeaderMap) -> Response<Body> {
    crate::web::serve(uri.path(), &headers).unwrap_or_else(|| {
        json_response(StatusCode::NOT_FOUND, &error_body("not_found", "there is nothing here"))
    })
}

/// Ready means that the database answers.
async fn ready(axum::extract::State(conn): axum::extract::State<Conn>) -> Response<Body> {
    let answers = conn.gateway.hub.store.read(|c| Ok(c.query_row("SELECT 1", [], |_| Ok(()))?)).await;
    let status = if answers.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_response(status, &json!({ "ready": answers.is_ok() }))
}

async fn answer(
    request: Request<Incoming>,
    conn: Conn,
    routes: TowerToHyperService<Router>,
) -> Result<Response<Body>, Infallible> {
    let origin = match guard::check(&request, &conn) {
        Ok(origin) => origin,
        Err(refusal) => return Ok(hang_up(secured(*refusal))),
    };
    let response = if is_upgrade(request.headers()) {
        hang_up(upgrade(request, conn, &origin))
    } else if is_mutation(request.method())
        && !(request.method() == Method::POST && stream::takes(request.uri().path()))
    {
        json_response(
            StatusCode::METHOD_NOT_ALLOWED,
            &error_body("method_not_allowed", "only GET works here"),
        )
    } else {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(origin);
        match routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    Ok(secured(response))
}

/// Headers that every answer carries: nothing here is to be framed, sniffed, cached or mixed with.
fn secured(mut response: Response<Body>) -> Response<Body> {
    const ALWAYS: [(HeaderName, &str); 5] = [
        (HeaderName::from_static("content-security-policy"), "default-src 'none'; frame-ancestors 'none'"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in ALWAYS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Whoever was refused has no further business on this connection.
fn hang_up(mut response: Response<Body>) -> Response<Body> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pub(super) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn error_body(kind: &str, message: &str) -> serde_json::Value {
    json!({ "error": { "type": kind, "message": message } })
}

fn is_mutation(method: &Method) -> bool {
    method != Method::GET && method != Method::HEAD
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    has_token(headers, &CONNECTION, "upgrade") && has_token(headers, &UPGRADE, "websocket")
}

/// Whether a comma-separated header holds a word, case ignored.
fn has_token(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|v| v.trim().eq_ignore_ascii_case(word))
}

/// Answers an upgrade (RFC 6455, 4.2.2) and lets the socket's later life run as a task of its own.
fn upgrade(mut request: Request<Incoming>, conn: Conn, origin: &Origin) -> Response<Body> {
    let headers = request.headers();
    if request.method() != Method::GET || !has_token(headers, &SEC_WEBSOCKET_VERSION, "13") {
        let mut response = json_response(
            StatusCode::UPGRADE_REQUIRED,
            &error_body("websocket_version", "use WebSocket version 13"),
        );
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return response;
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return json_response(
            StatusCode::BAD_REQUEST,
            &error_body("websocket_key", "the Sec-WebSocket-Key header is missing"),
        );
    };
    let accept = derive_accept_key(key.as_bytes());
    let link = guard::is_link(request.uri().path());
    if link && !has_token(headers, &SEC_WEBSOCKET_PROTOCOL, link::SUBPROTOCOL) {
        let message = format!("this path speaks the sub-protocol {} only", link::SUBPROTOCOL);
        return json_response(StatusCode::BAD_REQUEST, &error_body("websocket_protocol", &message));
    }
    if link && conn.exporter.is_none() {
        let message = "node links need TLS, also from this machine: the node pins the hub's key";
        return json_response(StatusCode::UPGRADE_REQUIRED, &error_body("tls_required", message));
    }
    let local_trust = origin.local_trust;
    let upgraded = hyper::upgrade::on(&mut request);
    let tasks = conn.gateway.hub.tasks.clone();
    tasks.spawn(async move {
        let deadline = conn.deadline;
        let ticket = Arc::clone(&conn.ticket);
        let stream = match tokio::time::timeout_at(deadline, upgraded).await {
            Ok(Ok(stream)) => TokioIo::new(stream),
            Ok(Err(error)) => return tracing::debug!(peer = %conn.peer, %error, "upgrade"),
            Err(_) => return,
        };
        let life = async {
            match conn.exporter {
                Some(exporter) if link => serve_link(stream, &conn, exporter).await,
                _ => Box::pin(serve_client(stream, conn, local_trust)).await,
            }
        };
        tokio::select! {
            () = ticket.dropped() => {}
            () = life => {}
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(value) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, value);
    }
    if link {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(link::SUBPROTOCOL));
    }
    response
}

/// A WebSocket with small buffers; the library's defaults are sized for servers with gigabytes.
pub(crate) fn websocket_config(max_message: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(WS_READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message))
}

async fn serve_link<S>(stream: S, conn: &Conn, exporter: [u8; 32])
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = Some(websocket_config(MAX_LINK_FRAME));
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, config).await;
    conn.gateway.hub.nodes.serve_link(socket, conn.peer, exporter, || conn.ticket.authenticated()).await;
}

async fn serve_client<S>(stream: S, conn: Conn, local_trust: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Some((socket, admitted)) = handshake::run(stream, &conn, local_trust).await {
        conn.ticket.authenticated();
        session::run(Arc::clone(&conn.gateway), socket, admitted).await;
    }
}
