//! Who may approve on a node: the list the node keeps, and how it changes.
//!
//! A change signs `"hearth-approvers-v1\0" ‖ node_id32 ‖ epoch u64 ‖ postcard(approvers, recovery)` where
//! `epoch` is the current one plus one, so that a change can be used once and in order. An admin or the
//! recovery key may change anything; an ordinary approver may only take itself off. The hub's own key
//! is never an admin: a hub that runs evil code must not be able to appoint its own "person".

use crate::identity::{DeviceId, IdentityError, PublicKey, SecretKey, SecretText, Signature};
use crate::limits::{MAX_APPROVERS, MAX_NAME_CHARS};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const DOMAIN: &[u8] = b"hearth-approvers-v1\0";

/// Where an approver's key lives. The order is part of the link format: append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ApproverKind {
    /// The hub's key: satisfies need `hub` only.
    Hub,
    /// Made in a browser page that the hub serves.
    Page,
    /// Made by `hearth approver` on a person's machine.
    Terminal,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Approver {
    /// The key that signs grants. Never the key of a connection.
    pub key: PublicKey,
    /// Where it lives.
    pub kind: ApproverKind,
    /// May change this list. Never for [`ApproverKind::Hub`].
    pub admin: bool,
    /// Name for people.
    pub name: String,
}

impl Approver {
    /// The id its grants name.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.key.device_id()
    }

    /// Whether it is a person's own key.
    #[must_use]
    pub fn is_person(&self) -> bool {
        !matches!(self.kind, ApproverKind::Hub)
    }
}

/// A node's whole list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApproverSet {
    /// Counts changes; 0 is the empty list of a node that is not paired.
    pub epoch: u64,
    /// At most 16.
    pub approvers: Vec<Approver>,
    /// A key kept offline (on paper) that may change the list when all else is lost.
    pub recovery: Option<PublicKey>,
}

/// Why a list or a change is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApproverError {
    /// Too long, doubled keys, a hub as admin, a name too long, or the recovery key in daily use.
    #[error("not a valid list of approvers: {0}")]
    Invalid(&'static str),
    /// The signer is not on the list.
    #[error("{0} is not an approver of this node")]
    UnknownSigner(DeviceId),
    /// The signer may not make this change.
    #[error("{0} is no admin and may only remove itself")]
    NotAdmin(DeviceId),
    /// Made for another state of the list: used already, or out of order.
    #[error("the change is for epoch {found}, the next one here is {expected}")]
    WrongEpoch { expected: u64, found: u64 },
    /// The signature does not verify.
    #[error(transparent)]
    Signature(#[from] IdentityError),
}

impl ApproverSet {
    /// The approver with this id.
    #[must_use]
    pub fn get(&self, id: &DeviceId) -> Option<&Approver> {
        self.approvers.iter().find(|a| a.id() == *id)
    }

    /// Whether need `person` may be in force: a lost browser must not lock everybody out, so it takes
    /// two persons' keys, or one and a recovery key.
    #[must_use]
    pub fn person_ready(&self) -> bool {
        let persons = self.approvers.iter().filter(|a| a.is_person()).count();
        persons >= 2 || (persons == 1 && self.recovery.is_some())
    }

    /// Checks the list by itself.
    ///
    /// # Errors
    /// [`ApproverError::Invalid`].
    pub fn check(&self) -> Result<(), ApproverError> {
        if self.approvers.len() > MAX_APPROVERS {
            return Err(ApproverError::Invalid("more than 16 entries"));
        }
        for (i, approver) in self.approvers.iter().enumerate() {
            if approver.admin && !approver.is_person() {
                return Err(ApproverError::Invalid("the hub's key cannot be an admin"));
            }
            if approver.name.is_empty() || approver.name.chars().count() > MAX_NAME_CHARS {
                return Err(ApproverError::Invalid("a name is empty or longer than 64 characters"));
            }
            if self.approvers[..i].iter().any(|a| a.key == approver.key) {
                return Err(ApproverError::Invalid("a key stands twice"));
            }
            if self.recovery == Some(approver.key) {
                return Err(ApproverError::Invalid("the recovery key is also a daily one"));
            }
        }
        Ok(())
    }

    /// The list after `change`, if it is allowed.
    ///
    /// # Errors
    /// Any [`ApproverError`]; the list stays as it was.
    pub fn apply(&self, node: &DeviceId, change: &ApproversChange) -> Result<Self, ApproverError> {
        let signer = change.signer.device_id();
        let by_recovery = self.recovery == Some(change.signer);
        let current = self.get(&signer);
        if current.is_none() && !by_recovery {
            return Err(ApproverError::UnknownSigner(signer));
        }
        let expected = self.epoch + 1;
        if change.set.epoch != expected {
            return Err(ApproverError::WrongEpoch { expected, found: change.set.epoch });
        }
        change.signer.verify(&signed_bytes(node, &change.set), &change.signature)?;
        change.set.check()?;
        if !by_recovery && !current.is_some_and(|a| a.admin) {
            let mut without = self.approvers.clone();
            without.retain(|a| a.id() != signer);
            if change.set.approvers != without || change.set.recovery != self.recovery {
                return Err(ApproverError::NotAdmin(signer));
            }
        }
        Ok(change.set.clone())
    }
}

/// A signed new list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApproversChange {
    /// The list as it shall be; its epoch is the current one plus one.
    pub set: ApproverSet,
    /// Who signs.
    pub signer: PublicKey,
    /// Over the bytes in the module's text.
    pub signature: Signature,
}

impl ApproversChange {
    /// Signs a new list for `node`.
    #[must_use]
    pub fn sign(key: &SecretKey, node: &DeviceId, set: ApproverSet) -> Self {
        let signature = key.sign(&signed_bytes(node, &set));
        Self { set, signer: key.public(), signature }
    }
}

/// A recovery key as 24 words of the BIP-39 English list, for paper. The last word holds a checksum.
#[must_use]
pub fn recovery_phrase(key: &SecretKey) -> SecretText {
    let seed = key.seed();
    // 32 bytes are a valid length, so this always gives 24 words.
    bip39::Mnemonic::from_entropy(&*seed).map(|m| SecretText::new(m.to_string())).unwrap_or_default()
}

/// Reads a phrase that [`recovery_phrase`] wrote; case and the white space between words do not matter.
///
/// # Errors
/// [`IdentityError::Malformed`] for a wrong word, count or checksum.
pub fn recovery_key(phrase: &SecretText) -> Result<SecretKey, IdentityError> {
    let malformed = IdentityError::Malformed {
        what: "recovery phrase",
        expected: "the 24 words that were shown when it was made",
    };
    let words = Zeroizing::new(phrase.expose().to_lowercase());
    let mnemonic = bip39::Mnemonic::parse_in_normalized(
        bip39::Language::English,
        &words.split_whitespace().collect::<Vec<_>>().join(" "),
    );
    let Ok(mnemonic) = mnemonic else { return Err(malformed) };
    let entropy = Zeroizing::new(mnemonic.to_entropy());
    let seed = Zeroizing::new(<[u8; 32]>::try_from(entropy.as_slice()).map_err(|_| malformed)?);
    Ok(SecretKey::from_seed(&seed))
}

fn signed_bytes(node: &DeviceId, set: &ApproverSet) -> Vec<u8> {
    let mut bytes = DOMAIN.to_vec();
    bytes.extend(node.0);
    bytes.extend(set.epoch.to_be_bytes());
    // A vector of plain structs always encodes.
    bytes.extend(postcard::to_allocvec(&(&set.approvers, &set.recovery)).unwrap_or_default());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: DeviceId = DeviceId([9; 32]);

    fn approver(seed: u8, kind: ApproverKind, admin: bool) -> (SecretKey, Approver) {
        let key = SecretKey::from_seed(&[seed; 32]);
        let approver = Approver { key: key.public(), kind, admin, name: format!("a{seed}") };
        (key, approver)
    }

    fn set() -> (ApproverSet, SecretKey, SecretKey, SecretKey) {
        let (hub, h) = approver(1, ApproverKind::Hub, false);
        let (admin, a) = approver(2, ApproverKind::Terminal, true);
        let (plain, p) = approver(3, ApproverKind::Page, false);
        (ApproverSet { epoch: 4, approvers: vec![h, a, p], recovery: None }, hub, admin, plain)
    }

    #[test]
    fn admin_changes_and_change_is_used_once() {
        let (before, _, admin, _) = set();
        let mut after = before.clone();
        after.epoch = 5;
        after.approvers.pop();
        let change = ApproversChange::sign(&admin, &NODE, after.clone());
        let applied = before.apply(&NODE, &change).unwrap();
        assert_eq!(applied, after);
        assert_eq!(
            applied.apply(&NODE, &change),
            Err(ApproverError::WrongEpoch { expected: 6, found: 5 }),
            "replay"
        );
        assert!(before.apply(&DeviceId([8; 32]), &change).is_err(), "other node");
    }

    #[test]
    fn ordinary_approver_and_hub_may_only_leave() {
        let (before, hub, _, plain) = set();
        for key in [&hub, &plain] {
            let id = key.public().device_id();
            let mut leave = before.clone();
            leave.epoch = 5;
            leave.approvers.retain(|a| a.id() != id);
            assert!(before.apply(&NODE, &ApproversChange::sign(key, &NODE, leave.clone())).is_ok());
            let mut worse = leave;
            worse.approvers.push(approver(7, ApproverKind::Terminal, true).1);
            assert_eq!(
                before.apply(&NODE, &ApproversChange::sign(key, &NODE, worse)),
                Err(ApproverError::NotAdmin(id))
            );
        }
    }

    #[test]
    fn strangers_and_hub_admins_are_refused() {
        let (before, _, admin, _) = set();
        let stranger = SecretKey::from_seed(&[99; 32]);
        let mut after = before.clone();
        after.epoch = 5;
        assert!(before.apply(&NODE, &ApproversChange::sign(&stranger, &NODE, after.clone())).is_err());
        after.approvers[0].admin = true;
        assert!(before.apply(&NODE, &ApproversChange::sign(&admin, &NODE, after)).is_err());
    }

    #[test]
    fn recovery_phrase_reads_back_and_a_wrong_word_shows() {
        let key = SecretKey::from_seed(&[42; 32]);
        let phrase = recovery_phrase(&key);
        assert_eq!(phrase.expose().split(' ').count(), 24);
        let typed = SecretText::new(format!("  {}\n", phrase.expose().to_uppercase().replace(' ', "  ")));
        assert_eq!(recovery_key(&typed).unwrap().public(), key.public());
        let first = phrase.expose().split(' ').next().unwrap();
        let other = if first == "zoo" { "abandon" } else { "zoo" };
        let wrong = SecretText::new(phrase.expose().replacen(first, other, 1));
        assert!(recovery_key(&wrong).is_err());
        assert!(recovery_key(&SecretText::new("abandon abandon about".into())).is_err());
    }

    #[test]
    fn person_needs_two_keys_or_a_recovery_key() {
        let (mut set, ..) = set();
        assert!(set.person_ready());
        set.approvers.pop();
        assert!(!set.person_ready());
        set.recovery = Some(PublicKey([5; 32]));
        assert!(set.person_ready());
    }
}
