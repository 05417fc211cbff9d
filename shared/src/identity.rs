//! Keys and ids.
//!
//! A device *is* an Ed25519 key; its [`DeviceId`] is the SHA-256 of the raw public key. Secrets print
//! as `[redacted]` and are wiped when dropped. Signatures are checked strictly (RFC 8032 with the
//! small-order and non-canonical cases refused), so that two verifiers never disagree.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// A key, id or signature that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The text has the wrong length or alphabet.
    #[error("{what} must be {expected}")]
    Malformed { what: &'static str, expected: &'static str },
    /// The 32 bytes are no point on the curve, or one of small order.
    #[error("not an Ed25519 public key")]
    NotAKey,
    /// The signature does not fit key and message.
    #[error("signature does not verify")]
    BadSignature,
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system")]
    NoEntropy,
}

/// Random bytes from the operating system.
///
/// # Errors
/// [`IdentityError::NoEntropy`]; nothing secure can go on without them.
pub fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| IdentityError::NoEntropy)?;
    Ok(bytes)
}

/// SHA-256.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Whether two secrets are equal, in time that does not depend on where they differ.
#[must_use]
pub fn same_secret(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// A fixed number of bytes that is no secret: hex digits in text formats, raw bytes in binary ones.
macro_rules! byte_array {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal, $digits:literal) => {
        $(#[$doc])*
        ///
        #[doc = concat!("Written as ", $digits, " in text formats, as raw bytes in binary ones.")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), hex::encode(&self.0[..6]))
            }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::identity::IdentityError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut bytes = [0; $len];
                hex::decode_to_slice(text, &mut bytes).map_err(|_| {
                    $crate::identity::IdentityError::Malformed { what: $what, expected: $digits }
                })?;
                Ok(Self(bytes))
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                if d.is_human_readable() {
                    let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    <[u8; $len]>::deserialize(d).map(Self)
                }
            }
        }
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": format!("^[0-9a-f]{{{}}}$", 2 * $len) })
            }
        }
    };
}
pub(crate) use byte_array;

/// Lets such a type be drawn at random.
macro_rules! drawn_at_random {
    ($($name:ident),+) => {$(
        impl $name {
            /// A random one.
            ///
            /// # Errors
            /// [`IdentityError::NoEntropy`](crate::identity::IdentityError::NoEntropy).
            pub fn fresh() -> Result<Self, $crate::identity::IdentityError> {
                $crate::identity::random().map(Self)
            }
        }
    )+};
}
pub(crate) use drawn_at_random;

drawn_at_random!(Nonce);

byte_array!(
    /// SHA-256 of a device's raw public key.
    DeviceId, 32, "device id", "64 hex digits"
);
byte_array!(
    /// A raw Ed25519 public key. Checked to be one only where it is used.
    PublicKey, 32, "public key", "64 hex digits"
);
byte_array!(
    /// A SHA-256 digest: of a declaration, a policy, a challenge, a TLS key (SPKI).
    Digest, 32, "digest", "64 hex digits"
);
byte_array!(
    /// A random value that is used once and is no secret.
    Nonce, 32, "nonce", "64 hex digits"
);

impl Digest {
    /// Hashes `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }
}

impl DeviceId {
    /// The first 12 hex digits: enough to tell devices of one home apart on a screen.
    #[must_use]
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl PublicKey {
    /// The id of the device that holds this key.
    #[must_use]
    pub fn device_id(&self) -> DeviceId {
        DeviceId(sha256(&self.0))
    }

    /// 43 characters of unpadded base64url, as the JSON protocol writes keys.
    #[must_use]
    pub fn to_base64url(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Reads unpadded or padded base64 in either alphabet, or the PEM of an Ed25519 SPKI.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`].
    pub fn from_wire(text: &str) -> Result<Self, IdentityError> {
        let malformed = || IdentityError::Malformed { what: "public key", expected: "32 bytes as base64url" };
        if let Some(rest) = text.trim().strip_prefix("-----BEGIN PUBLIC KEY-----") {
            // RFC 8410: the DER of an Ed25519 SPKI is a fixed 12-byte prefix and the key.
            const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
            let body = rest.split("-----END").next().unwrap_or_default();
            let der = decode_base64(body).ok_or_else(malformed)?;
            let key = der.strip_prefix(&PREFIX[..]).ok_or_else(malformed)?;
            return key.try_into().map(Self).map_err(|_| malformed());
        }
        let bytes = decode_base64(text).ok_or_else(malformed)?;
        bytes.try_into().map(Self).map_err(|_| malformed())
    }

    /// Checks a signature over `message`, strictly.
    ///
    /// # Errors
    /// [`IdentityError::NotAKey`] or [`IdentityError::BadSignature`].
    pub fn verify(&self, message: &[u8], signature: &Signature) -> Result<(), IdentityError> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&self.0).map_err(|_| IdentityError::NotAKey)?;
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        key.verify_strict(message, &signature).map_err(|_| IdentityError::BadSignature)
    }
}

/// Base64 of either alphabet, with or without padding, white space ignored.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let normal: String = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '=')
        .map(|c| match c {
            '+' => '-',
            '/' => '_',
            other => other,
        })
        .collect();
    URL_SAFE_NO_PAD.decode(normal).ok()
}

/// An Ed25519 signature: 64 raw bytes in binary formats, unpadded base64url (86 characters) in text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl Signature {
    /// Reads base64 of either alphabet.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`].
    pub fn from_wire(text: &str) -> Result<Self, IdentityError> {
        let malformed = || IdentityError::Malformed { what: "signature", expected: "64 bytes as base64url" };
        let bytes = decode_base64(text).ok_or_else(malformed)?;
        bytes.try_into().map(Self).map_err(|_| malformed())
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}
impl std::fmt::Debug for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signature({}..)", hex::encode(&self.0[..6]))
    }
}
impl Serialize for Signature {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple as _;
        if s.is_human_readable() {
            return s.collect_str(self);
        }
        let mut tuple = s.serialize_tuple(64)?;
        for byte in &self.0 {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }
}
impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
            return Self::from_wire(&text).map_err(serde::de::Error::custom);
        }
        let halves = <([u8; 32], [u8; 32])>::deserialize(d)?;
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&halves.0);
        bytes[32..].copy_from_slice(&halves.1);
        Ok(Self(bytes))
    }
}
#[cfg(feature = "schema")]
impl schemars::JsonSchema for Signature {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Signature".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{86}$" })
    }
}

/// A private Ed25519 key. Debug shows nothing; memory is wiped on drop.
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// [`IdentityError::NoEntropy`].
    pub fn generate() -> Result<Self, IdentityError> {
        let seed = Zeroizing::new(random::<32>()?);
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The key that grows from this 32-byte seed (RFC 8032 private key).
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The seed, for writing a key file (0600).
    #[must_use]
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Its device id.
    #[must_use]
    pub fn device_id(&self) -> DeviceId {
        self.public().device_id()
    }

    /// Signs `message`. Callers put a domain tag in front; see the tags in each message's module.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(message).to_bytes())
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey([redacted])")
    }
}

/// A secret text (token, password, API key). Debug and Display show nothing; wiped on drop.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
    /// 32 random bytes as base64url: a token nobody guesses.
    ///
    /// # Errors
    /// [`IdentityError::NoEntropy`].
    pub fn random() -> Result<Self, IdentityError> {
        Ok(Self::new(URL_SAFE_NO_PAD.encode(random::<32>()?)))
    }
    /// The text itself; name the reason where you call it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
    /// Whether `other` is the same, in constant time. An empty secret is none and matches nothing.
    #[must_use]
    pub fn matches(&self, other: &str) -> bool {
        !self.0.is_empty() && same_secret(self.0.as_bytes(), other.as_bytes())
    }
    /// SHA-256 of it, for storing what must only be compared.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}
impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}
impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self::new)
    }
}
/// Serialises as `[redacted]`: a secret leaves the program only through [`SecretText::expose`].
impl Serialize for SecretText {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str("[redacted]")
    }
}
#[cfg(feature = "schema")]
impl schemars::JsonSchema for SecretText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretText".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "writeOnly": true })
    }
}

/// Makes a name from outside safe to show on one line: control, bidirectional and zero-width
/// characters are shown as `\u{..}`, and it is cut to `max_chars`.
#[must_use]
pub fn display_safe(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == max_chars {
            out.push('…');
            break;
        }
        if is_deceptive(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// As [`display_safe`], line by line: line ends stay.
#[must_use]
pub fn display_safe_lines(text: &str, max_chars: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| display_safe(line, max_chars)).collect();
    lines.join("\n")
}

/// Whether a character can hide or reorder text: controls, bidirectional marks (UAX 9), zero-width
/// and other invisible format characters, variation selectors and tag characters.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_and_verify_round_trip_and_tampering_fails() {
        let key = SecretKey::generate().unwrap();
        let signature = key.sign(b"message");
        assert_eq!(key.public().verify(b"message", &signature), Ok(()));
        assert_eq!(key.public().verify(b"massage", &signature), Err(IdentityError::BadSignature));
        let other = SecretKey::generate().unwrap();
        assert_eq!(other.public().verify(b"message", &signature), Err(IdentityError::BadSignature));
    }

    #[test]
    fn small_order_keys_are_refused() {
        // The identity point signs everything under lax verification.
        let mut identity = [0; 32];
        identity[0] = 1;
        let mut forged = [0; 64];
        forged[0] = 1;
        assert!(PublicKey(identity).verify(b"anything", &Signature(forged)).is_err());
    }

    #[test]
    fn keys_are_read_from_every_wire_form() {
        let key = SecretKey::from_seed(&[7; 32]).public();
        let url = key.to_base64url();
        let standard = base64::engine::general_purpose::STANDARD.encode(key.0);
        let mut der = vec![0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        der.extend(key.0);
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            base64::engine::general_purpose::STANDARD.encode(der)
        );
        for text in [url, standard, pem] {
            assert_eq!(PublicKey::from_wire(&text), Ok(key));
        }
        assert!(PublicKey::from_wire("AAAA").is_err());
    }

    #[test]
    fn secrets_do_not_print() {
        let secret = SecretText::new("hunter2".into());
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&secret).unwrap().contains("hunter2"));
        assert!(!format!("{:?}", SecretKey::from_seed(&[7; 32])).contains('7'));
    }

    #[test]
    fn deceptive_characters_are_shown() {
        assert_eq!(display_safe("a\u{202e}b\n", 10), "a\\u{202e}b\\u{a}");
        assert_eq!(display_safe("abcdef", 3), "abc…");
        assert_eq!(display_safe("温室", 3), "温室");
    }

    #[test]
    fn signature_binary_form_is_64_raw_bytes() {
        let signature = SecretKey::from_seed(&[1; 32]).sign(b"x");
        let bytes = postcard::to_allocvec(&signature).unwrap();
        assert_eq!(bytes, signature.0);
        assert_eq!(postcard::from_bytes::<Signature>(&bytes).unwrap(), signature);
    }
}
