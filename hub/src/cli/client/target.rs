//! Which hub, and how it is trusted.

use super::Stream;
use crate::cli::error::{Exit, Failure};
use crate::home::Home;
use crate::keys;
use hearth_shared::identity::{Digest, SecretKey, SecretText};
use hearth_shared::pin::PinVerifier;
use rustls::pki_types::ServerName;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Where the hub that uses this home should listen by its configuration; nothing when none runs.
fn configured(home: &Home) -> Vec<SocketAddr> {
    if !home.in_use() {
        return Vec::new();
    }
    match crate::config::load::load(&home.config()) {
        Ok(config) if config.gateway.port != 0 => {
            config.gateway.bind.iter().map(|ip| SocketAddr::new(*ip, config.gateway.port)).collect()
        }
        _ => Vec::new(),
    }
}

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// A hub to connect to.
#[derive(Debug)]
pub enum Target {
    /// The hub of this machine's home.
    Local(Local),
    /// A hub elsewhere.
    Remote(Remote),
}

/// This machine's own hub.
#[derive(Debug)]
pub struct Local {
    address: SocketAddr,
    /// Only needed when the hub does not listen on loopback.
    pin: Option<Digest>,
    /// The owner's token.
    pub token: SecretText,
    /// This command line's device key.
    pub key: SecretKey,
}

/// A hub over the network, pinned.
#[derive(Debug)]
pub struct Remote {
    /// `host:port`
    pub authority: String,
    /// SHA-256 of the hub's TLS key.
    pub pin: Digest,
    /// Device token of an earlier connection.
    pub token: Option<SecretText>,
    /// This device's key.
    pub key: SecretKey,
}

impl Target {
    /// The hub of a home. It must be running.
    ///
    /// # Errors
    /// Exit code 3 when it does not run.
    pub fn local(home: &Home) -> Result<Self, Failure> {
        let not_running = |why: String| {
            Failure::new(
                Exit::Unreachable,
                format!("no hub runs on {}: {why}", home.root().display()),
                "start it with `hearth run`, or name its directory with --home",
            )
        };
        let (addresses, fault) = match std::fs::read_to_string(home.address()) {
            Ok(text) => {
                (text.lines().filter_map(|l| l.parse().ok()).collect(), "hub.addr names no address".into())
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                (Vec::new(), "there is no hub.addr".to_owned())
            }
            Err(e) => (Vec::new(), format!("hub.addr: {e}")),
        };
        // A hub on a full card runs without having noted where.
        let addresses: Vec<SocketAddr> = if addresses.is_empty() { configured(home) } else { addresses };
        let addresses: Vec<SocketAddr> = addresses.into_iter().map(reachable).collect();
        let address = addresses
            .iter()
            .find(|a| a.ip().is_loopback())
            .or(addresses.first())
            .copied()
            .ok_or_else(|| not_running(fault))?;
        let token = std::fs::read_to_string(home.token()).map_err(|e| {
            Failure::denied(
                format!("{}: {e}", home.token().display()),
                "run this as the user whom the hub runs as",
            )
        })?;
        let pin = if address.ip().is_loopback() { None } else { Some(pin_of(home)?) };
        Ok(Self::Local(Local {
            address,
            pin,
            token: SecretText::new(token.trim().to_owned()),
            key: keys::load_or_make_key(&home.cli_key())?,
        }))
    }

    /// `wss://host:port` and the pin that `hearth pair` and `hearth status` show.
    ///
    /// # Errors
    /// Exit code 2 when the address is none.
    pub fn remote(url: &str, pin: &str, token: Option<SecretText>, key: SecretKey) -> Result<Self, Failure> {
        let usage = |what: &str| {
            Failure::usage(
                what,
                "give --hub wss://HOST:PORT and the --pin that `hearth status` on the hub shows",
            )
        };
        let rest = url.strip_prefix("wss://").ok_or_else(|| usage("--hub must begin with wss://"))?;
        let rest = rest.trim_end_matches('/');
        if rest.is_empty() || rest.contains(['/', '@', '?', '#', ' ']) {
            return Err(usage("--hub must be wss://HOST:PORT"));
        }
        let has_port = rest.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
        });
        let authority = if has_port {
            rest.to_owned()
        } else {
            format!("{rest}:{}", hearth_shared::limits::DEFAULT_PORT)
        };
        let pin = pin.parse().map_err(|_| usage("--pin must be 64 hexadecimal digits"))?;
        Ok(Self::Remote(Remote { authority, pin, token, key }))
    }

    /// The key that signs the connect.
    pub(super) fn key(&self) -> &SecretKey {
        match self {
            Self::Local(local) => &local.key,
            Self::Remote(remote) => &remote.key,
        }
    }

    /// Address for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Local(local) => local.address.to_string(),
            Self::Remote(remote) => remote.authority.clone(),
        }
    }

    /// URL for the WebSocket handshake.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Local(Local { address, pin: None, .. }) => format!("ws://{address}/"),
            Self::Local(local) => format!("wss://{}/", local.address),
            Self::Remote(remote) => format!("wss://{}/", remote.authority),
        }
    }

    /// Opens the connection below the WebSocket.
    pub(super) async fn dial(&self) -> Result<Box<dyn Stream>, Failure> {
        let unreachable = |why: String| {
            Failure::new(
                Exit::Unreachable,
                format!("the hub at {} cannot be reached: {why}", self.name()),
                match self {
                    Self::Local(_) => "start it with `hearth run`; `hearth doctor` looks for the cause",
                    Self::Remote(_) => {
                        "check the address, and that the hub listens on the network (`hearth pair --listen lan`)"
                    }
                },
            )
        };
        let dial = async {
            let tcp = match self {
                Self::Local(local) => TcpStream::connect(local.address).await,
                Self::Remote(remote) => TcpStream::connect(&remote.authority).await,
            }?;
            tcp.set_nodelay(true)?;
            let pin = match self {
                Self::Local(local) => local.pin,
                Self::Remote(remote) => Some(remote.pin),
            };
            let Some(pin) = pin else { return Ok::<Box<dyn Stream>, std::io::Error>(Box::new(tcp)) };
            let config = PinVerifier::pinned(pin).client_config().map_err(std::io::Error::other)?;
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            // The pin decides; the name is sent for form only.
            let name = ServerName::try_from("hearth.local").map_err(std::io::Error::other)?;
            Ok(Box::new(connector.connect(name, tcp).await?))
        };
        match tokio::time::timeout(CONNECT, dial).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) if error.to_string().contains("ApplicationVerificationFailure") => {
                Err(Failure::denied(
                    format!("the hub at {} shows another TLS key than the pinned one", self.name()),
                    "compare --pin with the TLS pin that `hearth status` on the hub shows; do not go on if they differ",
                ))
            }
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(unreachable(format!("no answer within {} s", CONNECT.as_secs()))),
        }
    }
}

/// Whether the running hub of a home shows the TLS key that lies in it.
///
/// # Errors
/// Exit code 5 when it shows another, 3 when it cannot be reached.
pub async fn tls_key_fits(home: &Home) -> Result<(), Failure> {
    let mut target = Target::local(home)?;
    if let Target::Local(local) = &mut target {
        local.pin = Some(pin_of(home)?);
    }
    target.dial().await.map(drop)
}

/// The TLS pin of a home's own key.
///
/// # Errors
/// When `tls.pem` cannot be read.
pub fn pin_of(home: &Home) -> Result<Digest, Failure> {
    let path = home.tls();
    if !path.exists() {
        return Err(Failure::failed(
            format!("{}: there is no such file", path.display()),
            "run `hearth doctor`",
        ));
    }
    Ok(keys::spki_pin(&keys::load_or_make_p256(&path)?))
}

/// Where a listening address is reached from this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}
