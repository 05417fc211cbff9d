//! What a foreign JSON node calls: results of commands, and what it likes to tell.

use super::{Access, Call, Method, NoParams, method};
use crate::bus::Event;
use crate::gateway::answer::{Answer, invalid};
use crate::gateway::json_node::{NodeAnswer, result_text};
use crate::store::now_ms;
use hearth_shared::identity::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) const METHODS: &[Method] = &[
    method!("node.invoke.result", Access::Node, result, ResultParams => Taken),
    method!("node.invoke.progress", Access::Node, progress, ProgressParams => Taken),
    method!("node.event", Access::Node, event, EventParams => EventTaken),
    method!("node.pending.pull", Access::Node, pull, NoParams => Pulled),
    method!("node.pending.ack", Access::Node, ack, AckParams => Acked),
    method!("node.pending.drain", Access::Node, drain, DrainParams => Drained),
    method!("node.runnerInventory.update", Access::Node, inventory, InventoryParams => NodeOnly),
    method!("node.skills.update", Access::Node, skills, SkillsParams => SkillsTaken),
    method!("node.pluginTools.update", Access::Node, tools, ToolsParams => ToolsTaken),
    method!("skills.bins", Access::Node, bins, NoParams => Bins),
];

/// Events of a node that the rest of the hub hears of, at most this long.
const MAX_EVENT: usize = 4096;

fn node_id(call: &Call) -> Answer<DeviceId> {
    call.client.device_id().ok_or_else(|| invalid("a node needs a device"))
}

/// A node speaks for itself only.
fn check_own(call: &Call, named: &str) -> Answer<()> {
    if named == node_id(call)?.to_string() { Ok(()) } else { Err(invalid("nodeId is not this node's id")) }
}

/// Outcome of a command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResultParams {
    id: String,
    node_id: String,
    ok: bool,
    payload: Option<Value>,
    #[serde(rename = "payloadJSON")]
    payload_json: Option<String>,
    error: Option<NodeErrorParams>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct NodeErrorParams {
    code: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Taken {
    ok: bool,
    /// Nobody waits for it (any more).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignored: bool,
}

async fn result(call: Call, params: ResultParams) -> Answer<Taken> {
    check_own(&call, &params.node_id)?;
    let outcome = if params.ok {
        result_text(params.payload_json, params.payload).map_err(|why| ("INVALID_RESULT".to_owned(), why))
    } else {
        let error = params.error.unwrap_or(NodeErrorParams { code: None, message: None });
        let code = error.code.filter(|c| !c.is_empty()).unwrap_or_else(|| "UNAVAILABLE".into());
        Err((code, error.message.unwrap_or_else(|| "the command failed".into())))
    };
    let taken = call.client.node.get().is_some_and(|n| n.answered(&params.id, NodeAnswer { outcome }));
    Ok(Taken { ok: true, ignored: !taken })
}

/// A piece of output while a command runs; taken, the result has it all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProgressParams {
    invoke_id: String,
    node_id: String,
    seq: u64,
    /// At most 16384 characters.
    #[schemars(length(max = 16384))]
    chunk: String,
}

async fn progress(call: Call, params: ProgressParams) -> Answer<Taken> {
    check_own(&call, &params.node_id)?;
    if params.chunk.len() > 16_384 {
        return Err(invalid(
            "invalid node.invoke.progress params: at /chunk: must NOT have more than 16384 characters",
        ));
    }
    let known = call.client.node.get().is_some_and(|n| n.runs(&params.invoke_id));
    tracing::trace!(invoke = params.invoke_id, seq = params.seq, bytes = params.chunk.len(), "progress");
    Ok(Taken { ok: true, ignored: !known })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventParams {
    event: String,
    payload: Option<Value>,
    #[serde(rename = "payloadJSON")]
    payload_json: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EventTaken {
    ok: bool,
    event: String,
    handled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

async fn event(call: Call, params: EventParams) -> Answer<EventTaken> {
    let node = node_id(&call)?;
    let known = matches!(
        params.event.as_str(),
        "node.host.stats"
            | "node.presence.alive"
            | "node.presence.activity"
            | "exec.started"
            | "exec.finished"
            | "exec.denied"
            | "notifications.changed"
    );
    if known {
        let json = result_text(params.payload_json, params.payload).map_err(invalid)?;
        if json.len() > MAX_EVENT {
            return Err(invalid(format!("the event has {} bytes, the limit is {MAX_EVENT}", json.len())));
        }
        let kind = params.event.clone();
        call.gateway.hub.bus.emit(Event::NodeEvent { node, kind, json, at_ms: Some(now_ms()) });
    }
    Ok(EventTaken {
        ok: true,
        event: params.event,
        handled: known,
        reason: (!known).then(|| "unsupported_event".into()),
    })
}

/// Nothing is ever queued here for a node in the background: requests wait as durable actions instead.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    node_id: DeviceId,
    actions: Vec<Value>,
}

async fn pull(call: Call, _: NoParams) -> Answer<Pulled> {
    Ok(Pulled { node_id: node_id(&call)?, actions: Vec::new() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AckParams {
    ids: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Acked {
    node_id: DeviceId,
    acked_ids: Vec<String>,
    remaining_count: u64,
}

async fn ack(call: Call, params: AckParams) -> Answer<Acked> {
    tracing::trace!(ids = params.ids.len(), "nothing is queued");
    Ok(Acked { node_id: node_id(&call)?, acked_ids: Vec::new(), remaining_count: 0 })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DrainParams {
    /// 1 to 10.
    #[schemars(range(min = 1, max = 10))]
    max_items: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Drained {
    node_id: DeviceId,
    revision: u64,
    items: Vec<Value>,
    has_more: bool,
}

async fn drain(call: Call, params: DrainParams) -> Answer<Drained> {
    if params.max_items.is_some_and(|n| !(1..=10).contains(&n)) {
        return Err(invalid("invalid node.pending.drain params: at /maxItems: must be 1 to 10"));
    }
    // The protocol ends every drain with this item: a question how the node is.
    let baseline = json!({
        "id": "baseline-status", "type": "status.request", "priority": "default",
        "createdAtMs": now_ms(), "expiresAtMs": null,
    });
    Ok(Drained { node_id: node_id(&call)?, revision: 0, items: vec![baseline], has_more: false })
}

/// Told after every connect; this hub offers no workers and takes the message.
#[derive(Debug, Deserialize, JsonSchema)]
struct InventoryParams {}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeOnly {
    node_id: DeviceId,
}

async fn inventory(call: Call, _: InventoryParams) -> Answer<NodeOnly> {
    Ok(NodeOnly { node_id: node_id(&call)? })
}

/// Skills of the node; none are used here.
#[derive(Debug, Deserialize, JsonSchema)]
struct SkillsParams {}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SkillsTaken {
    node_id: DeviceId,
    skills: Vec<Value>,
}

async fn skills(call: Call, _: SkillsParams) -> Answer<SkillsTaken> {
    Ok(SkillsTaken { node_id: node_id(&call)?, skills: Vec::new() })
}

/// Tools of the node's plugins; none are used here.
#[derive(Debug, Deserialize, JsonSchema)]
struct ToolsParams {}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolsTaken {
    node_id: DeviceId,
    tools: Vec<Value>,
}

async fn tools(call: Call, _: ToolsParams) -> Answer<ToolsTaken> {
    Ok(ToolsTaken { node_id: node_id(&call)?, tools: Vec::new() })
}

/// Programs that skills want to know of; there are no skills here.
#[derive(Debug, Serialize, JsonSchema)]
struct Bins {
    bins: Vec<String>,
}

async fn bins(_: Call, _: NoParams) -> Answer<Bins> {
    Ok(Bins { bins: Vec::new() })
}
