//! Approvals: what a person sees, what he decided, the grants, and the audit log.

pub mod audit;
pub mod card;
pub(crate) mod rows;

use crate::actions::Host;
use hearth_shared::chain::Head;
use hearth_shared::challenge::{Challenge, SignedChallenge};
use hearth_shared::command::{Class, Need};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::{DeviceId, Digest};
use hearth_shared::reading::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalStatus {
    /// Nobody decided yet.
    Pending,
    /// Yes.
    Allowed,
    /// No.
    Denied,
    /// The lifetime ended.
    Expired,
    /// The requester withdrew it.
    Cancelled,
}

impl ApprovalStatus {
    /// As written in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A request for a person's decision. Durable: it survives restarts of hub and node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The same id as the action's and the node's journal.
    pub id: RequestId,
    /// Where it would run.
    pub host: Host,
    /// The node; the hub itself for a command on its machine.
    pub node: DeviceId,
    /// Its name when it was asked.
    pub node_name: String,
    /// The command.
    pub command: String,
    /// Complete parameters.
    pub params: Value,
    /// One sentence made by the hub from command and parameters, for lists; the card is made from the
    /// challenge alone.
    pub sentence: String,
    /// Class.
    pub class: Class,
    /// Whose yes.
    pub need: Need,
    /// False for foreign JSON nodes: the card is labelled "not checked on the node".
    pub checked_on_node: bool,
    /// Whether the card that was looked at last shows a rule to keep for good; `None` before anybody looked.
    pub always: Option<bool>,
    /// Who asked, for example `terminal: owner`.
    pub requester: String,
    /// What the assistant says why; plain text, at most 200 characters.
    pub reason: Option<String>,
    /// The session it came from.
    pub session_key: Option<String>,
    /// Status.
    pub status: ApprovalStatus,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// Unix milliseconds: if the hub stays on until then. Once decided, the time of the decision.
    pub expires_ms: u64,
    /// The decision, who took it, and when.
    pub decision: Option<Decision>,
    /// For example `terminal: owner` or an approver's id.
    pub decided_by: Option<String>,
    /// Unix milliseconds.
    pub decided_ms: Option<u64>,
    /// Why it is asked again, when a decision could not be used.
    pub note: Option<String>,
}

/// What a person looks at before deciding.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// The approval.
    pub approval: Approval,
    /// Fresh from the node, `None` for foreign nodes.
    pub challenge: Option<SignedChallenge>,
    /// The typed form of it: what to show, and nothing else.
    pub shown: Option<Challenge>,
    /// End of the hub's audit log when the card was opened. Who keeps it can tell later whether the log
    /// was cut.
    pub head: Head,
}

/// Who decides.
#[derive(Debug, Clone)]
pub enum Decider {
    /// A permitted person over a channel or this machine's command line; the hub signs (need `hub`).
    Hub {
        /// For example `terminal: owner`.
        who: String,
        /// [`SignedChallenge::digest`] of the card he looked at. `None` when he saw no card, only the
        /// request's sentence; then the last card that anybody opened counts.
        seen: Option<Digest>,
    },
    /// A person's own key signed this grant over the challenge of the card.
    Person { grant: Box<Grant> },
}
