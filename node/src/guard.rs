//! What may run: the node's own policy, approvers, challenges, journal and audit log.

use hearth_shared::approver::{ApproverError, ApproverSet, ApproversChange};
use hearth_shared::chain::Head;
use hearth_shared::identity::{DeviceId, SecretKey};
use hearth_shared::link::Declaration;
use hearth_shared::reading::BootId;
use std::sync::Arc;

/// See the module. (Fields by its owner.)
#[derive(Debug)]
pub struct Guard {}

/// A stored state that cannot be used, or a policy that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The state database.
    #[error("{0}")]
    State(String),
    /// The policy section of the configuration.
    #[error("{0}")]
    Policy(String),
}

impl Guard {
    /// Reads approvers, journal, always-rules and audit log from the state database.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn open(
        _database: Arc<redb::Database>,
        _key: Arc<SecretKey>,
        _boot: BootId,
        _config: &crate::config::Config,
        _state_dir: &std::path::Path,
    ) -> Result<Arc<Self>, GuardError> {
        todo!()
    }

    /// Takes an edited policy; open challenges are void then. The board's part of `config` must be the
    /// one the board runs.
    ///
    /// # Errors
    /// [`GuardError::Policy`]; the old policy stays.
    pub fn reload(&self, _config: &crate::config::Config) -> Result<(), GuardError> {
        todo!()
    }

    /// The hub this node obeys.
    pub fn hub(&self) -> Option<DeviceId> {
        todo!()
    }

    /// The declaration of this board under the present policy.
    pub fn declaration(&self, _inventory: crate::capability::Inventory) -> Declaration {
        todo!()
    }

    /// The list of approvers.
    pub fn approvers(&self) -> ApproverSet {
        todo!()
    }

    /// Stores the first list, as confirmed by the person who pairs, and the hub it belongs to.
    ///
    /// # Errors
    /// [`GuardError`] when there is a list already (see [`Guard::hub`]) or it cannot be stored.
    pub fn adopt(&self, _hub: DeviceId, _set: ApproverSet) -> Result<(), GuardError> {
        todo!()
    }

    /// Applies a signed change of the list.
    ///
    /// # Errors
    /// [`ApproverError`].
    pub fn change_approvers(&self, _change: &ApproversChange) -> Result<ApproverSet, ApproverError> {
        todo!()
    }

    /// Head of the node's audit log.
    pub fn head(&self) -> Head {
        todo!()
    }

    /// Appends to the node's audit log.
    ///
    /// # Errors
    /// [`GuardError`] when it cannot be stored.
    pub fn audit(&self, _kind: &str, _body: serde_json::Value) -> Result<Head, GuardError> {
        todo!()
    }
}
