//! `exec.approval.request` and `exec.approval.waitDecision`: a client asks whether a command may run.
//!
//! On a node, the yes runs it: the node signs what it would do, and the grant over that text starts it
//! (`security.md` leaves no room between the two). Its result is that of `node.invoke` with the approval's
//! id as `runId`. On the hub's machine the decision is all: the client runs the command itself.

use super::IdParams;
use crate::actions::{Action, ActionError, ActionRequest, Host};
use crate::approvals::ApprovalStatus;
use crate::bus::Event;
use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _, invalid, unavailable};
use crate::gateway::methods::Call;
use crate::nodes::NodeError;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::identity::DeviceId;
use hearth_shared::limits::DEFAULT_TIMEOUT_MS;
use hearth_shared::reading::{Correlation, RequestId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// A question about a command. What other gateways use for their own policies is taken and not used: need
/// and rules are the node's, and a person always sees the whole command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the schema is closed and names what clients may send")]
pub(super) struct RequestParams {
    /// The same id again within 24 hours is the same question. The approval has an id of its own.
    #[schemars(length(min = 1, max = 200))]
    id: Option<String>,
    /// `gateway` (the hub's machine), or `node` with `nodeId`.
    host: Option<String>,
    /// Id, unique prefix of it, or name.
    node_id: Option<String>,
    /// Program and arguments; or `systemRunPlan`.
    command_argv: Option<Vec<String>>,
    /// A plan that `system.run.prepare` of a foreign node made.
    system_run_plan: Option<SystemRunPlan>,
    /// A line for people; never what runs.
    command: Option<String>,
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
    session_key: Option<String>,
    /// Why, in at most 200 characters; shown below the card as the requester's word.
    warning_text: Option<String>,
    /// How long it may wait, milliseconds; `approvals.lifetime_s` at most.
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    /// Answer with the id at once and decide later; `exec.approval.waitDecision` tells. Without it the answer
    /// waits for the decision, and a caller who leaves withdraws the question.
    #[serde(default)]
    two_phase: bool,
    security: Option<String>,
    ask: Option<String>,
    scope: Option<Value>,
    unavailable_decisions: Option<Vec<String>>,
    command_spans: Option<Value>,
    agent_id: Option<String>,
    resolved_path: Option<String>,
    session_id: Option<String>,
    run_id: Option<String>,
    tool_call_id: Option<String>,
    turn_source_channel: Option<String>,
    turn_source_to: Option<String>,
    turn_source_account_id: Option<String>,
    turn_source_thread_id: Option<Value>,
    approval_reviewer_device_ids: Option<Vec<String>>,
    require_delivery_route: Option<bool>,
    suppress_delivery: Option<bool>,
    deliver_to_approval_clients_only: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SystemRunPlan {
    argv: Vec<String>,
    cwd: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The decision, or, in two phases, that the question was taken.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    /// `null` when nobody could be asked.
    id: Option<String>,
    /// `accepted`, in two phases only.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// `allow-once`, `allow-always` or `deny`; `null` when there is none (yet).
    decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    /// `user`, `timeout`, `cancelled`, `no-route` (nobody could be asked) or `not-needed` (the node's rules
    /// let it run).
    terminal_reason: Option<String>,
}

impl Asked {
    fn nobody(id: Option<RequestId>) -> Self {
        Self {
            id: id.map(|i| i.to_string()),
            status: None,
            decision: None,
            created_at_ms: None,
            expires_at_ms: None,
            terminal_reason: Some("no-route".into()),
        }
    }
}

pub(super) async fn request(call: Call, params: RequestParams) -> Answer<Asked> {
    let hub = &call.gateway.hub;
    let two_phase = params.two_phase;
    let request = plan(&call, params).await?;
    // The requester's own connection is nobody to ask.
    if !hub.config.approvals.wait_for_approver && call.gateway.clients.approvers_besides(&call.client) == 0 {
        return Ok(Asked::nobody(None));
    }
    let mut events = hub.bus.subscribe();
    let id = hub.actions.submit(request).await.map_err(ActionError::outward)?;
    let withdraw = call.withdraw_when_gone(id);
    if two_phase {
        let accepted = accepted(&call, &mut events, id).await?;
        withdraw.keep();
        return Ok(accepted);
    }
    let decided = decision(&call, &mut events, id).await?;
    withdraw.keep();
    Ok(decided)
}

/// The action that the question is about.
async fn plan(call: &Call, params: RequestParams) -> Answer<ActionRequest> {
    let refuse = |what: &str| Err(invalid(format!("invalid exec.approval.request params: {what}")));
    let mut plan = params.system_run_plan;
    let argv = match (&plan, params.command_argv) {
        (Some(plan), Some(argv)) if plan.argv != argv => {
            return refuse("at /commandArgv: must be that of systemRunPlan");
        }
        (Some(plan), _) => plan.argv.clone(),
        (None, Some(argv)) => argv,
        (None, None) => return refuse("must have required property 'commandArgv'"),
    };
    let cwd = plan.as_ref().map_or(params.cwd, |plan| plan.cwd.clone());
    if params.id.as_ref().is_some_and(|id| id.is_empty() || id.len() > 200) {
        return refuse("at /id: must have 1 to 200 characters");
    }
    if params.timeout_ms == Some(0) {
        return refuse("at /timeoutMs: must be >= 1");
    }
    let hub = &call.gateway.hub;
    let (host, node) = match (params.host.as_deref(), &params.node_id) {
        (None | Some("node"), Some(node)) => {
            // A yes runs it: that takes the right that `node.invoke` takes.
            call.require(Scope::Write)?;
            let view = hub.nodes.find(node).await.map_err(NodeError::outward)?;
            if view.checks_grants() {
                // Ours makes its own plan, in the challenge.
                plan = None;
            }
            (Host::Node, view.device.id)
        }
        (Some("node"), None) => return refuse("must have required property 'nodeId'"),
        (None | Some("gateway"), None) => (Host::Gateway, hub.keys.identity.device_id()),
        (Some("gateway"), Some(_)) => return refuse("at /nodeId: goes with the host `node`"),
        (Some(_), _) => return refuse("at /host: must be `gateway` or `node`"),
    };
    if host == Host::Gateway {
        plan = None;
    }
    let mut run = json!({ "command": argv });
    for (key, value) in [("cwd", json!(cwd)), ("env", json!(params.env)), ("systemRunPlan", json!(plan))] {
        if !value.is_null() {
            run[key] = value;
        }
    }
    Ok(ActionRequest {
        host,
        node,
        command: "system.run".into(),
        params: run,
        requester: call.client.label(),
        requester_device: call.client.device_id(),
        reason: params.warning_text,
        session_key: params.session_key,
        run_id: None,
        timeout: Duration::from_millis(DEFAULT_TIMEOUT_MS),
        idempotency_key: params.id.map(|id| format!("exec.approval/{id}")),
        wait_for_node: false,
        ask_for: params.timeout_ms.map(Duration::from_millis),
        correlation: Correlation::fresh().map_err(|e| unavailable(e.to_string()))?,
    })
}

/// Waits until the question stands, which takes an answer of the node, or until nothing is left to ask.
async fn accepted(call: &Call, events: &mut Receiver<Event>, id: RequestId) -> Answer<Asked> {
    loop {
        match stands(call, id).await? {
            Stands::Waits { created_ms, expires_ms } => {
                return Ok(Asked {
                    id: Some(id.to_string()),
                    status: Some("accepted".into()),
                    decision: None,
                    created_at_ms: Some(created_ms),
                    expires_at_ms: Some(expires_ms),
                    terminal_reason: None,
                });
            }
            Stands::Ended(asked) => return Ok(asked),
            Stands::NotYet => next(events, id).await?,
        }
    }
}

/// Waits for the decision.
async fn decision(call: &Call, events: &mut Receiver<Event>, id: RequestId) -> Answer<Asked> {
    loop {
        match stands(call, id).await? {
            Stands::Ended(asked) => return Ok(asked),
            Stands::Waits { .. } | Stands::NotYet => next(events, id).await?,
        }
    }
}

enum Stands {
    NotYet,
    Waits { created_ms: u64, expires_ms: u64 },
    Ended(Asked),
}

async fn stands(call: &Call, id: RequestId) -> Answer<Stands> {
    let actions = &call.gateway.hub.actions;
    let approval = match actions.approval(&id.to_string()).await {
        Ok(approval) => approval,
        // Not asked (yet).
        Err(ActionError::UnknownApproval(_)) => {
            let action = actions.get(id).await.map_err(ActionError::outward)?;
            return action.map_or(Ok(Stands::NotYet), |action| unasked(&action));
        }
        Err(error) => return Err(error.outward()),
    };
    let reason = match approval.status {
        ApprovalStatus::Pending => {
            return Ok(Stands::Waits { created_ms: approval.created_ms, expires_ms: approval.expires_ms });
        }
        ApprovalStatus::Allowed | ApprovalStatus::Denied => "user",
        ApprovalStatus::Expired => "timeout",
        ApprovalStatus::Cancelled => "cancelled",
    };
    Ok(Stands::Ended(Asked {
        id: Some(id.to_string()),
        status: None,
        decision: approval.decision.map(|d| d.as_str().to_owned()),
        created_at_ms: Some(approval.created_ms),
        expires_at_ms: Some(approval.expires_ms),
        terminal_reason: Some(reason.into()),
    }))
}

/// An action that has no approval: it waits for the node, or ended without a question.
fn unasked(action: &Action) -> Answer<Stands> {
    if action.finished_ms.is_none() {
        return Ok(Stands::NotYet);
    }
    let ended = match &action.error {
        None => Asked {
            decision: Some("allow-once".into()),
            terminal_reason: Some("not-needed".into()),
            ..Asked::nobody(Some(action.id))
        },
        Some(CommandError { code: ErrorCode::NobodyToAsk, .. }) => Asked::nobody(Some(action.id)),
        Some(error) => return Err(error.clone().outward()),
    };
    Ok(Stands::Ended(ended))
}

/// The next event about this action; lost events count as one.
async fn next(events: &mut Receiver<Event>, id: RequestId) -> Answer<()> {
    loop {
        match events.recv().await {
            Ok(
                Event::ApprovalRequested { id: of }
                | Event::ApprovalResolved { id: of }
                | Event::ActionChanged { id: of },
            ) if of == id => return Ok(()),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return Ok(()),
            Err(RecvError::Closed) => return Err(unavailable("the hub is stopping")),
        }
    }
}

pub(super) async fn wait_decision(call: Call, params: IdParams) -> Answer<Asked> {
    // Subscribed before the first look, so that nothing falls between the two.
    let mut events = call.gateway.hub.bus.subscribe();
    let approval = call.gateway.hub.actions.approval(&params.id).await.map_err(ActionError::outward)?;
    decision(&call, &mut events, approval.id).await
}

/// `node.invoke` of a `system.run` that was asked about before: the id of that question. The caller's own
/// words about approval are worth nothing, so all but the id is looked up.
pub(in crate::gateway::methods) async fn asked_before(
    call: &Call,
    node: DeviceId,
    params: Option<&Value>,
) -> Answer<Option<RequestId>> {
    let named = |name: &str| params.and_then(|p| p.get(name));
    let refuse = |code: &str, message: &str| {
        Err(invalid(format!("{code}: {message}")).with_details(json!({ "code": code })))
    };
    let run_id = match named("runId").and_then(Value::as_str) {
        Some(run_id) => run_id,
        None if named("approved").is_some() || named("approvalDecision").is_some() => {
            return refuse("MISSING_RUN_ID", "name the approval in `runId`; see `exec.approval.request`");
        }
        None => return Ok(None),
    };
    let known = match run_id.parse::<RequestId>() {
        Ok(id) => call.gateway.hub.actions.asked_by(id).await.map_err(ActionError::outward)?,
        Err(_) => None,
    };
    let Some((action, device)) = known else {
        return refuse("UNKNOWN_APPROVAL_ID", "no such approval");
    };
    if device != call.client.device_id() {
        return refuse("APPROVAL_DEVICE_MISMATCH", "another device asked for this approval");
    }
    if action.node != node || action.command != "system.run" {
        return refuse("APPROVAL_REQUEST_MISMATCH", "this approval is about something else");
    }
    Ok(Some(action.id))
}
