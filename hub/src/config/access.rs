//! `[channels.NAME.access]`: who may talk with the hub on a channel, the same for every platform.

use crate::routing::keys::DmScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[channels.NAME.access]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// People who write to the hub directly: `pairing` (an unknown one gets a code that you accept with
    /// `hearth channels allow`), `allowlist`, `open` or `disabled`.
    pub direct: DirectPolicy,
    /// The platform's own ids of people who may write, beside those that were let in with a code.
    pub allow: Vec<String>,
    /// Ids of people who may also decide approvals, in the direct chat. They need not stand in `allow`.
    pub approvers: Vec<String>,
    /// Groups: `allowlist`, `open` or `disabled`.
    pub groups: GroupPolicy,
    /// Ids of the groups of the allowlist. Everybody in such a group may ask; nobody in it may decide.
    pub allow_groups: Vec<String>,
    /// In groups, answer only what mentions the hub or answers one of its messages.
    pub mention: bool,
    /// Conversations of direct chats: `main`, `per-peer`, `per-channel-peer` or
    /// `per-account-channel-peer`. When left out, those who may decide share `main` and everybody else has
    /// one of his own.
    #[schemars(example = &"per-channel-peer")]
    pub sessions: Option<DmScope>,
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self {
            direct: DirectPolicy::Pairing,
            allow: Vec::new(),
            approvers: Vec::new(),
            groups: GroupPolicy::Allowlist,
            allow_groups: Vec::new(),
            mention: true,
            sessions: None,
        }
    }
}

/// Who may write directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DirectPolicy {
    /// Known people; an unknown one gets a code.
    Pairing,
    /// Known people; others get nothing.
    Allowlist,
    /// Everybody.
    Open,
    /// Nobody.
    Disabled,
}

/// In which groups the hub answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupPolicy {
    /// In those that are listed.
    Allowlist,
    /// In all.
    Open,
    /// In none.
    Disabled,
}
