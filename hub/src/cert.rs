//! What TLS shows: a certificate that browsers accept once they trust the hub's own authority.
//!
//! ```text
//! authority.pem  key and certificate of the authority: installed on phones, lives for decades
//!      │ signs
//! tls.crt        certificate over the key of tls.pem: names and addresses of now, 397 days, renewed
//! ```
//!
//! Nodes and command lines pin the *key* and care for none of this: renewing never changes it.

mod authority;
pub mod names;
pub mod profile;
#[cfg(test)]
mod tests;

use crate::config::GatewayConfig;
use crate::home::{Home, HomeError, write_private};
use crate::hub::Tasks;
use crate::keys::{HubKeys, KeyError};
use authority::{Authority, names_host};
use hearth_shared::identity::{Digest, IdentityError};
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// A certificate with less left is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How often names, addresses and dates are looked at: a phone that joins after the router gave the hub
/// another address waits no longer than this.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A certificate that cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertError {
    /// A file.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// A key file.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No randomness.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// `authority.pem` does not hold what it should.
    #[error(
        "{path} is damaged: {why}; restore it from a backup of your keys, or remove it: the hub makes a new \
         authority, which people must install again"
    )]
    Damaged { path: String, why: String },
    /// The certificate library.
    #[error("a certificate cannot be made: {0}; the hub's log may say more")]
    Make(#[from] rcgen::Error),
    /// The TLS library.
    #[error("the TLS key cannot be used: {0}; run `hearth doctor`")]
    Tls(#[from] rustls::Error),
}

/// Certificates of a running hub.
pub struct Certificates {
    home: Home,
    keys: Arc<HubKeys>,
    gateway: GatewayConfig,
    /// Every name this hub is known by, whether the authority may vouch for it or not.
    host_names: Vec<String>,
    signing: Arc<dyn SigningKey>,
    state: Mutex<State>,
    shown: Arc<Shown>,
    tls: Arc<rustls::ServerConfig>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("home", &self.home).finish_non_exhaustive()
    }
}

struct State {
    authority: Authority,
    served: Served,
}

/// The certificate that is shown now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Host names and addresses it is good for.
    pub names: Vec<String>,
    /// Host names of this hub that the authority may not vouch for: they were added after it was made.
    pub left_out: Vec<String>,
    /// Unix milliseconds of its end.
    pub expires_ms: u64,
}

/// The authority, for those who install it.
#[derive(Debug, Clone)]
pub struct AuthorityView {
    /// As phones list it.
    pub name: String,
    /// The certificate.
    pub der: CertificateDer<'static>,
}

impl AuthorityView {
    /// The one in a home's `authority.pem`; `None` when there is none.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let der = CertificateDer::from_pem_file(path).ok()?;
        Some(Self { name: authority::name_in(&der)?, der })
    }

    /// SHA-256 of the certificate in the form that phones and browsers show: `AB:CD:…`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let bytes = Digest::of(&self.der).0;
        bytes.map(|b| format!("{b:02X}")).join(":")
    }

    /// As text.
    #[must_use]
    pub fn pem(&self) -> String {
        to_pem(&self.der)
    }
}

/// Gives rustls the certificate of the moment.
struct Shown(RwLock<Arc<CertifiedKey>>);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Certificates {
    /// Reads what the home holds, and makes what is missing, expired or too narrow.
    ///
    /// # Errors
    /// [`CertError`]; a damaged authority is never replaced silently.
    pub fn open(home: &Home, keys: Arc<HubKeys>, gateway: &GatewayConfig) -> Result<Arc<Self>, CertError> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(keys.tls.serialize_der()));
        let signing = any_ecdsa_type(&key)?;
        let host_names = names::host_names(gateway, keys.identity.device_id());
        let authority = Authority::open(&home.authority(), &host_names)?;
        let (certificate, served) = current(home, &keys, gateway, &authority)?;
        let certified = CertifiedKey::new(vec![certificate], Arc::clone(&signing));
        let shown = Arc::new(Shown(RwLock::new(Arc::new(certified))));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Tickets would let a revoked device resume; every connection proves itself anew.
        tls.send_tls13_tickets = 0;
        Ok(Arc::new(Self {
            home: home.clone(),
            keys,
            gateway: gateway.clone(),
            host_names,
            signing,
            state: Mutex::new(State { authority, served }),
            shown,
            tls: Arc::new(tls),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the listener serves TLS with.
    #[must_use]
    pub fn tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.tls)
    }

    /// Every name this hub is known by, lower case.
    #[must_use]
    pub fn host_names(&self) -> &[String] {
        &self.host_names
    }

    /// The certificate that is shown now.
    #[must_use]
    pub fn served(&self) -> Served {
        self.lock().served.clone()
    }

    /// What people install.
    #[must_use]
    pub fn authority(&self) -> AuthorityView {
        let state = self.lock();
        AuthorityView { name: state.authority.name(), der: state.authority.certificate().clone() }
    }

    /// Looks whether the certificate still fits names, addresses and date, and renews it if not. Blocks for
    /// a few milliseconds.
    ///
    /// # Errors
    /// [`CertError`]; the old certificate stays in use.
    pub fn refresh(&self) -> Result<(), CertError> {
        let mut state = self.lock();
        let (certificate, served) = current(&self.home, &self.keys, &self.gateway, &state.authority)?;
        self.show(certificate);
        if served != state.served {
            tracing::info!(names = served.names.join(", "), "certificate renewed");
            state.served = served;
        }
        Ok(())
    }

    /// Makes a new certificate, and with `authority` a new authority too: everybody must install it again.
    ///
    /// # Errors
    /// [`CertError`]; what was in use stays in use.
    pub fn renew(&self, authority: bool) -> Result<(), CertError> {
        let mut state = self.lock();
        if authority {
            state.authority = Authority::make(&self.home.authority(), &self.host_names)?;
        }
        let (certificate, served) = issue(&self.home, &self.keys, &self.gateway, &state.authority)?;
        self.show(certificate);
        state.served = served;
        Ok(())
    }

    fn show(&self, certificate: CertificateDer<'static>) {
        let certified = Arc::new(CertifiedKey::new(vec![certificate], Arc::clone(&self.signing)));
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
    }

    /// Looks now and then, until the hub stops.
    pub fn watch(self: &Arc<Self>, tasks: &Tasks) {
        let (certificates, stop) = (Arc::clone(self), tasks.stop.clone());
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                let looking = Arc::clone(&certificates);
                match tokio::task::spawn_blocking(move || looking.refresh()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "the certificate stays as it is"),
                    Err(error) => tracing::warn!(%error, "looking at the certificate"),
                }
            }
        });
    }
}

/// The certificate of the home if it still does, else a new one.
fn current(
    home: &Home,
    keys: &HubKeys,
    gateway: &GatewayConfig,
    authority: &Authority,
) -> Result<(CertificateDer<'static>, Served), CertError> {
    if let Ok(certificate) = CertificateDer::from_pem_file(home.certificate())
        && hearth_shared::pin::spki_pin(&certificate).is_ok_and(|pin| pin == keys.spki)
        && authority.accepts(&certificate, authority::now())
        && authority.accepts(&certificate, authority::now() + RENEW_BEFORE)
        && let Some(expires_ms) = authority.end_of(&certificate)
    {
        let (names, missing): (Vec<String>, Vec<String>) =
            wanted(keys, gateway).into_iter().partition(|name| names_host(&certificate, name));
        if missing.iter().all(|name| !authority.permits(name)) {
            return Ok((certificate, Served { names, left_out: missing, expires_ms }));
        }
    }
    issue(home, keys, gateway, authority)
}

fn wanted(keys: &HubKeys, gateway: &GatewayConfig) -> Vec<String> {
    let addresses = names::addresses(gateway);
    let mut all = names::host_names(gateway, keys.identity.device_id());
    all.extend(addresses.iter().map(ToString::to_string));
    all
}

fn issue(
    home: &Home,
    keys: &HubKeys,
    gateway: &GatewayConfig,
    authority: &Authority,
) -> Result<(CertificateDer<'static>, Served), CertError> {
    let (names, left_out): (Vec<String>, Vec<String>) =
        wanted(keys, gateway).into_iter().partition(|name| authority.permits(name));
    if !left_out.is_empty() {
        tracing::warn!(
            names = left_out.join(", "),
            "the authority may not vouch for these names; `hearth cert renew --authority` makes one that may"
        );
    }
    let certificate = authority.issue(&keys.tls, &names)?;
    // Without it the next start makes another one: no reason not to run now.
    if let Err(error) = write_private(&home.certificate(), to_pem(&certificate).as_bytes()) {
        tracing::warn!(%error, "the certificate cannot be kept");
    }
    let expires_ms = authority.end_of(&certificate).unwrap_or_default();
    Ok((certificate, Served { names, left_out, expires_ms }))
}

fn to_pem(der: &CertificateDer<'_>) -> String {
    pem::encode_config(
        &pem::Pem::new("CERTIFICATE", der.to_vec()),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}
