//! Stored "always" decisions.
//!
//! Each holds exactly what the challenge showed: a command, its complete parameters, the facts. It
//! answers for the person only while all three are the same, while the need is no higher than the one
//! it was given for, and while its signer is still on the list of approvers. The policy comes first: a
//! rule that denies is not overruled.

use super::GuardError;
use super::store::{self, ALWAYS, Store, failed};
use hearth_shared::approver::ApproverSet;
use hearth_shared::challenge::AlwaysRule;
use hearth_shared::command::Need;
use hearth_shared::identity::DeviceId;
use redb::WriteTransaction;
use serde::{Deserialize, Serialize};

/// Rules kept; beyond it an "always" is refused.
pub const MAX_ALWAYS: usize = 256;

/// A stored rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRule {
    /// Its number.
    pub number: u64,
    /// As it was shown.
    pub rule: AlwaysRule,
    /// The need it satisfies.
    pub need: Need,
    /// Who said it.
    pub signer: DeviceId,
    /// Unix milliseconds by the node's clock.
    pub at_ms: u64,
}

impl StoredRule {
    /// Its name in verdicts.
    #[must_use]
    pub fn place(&self) -> String {
        format!("always-rule {} on this node, given by approver {}", self.number, self.signer.short())
    }

    /// Whether it answers for a request.
    pub(super) fn answers(&self, asked: &AlwaysRule, need: Need, approvers: &ApproverSet) -> bool {
        self.need >= need && self.rule == *asked && approvers.get(&self.signer).is_some()
    }
}

/// All rules, oldest first.
pub(super) fn list(store: &Store) -> Result<Vec<StoredRule>, GuardError> {
    let table = store.read()?.open_table(ALWAYS).map_err(failed)?;
    table.range::<u64>(..).map_err(failed)?.map(|e| read(e.map_err(failed)?.1.value())).collect()
}

/// Stores a rule; the same rule given again replaces the earlier one.
pub(super) fn store(txn: &WriteTransaction, mut rule: StoredRule) -> Result<u64, GuardError> {
    let number = store::get::<u64>(txn, "always.next")?.unwrap_or(1);
    rule.number = number;
    let mut table = txn.open_table(ALWAYS).map_err(failed)?;
    table
        .retain(|_, bytes| read(bytes).is_ok_and(|old| old.rule != rule.rule || old.need > rule.need))
        .map_err(failed)?;
    if redb::ReadableTableMetadata::len(&table).map_err(failed)? >= MAX_ALWAYS as u64 {
        return Err(GuardError::Refused(format!(
            "this node holds {MAX_ALWAYS} always-rules, the limit; remove some with `hearth-node always remove`, or allow once"
        )));
    }
    table.insert(number, write(&rule)?.as_slice()).map_err(failed)?;
    store::put(txn, "always.next", &(number + 1))?;
    Ok(number)
}

/// Removes rules; gives how many went.
pub(super) fn remove(
    txn: &WriteTransaction,
    mut goes: impl FnMut(&StoredRule) -> bool,
) -> Result<u64, GuardError> {
    let mut table = txn.open_table(ALWAYS).map_err(failed)?;
    let mut count = 0;
    table
        .retain(|_, bytes| {
            // One that cannot be read cannot be honoured either.
            let stays = read(bytes).is_ok_and(|rule| !goes(&rule));
            count += u64::from(!stays);
            stays
        })
        .map_err(failed)?;
    Ok(count)
}

/// As JSON: `params` and `facts` are free-form values, which postcard cannot hold.
fn write(rule: &StoredRule) -> Result<Vec<u8>, GuardError> {
    serde_json::to_vec(rule).map_err(failed)
}

fn read(bytes: &[u8]) -> Result<StoredRule, GuardError> {
    serde_json::from_slice(bytes).map_err(|_| store::damaged("always-rule"))
}
