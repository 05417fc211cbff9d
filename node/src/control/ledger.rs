//! What the owner may ask of the audit log and the always-rules, in the running node or beside it.

use crate::guard::Guard;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Records in one answer: a line of the control socket holds them at their longest.
pub const PAGE: usize = 48;

/// A question, or the removal of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Query {
    /// The head of the audit log and where the kept part begins, after walking all of it.
    Verify,
    /// At most [`PAGE`] records after this number.
    Records { after: u64 },
    /// The stored always-rules.
    Always,
    /// Remove one by number.
    RemoveAlways { number: u64 },
}

/// Answers; blocks while it reads.
///
/// # Errors
/// One line: the fault found, or what could not be read.
pub fn consult(guard: &Guard, query: &Query) -> Result<Value, String> {
    match query {
        Query::Verify => {
            let report = guard.audit_verify().map_err(|e| e.to_string())?;
            Ok(json!({"ok": true, "anchor": report.anchor, "head": report.head}))
        }
        Query::Records { after } => {
            let records = guard.audit_records(*after, PAGE).map_err(|e| e.to_string())?;
            Ok(json!({"head": guard.head(), "records": records}))
        }
        Query::Always => {
            let rules = guard.always_rules().map_err(|e| e.to_string())?;
            Ok(json!({"rules": rules}))
        }
        Query::RemoveAlways { number } => match guard.remove_always(*number) {
            Ok(true) => Ok(json!({"removed": number})),
            Ok(false) => Err(format!("no always-rule {number}; see `hearth-node always list`")),
            Err(error) => Err(error.to_string()),
        },
    }
}
