//! Accepting connections: TLS told from plain by the first byte, plain only from this machine.

use super::admission::Ticket;
use super::http::{self, Conn};
use super::session::CLOSE_GRACE;
use super::{Gateway, GatewayError};
use crate::config::GatewayConfig;
use hearth_shared::connect::EXPORTER_LABEL;
use hearth_shared::limits::HANDSHAKE_TIMEOUT_MS;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// First byte of a TLS record that carries a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// Pause after the system refused to accept (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bound sockets, not yet served.
#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

impl Listeners {
    /// The real addresses, ports filled in.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

pub(super) async fn bind(config: &GatewayConfig) -> Result<Listeners, GatewayError> {
    let mut sockets = Vec::new();
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for ip in &config.bind {
        let port = if config.port == 0 { addresses.first().map_or(0, SocketAddr::port) } else { config.port };
        let address = SocketAddr::new(*ip, port);
        let fail = |source| GatewayError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(fail)?;
        addresses.push(socket.local_addr().map_err(fail)?);
        sockets.push(socket);
    }
    if sockets.is_empty() {
        return Err(GatewayError::NoAddress);
    }
    Ok(Listeners { sockets, addresses })
}

/// Accepts on all sockets until the gateway stops.
pub(super) async fn accept_all(gateway: &Arc<Gateway>, listeners: Listeners) {
    let loops = listeners.sockets.into_iter().map(|socket| accept(Arc::clone(gateway), socket));
    futures_util::future::join_all(loops).await;
}

async fn accept(gateway: Arc<Gateway>, socket: TcpListener) {
    loop {
        let accepted = tokio::select! {
            () = gateway.stop.cancelled() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(ticket) = gateway.admission.admit(peer.ip()) else {
                    tracing::debug!(%peer, "no room for another connection");
                    continue;
                };
                gateway.hub.tasks.spawn(serve(Arc::clone(&gateway), stream, peer, Arc::new(ticket)));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; too many open files?");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection up to its upgrade, and all of it when it stays plain HTTP.
async fn serve(gateway: Arc<Gateway>, stream: TcpStream, peer: SocketAddr, ticket: Arc<Ticket>) {
    let deadline = Instant::now() + Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
    let streaming = Arc::new(AtomicBool::new(false));
    let work = async {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let Ok(local) = stream.local_addr() else { return };
        let mut first = [0];
        match tokio::time::timeout_at(deadline, stream.peek(&mut first)).await {
            Ok(Ok(1)) => {}
            _ => return,
        }
        let conn = Conn {
            gateway: Arc::clone(&gateway),
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            local,
            exporter: None,
            ticket: Arc::clone(&ticket),
            deadline,
            streaming: Arc::clone(&streaming),
        };
        if first[0] == TLS_HANDSHAKE {
            serve_tls(stream, conn).await;
        } else if conn.peer.ip().is_loopback() {
            http::serve(stream, conn).await;
        } else {
            refuse_plain(stream, deadline).await;
        }
    };
    tokio::select! {
        () = ticket.dropped() => tracing::debug!(%peer, "dropped to make room for a newer connection"),
        () = stopped(&gateway, &streaming) => {}
        () = work => {}
    }
}

/// Resolves when the gateway stops; a session over HTTP is given the time to say so.
async fn stopped(gateway: &Gateway, streaming: &AtomicBool) {
    gateway.stop.cancelled().await;
    if streaming.load(Ordering::Relaxed) {
        tokio::time::sleep(CLOSE_GRACE * 2).await;
    }
}

async fn serve_tls(stream: TcpStream, mut conn: Conn) {
    let acceptor = tokio_rustls::TlsAcceptor::from(conn.gateway.hub.cert.tls());
    let tls = match tokio::time::timeout_at(conn.deadline, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => {
            tracing::debug!(peer = %conn.peer, %error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    // What a device signs is bound to this value, and so to this connection.
    match tls.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None) {
        Ok(exporter) => conn.exporter = Some(exporter),
        Err(error) => {
            tracing::warn!(peer = %conn.peer, %error, "no TLS exporter");
            return;
        }
    }
    http::serve(tls, conn).await;
}

/// Tells a plain client from the network what to do, in the one protocol it surely understands.
async fn refuse_plain(mut stream: TcpStream, deadline: Instant) {
    const TEXT: &str = "This port speaks TLS to the network: use https:// or wss://\n";
    let answer = format!(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.3\r\nConnection: Upgrade, close\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{TEXT}",
        TEXT.len()
    );
    let _ = tokio::time::timeout_at(deadline, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
}
