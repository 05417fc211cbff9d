//! The local authority: a key and a certificate of its own that people install on their phones.
//!
//! It can vouch for this hub's names and for private addresses only (RFC 5280, 4.2.1.10): whoever steals
//! its key cannot pass for a bank. Its dates are fixed, since a board without a battery clock makes it in
//! 1970.

use super::CertError;
use crate::home::write_private;
use crate::keys;
use hearth_shared::identity::{Digest, random};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData as _,
    SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage};
use zeroize::Zeroizing;

/// Age of a new certificate at its birth: clocks of phones may be behind.
const BACKDATE: Duration = Duration::from_secs(24 * 3600);
/// How long a certificate is valid: under the 398 days that browsers accept.
const LIFETIME: Duration = Duration::from_secs(397 * 24 * 3600);
/// Years in which the authority is valid.
const YEARS: (i32, i32) = (2025, 2049);
/// No clock that is right shows less (2026-01-01).
const CLOCK_FLOOR: Duration = Duration::from_secs(1_767_225_600);
/// Private address ranges, loopback and shared ones.
const RANGES: [(IpAddr, u8); 7] = [
    (IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(std::net::Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(std::net::Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(std::net::Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
];

/// This moment, as far as the clock can be believed.
pub(super) fn now() -> Duration {
    Duration::from_millis(crate::store::now_ms()).max(CLOCK_FLOOR)
}

/// The authority of a home.
#[derive(Debug)]
pub(super) struct Authority {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    /// Reads it, or makes one for these names.
    pub(super) fn open(path: &Path, host_names: &[String]) -> Result<Self, CertError> {
        let Some(pem) = keys::read(path)? else { return Self::make(path, host_names) };
        let damaged = |why: String| CertError::Damaged { path: path.display().to_string(), why };
        let key = KeyPair::from_pem(&pem).map_err(|e| damaged(e.to_string()))?;
        let certificate =
            CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| damaged(e.to_string()))?;
        let spki = EndEntityCert::try_from(&certificate)
            .map_err(|e| damaged(e.to_string()))?
            .subject_public_key_info();
        if spki.as_ref() != key.subject_public_key_info() {
            return Err(damaged("key and certificate do not belong together".into()));
        }
        Ok(Self { certificate, key })
    }

    /// Makes a new one in place of whatever is there.
    pub(super) fn make(path: &Path, host_names: &[String]) -> Result<Self, CertError> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let dns = host_names.iter().cloned().map(GeneralSubtree::DnsName);
        let ips = RANGES
            .iter()
            .map(|(ip, prefix)| GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*ip, *prefix)));
        let mut params = params_of(&key);
        params.serial_number = Some(serial()?);
        params.name_constraints =
            Some(NameConstraints { permitted_subtrees: dns.chain(ips).collect(), excluded_subtrees: vec![] });
        let certificate = params.self_signed(&key)?;
        let private = Zeroizing::new(key.serialize_pem());
        let pem = Zeroizing::new(format!("{}{}", private.as_str(), certificate.pem()));
        write_private(path, pem.as_bytes())?;
        Ok(Self { certificate: certificate.der().clone(), key })
    }

    /// Its certificate: what people install.
    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its name, as phones list it.
    pub(super) fn name(&self) -> String {
        name_of(&self.key.subject_public_key_info())
    }

    /// A certificate over a key for host names and addresses. Every one must be one that the authority may vouch for.
    pub(super) fn issue(
        &self,
        key: &KeyPair,
        names: &[String],
    ) -> Result<CertificateDer<'static>, CertError> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Hearth hub");
        params.not_before = date_time_ymd(1970, 1, 1) + (now() - BACKDATE);
        params.not_after = params.not_before + LIFETIME;
        // A browser refuses two certificates of one authority with the same number.
        params.serial_number = Some(serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(params_of(&self.key), &self.key);
        Ok(params.signed_by(key, &issuer)?.der().clone())
    }

    /// Whether the authority may vouch for this name at all; what it may was settled when it was made.
    pub(super) fn permits(&self, name: &str) -> bool {
        self.issue(&self.key, &[name.to_owned()]).is_ok_and(|probe| self.accepts(&probe, now()))
    }

    /// Whether a browser that trusts this authority accepts a certificate at this time.
    pub(super) fn accepts(&self, certificate: &CertificateDer<'_>, at: Duration) -> bool {
        self.verify(certificate, at).is_ok()
    }

    /// When a certificate of this authority ends, in Unix milliseconds.
    pub(super) fn end_of(&self, certificate: &CertificateDer<'_>) -> Option<u64> {
        // The verifier tells the date only when it has passed.
        const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
        match self.verify(certificate, NEVER) {
            Err(webpki::Error::CertExpired { not_after, .. }) => Some(not_after.as_secs() * 1000),
            _ => None,
        }
    }

    fn verify(&self, certificate: &CertificateDer<'_>, at: Duration) -> Result<(), webpki::Error> {
        let anchor = webpki::anchor_from_trusted_cert(&self.certificate)?;
        EndEntityCert::try_from(certificate)?.verify_for_usage(
            &[webpki::ring::ECDSA_P256_SHA256],
            &[anchor],
            &[],
            UnixTime::since_unix_epoch(at),
            KeyUsage::server_auth(),
            None,
            None,
        )?;
        Ok(())
    }
}

/// Whether a certificate names a host or an address.
pub(super) fn names_host(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return false };
    ServerName::try_from(host).is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok())
}

/// What of the authority follows from its key, and so is the same each time.
fn params_of(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name_of(&key.subject_public_key_info()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(YEARS.0, 1, 1);
    params.not_after = date_time_ymd(YEARS.1, 12, 31);
    params
}

/// The name of the authority that a certificate is of.
pub(super) fn name_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    Some(name_of(parsed.subject_public_key_info().as_ref()))
}

/// Two hubs in one house are told apart by their authorities' keys.
fn name_of(spki: &[u8]) -> String {
    let id = Digest::of(spki).to_string();
    format!("Hearth authority {} {}", &id[..4], &id[4..8])
}

/// 127 random bits.
fn serial() -> Result<SerialNumber, CertError> {
    let mut bytes = random::<16>()?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
