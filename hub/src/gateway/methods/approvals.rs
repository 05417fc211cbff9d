//! `exec.approval.*` and `approval.*`: what waits for a person, and his decision.
//!
//! Every approval is listed under both names: programs of the protocol know `exec.approval.*` and show
//! `request.command`; ours use `approval.get`, which opens the card, and pass the person's signed grant or
//! the digest of the card he saw to `approval.resolve`.

mod history;
pub(super) mod request;

use super::{Access, Call, Method, NoParams, encode, method};
use crate::actions::{ActionError, Host};
use crate::approvals::{Approval, ApprovalStatus, Decider};
use crate::devices::{DeviceError, Scope};
use crate::gateway::answer::{Answer, Outward as _, invalid};
use crate::store::now_ms;
use hearth_shared::chain::Head;
use hearth_shared::challenge::{Challenge, SignedChallenge};
use hearth_shared::command::{Class, Need};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::{Digest, PublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const APPROVALS: Access = Access::Operator(Scope::Approvals);

pub(super) const METHODS: &[Method] = &[
    method!("exec.approval.list", APPROVALS, exec_list, NoParams => Vec<ExecEntry>),
    method!("exec.approval.get", APPROVALS, exec_get, IdParams => ExecDetail),
    method!("exec.approval.resolve", APPROVALS, exec_resolve, ExecResolveParams => Ok_),
    method!(
        "exec.approval.request", APPROVALS, request::request, request::RequestParams => request::Asked, Withdraw
    ),
    method!("exec.approval.waitDecision", APPROVALS, request::wait_decision, IdParams => request::Asked, Withdraw),
    method!("approval.list", APPROVALS, list, ListParams => ApprovalList),
    method!("approval.history", APPROVALS, history::history, history::HistoryParams => history::History),
    method!("approval.get", APPROVALS, get, IdParams => Opened),
    method!("approval.resolve", APPROVALS, resolve, ResolveParams => Resolved),
];

/// What may be decided. `always` only where there is a rule to store: where nobody has looked at the card yet
/// that is not known, and is left out.
fn allowed(approval: &Approval, always: bool) -> Vec<String> {
    let mut words = vec!["allow-once".to_owned()];
    words.extend(always.then(|| "allow-always".to_owned()));
    words.push("deny".to_owned());
    if approval.status == ApprovalStatus::Pending { words } else { Vec::new() }
}

/// What the hub's own key may sign.
fn allowed_by_hub(approval: &Approval) -> Vec<String> {
    let always = approval.checked_on_node && approval.class == Class::Capture && approval.need == Need::Hub;
    allowed(approval, always && approval.always != Some(false))
}

/// Id or unique prefix.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct IdParams {
    id: String,
}

/// `{ok: true}`
#[derive(Debug, Serialize, JsonSchema)]
struct Ok_ {
    ok: bool,
}

/// An approval in the form that programs of the protocol know.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecEntry {
    id: String,
    approval_kind: String,
    request: ExecRequest,
    created_at_ms: u64,
    expires_at_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecRequest {
    /// One sentence for lists; what counts is on the card.
    command: String,
    /// The node command and its complete parameters.
    node_command: String,
    params: Value,
    node_id: String,
    node_name: String,
    host: String,
    class: Class,
    need: Need,
    /// Why it is shown at all, and what it is worth.
    warning_text: Option<String>,
    allowed_decisions: Vec<String>,
    agent_id: Option<String>,
    session_key: Option<String>,
    requester: String,
    reason: Option<String>,
}

fn exec_entry(approval: &Approval) -> ExecEntry {
    ExecEntry {
        id: approval.id.to_string(),
        approval_kind: "exec".into(),
        created_at_ms: approval.created_ms,
        expires_at_ms: approval.expires_ms,
        request: exec_request(approval),
    }
}

fn exec_request(approval: &Approval) -> ExecRequest {
    ExecRequest {
        command: approval.sentence.clone(),
        node_command: approval.command.clone(),
        params: approval.params.clone(),
        node_id: approval.node.to_string(),
        node_name: approval.node_name.clone(),
        host: approval.host.as_str().into(),
        class: approval.class,
        need: approval.need,
        warning_text: warning(approval),
        allowed_decisions: allowed_by_hub(approval),
        agent_id: approval.session_key.as_ref().map(|_| "main".into()),
        session_key: approval.session_key.clone(),
        requester: approval.requester.clone(),
        reason: approval.reason.clone(),
    }
}

/// What a person should know before he looks closer.
fn warning(approval: &Approval) -> Option<String> {
    match (approval.host, approval.checked_on_node) {
        (Host::Gateway, _) => Some("runs on the hub's own machine, by whoever asked".into()),
        (Host::Node, false) => Some("not checked on the node".into()),
        (Host::Node, true) => None,
    }
}

/// Payload of `exec.approval.requested`.
pub(crate) fn request_value(approval: &Approval) -> Value {
    encode(&exec_entry(approval))
}

/// Payload of `exec.approval.resolved`.
pub(crate) fn resolved_value(approval: &Approval) -> Value {
    let mut value = encode(&ExecResolved {
        id: approval.id.to_string(),
        decision: approval.decision.map(|d| d.as_str().to_owned()),
        status: status(approval),
        resolved_by: approval.decided_by.clone(),
        ts: approval.decided_ms.unwrap_or_else(now_ms),
    });
    value["request"] = encode(&exec_request(approval));
    value
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecResolved {
    id: String,
    decision: Option<String>,
    status: String,
    resolved_by: Option<String>,
    ts: u64,
}

fn status(approval: &Approval) -> String {
    encode(&approval.status).as_str().unwrap_or_default().to_owned()
}

async fn exec_list(call: Call, _: NoParams) -> Answer<Vec<ExecEntry>> {
    let all = call.gateway.hub.actions.approvals(false).await.map_err(ActionError::outward)?;
    Ok(all.iter().map(exec_entry).collect())
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecDetail {
    id: String,
    command_text: String,
    command_preview: Option<String>,
    allowed_decisions: Vec<String>,
    host: String,
    node_id: String,
    agent_id: Option<String>,
    expires_at_ms: u64,
}

async fn exec_get(call: Call, params: IdParams) -> Answer<ExecDetail> {
    let approval = call.gateway.hub.actions.approval(&params.id).await.map_err(ActionError::outward)?;
    Ok(ExecDetail {
        id: approval.id.to_string(),
        allowed_decisions: allowed_by_hub(&approval),
        command_text: approval.sentence,
        command_preview: None,
        host: approval.host.as_str().into(),
        node_id: approval.node.to_string(),
        agent_id: approval.session_key.as_ref().map(|_| "main".into()),
        expires_at_ms: approval.expires_ms,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExecResolveParams {
    id: String,
    /// `allow-once`, `allow-always` or `deny`.
    decision: String,
    /// Who of a channel decided; this hub has its own word for that and takes no other's.
    #[serde(rename = "reviewer")]
    _reviewer: Option<Value>,
    /// Standing grants of automations: none here.
    #[serde(rename = "grantExpiresInDays")]
    _grant_expires_in_days: Option<u32>,
}

fn decision(text: &str) -> Answer<Decision> {
    match text {
        "allow-once" => Ok(Decision::AllowOnce),
        "allow-always" => Ok(Decision::AllowAlways),
        "deny" => Ok(Decision::Deny),
        _ => Err(invalid("invalid decision")),
    }
}

async fn exec_resolve(call: Call, params: ExecResolveParams) -> Answer<Ok_> {
    let decision = decision(&params.decision)?;
    call.require_decider()?;
    let by = Decider::Hub { who: call.client.label(), seen: None };
    call.gateway.hub.actions.decide(&params.id, decision, by).await.map_err(ActionError::outward)?;
    Ok(Ok_ { ok: true })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Also those that are decided.
    #[serde(default)]
    all: bool,
}

/// An approval with everything the hub knows of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Entry {
    id: String,
    kind: String,
    status: String,
    /// `node`, or `gateway` for the hub's machine.
    host: String,
    node_id: String,
    node_name: String,
    command: String,
    params: Value,
    sentence: String,
    class: Class,
    need: Need,
    checked_on_node: bool,
    requester: String,
    /// What the assistant says why: the hub's word, not the node's.
    reason: Option<String>,
    session_key: Option<String>,
    allowed_decisions: Vec<String>,
    /// The same for programs of the protocol.
    presentation: Presentation,
    decision: Option<String>,
    decided_by: Option<String>,
    decided_at_ms: Option<u64>,
    created_at_ms: u64,
    expires_at_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Presentation {
    /// `exec`
    kind: String,
    command_text: String,
    command_preview: Option<String>,
    warning_text: Option<String>,
    host: String,
    node_id: String,
    agent_id: Option<String>,
    allowed_decisions: Vec<String>,
}

fn presentation(approval: &Approval) -> Presentation {
    Presentation {
        kind: "exec".into(),
        command_text: approval.sentence.clone(),
        command_preview: None,
        warning_text: warning(approval),
        host: approval.host.as_str().into(),
        node_id: approval.node.to_string(),
        agent_id: approval.session_key.as_ref().map(|_| "main".into()),
        allowed_decisions: allowed_by_hub(approval),
    }
}

fn entry(approval: &Approval) -> Entry {
    Entry {
        id: approval.id.to_string(),
        kind: "exec".into(),
        status: status(approval),
        host: approval.host.as_str().into(),
        node_id: approval.node.to_string(),
        node_name: approval.node_name.clone(),
        command: approval.command.clone(),
        params: approval.params.clone(),
        sentence: approval.sentence.clone(),
        class: approval.class,
        need: approval.need,
        checked_on_node: approval.checked_on_node,
        requester: approval.requester.clone(),
        reason: approval.reason.clone(),
        session_key: approval.session_key.clone(),
        allowed_decisions: allowed(approval, approval.always == Some(true)),
        presentation: presentation(approval),
        decision: approval.decision.map(|d| d.as_str().to_owned()),
        decided_by: approval.decided_by.clone(),
        decided_at_ms: approval.decided_ms,
        created_at_ms: approval.created_ms,
        expires_at_ms: approval.expires_ms,
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct ApprovalList {
    approvals: Vec<Entry>,
}

async fn list(call: Call, params: ListParams) -> Answer<ApprovalList> {
    let all = call.gateway.hub.actions.approvals(params.all).await.map_err(ActionError::outward)?;
    Ok(ApprovalList { approvals: all.iter().map(entry).collect() })
}

/// The open card.
#[derive(Debug, Serialize, JsonSchema)]
struct Opened {
    approval: Entry,
    card: CardView,
}

/// What a person looks at: made by the node, signed by it.
#[derive(Debug, Serialize, JsonSchema)]
struct CardView {
    /// The challenge as it travelled; a person's grant signs its SHA-256. `null` for nodes that are away
    /// and for foreign ones.
    challenge: Option<SignedChallenge>,
    /// Its typed form.
    shown: Option<Challenge>,
    /// The node's key, which signed it: 64 hex digits.
    #[serde(rename = "nodeKey")]
    node_key: Option<PublicKey>,
    /// SHA-256 of the challenge's text: pass it as `seen` when the hub shall sign.
    digest: Option<Digest>,
    /// Head of the hub's audit log.
    head: Head,
}

async fn get(call: Call, params: IdParams) -> Answer<Opened> {
    let hub = &call.gateway.hub;
    let card = hub.actions.card(&params.id).await.map_err(ActionError::outward)?;
    let node = hub.devices.get(card.approval.node).await.map_err(DeviceError::outward)?;
    Ok(Opened {
        approval: entry(&card.approval),
        card: CardView {
            digest: card.challenge.as_ref().map(SignedChallenge::digest),
            challenge: card.challenge,
            node_key: node.map(|n| n.key),
            shown: card.shown,
            head: card.head,
        },
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResolveParams {
    id: String,
    /// `exec`; may be left out.
    #[serde(rename = "kind")]
    _kind: Option<String>,
    /// `allow-once`, `allow-always` or `deny`.
    decision: String,
    /// Digest of the card the person saw; the hub signs. Not with `grant`.
    seen: Option<Digest>,
    /// Signed by the person's own key over the card's challenge.
    grant: Option<Grant>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Resolved {
    ok: bool,
    approval: Entry,
}

async fn resolve(call: Call, params: ResolveParams) -> Answer<Resolved> {
    let decision = decision(&params.decision)?;
    let by = match params.grant {
        Some(grant) => {
            if grant.decision != decision {
                return Err(invalid("the grant signs another decision than the one named"));
            }
            // The grant proves the person; the connection only carries it, so the right to see approvals
            // is enough.
            Decider::Person { grant: Box::new(grant) }
        }
        None => {
            call.require_decider()?;
            Decider::Hub { who: call.client.label(), seen: params.seen }
        }
    };
    let actions = &call.gateway.hub.actions;
    let approval = actions.decide(&params.id, decision, by).await.map_err(ActionError::outward)?;
    Ok(Resolved { ok: true, approval: entry(&approval) })
}
