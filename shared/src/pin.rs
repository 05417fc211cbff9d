//! TLS trust by pinned key.
//!
//! The hub's certificate is self-made, so names and dates prove nothing (a Pi without a battery clock
//! starts in 1970 and would call it not yet valid). What counts is the SHA-256 of its public key (SPKI),
//! known from the setup code, and that the peer can sign the handshake with it.

use crate::identity::{Digest, same_secret};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::{Arc, Mutex};

/// SHA-256 of a certificate's public key (SPKI, DER).
///
/// # Errors
/// When the bytes are no certificate.
pub fn spki_pin(certificate: &CertificateDer<'_>) -> Result<Digest, Error> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    Ok(Digest::of(parsed.subject_public_key_info().as_ref()))
}

/// Accepts one key only, or, when pairing by words, any key and remembers which.
#[derive(Debug)]
pub struct PinVerifier {
    expected: Option<Digest>,
    seen: Mutex<Option<Digest>>,
    provider: Arc<CryptoProvider>,
}

impl PinVerifier {
    /// Accepts the key with this pin and no other.
    #[must_use]
    pub fn pinned(pin: Digest) -> Arc<Self> {
        Self::with(Some(pin))
    }

    /// Accepts any key and reports it by [`PinVerifier::seen`]. Nothing secret may be sent over such a
    /// connection before a person compared the words.
    #[must_use]
    pub fn unpinned() -> Arc<Self> {
        Self::with(None)
    }

    fn with(expected: Option<Digest>) -> Arc<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Arc::new(Self { expected, seen: Mutex::new(None), provider })
    }

    /// The pin of the last peer.
    #[must_use]
    pub fn seen(&self) -> Option<Digest> {
        *self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A TLS 1.3 client configuration with this verifier.
    ///
    /// # Errors
    /// When the crypto provider does not support TLS 1.3 (ring does).
    pub fn client_config(self: &Arc<Self>) -> Result<ClientConfig, Error> {
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.clone())
            .with_no_client_auth();
        // Session tickets would be kept for nothing: a node reconnects rarely and proves its key anew.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pin = spki_pin(end_entity)?;
        *self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(pin);
        match self.expected {
            Some(expected) if !same_secret(&expected.0, &pin.0) => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
