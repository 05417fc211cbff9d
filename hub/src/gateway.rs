//! The gateway: one port for everything that talks to the hub.
//!
//! ```text
//! TCP ──► [listener] first byte ──► TLS (0x16) ──┐
//!                        └──► plain, loopback only ┴──► [http] Host, Origin, forwarding headers
//!                                                          ├──► /healthz, /readyz, /media/<id>, /trust, files of the page
//!                                                          ├──► POST /stream ──► [handshake], as below
//!                                                          ├──► upgrade on /link ──► nodes (postcard)
//!                                                          └──► any other upgrade ──► [handshake]
//!                                                                   └──► [session] ──► [methods]
//! ```
//!
//! Events come up from the bus through [`events`], once for all clients.

pub(crate) mod admission;
pub(crate) mod answer;
pub(crate) mod clients;
pub(crate) mod events;
pub(crate) mod frame_gate;
pub(crate) mod handshake;
pub(crate) mod http;
pub(crate) mod json_node;
pub(crate) mod listener;
pub(crate) mod methods;
pub(crate) mod params;
pub(crate) mod presence;
pub(crate) mod rate;
#[cfg(test)]
pub(crate) mod rig;
pub mod schema;
pub(crate) mod session;
#[cfg(test)]
mod tests;

pub use listener::Listeners;

use crate::config::GatewayConfig;
use crate::hub::Hub;
use admission::Admission;
use clients::Clients;
use hearth_shared::identity::{IdentityError, random};
use http::stream::Streams;
use presence::Presence;
use rate::{AuthLimits, RequestLimits};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}; is another hub running, or is `gateway.bind` wrong?")]
    Bind {
        /// The address of `gateway.bind` and `gateway.port`.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// `gateway.bind` is empty.
    #[error("`gateway.bind` names no address; put [\"127.0.0.1\"] there")]
    NoAddress,
    /// No randomness.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Everything the sockets share.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) hub: Arc<Hub>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) clients: Clients,
    /// Sessions over HTTP.
    pub(crate) streams: Streams,
    pub(crate) presence: Presence,
    pub(crate) auth_limits: AuthLimits,
    pub(crate) request_limits: RequestLimits,
    /// This start of the hub, as clients see it in `hello-ok`.
    pub(crate) boot_id: String,
    pub(crate) stop: CancellationToken,
}

impl Gateway {
    /// Binds the configured addresses; port 0 takes a free one (the same for all addresses).
    ///
    /// # Errors
    /// [`GatewayError`] with the address that failed.
    pub async fn bind(config: &GatewayConfig) -> Result<Listeners, GatewayError> {
        listener::bind(config).await
    }

    /// Serves until `stop`; then tells every client, closes it with 1012, and returns.
    ///
    /// # Errors
    /// [`GatewayError::Identity`] when the system gives no random bytes.
    pub async fn run(
        hub: Arc<Hub>,
        listeners: Listeners,
        stop: CancellationToken,
    ) -> Result<(), GatewayError> {
        let gateway = Arc::new(Self {
            addresses: listeners.addresses().to_vec(),
            admission: Admission::new(hub.config.gateway.max_connections),
            clients: Clients::default(),
            streams: Streams::default(),
            presence: Presence::default(),
            auth_limits: AuthLimits::default(),
            request_limits: RequestLimits::new(hub.config.gateway.requests_per_second),
            boot_id: uuid()?,
            stop,
            hub,
        });
        let tasks = gateway.hub.tasks.clone();
        tasks.spawn(events::pump(Arc::clone(&gateway)));
        tasks.spawn(events::close_devices(Arc::clone(&gateway)));
        crate::discovery::start(
            &gateway.hub.tasks,
            &gateway.hub.config,
            &gateway.hub.keys,
            &gateway.addresses,
        );
        listener::accept_all(&gateway, listeners).await;
        gateway.clients.shut_down("gateway stopping");
        gateway.clients.wait_gone(session::CLOSE_GRACE * 2).await;
        Ok(())
    }

    /// Whether `ip` is an address this gateway may be reached under by its number.
    pub(crate) fn listens_on(&self, ip: std::net::IpAddr) -> bool {
        self.addresses.iter().any(|a| a.ip() == ip)
    }
}

/// A random (version 4) UUID: nonces, connection ids.
pub(crate) fn uuid() -> Result<String, IdentityError> {
    let mut b = random::<16>()?;
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let h = hex::encode(b);
    Ok(format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..]))
}
