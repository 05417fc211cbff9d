//! Pairing: setup codes, and words that two screens compare.
//!
//! **With a code** (`hearth pair` shows it): the code carries the hub's addresses, identity, TLS pin, a
//! secret that works once, and the first list of approvers. The node connects, presents the secret on
//! the pinned connection, and is admitted.
//!
//! **Without one** (the node knows only an address): commit, then reveal, so that neither side can choose
//! its nonce after seeing the other's and steer the words:
//!
//! ```text
//! node ──► SHA-256(nonce_n)      both show 4 words for 44 bits of
//! node ◄── nonce_h               SHA-256("hearth-words-v1\0" ‖ hub_id ‖ spki ‖ node_id ‖ nonce_h ‖ nonce_n);
//! node ──► nonce_n               a person confirms on both ends
//! ```
//!
//! An attacker in the middle has one try in 2^44.

use crate::approver::Approver;
use crate::identity::{DeviceId, Digest, Nonce, PublicKey, SecretText, sha256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

const WORDS_DOMAIN: &[u8] = b"hearth-words-v1\0";
/// What a setup code begins with.
pub const CODE_PREFIX: &str = "hearth1-";
/// Longest setup code accepted, in characters.
pub const MAX_CODE_CHARS: usize = 4096;

/// A setup code's secret: shown once, kept by the hub as a digest, redacted everywhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSecret(pub [u8; 32]);

impl CodeSecret {
    /// What the hub stores.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}
impl std::fmt::Debug for CodeSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}
impl Drop for CodeSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What a setup code says. The order of fields is part of the format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupCode {
    /// `host:port`, the likeliest first; at most 8.
    pub addresses: Vec<String>,
    /// The hub's identity key.
    pub hub: PublicKey,
    /// SHA-256 of the hub's TLS public key (SPKI).
    pub spki: Digest,
    /// Works once.
    pub secret: CodeSecret,
    /// The node's first approvers: the hub's key and the persons' keys known to the hub. Shown at the
    /// node before they are stored.
    pub approvers: Vec<Approver>,
}

/// A code that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// No `hearth1-` in front.
    #[error("a setup code begins with `{CODE_PREFIX}`; copy it whole from `hearth pair`")]
    NotACode,
    /// Damaged in copying.
    #[error("the setup code is damaged (a character is missing or wrong); copy it again from `hearth pair`")]
    Damaged,
    /// Longer than any real one.
    #[error("the setup code has {0} characters, the limit is {MAX_CODE_CHARS}")]
    TooLong(usize),
}

impl SetupCode {
    /// The text: `hearth1-` and base64url of the fields and a 4-byte checksum (the head of their SHA-256).
    #[must_use]
    pub fn encode(&self) -> SecretText {
        // Plain structs always encode.
        let mut bytes = Zeroizing::new(postcard::to_allocvec(self).unwrap_or_default());
        let sum = sha256(&bytes);
        bytes.extend(&sum[..4]);
        SecretText::new(format!("{CODE_PREFIX}{}", URL_SAFE_NO_PAD.encode(&bytes[..])))
    }

    /// Reads a code; white space (a wrapped terminal line) is ignored.
    ///
    /// # Errors
    /// Any [`CodeError`].
    pub fn decode(text: &str) -> Result<Self, CodeError> {
        let text = Zeroizing::new(text.chars().filter(|c| !c.is_whitespace()).collect::<String>());
        if text.len() > MAX_CODE_CHARS {
            return Err(CodeError::TooLong(text.len()));
        }
        let body = text.strip_prefix(CODE_PREFIX).ok_or(CodeError::NotACode)?;
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(body).map_err(|_| CodeError::Damaged)?);
        let (fields, sum) = bytes.split_last_chunk::<4>().ok_or(CodeError::Damaged)?;
        if sha256(fields)[..4] != sum[..] {
            return Err(CodeError::Damaged);
        }
        let (code, rest) = postcard::take_from_bytes::<Self>(fields).map_err(|_| CodeError::Damaged)?;
        if !rest.is_empty() || code.addresses.is_empty() || code.addresses.len() > 8 {
            return Err(CodeError::Damaged);
        }
        Ok(code)
    }
}

/// The words of a pairing without a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordsInput {
    /// The hub's identity.
    pub hub_id: DeviceId,
    /// SHA-256 of the TLS key the node actually sees.
    pub spki: Digest,
    /// The node's identity.
    pub node_id: DeviceId,
    /// The hub's nonce.
    pub nonce_h: Nonce,
    /// The node's nonce, to which it committed before.
    pub nonce_n: Nonce,
}

impl WordsInput {
    /// Four words of the BIP-39 English list, 11 bits each.
    #[must_use]
    pub fn words(&self) -> String {
        let mut bytes = WORDS_DOMAIN.to_vec();
        for part in [&self.hub_id.0, &self.spki.0, &self.node_id.0, &self.nonce_h.0, &self.nonce_n.0] {
            bytes.extend(part);
        }
        let digest = sha256(&bytes);
        let mut head = [0; 8];
        head.copy_from_slice(&digest[..8]);
        let bits = u64::from_be_bytes(head);
        let list = bip39::Language::English.word_list();
        (0..4).map(|i| list[((bits >> (53 - 11 * i)) & 0x7ff) as usize]).collect::<Vec<_>>().join(" ")
    }
}

/// The commitment to a nonce.
#[must_use]
pub fn commit(nonce: &Nonce) -> Digest {
    Digest::of(&nonce.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approver::ApproverKind;
    use proptest::prelude::*;

    fn code() -> SetupCode {
        SetupCode {
            addresses: vec!["192.168.1.20:18789".into()],
            hub: PublicKey([1; 32]),
            spki: Digest([2; 32]),
            secret: CodeSecret([3; 32]),
            approvers: vec![Approver {
                key: PublicKey([1; 32]),
                kind: ApproverKind::Hub,
                admin: false,
                name: "hub".into(),
            }],
        }
    }

    #[test]
    fn code_round_trips_and_wrapped_lines_do_not_matter() {
        let text = code().encode();
        assert_eq!(SetupCode::decode(text.expose()), Ok(code()));
        let wrapped = format!("  {}\n {} ", &text.expose()[..30], &text.expose()[30..]);
        assert_eq!(SetupCode::decode(&wrapped), Ok(code()));
        assert!(!format!("{:?}", code().secret).contains('3'));
    }

    proptest! {
        #[test]
        fn a_damaged_code_is_named_as_such(at in 8usize..100, c in "[A-Za-z0-9_-]") {
            let text = code().encode();
            let mut bad = text.expose().to_string();
            bad.replace_range(at..=at, &c);
            if bad != text.expose() {
                prop_assert_eq!(SetupCode::decode(&bad), Err(CodeError::Damaged));
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = SetupCode::decode(&text);
            let _ = SetupCode::decode(&format!("{CODE_PREFIX}{text}"));
        }
    }

    #[test]
    fn words_depend_on_every_input() {
        let input = WordsInput {
            hub_id: DeviceId([1; 32]),
            spki: Digest([2; 32]),
            node_id: DeviceId([3; 32]),
            nonce_h: Nonce([4; 32]),
            nonce_n: Nonce([5; 32]),
        };
        let words = input.words();
        assert_eq!(words.split(' ').count(), 4);
        let changes: [fn(&mut WordsInput); 5] = [
            |w| w.hub_id.0[31] ^= 1,
            |w| w.spki.0[31] ^= 1,
            |w| w.node_id.0[31] ^= 1,
            |w| w.nonce_h.0[31] ^= 1,
            |w| w.nonce_n.0[31] ^= 1,
        ];
        for change in changes {
            let mut other = input.clone();
            change(&mut other);
            assert_ne!(other.words(), words);
        }
    }
}
