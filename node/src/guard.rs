//! What may run: the node's own policy, approvers, challenges, journal and audit log.
//!
//! | module | what it keeps |
//! | --- | --- |
//! | [`policy`] | the owner's rules: allow, ask, deny |
//! | `challenge` | what a person is asked, in memory, for a minute |
//! | [`always`] | what a person said for good |
//! | [`approvers`] | whose word counts |
//! | `journal`, `kept` | requests with effects: started, finished, their results |
//! | [`audit`] | the hash chain of all of it |
//! | `request` | the steps of one request over these |
//!
//! Every method that writes syncs the disk and blocks: call it from a blocking thread. No lock is held
//! while the caller waits for anything else.

pub mod always;
pub mod approvers;
pub mod audit;
mod challenge;
mod clock;
mod journal;
mod kept;
pub mod policy;
pub(crate) mod request;
mod store;
#[cfg(test)]
mod tests;
mod uses;

use crate::capability::Inventory;
use crate::config::Config;
use always::StoredRule;
use audit::{AuditFault, AuditReport};
use challenge::Challenges;
use clock::Clock;
use hearth_shared::approver::{ApproverError, ApproverSet};
use hearth_shared::chain::{Head, Record};
use hearth_shared::command;
use hearth_shared::identity::{DeviceId, SecretKey, display_safe};
use hearth_shared::limits::MAX_NAME_CHARS;
use hearth_shared::link::{CommandDecl, Declaration};
use hearth_shared::reading::BootId;
use kept::Kept;
use policy::{Context, Judgement, Policy};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use store::Store;
use uses::Uses;

/// See the module.
#[derive(Debug)]
pub struct Guard {
    key: Arc<SecretKey>,
    boot: BootId,
    clock: Clock,
    store: Store,
    kept: Kept,
    /// Held over a commit and the change of `view` after it, so that both move in step.
    writing: Mutex<()>,
    view: RwLock<View>,
    uses: Mutex<Uses>,
    open: Mutex<Challenges>,
}

/// What is asked for often, as last committed.
#[derive(Debug, Clone)]
struct View {
    name: String,
    policy: Arc<Policy>,
    hub: Option<DeviceId>,
    approvers: ApproverSet,
    /// Need `person` is in force: reached once, it stays until the owner resets the list on the node.
    /// Otherwise removing one of two persons would loosen every rule that asks for one.
    person: bool,
    head: Head,
    /// Newest head of the hub's log that was seen.
    hub_head: Head,
}

impl View {
    /// What the state database holds.
    fn stored(store: &Store, name: String, policy: Arc<Policy>) -> Result<Self, GuardError> {
        Ok(Self {
            name,
            policy,
            hub: store.get::<Option<DeviceId>>("hub")?.flatten(),
            approvers: store.get("approvers")?.unwrap_or_default(),
            person: store.get("person")?.unwrap_or(false),
            head: audit::head(store)?,
            hub_head: store.get("hub.head")?.unwrap_or_default(),
        })
    }
}

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
    /// A change of the list of approvers.
    #[error(transparent)]
    Approvers(#[from] ApproverError),
    /// A rule's limit is reached.
    #[error("{0}")]
    Limited(String),
    /// Something asked for that cannot be done in this state.
    #[error("{0}")]
    Refused(String),
}

/// A write in progress: the transaction, and the audit log within it.
struct Change<'a> {
    txn: &'a redb::WriteTransaction,
    key: &'a SecretKey,
    head: Option<Head>,
}

impl Change<'_> {
    fn audit(&mut self, kind: &str, body: &serde_json::Value) -> Result<(), GuardError> {
        self.head = Some(audit::append(self.txn, self.key, clock::wall_ms(), kind, body)?);
        Ok(())
    }
}

impl Guard {
    /// Reads approvers, journal, always-rules and audit log from the state database. `database` opens it,
    /// now and again after a fault of the disk; its error is the line a person gets.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn open(
        database: impl Fn() -> Result<redb::Database, String> + Send + Sync + 'static,
        key: Arc<SecretKey>,
        boot: BootId,
        config: &Config,
        state_dir: &Path,
    ) -> Result<Arc<Self>, GuardError> {
        let policy = Arc::new(Policy::compile(config)?);
        let store = Store::open(database)?;
        let view = View::stored(&store, node_name(config), policy)?;
        let uses = Uses::load(request::stored_uses(&store)?);
        let guard = Self {
            key,
            boot,
            clock: Clock::new(store.get("powered")?.unwrap_or(0), config.trust_clock),
            kept: Kept::open(state_dir)?,
            store,
            writing: Mutex::new(()),
            view: RwLock::new(view),
            uses: Mutex::new(uses),
            open: Mutex::new(Challenges::default()),
        };
        Ok(Arc::new(guard))
    }

    /// Notes in the audit log that the node starts to serve, with its boot id and policy.
    ///
    /// # Errors
    /// [`GuardError`] when it cannot be stored; then nothing that has an effect could start either.
    pub fn record_start(&self) -> Result<(), GuardError> {
        let policy = self.policy().digest();
        self.audit("node.started", serde_json::json!({ "boot": self.boot, "policy": policy })).map(drop)
    }

    /// Takes an edited policy; open challenges are void then. The board's part of `config` must be the
    /// one the board runs.
    ///
    /// # Errors
    /// [`GuardError::Policy`]; the old policy stays.
    pub fn reload(&self, config: &Config) -> Result<(), GuardError> {
        let policy = Arc::new(Policy::compile(config)?);
        let digest = policy.digest();
        if digest == self.policy().digest() {
            return Ok(());
        }
        self.commit(
            |change| change.audit("policy.changed", &serde_json::json!({ "policy": digest })),
            |view, ()| view.policy = policy,
        )
    }

    /// The declaration of this board under the present policy.
    #[must_use]
    pub fn declaration(&self, inventory: Inventory) -> Declaration {
        let view = self.view();
        let mut commands: Vec<CommandDecl> = inventory
            .commands
            .iter()
            .filter_map(|name| command::spec(name))
            .map(|spec| CommandDecl {
                name: spec.name.to_owned(),
                class: spec.class,
                need: view.policy.declared_need(spec.name, spec.class, view.person),
            })
            .collect();
        commands.sort_by(|a, b| a.name.cmp(&b.name));
        Declaration {
            name: view.name,
            version: hearth_shared::VERSION.to_owned(),
            platform: "linux".to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            model: inventory.model,
            simulated: inventory.simulated,
            commands,
            cameras: inventory.cameras,
            pins: inventory.pins,
            sensors: inventory.sensors,
            policy: view.policy.digest(),
            person_ready: view.person,
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.view().policy
    }

    /// Whether need `person` is in force.
    #[must_use]
    pub fn person_in_force(&self) -> bool {
        self.view().person
    }

    /// Head of the node's audit log.
    #[must_use]
    pub fn head(&self) -> Head {
        self.view().head
    }

    /// Newest head of the hub's audit log that this node holds.
    #[must_use]
    pub fn hub_head(&self) -> Head {
        self.view().hub_head
    }

    /// A request came with this head of the hub's log. It is stored with the next commit.
    pub(crate) fn heard(&self, hub_head: Head) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        if hub_head.seq > view.hub_head.seq {
            view.hub_head = hub_head;
        }
    }

    /// The hub proved itself and told the head of its log. A head that went back, or has another hash at
    /// the same number, is noted here: the hub's database was set back or its log rewritten.
    ///
    /// # Errors
    /// [`GuardError`] when it cannot be stored.
    pub fn welcomed(&self, hub_head: Head) -> Result<(), GuardError> {
        let held = self.hub_head();
        if held == hub_head {
            return Ok(());
        }
        let set_back = held.seq >= hub_head.seq;
        if set_back {
            tracing::warn!(held = held.seq, told = hub_head.seq, "the hub's audit log is not the one it was");
        }
        self.commit(
            |change| {
                store::put(change.txn, "hub.head", &hub_head)?;
                if set_back {
                    let body = serde_json::json!({ "held": held, "told": hub_head });
                    change.audit("hub.log.changed", &body)?;
                }
                Ok(())
            },
            |view, ()| view.hub_head = hub_head,
        )
    }

    /// Appends to the node's audit log; blocks until it is on the disk.
    ///
    /// # Errors
    /// [`GuardError`] when it cannot be stored.
    pub fn audit(&self, kind: &str, body: serde_json::Value) -> Result<Head, GuardError> {
        self.commit(|change| change.audit(kind, &body), |_, ()| ())?;
        Ok(self.head())
    }

    /// Records of the audit log after number `after`, at most `limit`.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn audit_records(&self, after: u64, limit: usize) -> Result<Vec<Record>, GuardError> {
        audit::records(&self.store, after, limit)
    }

    /// Walks the whole audit log.
    ///
    /// # Errors
    /// [`AuditFault`]: the first fault found.
    pub fn audit_verify(&self) -> Result<AuditReport, AuditFault> {
        audit::verify(&self.store, &self.key)
    }

    /// The stored always-rules.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn always_rules(&self) -> Result<Vec<StoredRule>, GuardError> {
        always::list(&self.store)
    }

    /// Removes an always-rule by number; false when there is none.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn remove_always(&self, number: u64) -> Result<bool, GuardError> {
        self.commit(
            |change| {
                let gone = always::remove(change.txn, |rule| rule.number == number)? > 0;
                if gone {
                    change.audit("always.removed", &serde_json::json!({ "number": number }))?;
                }
                Ok(gone)
            },
            |_, _| (),
        )
    }

    fn judge(&self, invocation: &command::Invocation) -> Judgement {
        let view = self.view();
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let context = Context {
            person_in_force: view.person,
            minute_utc: self.clock.minute_utc(),
            uses: Some(&uses),
            powered_ms: self.clock.powered_ms(),
        };
        view.policy.evaluate(invocation, &context)
    }

    /// Moves the boot clock and powered time forward.
    #[cfg(test)]
    pub(crate) fn advance_clock(&self, ms: u64) {
        self.clock.advance(ms);
    }

    fn view(&self) -> View {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn challenges(&self) -> MutexGuard<'_, Challenges> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the file holds, after it was opened again.
    fn reread(&self) -> Result<(), GuardError> {
        let View { name, policy, .. } = self.view();
        let fresh = View::stored(&self.store, name, policy)?;
        let counted = Uses::load(request::stored_uses(&self.store)?);
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        *self.uses.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        Ok(())
    }

    /// Commits `work` with the powered time, then lets `apply` and the new head reach the view.
    fn commit<T>(
        &self,
        work: impl FnOnce(&mut Change<'_>) -> Result<T, GuardError>,
        apply: impl FnOnce(&mut View, &T),
    ) -> Result<T, GuardError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.store.take_reopened()? {
            self.reread().inspect_err(|_| self.store.mark_reopened())?;
        }
        let (value, head) = self.store.write(|txn| {
            store::put(txn, "powered", &self.clock.powered_ms())?;
            store::put(txn, "hub.head", &self.hub_head())?;
            let mut change = Change { txn, key: &self.key, head: None };
            let value = work(&mut change)?;
            Ok((value, change.head))
        })?;
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        apply(&mut view, &value);
        if let Some(head) = head {
            view.head = head;
        }
        Ok(value)
    }
}

/// The configured name, or the host's; never empty, never longer than the limit.
fn node_name(config: &Config) -> String {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = config.name.clone().filter(|n| !n.trim().is_empty()).unwrap_or_else(host);
    let safe: String = display_safe(name.trim(), usize::MAX).chars().take(MAX_NAME_CHARS).collect();
    if safe.is_empty() { "node".to_owned() } else { safe }
}
