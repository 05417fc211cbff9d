//! The hub's keys: who it is, and what TLS shows.
//!
//! Two keys on purpose: `hub.key` (Ed25519) identifies the hub and signs hub grants; `tls.pem` (P-256,
//! because browsers refuse Ed25519 certificates) serves TLS and is pinned by nodes. Both are made at the
//! first start and stay; the certificate over the latter comes and goes (see [`crate::cert`]).

use crate::home::{Home, HomeError, write_private};
use hearth_shared::identity::{Digest, IdentityError, SecretKey, SecretText};
use rcgen::{KeyPair, PublicKeyData as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// A key that cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// No randomness.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The file does not hold what it should.
    #[error(
        "{path} is damaged: {why}; restore it from a backup of your keys (a new key means pairing every node again)"
    )]
    Damaged { path: String, why: String },
    /// Other users could read it, or have read it.
    #[error(
        "{path} is open to other users (mode {mode:03o}); run `chmod 600 {path}`, and think of who may have read it"
    )]
    Exposed { path: String, mode: u32 },
    /// The gateway token is no secret.
    #[error(
        "{path} holds {found} characters, a token has at least {MIN_TOKEN}; remove the file, and the hub makes a new one"
    )]
    WeakToken { path: String, found: usize },
}

/// Shortest gateway token an owner may choose. A file that lost its content must never mean "no token".
const MIN_TOKEN: usize = 16;

/// Keys of a running hub.
#[derive(Debug)]
pub struct HubKeys {
    /// Identity; signs welcomes and hub grants.
    pub identity: SecretKey,
    /// The P-256 key that serves TLS.
    pub tls: KeyPair,
    /// SHA-256 of the TLS public key: what nodes pin.
    pub spki: Digest,
    /// Shared gateway token for this machine's owner.
    pub token: SecretText,
}

impl HubKeys {
    /// Reads the keys of a home, making what is missing.
    ///
    /// # Errors
    /// [`KeyError`]; a damaged key is never replaced silently.
    pub fn open(home: &Home) -> Result<Self, KeyError> {
        let identity = load_or_make_key(&home.hub_key())?;
        let tls = load_or_make_p256(&home.tls())?;
        let spki = spki_pin(&tls);
        let token = load_or_make_token(&home.token())?;
        Ok(Self { identity, tls, spki, token })
    }
}

pub(crate) fn read(path: &Path) -> Result<Option<Zeroizing<String>>, KeyError> {
    let io = |source| HomeError::Io { path: path.to_path_buf(), source };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            return Err(KeyError::Damaged { path: path.display().to_string(), why: "it is no text".into() });
        }
        Err(source) => return Err(io(source).into()),
    };
    let mode = std::fs::metadata(path).map_err(io)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.display().to_string(), mode });
    }
    Ok(Some(text))
}

/// Reads an Ed25519 seed (64 hex digits), or makes a key and writes it.
///
/// # Errors
/// [`KeyError`].
pub fn load_or_make_key(path: &Path) -> Result<SecretKey, KeyError> {
    if let Some(text) = read(path)? {
        let mut seed = Zeroizing::new([0; 32]);
        hex::decode_to_slice(text.trim(), &mut seed[..]).map_err(|_| KeyError::Damaged {
            path: path.display().to_string(),
            why: "not 64 hex digits".into(),
        })?;
        return Ok(SecretKey::from_seed(&seed));
    }
    let key = SecretKey::generate()?;
    write_private(path, Zeroizing::new(hex::encode(key.seed().as_slice())).as_bytes())?;
    Ok(key)
}

fn load_or_make_token(path: &Path) -> Result<SecretText, KeyError> {
    if let Some(text) = read(path)? {
        let found = text.trim().chars().count();
        if found < MIN_TOKEN {
            return Err(KeyError::WeakToken { path: path.display().to_string(), found });
        }
        return Ok(SecretText::new(text.trim().to_owned()));
    }
    let token = SecretText::random()?;
    write_private(path, token.expose().as_bytes())?;
    Ok(token)
}

/// Reads a P-256 key (PKCS#8, PEM), or makes one and writes it.
///
/// # Errors
/// [`KeyError`].
pub fn load_or_make_p256(path: &Path) -> Result<KeyPair, KeyError> {
    let damaged = |why: String| KeyError::Damaged { path: path.display().to_string(), why };
    if let Some(pem) = read(path)? {
        let key = KeyPair::from_pem(&pem).map_err(|e| damaged(e.to_string()))?;
        if key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(damaged("it is no P-256 key".into()));
        }
        return Ok(key);
    }
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|e| damaged(e.to_string()))?;
    write_private(path, Zeroizing::new(key.serialize_pem()).as_bytes())?;
    Ok(key)
}

/// SHA-256 of a key's public half (SPKI, DER).
#[must_use]
pub fn spki_pin(key: &KeyPair) -> Digest {
    Digest::of(&key.subject_public_key_info())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        home.create().unwrap();
        HubKeys::open(&home).unwrap();
        (dir, home)
    }

    #[test]
    fn an_empty_or_short_token_file_is_no_token() {
        let (_dir, home) = home();
        for text in ["", "\n", "secret"] {
            std::fs::write(home.token(), text).unwrap();
            assert!(matches!(HubKeys::open(&home), Err(KeyError::WeakToken { .. })), "{text:?}");
        }
        std::fs::remove_file(home.token()).unwrap();
        HubKeys::open(&home).unwrap();
    }

    #[test]
    fn keys_that_others_can_read_or_that_are_damaged_are_named() {
        let (_dir, home) = home();
        for path in [home.hub_key(), home.tls(), home.token()] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            assert!(matches!(HubKeys::open(&home), Err(KeyError::Exposed { mode: 0o644, .. })));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        std::fs::write(home.hub_key(), b"\xff\xfe").unwrap();
        assert!(matches!(HubKeys::open(&home), Err(KeyError::Damaged { .. })));
    }
}
