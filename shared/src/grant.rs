//! The signature that lets a challenge run.
//!
//! A signer signs `"hearth-grant-v1\0" ‖ SHA-256(challenge text) ‖ decision u8 ‖ signer_id32 ‖
//! signed_at_ms u64 big-endian`. The time is for the audit only: what bounds a grant is the challenge,
//! which lives once, in one boot, for a minute.

use crate::approver::{ApproverKind, ApproverSet};
use crate::command::Need;
use crate::identity::{DeviceId, Digest, IdentityError, SecretKey, Signature};
use serde::{Deserialize, Serialize};

const DOMAIN: &[u8] = b"hearth-grant-v1\0";

/// What was decided. The numbers are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// 0
    Deny,
    /// 1
    AllowOnce,
    /// 2
    AllowAlways,
}

impl Decision {
    fn number(self) -> u8 {
        match self {
            Self::Deny => 0,
            Self::AllowOnce => 1,
            Self::AllowAlways => 2,
        }
    }

    /// As the JSON protocol writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
        }
    }
}

/// A decision, signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// SHA-256 of the challenge's text.
    pub challenge: Digest,
    /// The decision.
    pub decision: Decision,
    /// Id of the approver's key.
    pub signer: DeviceId,
    /// Unix milliseconds by the signer's clock; for the audit only.
    pub signed_at_ms: u64,
    /// Over the bytes in the module's text.
    pub signature: Signature,
}

/// Why a grant is void.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// Made for another challenge.
    #[error("the grant is for another challenge")]
    OtherChallenge,
    /// The signer is not on the node's list.
    #[error("signer {0} is not an approver of this node; see `hearth-node approvers`")]
    UnknownSigner(DeviceId),
    /// The signer may not satisfy this need.
    #[error("signer {signer} signs for need `{has}`, this command needs `{needs}`")]
    NotEnough { signer: DeviceId, has: &'static str, needs: &'static str },
    /// The signature does not verify.
    #[error(transparent)]
    Signature(#[from] IdentityError),
}

impl Grant {
    /// Signs a decision over a challenge's digest.
    #[must_use]
    pub fn sign(key: &SecretKey, challenge: Digest, decision: Decision, signed_at_ms: u64) -> Self {
        let signer = key.device_id();
        let signature = key.sign(&signed_bytes(&challenge, decision, &signer, signed_at_ms));
        Self { challenge, decision, signer, signed_at_ms, signature }
    }

    /// Checks that this grant is for `challenge`, by an approver on the node's list whose kind satisfies
    /// `need`. Whether the challenge itself still holds is the caller's to know.
    ///
    /// # Errors
    /// Any [`GrantError`].
    pub fn verify(&self, challenge: &Digest, need: Need, approvers: &ApproverSet) -> Result<(), GrantError> {
        if self.challenge != *challenge {
            return Err(GrantError::OtherChallenge);
        }
        let approver = approvers.get(&self.signer).ok_or(GrantError::UnknownSigner(self.signer))?;
        let has = match approver.kind {
            ApproverKind::Hub => Need::Hub,
            ApproverKind::Page | ApproverKind::Terminal => Need::Person,
        };
        // A "no" is taken from any approver; only a "yes" must be strong enough.
        if self.decision != Decision::Deny && has < need {
            return Err(GrantError::NotEnough {
                signer: self.signer,
                has: has.as_str(),
                needs: need.as_str(),
            });
        }
        let bytes = signed_bytes(&self.challenge, self.decision, &self.signer, self.signed_at_ms);
        approver.key.verify(&bytes, &self.signature)?;
        Ok(())
    }
}

fn signed_bytes(challenge: &Digest, decision: Decision, signer: &DeviceId, signed_at_ms: u64) -> Vec<u8> {
    let mut bytes = DOMAIN.to_vec();
    bytes.extend(challenge.0);
    bytes.push(decision.number());
    bytes.extend(signer.0);
    bytes.extend(signed_at_ms.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approver::Approver;
    use crate::challenge::SignedChallenge;
    use proptest::prelude::*;

    fn approvers() -> (SecretKey, SecretKey, ApproverSet) {
        let hub = SecretKey::from_seed(&[1; 32]);
        let person = SecretKey::from_seed(&[2; 32]);
        let entry =
            |key: &SecretKey, kind| Approver { key: key.public(), kind, admin: false, name: "x".into() };
        let approvers = vec![entry(&hub, ApproverKind::Hub), entry(&person, ApproverKind::Terminal)];
        (hub, person, ApproverSet { epoch: 1, approvers, recovery: None })
    }

    #[test]
    fn hub_satisfies_hub_and_person_satisfies_both() {
        let (hub, person, set) = approvers();
        let challenge = Digest([7; 32]);
        for (key, need, ok) in [
            (&hub, Need::Hub, true),
            (&hub, Need::Person, false),
            (&person, Need::Hub, true),
            (&person, Need::Person, true),
        ] {
            let grant = Grant::sign(key, challenge, Decision::AllowOnce, 1);
            assert_eq!(grant.verify(&challenge, need, &set).is_ok(), ok);
        }
        let denied = Grant::sign(&hub, challenge, Decision::Deny, 1);
        assert_eq!(denied.verify(&challenge, Need::Person, &set), Ok(()), "anyone may say no");
    }

    #[test]
    fn every_field_of_the_challenge_changed_in_turn_voids_the_grant() {
        let (hub, _, set) = approvers();
        let node = SecretKey::from_seed(&[6; 32]);
        let challenge = crate::challenge::tests::sample(&node);
        let grant = Grant::sign(
            &hub,
            SignedChallenge::issue(&challenge, &node).unwrap().digest(),
            Decision::AllowOnce,
            1,
        );
        let whole = serde_json::to_value(&challenge).unwrap();
        let fields: Vec<String> = whole.as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields.len(), 15, "the test must cover a field that is added");
        for field in fields {
            let mut changed = whole.clone();
            changed[&field] = serde_json::json!("changed");
            let digest = Digest::of(changed.to_string().as_bytes());
            assert_eq!(grant.verify(&digest, Need::Hub, &set), Err(GrantError::OtherChallenge), "{field}");
        }
    }

    proptest! {
        #[test]
        fn any_changed_field_of_the_grant_voids_it(bit in 0usize..8, byte in 0usize..32, what in 0u8..4) {
            let (_, person, set) = approvers();
            let challenge = Digest([7; 32]);
            let mut grant = Grant::sign(&person, challenge, Decision::AllowOnce, 5);
            match what {
                0 => grant.signature.0[byte * 2] ^= 1 << bit,
                1 => grant.signer.0[byte] ^= 1 << bit,
                2 => grant.signed_at_ms ^= 1 << (byte + bit),
                _ => grant.decision = Decision::AllowAlways,
            }
            prop_assert!(grant.verify(&challenge, Need::Hub, &set).is_err());
        }
    }
}
