//! Whose word counts: the node's list of approvers and the hub it obeys.
//!
//! The first list comes with pairing, confirmed at the node. Later ones are signed by an admin or the
//! recovery key, or made here, on the node, by its owner.

use super::{Guard, GuardError, always, store};
use hearth_shared::approver::{Approver, ApproverError, ApproverSet, ApproversChange};
use hearth_shared::chain::Head;
use hearth_shared::identity::{DeviceId, SecretKey, SecretText};
use serde_json::json;

impl Guard {
    /// The hub this node obeys.
    #[must_use]
    pub fn hub(&self) -> Option<DeviceId> {
        self.view().hub
    }

    /// The list of approvers.
    #[must_use]
    pub fn approvers(&self) -> ApproverSet {
        self.view().approvers
    }

    /// Stores the first list, as confirmed by the person who pairs, and the hub it belongs to.
    ///
    /// # Errors
    /// [`GuardError`] when there is a list already (see [`Guard::hub`]) or it cannot be stored.
    pub fn adopt(&self, hub: DeviceId, set: ApproverSet) -> Result<(), GuardError> {
        set.check()?;
        if set.approvers.is_empty() {
            return Err(ApproverError::Invalid("the first list is empty").into());
        }
        let set = ApproverSet { epoch: set.epoch.max(1), ..set };
        self.change(move |old, owner| {
            if owner.is_some() || *old != ApproverSet::default() {
                return Err(GuardError::Refused(
                    "this node is paired and keeps its approvers; to give it to another hub, run \
                     `hearth-node reset` first"
                        .into(),
                ));
            }
            Ok(Changed { set, hub: Some(hub), how: "paired", by: "pairing".into(), reset: false })
        })
        .map(drop)
    }

    /// Applies a signed change of the list.
    ///
    /// # Errors
    /// [`GuardError::Approvers`]; refusals are in the audit log too.
    pub fn change_approvers(&self, change: &ApproversChange) -> Result<ApproverSet, GuardError> {
        let node = self.key.device_id();
        let signer = change.signer.device_id();
        let changed = self.change(|old, hub| {
            let set = old.apply(&node, change)?;
            Ok(Changed { set, hub, how: "approvers.changed", by: signer.to_string(), reset: false })
        });
        if let Err(GuardError::Approvers(why)) = &changed {
            self.audit("approvers.refused", json!({ "signer": signer, "why": why.to_string() }))?;
        }
        changed
    }

    /// Adds an approver, on the node, by its owner.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn add_approver(&self, approver: Approver) -> Result<ApproverSet, GuardError> {
        self.change_locally(|set| {
            set.approvers.push(approver);
            Ok(())
        })
    }

    /// Removes an approver, on the node, by its owner.
    ///
    /// # Errors
    /// [`ApproverError::UnknownSigner`] when it is not on the list.
    pub fn remove_approver(&self, id: &DeviceId) -> Result<ApproverSet, GuardError> {
        self.change_locally(|set| {
            let before = set.approvers.len();
            set.approvers.retain(|a| a.id() != *id);
            if set.approvers.len() == before { Err(ApproverError::UnknownSigner(*id).into()) } else { Ok(()) }
        })
    }

    /// Makes a new recovery key and puts it on the list. The phrase (24 words) is shown once and stored
    /// nowhere; an earlier recovery key is void.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn create_recovery(&self) -> Result<(SecretText, ApproverSet), GuardError> {
        let key = SecretKey::generate().map_err(|e| GuardError::State(e.to_string()))?;
        let public = key.public();
        let set = self.change_locally(|set| {
            set.recovery = Some(public);
            Ok(())
        })?;
        Ok((hearth_shared::approver::recovery_phrase(&key), set))
    }

    /// For an owner who lost all approvers: takes off every person, the recovery key and all
    /// always-rules; the hub's own key stays. Need `person` is no longer in force.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn reset_approvers(&self) -> Result<ApproverSet, GuardError> {
        self.change(|old, hub| {
            let mut set = old.clone();
            set.epoch += 1;
            set.approvers.retain(|a| !a.is_person());
            set.recovery = None;
            Ok(Changed { set, hub, how: "approvers.reset", by: "local".into(), reset: true })
        })
    }

    /// Forgets the hub, the approvers, always-rules and kept results, for `hearth-node reset`; the audit
    /// log says so and stays with the key that signed it.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn forget(&self) -> Result<(), GuardError> {
        self.change(|_, _| {
            let set = ApproverSet::default();
            Ok(Changed { set, hub: None, how: "node.reset", by: "local".into(), reset: true })
        })?;
        self.kept.clear();
        Ok(())
    }

    fn change_locally(
        &self,
        edit: impl FnOnce(&mut ApproverSet) -> Result<(), GuardError>,
    ) -> Result<ApproverSet, GuardError> {
        self.change(|old, hub| {
            let mut set = old.clone();
            set.epoch += 1;
            edit(&mut set)?;
            set.check()?;
            Ok(Changed { set, hub, how: "approvers.changed", by: "local".into(), reset: false })
        })
    }

    fn change(
        &self,
        make: impl FnOnce(&ApproverSet, Option<DeviceId>) -> Result<Changed, GuardError>,
    ) -> Result<ApproverSet, GuardError> {
        let changed = self.commit(
            |change| {
                // From the database, not from the view: two changes at once must not both build on one list.
                let old: ApproverSet = store::get(change.txn, "approvers")?.unwrap_or_default();
                let hub: Option<DeviceId> = store::get(change.txn, "hub")?.flatten();
                let changed = make(&old, hub)?;
                let was_on = store::get(change.txn, "person")?.unwrap_or(false);
                let person = !changed.reset && (was_on || changed.set.person_ready());
                store::put(change.txn, "approvers", &changed.set)?;
                store::put(change.txn, "hub", &changed.hub)?;
                store::put(change.txn, "person", &person)?;
                if changed.hub != hub {
                    // Another hub has another log.
                    store::put(change.txn, "hub.head", &Head::default())?;
                }
                let voided = always::remove(change.txn, |rule| {
                    changed.reset || changed.set.get(&rule.signer).is_none()
                })?;
                change.audit(changed.how, &changed.body(person, voided))?;
                Ok((changed, person))
            },
            |view, (changed, person)| {
                if view.hub != changed.hub {
                    view.hub_head = Head::default();
                }
                view.approvers = changed.set.clone();
                view.hub = changed.hub;
                view.person = *person;
            },
        )?;
        Ok(changed.0.set)
    }
}

/// A change of the list, before it is stored.
#[derive(Debug)]
struct Changed {
    set: ApproverSet,
    hub: Option<DeviceId>,
    how: &'static str,
    by: String,
    reset: bool,
}

impl Changed {
    fn body(&self, person: bool, voided: u64) -> serde_json::Value {
        let list: Vec<String> = self
            .set
            .approvers
            .iter()
            .map(|a| format!("{} {:?}{}", a.id().short(), a.kind, if a.admin { " admin" } else { "" }))
            .collect();
        json!({
            "hub": self.hub.map(|h| h.to_string()),
            "epoch": self.set.epoch,
            "approvers": list,
            "recovery": self.set.recovery.map(|k| k.device_id().to_string()),
            "person": person,
            "by": self.by,
            "alwaysVoided": voided,
        })
    }
}
