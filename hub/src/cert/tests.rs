//! What a client that trusts the authority accepts.

use super::*;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

struct Rig {
    _dir: tempfile::TempDir,
    home: Home,
    keys: Arc<HubKeys>,
    config: GatewayConfig,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        home.create().unwrap();
        let keys = Arc::new(HubKeys::open(&home).unwrap());
        let config = GatewayConfig {
            bind: vec!["192.168.7.5".parse().unwrap(), "fd00::5".parse().unwrap()],
            hosts: vec!["hub.example.org".into()],
            ..GatewayConfig::default()
        };
        Self { _dir: dir, home, keys, config }
    }

    fn open(&self) -> Arc<Certificates> {
        Certificates::open(&self.home, Arc::clone(&self.keys), &self.config).unwrap()
    }
}

/// A real handshake with full verification of chain, dates and name.
async fn handshake(
    certificates: &Certificates,
    trusted: &CertificateDer<'static>,
    name: &str,
) -> Result<CertificateDer<'static>, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (ours, theirs) = tokio::io::duplex(16 * 1024);
    let server = TlsAcceptor::from(certificates.tls()).accept(theirs);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let (client, _server) = tokio::join!(TlsConnector::from(Arc::new(client)).connect(name, ours), server);
    let client = client.map_err(|e| e.to_string())?;
    Ok(client.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned())
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_accepts_every_name_and_no_other() {
    let rig = Rig::new();
    let certificates = rig.open();
    let root = certificates.authority().der;
    for name in ["hearth.local", "localhost", "127.0.0.1", "192.168.7.5", "fd00::5", "hub.example.org"] {
        let leaf = handshake(&certificates, &root, name).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(hearth_shared::pin::spki_pin(&leaf).unwrap(), rig.keys.spki, "the pinned key");
    }
    for name in ["example.org", "printer.local", "192.168.7.6"] {
        assert!(handshake(&certificates, &root, name).await.is_err(), "{name}");
    }
    let other = Rig::new().open().authority().der;
    assert!(handshake(&certificates, &other, "hearth.local").await.is_err(), "another hub's authority");
}

#[tokio::test]
async fn the_authority_cannot_vouch_for_others() {
    let rig = Rig::new();
    let _ = rig.open();
    let names = names::host_names(&rig.config, rig.keys.identity.device_id());
    let authority = Authority::open(&rig.home.authority(), &names).unwrap();
    for name in ["bank.example", "example.org", "local", "printer.local", "8.8.8.8", "2001:4860::1"] {
        assert!(!authority.permits(name), "{name}");
        let forged = authority.issue(&rig.keys.tls, &[name.to_owned()]).unwrap();
        assert!(!authority.accepts(&forged, authority::now()), "{name}");
    }
    for name in ["hearth.local", "10.1.2.3", "172.31.0.1", "fd12::1", "hub.example.org"] {
        assert!(authority.permits(name), "{name}");
    }
}

#[test]
fn what_still_fits_is_kept_and_what_does_not_is_renewed_over_the_same_key() {
    let mut rig = Rig::new();
    let first = rig.open();
    let file = || std::fs::read_to_string(rig.home.certificate()).unwrap();
    let kept = file();
    assert_eq!(rig.open().served(), first.served());
    first.refresh().unwrap();
    assert_eq!(file(), kept, "a browser that was told to go on is not asked again");
    let left = first.served().expires_ms - crate::store::now_ms();
    assert!(left < 397 * 24 * 3_600_000 && left > 395 * 24 * 3_600_000, "{left}");

    rig.config.bind.push("192.168.7.9".parse().unwrap());
    let moved = rig.open();
    let file = || std::fs::read_to_string(rig.home.certificate()).unwrap();
    assert_ne!(file(), kept, "a new address");
    assert!(moved.served().names.contains(&"192.168.7.9".into()));
    assert_eq!(moved.authority().der, first.authority().der);

    let now = file();
    moved.renew(true).unwrap();
    assert_ne!(file(), now);
    assert_ne!(moved.authority().der, first.authority().der);
    assert_eq!(HubKeys::open(&rig.home).unwrap().spki, rig.keys.spki, "pins hold");
}

#[test]
fn a_name_that_came_later_is_left_out_and_told() {
    let mut rig = Rig::new();
    let _ = rig.open();
    rig.config.hosts.push("other.example.net".into());
    let served = rig.open().served();
    assert_eq!(served.left_out, ["other.example.net"]);
    assert!(served.names.contains(&"hub.example.org".into()));
    let certificates = rig.open();
    certificates.renew(true).unwrap();
    assert!(certificates.served().left_out.is_empty());
}

#[test]
fn a_certificate_of_another_key_or_authority_is_not_shown() {
    let rig = Rig::new();
    let first = rig.open();
    let foreign = Rig::new();
    let _ = foreign.open();
    std::fs::copy(foreign.home.certificate(), rig.home.certificate()).unwrap();
    assert_eq!(rig.open().served().names, first.served().names);
    let certificate = CertificateDer::from_pem_file(rig.home.certificate()).unwrap();
    assert_eq!(hearth_shared::pin::spki_pin(&certificate).unwrap(), rig.keys.spki);
    std::fs::write(rig.home.certificate(), "broken").unwrap();
    rig.open();

    std::fs::copy(foreign.home.tls(), rig.home.authority()).unwrap();
    let damaged = Certificates::open(&rig.home, Arc::clone(&rig.keys), &rig.config);
    assert!(matches!(damaged, Err(CertError::Damaged { .. })));
}
