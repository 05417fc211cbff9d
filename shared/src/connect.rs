//! What a device signs when it connects.
//!
//! **Our link.** [`LinkTranscript`]: the node signs `"hearth-connect-v1\0" ‖ postcard(transcript)`, the hub
//! answers with a signature over `"hearth-welcome-v1\0" ‖` the same bytes. The transcript holds nonces of
//! both sides, the TLS exporter (so that the signature is worthless on any other connection), the digest
//! of what the node declares, and the node's boot.
//!
//! **JSON clients.** [`JsonProof`]: the fields joined by `|`, in two versions. The join is not escaped, so
//! signed fields that hold `|` or control characters are refused, and `,` inside a scope.

use crate::identity::{DeviceId, Digest, IdentityError, Nonce, PublicKey, SecretKey, Signature};
use crate::reading::BootId;
use serde::{Deserialize, Serialize};

const NODE_DOMAIN: &[u8] = b"hearth-connect-v1\0";
const HUB_DOMAIN: &[u8] = b"hearth-welcome-v1\0";

/// Label of the TLS exporter (RFC 8446, 7.5) that binds a connect to its connection; 32 bytes, no context.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-hearth-link-v1";

/// Role of a device. The order is part of the link format: append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person's program: page, terminal, approver.
    Operator,
    /// A board.
    Node,
}

impl Role {
    /// As written in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Node => "node",
        }
    }
}

/// Everything a connect on our link is bound to. The order of fields is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTranscript {
    /// The hub's identity.
    pub hub_id: DeviceId,
    /// Fresh from the hub.
    pub hub_nonce: Nonce,
    /// Fresh from the node.
    pub node_nonce: Nonce,
    /// TLS exporter of this connection; zeros on plain loopback, which only tests and the demo could
    /// use and which our hub refuses for links.
    pub tls_exporter: [u8; 32],
    /// Always [`Role::Node`] here.
    pub role: Role,
    /// SHA-256 of the declaration's bytes as sent.
    pub declaration: Digest,
    /// The version both will speak.
    pub link_version: u16,
    /// This start of the node.
    pub boot_id: BootId,
}

impl LinkTranscript {
    fn bytes(&self, domain: &[u8]) -> Vec<u8> {
        let mut bytes = domain.to_vec();
        // Fixed-size fields always encode.
        bytes.extend(postcard::to_allocvec(self).unwrap_or_default());
        bytes
    }

    /// The node's signature.
    #[must_use]
    pub fn sign_as_node(&self, key: &SecretKey) -> Signature {
        key.sign(&self.bytes(NODE_DOMAIN))
    }

    /// Checks the node's signature.
    ///
    /// # Errors
    /// [`IdentityError`] when it does not verify.
    pub fn verify_node(&self, key: &PublicKey, signature: &Signature) -> Result<(), IdentityError> {
        key.verify(&self.bytes(NODE_DOMAIN), signature)
    }

    /// The hub's signature.
    #[must_use]
    pub fn sign_as_hub(&self, key: &SecretKey) -> Signature {
        key.sign(&self.bytes(HUB_DOMAIN))
    }

    /// Checks the hub's signature and that the key is the one of `hub_id`.
    ///
    /// # Errors
    /// [`IdentityError`] when it does not verify.
    pub fn verify_hub(&self, key: &PublicKey, signature: &Signature) -> Result<(), IdentityError> {
        if key.device_id() != self.hub_id {
            return Err(IdentityError::BadSignature);
        }
        key.verify(&self.bytes(HUB_DOMAIN), signature)
    }
}

/// The signed fields of a JSON client's `connect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonProof<'a> {
    /// Hex SHA-256 of the public key.
    pub device_id: &'a str,
    /// `client.id` as sent.
    pub client_id: &'a str,
    /// `client.mode` as sent.
    pub client_mode: &'a str,
    /// `role` as sent.
    pub role: &'a str,
    /// `scopes` in the order sent.
    pub scopes: &'a [String],
    /// `device.signedAt`, Unix milliseconds.
    pub signed_at_ms: i64,
    /// First present of `auth.token`, `auth.deviceToken`, `auth.bootstrapToken`; empty when none.
    pub token: &'a str,
    /// The challenge's nonce.
    pub nonce: &'a str,
    /// `client.platform`; version 3 only.
    pub platform: &'a str,
    /// `client.deviceFamily`; version 3 only.
    pub device_family: &'a str,
}

/// Payload versions in use. Phones of some platforms sign version 2 on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonProofVersion {
    /// Without platform and device family.
    V2,
    /// With them.
    V3,
}

impl JsonProof<'_> {
    /// Whether every field can stand in the unescaped join.
    #[must_use]
    pub fn is_unambiguous(&self) -> bool {
        let clean = |s: &str| !s.chars().any(|c| c == '|' || c.is_control());
        [
            self.device_id,
            self.client_id,
            self.client_mode,
            self.role,
            self.token,
            self.nonce,
            self.platform,
            self.device_family,
        ]
        .into_iter()
        .all(clean)
            && self.scopes.iter().all(|s| clean(s) && !s.contains(','))
    }

    /// The bytes that are signed.
    #[must_use]
    pub fn payload(&self, version: JsonProofVersion) -> String {
        let head = match version {
            JsonProofVersion::V2 => "v2",
            JsonProofVersion::V3 => "v3",
        };
        let mut text = format!(
            "{head}|{}|{}|{}|{}|{}|{}|{}|{}",
            self.device_id,
            self.client_id,
            self.client_mode,
            self.role,
            self.scopes.join(","),
            self.signed_at_ms,
            self.token,
            self.nonce
        );
        if version == JsonProofVersion::V3 {
            // ASCII lowering only: the peers' rule, so that both sides agree on every alphabet.
            for field in [self.platform, self.device_family] {
                text.push('|');
                text.push_str(&field.trim().to_ascii_lowercase());
            }
        }
        text
    }

    /// Signs version 3.
    #[must_use]
    pub fn sign(&self, key: &SecretKey) -> Signature {
        key.sign(self.payload(JsonProofVersion::V3).as_bytes())
    }

    /// Accepts version 3, then version 2.
    ///
    /// # Errors
    /// [`IdentityError::BadSignature`], also for fields that cannot be joined safely.
    pub fn verify(&self, key: &PublicKey, signature: &Signature) -> Result<JsonProofVersion, IdentityError> {
        if !self.is_unambiguous() {
            return Err(IdentityError::BadSignature);
        }
        for version in [JsonProofVersion::V3, JsonProofVersion::V2] {
            if key.verify(self.payload(version).as_bytes(), signature).is_ok() {
                return Ok(version);
            }
        }
        Err(IdentityError::BadSignature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> LinkTranscript {
        LinkTranscript {
            hub_id: SecretKey::from_seed(&[1; 32]).device_id(),
            hub_nonce: Nonce([2; 32]),
            node_nonce: Nonce([3; 32]),
            tls_exporter: [4; 32],
            role: Role::Node,
            declaration: Digest([5; 32]),
            link_version: 1,
            boot_id: BootId([6; 16]),
        }
    }

    #[test]
    fn every_field_of_the_transcript_is_signed() {
        let node = SecretKey::from_seed(&[9; 32]);
        let good = transcript();
        let signature = good.sign_as_node(&node);
        assert_eq!(good.verify_node(&node.public(), &signature), Ok(()));
        let changes: [fn(&mut LinkTranscript); 8] = [
            |t| t.hub_id.0[0] ^= 1,
            |t| t.hub_nonce.0[0] ^= 1,
            |t| t.node_nonce.0[0] ^= 1,
            |t| t.tls_exporter[0] ^= 1,
            |t| t.role = Role::Operator,
            |t| t.declaration.0[0] ^= 1,
            |t| t.link_version = 2,
            |t| t.boot_id.0[0] ^= 1,
        ];
        for change in changes {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(bad.verify_node(&node.public(), &signature).is_err());
        }
    }

    #[test]
    fn a_node_signature_is_no_hub_signature() {
        let hub = SecretKey::from_seed(&[1; 32]);
        let t = transcript();
        assert_eq!(t.verify_hub(&hub.public(), &t.sign_as_hub(&hub)), Ok(()));
        assert!(t.verify_hub(&hub.public(), &t.sign_as_node(&hub)).is_err(), "domains differ");
        let other = SecretKey::from_seed(&[2; 32]);
        assert!(t.verify_hub(&other.public(), &t.sign_as_hub(&other)).is_err(), "not the key of hub_id");
    }

    fn proof<'a>(scopes: &'a [String], token: &'a str) -> JsonProof<'a> {
        JsonProof {
            device_id: "d",
            client_id: "cli",
            client_mode: "cli",
            role: "operator",
            scopes,
            signed_at_ms: 17,
            token,
            nonce: "n",
            platform: " Linux ",
            device_family: "Linux",
        }
    }

    #[test]
    fn json_payloads_have_the_documented_form() {
        let scopes = ["operator.read".to_string(), "operator.write".to_string()];
        let p = proof(&scopes, "t");
        assert_eq!(
            p.payload(JsonProofVersion::V2),
            "v2|d|cli|cli|operator|operator.read,operator.write|17|t|n"
        );
        assert_eq!(
            p.payload(JsonProofVersion::V3),
            "v3|d|cli|cli|operator|operator.read,operator.write|17|t|n|linux|linux"
        );
    }

    #[test]
    fn ambiguous_fields_are_refused_even_with_a_good_signature() {
        let key = SecretKey::from_seed(&[1; 32]);
        for (scopes, token) in [(vec![], "a|b"), (vec!["x,y".to_string()], ""), (vec![], "a\nb")] {
            let p = proof(&scopes, token);
            assert!(p.verify(&key.public(), &p.sign(&key)).is_err());
        }
        let p = proof(&[], "t");
        assert_eq!(p.verify(&key.public(), &p.sign(&key)), Ok(JsonProofVersion::V3));
        let v2 = key.sign(p.payload(JsonProofVersion::V2).as_bytes());
        assert_eq!(p.verify(&key.public(), &v2), Ok(JsonProofVersion::V2));
    }
}
