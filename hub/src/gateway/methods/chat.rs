//! `chat.*`: messages to the hub and what was said.

use super::{Access, Call, Method, method};
use crate::channels::Inbound;
use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _, invalid};
use crate::gateway::handshake::params::ClientMode;
use crate::gateway::uuid;
use crate::routing::{RouteError, Routed, Router};
use crate::sessions::Message;
use crate::store::{StoreError, now_ms};
use hearth_shared::identity::display_safe;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const READ: Access = Access::Operator(Scope::Read);
const WRITE: Access = Access::Operator(Scope::Write);

pub(super) const METHODS: &[Method] = &[
    method!("chat.send", WRITE, send, SendParams => Sent),
    method!("chat.abort", WRITE, abort, AbortParams => Aborted),
    method!("chat.history", READ, history, HistoryParams => History),
    method!("chat.inject", Access::Operator(Scope::Admin), inject, InjectParams => Injected),
];

/// Largest history in one answer.
const MAX_HISTORY: usize = 6 * 1024 * 1024;
/// Longest message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024;

/// A message. Settings of other gateways that mean nothing here are taken and not used.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the schema is closed and names what clients may send")]
struct SendParams {
    /// `main`, or a long form such as `agent:main:main`.
    session_key: String,
    message: String,
    /// Becomes the run's id; the same key again is the same message.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: String,
    /// Not taken yet: refused when there are any.
    #[serde(default)]
    attachments: Vec<Value>,
    agent_id: Option<String>,
    session_id: Option<String>,
    thinking: Option<String>,
    fast_mode: Option<Value>,
    queue_mode: Option<String>,
    deliver: Option<bool>,
    timeout_ms: Option<u64>,
    originating_channel: Option<String>,
    originating_to: Option<String>,
    originating_account_id: Option<String>,
    originating_thread_id: Option<Value>,
    suppress_command_interpretation: Option<bool>,
    expected_leaf_entry_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Sent {
    run_id: String,
    /// `started`, `in_flight` or `ok`.
    status: String,
}

/// Delivers a message for this client; `chat.send` and `agent` share it.
pub(super) async fn deliver(
    call: &Call,
    session: String,
    text: String,
    key: String,
    attachments: &[Value],
) -> Answer<Routed> {
    if !attachments.is_empty() {
        return Err(invalid("attachments are not taken by this hub yet; send text"));
    }
    if key.is_empty() || key.len() > 256 {
        return Err(invalid("the idempotencyKey must have 1 to 256 characters"));
    }
    if text.len() > MAX_MESSAGE {
        return Err(invalid(format!("the message has {} bytes, the limit is {MAX_MESSAGE}", text.len())));
    }
    let client = &call.client;
    let channel = if client.client.mode == ClientMode::Cli { "terminal" } else { "webchat" };
    let message = Inbound {
        channel: channel.into(),
        // Shown on cards, so a name; with the head of its id, since names are the device's own word.
        sender: client
            .device
            .as_ref()
            .map_or_else(|| "owner".into(), |d| format!("{} ({})", display_safe(&d.name, 40), d.id.short())),
        session,
        message_id: key,
        text,
        attachments: Vec::new(),
        may_decide: client.may_decide(),
        reply_to: None,
    };
    call.gateway.hub.router.deliver(message).await.map_err(RouteError::outward)
}

async fn send(call: Call, params: SendParams) -> Answer<Sent> {
    let SendParams { session_key, message, idempotency_key, attachments, .. } = params;
    let routed = deliver(&call, session_key, message, idempotency_key, &attachments).await?;
    Ok(Sent { run_id: routed.run_id, status: routed.status.into() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AbortParams {
    session_key: String,
    run_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Aborted {
    ok: bool,
    aborted: bool,
    run_ids: Vec<String>,
}

async fn abort(call: Call, params: AbortParams) -> Answer<Aborted> {
    let key = Router::session_key(&params.session_key);
    let agent = &call.gateway.hub.agent;
    let run_ids = agent.abort(&key, params.run_id.as_deref()).await.map_err(StoreError::outward)?;
    Ok(Aborted { ok: true, aborted: !run_ids.is_empty(), run_ids })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the schema is closed and names what clients may send")]
struct HistoryParams {
    session_key: String,
    /// Messages, 1 to 1000; 200 when left out.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
    /// Skips the newest so many.
    offset: Option<usize>,
    cursor: Option<String>,
    max_chars: Option<usize>,
    agent_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct History {
    session_key: String,
    session_id: Option<String>,
    /// Oldest first: `role`, `content`, `timestamp`, `runId`, and `__openclaw` with `id` and `seq`.
    messages: Vec<Value>,
    pending_inputs: PendingInputs,
    next_offset: Option<u64>,
    has_more: bool,
    total_messages: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PendingInputs {
    items: Vec<Value>,
    total: u64,
}

/// A line of a transcript as clients read it; `seq` counts from the first line.
fn shown(message: &Message, seq: u64) -> Value {
    let mut value = super::encode(message);
    let mut marks = json!({ "id": message.id, "seq": seq });
    if let Some(run) = &message.run_id {
        marks["runId"] = run.as_str().into();
    }
    value["__openclaw"] = marks;
    value
}

async fn history(call: Call, params: HistoryParams) -> Answer<History> {
    let limit = params.limit.unwrap_or(200);
    if !(1..=1000).contains(&limit) {
        return Err(invalid("invalid chat.history params: at /limit: must be 1 to 1000"));
    }
    let offset = params.offset.unwrap_or(0);
    let key = Router::session_key(&params.session_key);
    let sessions = &call.gateway.hub.sessions;
    let (lines, total) = sessions.history(&key, limit, offset).await.map_err(StoreError::outward)?;
    let newest = total.saturating_sub(offset as u64);
    let first = newest.saturating_sub(lines.len() as u64);
    let mut size = 0;
    let mut messages: Vec<Value> = Vec::with_capacity(lines.len());
    // From the newest back, so that what does not fit is the oldest.
    for (i, line) in lines.iter().enumerate().rev() {
        let value = shown(line, first + i as u64 + 1);
        size += value.to_string().len();
        if size > MAX_HISTORY {
            break;
        }
        messages.push(value);
    }
    messages.reverse();
    let seen = offset as u64 + messages.len() as u64;
    let info = sessions.list().await.map_err(StoreError::outward)?.into_iter().find(|s| s.key == key);
    Ok(History {
        session_key: params.session_key,
        session_id: info.map(|s| s.session_id),
        messages,
        pending_inputs: PendingInputs { items: Vec::new(), total: 0 },
        next_offset: (seen < total).then_some(seen),
        has_more: seen < total,
        total_messages: total,
    })
}

/// An assistant's note in a transcript, without a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InjectParams {
    session_key: String,
    message: String,
    /// Put before the text.
    label: Option<String>,
    #[serde(rename = "agentId")]
    _agent_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Injected {
    ok: bool,
    message_id: String,
}

async fn inject(call: Call, params: InjectParams) -> Answer<Injected> {
    if params.message.trim().is_empty() || params.message.len() > MAX_MESSAGE {
        return Err(invalid(format!("the message must have 1 to {MAX_MESSAGE} bytes")));
    }
    let text = match params.label {
        Some(label) => format!("[{label}] {}", params.message),
        None => params.message,
    };
    let id = uuid().map_err(crate::gateway::answer::Outward::outward)?;
    let message = Message {
        id: id.clone(),
        parent_id: None,
        role: "assistant".into(),
        content: json!([{ "type": "text", "text": text }]),
        timestamp: now_ms(),
        run_id: None,
        tool_call_id: None,
        tool_name: None,
        is_error: None,
    };
    let key = Router::session_key(&params.session_key);
    call.gateway.hub.sessions.append(&key, message).await.map_err(StoreError::outward)?;
    Ok(Injected { ok: true, message_id: id })
}
