//! `node.invoke`: a client asks a node to do something and waits, also for the person who must agree.
//!
//! It goes down as a durable action, so that every rule, approval and record applies to it. A caller who
//! leaves, or whose time is up, withdraws it.

use crate::actions::{Action, ActionError, ActionRequest, Host};
use crate::gateway::answer::{Answer, Outward as _, invalid, unavailable};
use crate::gateway::json_node::foreign_error;
use crate::gateway::methods::Call;
use crate::gateway::methods::approvals::request::asked_before;
use crate::nodes::{Media, NodeError, NodeView};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::frame::ErrorShape;
use hearth_shared::limits::{DEFAULT_TIMEOUT_MS, MAX_PARAMS, MAX_PAYLOAD, MAX_TIMEOUT_MS};
use hearth_shared::reading::{Correlation, RequestId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Given to the layers below beyond the caller's own time, so that their answer arrives before it ends.
const GRACE: Duration = Duration::from_millis(500);
/// Largest attachment that is also sent as text: it stands twice in the answer, and base64 adds a third.
const MAX_INLINE: u64 = (MAX_PAYLOAD as u64 / 2) * 3 / 4 - 64 * 1024;
/// Longest idempotency key.
const MAX_KEY: usize = 256;

/// A command for a node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InvokeParams {
    /// Id, unique prefix of it, or name.
    node_id: String,
    command: String,
    params: Option<Value>,
    /// Time for everything, a person's decision included. Without it the command has 30 s and a decision
    /// as long as requests wait for one.
    #[schemars(range(min = 1, max = 1_800_000))]
    timeout_ms: Option<u64>,
    /// The same key again within 24 hours is the same request.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: String,
    session_key: Option<String>,
    /// Why, in at most 200 characters; shown below the card as the requester's word.
    reason: Option<String>,
    /// Wait for a node that is away instead of failing at once.
    #[serde(default)]
    wait_for_node: bool,
    #[serde(rename = "turnSourceChannel")]
    _turn_source_channel: Option<String>,
    #[serde(rename = "turnSourceTo")]
    _turn_source_to: Option<String>,
    #[serde(rename = "turnSourceAccountId")]
    _turn_source_account_id: Option<String>,
    #[serde(rename = "turnSourceThreadId")]
    _turn_source_thread_id: Option<Value>,
}

/// What came of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Invoked {
    ok: bool,
    node_id: String,
    command: String,
    /// The command's result; a picture is in `base64` as well when it is not too large.
    payload: Value,
    /// The same as text.
    #[serde(rename = "payloadJSON")]
    payload_json: String,
    /// Attachments in the hub's media folder, also under `/media/<id>`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    media: Vec<MediaEntry>,
    request_id: RequestId,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct MediaEntry {
    id: String,
    mime: String,
    size: u64,
    path: String,
}

impl From<&Media> for MediaEntry {
    fn from(media: &Media) -> Self {
        Self {
            id: media.id.clone(),
            mime: media.mime.clone(),
            size: media.size,
            path: media.path.display().to_string(),
        }
    }
}

pub(super) async fn invoke(call: Call, params: InvokeParams) -> Answer<Invoked> {
    check(&params)?;
    let hub = &call.gateway.hub;
    let view = match hub.nodes.find(&params.node_id).await {
        Ok(view) => view,
        // The documented answer to an unknown node is that of one that is not approved.
        Err(error @ NodeError::Unknown(_)) => return Err(pairing_changed(&error.to_string())),
        Err(error) => return Err(error.outward()),
    };
    if params.command == "system.run"
        && let Some(id) = asked_before(&call, view.device.id, params.params.as_ref()).await?
    {
        let limit = Duration::from_millis(params.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS));
        let action = tokio::time::timeout(limit, hub.actions.wait(id)).await.map_err(|_| timed_out())?;
        return finish(action.map_err(ActionError::outward)?, &view).await;
    }
    usable(&view, &params)?;
    let request = ActionRequest {
        host: Host::Node,
        node: view.device.id,
        command: params.command.clone(),
        params: params.params.unwrap_or_else(|| json!({})),
        requester: call.client.label(),
        requester_device: call.client.device_id(),
        reason: params.reason,
        session_key: params.session_key,
        run_id: None,
        timeout: Duration::from_millis(params.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
        idempotency_key: Some(params.idempotency_key),
        wait_for_node: params.wait_for_node,
        ask_for: None,
        correlation: Correlation::fresh().map_err(|e| unavailable(e.to_string()))?,
    };
    let id = hub.actions.submit(request).await.map_err(|e| failure(e, &view))?;
    let withdraw = call.withdraw_when_gone(id);
    let action = match params.timeout_ms {
        Some(ms) => match tokio::time::timeout(Duration::from_millis(ms) + GRACE, hub.actions.wait(id)).await
        {
            Ok(action) => action,
            Err(_) => return Err(timed_out()),
        },
        None => hub.actions.wait(id).await,
    }
    .map_err(ActionError::outward)?;
    withdraw.keep();
    finish(action, &view).await
}

fn check(params: &InvokeParams) -> Answer<()> {
    let refuse = |what: &str| Err(invalid(format!("invalid node.invoke params: {what}")));
    if params.idempotency_key.is_empty() || params.idempotency_key.len() > MAX_KEY {
        return refuse("at /idempotencyKey: must have 1 to 256 characters");
    }
    if params.timeout_ms.is_some_and(|ms| ms == 0 || ms > MAX_TIMEOUT_MS) {
        return refuse("at /timeoutMs: must be 1 to 1800000");
    }
    if params.params.as_ref().is_some_and(|p| p.to_string().len() > MAX_PARAMS) {
        return refuse("at /params: must NOT have more than 65536 bytes");
    }
    if params.command.starts_with("system.execApprovals.") {
        return refuse("at /command: a node's own rules are changed on the node only");
    }
    Ok(())
}

fn pairing_changed(message: &str) -> ErrorShape {
    let mut error = unavailable(message).with_details(json!({ "code": "PAIRING_CHANGED" }));
    error.retryable = Some(true);
    error
}

/// Refuses early, in the documented words, what cannot work.
fn usable(view: &NodeView, params: &InvokeParams) -> Answer<()> {
    let command = &params.command;
    if !view.declared.contains(command) {
        if view.declared.is_empty() && view.connected {
            return Err(pairing_changed("the node declares nothing that this hub could use"));
        }
        let message = format!(
            "node command not allowed: the node (platform: {}) does not support {command:?}",
            view.device.platform
        );
        return Err(invalid(message)
            .with_details(json!({ "reason": "command not declared by node", "command": command })));
    }
    if !view.approved.contains(command) {
        let name = &view.device.name;
        return Err(pairing_changed(&format!(
            "`{command}` of {name} waits for approval; run `hearth devices approve {name}`"
        )));
    }
    Ok(())
}

async fn finish(action: Action, view: &NodeView) -> Answer<Invoked> {
    if let Some(error) = action.error {
        return Err(failure(ActionError::Refused(error), view));
    }
    let mut payload = action.result.unwrap_or(Value::Null);
    if let Some(first) = action.media.first()
        && let Value::Object(fields) = &mut payload
        && first.size <= MAX_INLINE
    {
        match tokio::fs::read(&first.path).await {
            Ok(bytes) => {
                let format = first.mime.rsplit('/').next().unwrap_or_default();
                let format = if format == "jpeg" { "jpg" } else { format };
                fields.entry("format").or_insert_with(|| format.into());
                fields.insert("base64".into(), STANDARD.encode(bytes).into());
            }
            // The picture is still named in `media`; retention may have been faster.
            Err(error) => tracing::warn!(path = %first.path.display(), %error, "attachment"),
        }
    }
    Ok(Invoked {
        ok: true,
        node_id: action.node.to_string(),
        command: action.command,
        payload_json: payload.to_string(),
        payload,
        media: action.media.iter().map(MediaEntry::from).collect(),
        request_id: action.id,
    })
}

fn timed_out() -> ErrorShape {
    let message = "node invoke timed out";
    unavailable(format!("TIMEOUT: {message}")).with_details(json!({
        "code": "TIMEOUT",
        "nodeError": { "code": "TIMEOUT", "message": message },
    }))
}

/// The documented shapes; everything else keeps the hub's code.
fn failure(error: ActionError, view: &NodeView) -> ErrorShape {
    let ActionError::Refused(error) = error else { return error.outward() };
    if !view.checks_grants()
        && let Some((code, text)) = foreign_error(&error)
    {
        return foreign(code, text);
    }
    match error.code {
        ErrorCode::Timeout => timed_out(),
        ErrorCode::NotConnected => {
            let mut shape =
                unavailable("node not connected").with_details(json!({ "code": "NOT_CONNECTED" }));
            shape.retryable = Some(true);
            shape
        }
        _ => with_node_error(error),
    }
}

fn with_node_error(error: CommandError) -> ErrorShape {
    let node_error = json!({ "code": error.code, "message": error.message });
    let mut shape = error.outward();
    if let Some(details) = shape.details.as_mut() {
        details["nodeError"] = node_error;
    }
    shape
}

fn foreign(code: &str, text: &str) -> ErrorShape {
    let mut details =
        json!({ "nodeError": { "code": code, "message": text }, "nodeCommandDispatched": true });
    if code == "NODE_BACKGROUND_UNAVAILABLE" {
        details["code"] = code.into();
        return invalid(text).with_details(details);
    }
    unavailable(format!("{code}: {text}")).with_details(details)
}
