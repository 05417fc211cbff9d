//! What a person approves, exact to the byte.
//!
//! A [`Challenge`] is one JSON text of at most 16 KiB that the *node* writes over the command as it
//! understands it. It is signed and hashed as sent and never re-encoded: [`SignedChallenge::text`] stays
//! the string that travelled, the typed form is only for showing. The node signs
//! `"hearth-challenge-v1\0" ‖ text`.

use crate::command::{Class, Need};
use crate::identity::{DeviceId, Digest, IdentityError, Nonce, PublicKey, SecretKey, Signature};
use crate::limits::MAX_CHALLENGE;
use crate::reading::{BootId, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const DOMAIN: &[u8] = b"hearth-challenge-v1\0";

/// Version of the challenge's fields.
pub const VERSION: u32 = 1;

/// The fields of a challenge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// [`VERSION`].
    pub v: u32,
    /// The hub the node is paired with.
    pub hub: DeviceId,
    /// The node that will act.
    pub node: DeviceId,
    /// The node's own name.
    pub name: String,
    /// The request this is about.
    pub request: RequestId,
    /// This start of the node; a restart voids the challenge.
    pub boot: BootId,
    /// Random.
    pub nonce: Nonce,
    /// Hash of the node's policy and device configuration.
    pub policy: Digest,
    /// The command's class.
    pub class: Class,
    /// Whose yes it needs.
    pub need: Need,
    /// The command, for example `gpio.pulse`.
    pub command: String,
    /// The complete parameters, defaults filled in.
    pub params: Value,
    /// What they come to on this board: the resolved line, limits, safe state; or the executable's
    /// path, hash, arguments, directory and environment.
    pub facts: Value,
    /// The exact rule that "allow always" would store; `null` when there can be none.
    pub always: Option<AlwaysRule>,
    /// How long it is valid on the node's boot clock.
    pub valid_ms: u32,
}

/// A stored "always": this command, with exactly these parameters, while the facts are exactly these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AlwaysRule {
    /// The command.
    pub command: String,
    /// Complete parameters.
    pub params: Value,
    /// Facts that must still hold, for `system.run` the executable's path and hash among them.
    pub facts: Value,
}

/// A challenge that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChallengeError {
    /// Longer than 16 KiB.
    #[error("challenge of {0} bytes, the limit is {MAX_CHALLENGE}")]
    TooLong(usize),
    /// Not the JSON of a challenge, or of a version this program does not know.
    #[error("not a challenge: {0}")]
    Malformed(String),
    /// The node's signature does not verify.
    #[error(transparent)]
    Signature(#[from] IdentityError),
    /// Signed by a node other than the one it names.
    #[error("the challenge names another node than the one that signed it")]
    WrongNode,
}

/// A challenge as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignedChallenge {
    /// The JSON text, byte for byte as the node wrote it.
    pub text: String,
    /// The node's signature.
    pub signature: Signature,
}

impl SignedChallenge {
    /// Writes and signs a challenge on the node.
    ///
    /// # Errors
    /// [`ChallengeError::TooLong`] when parameters and facts are too large to show a person.
    pub fn issue(challenge: &Challenge, node: &SecretKey) -> Result<Self, ChallengeError> {
        let text = serde_json::to_string(challenge).map_err(|e| ChallengeError::Malformed(e.to_string()))?;
        if text.len() > MAX_CHALLENGE {
            return Err(ChallengeError::TooLong(text.len()));
        }
        let signature = node.sign(&signed_bytes(&text));
        Ok(Self { text, signature })
    }

    /// Checks size, signature and that the signer is the node it names; gives the typed form.
    ///
    /// # Errors
    /// Any [`ChallengeError`].
    pub fn open(&self, node: &PublicKey) -> Result<Challenge, ChallengeError> {
        if self.text.len() > MAX_CHALLENGE {
            return Err(ChallengeError::TooLong(self.text.len()));
        }
        node.verify(&signed_bytes(&self.text), &self.signature)?;
        let challenge: Challenge =
            serde_json::from_str(&self.text).map_err(|e| ChallengeError::Malformed(e.to_string()))?;
        if challenge.v != VERSION {
            return Err(ChallengeError::Malformed(format!(
                "version {}, this program knows {VERSION}",
                challenge.v
            )));
        }
        if challenge.node != node.device_id() {
            return Err(ChallengeError::WrongNode);
        }
        Ok(challenge)
    }

    /// SHA-256 of the text: what a grant signs.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.text.as_bytes())
    }
}

impl Challenge {
    /// Whether `other` differs only in nonce, boot and validity: the person has seen the same thing and
    /// need not be shown it again.
    #[must_use]
    pub fn same_matter(&self, other: &Self) -> bool {
        let mut twin = other.clone();
        twin.nonce = self.nonce;
        twin.boot = self.boot;
        twin.valid_ms = self.valid_ms;
        *self == twin
    }
}

fn signed_bytes(text: &str) -> Vec<u8> {
    [DOMAIN, text.as_bytes()].concat()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn sample(node: &SecretKey) -> Challenge {
        Challenge {
            v: VERSION,
            hub: DeviceId([1; 32]),
            node: node.device_id(),
            name: "garage".into(),
            request: RequestId([2; 16]),
            boot: BootId([3; 16]),
            nonce: Nonce([4; 32]),
            policy: Digest([5; 32]),
            class: Class::Actuate,
            need: Need::Hub,
            command: "gpio.pulse".into(),
            params: json!({"pin": "pump", "value": true, "durationMs": 20_000}),
            facts: json!({"line": "simulated:4", "safe": false}),
            always: None,
            valid_ms: 60_000,
        }
    }

    #[test]
    fn opens_only_with_the_key_of_the_node_it_names() {
        let node = SecretKey::from_seed(&[6; 32]);
        let signed = SignedChallenge::issue(&sample(&node), &node).unwrap();
        assert_eq!(signed.open(&node.public()), Ok(sample(&node)));
        let other = SecretKey::from_seed(&[7; 32]);
        assert!(signed.open(&other.public()).is_err());
        let stolen = SignedChallenge::issue(&sample(&node), &other).unwrap();
        assert_eq!(stolen.open(&other.public()), Err(ChallengeError::WrongNode));
        let mut changed = signed;
        changed.text = changed.text.replace("pump", "door");
        assert!(changed.open(&node.public()).is_err());
    }

    #[test]
    fn unknown_fields_and_long_texts_are_refused() {
        let node = SecretKey::from_seed(&[6; 32]);
        let text = serde_json::to_string(&sample(&node)).unwrap().replacen('{', "{\"extra\":1,", 1);
        let signature = node.sign(&signed_bytes(&text));
        assert!(matches!(
            SignedChallenge { text, signature }.open(&node.public()),
            Err(ChallengeError::Malformed(_))
        ));
        let mut long = sample(&node);
        long.facts = json!("x".repeat(MAX_CHALLENGE));
        assert!(matches!(SignedChallenge::issue(&long, &node), Err(ChallengeError::TooLong(_))));
    }

    #[test]
    fn same_matter_ignores_nonce_boot_and_validity_only() {
        let node = SecretKey::from_seed(&[6; 32]);
        let first = sample(&node);
        let mut second = first.clone();
        second.nonce = Nonce([9; 32]);
        second.boot = BootId([9; 16]);
        second.valid_ms = 1;
        assert!(first.same_matter(&second));
        second.policy = Digest([9; 32]);
        assert!(!first.same_matter(&second));
    }
}
