//! A foreign node that speaks JSON: its connection in the form the rest of the hub knows.
//!
//! ```text
//! hub  ──► event node.invoke.request {id, nodeId, command, paramsJSON, timeoutMs}
//! node ──► node.invoke.progress …      node.invoke.result {id, ok, payloadJSON | error}
//! hub  ──► event node.invoke.cancel {invokeId}        time is up, or the caller has gone
//! ```
//!
//! It has no challenges, no grants and no approvers: what is asked of it is checked by the hub alone.

pub(crate) mod policy;

use super::Gateway;
use super::clients::Client;
use super::handshake::NodeClaims;
use crate::nodes::media::MediaStore;
use crate::nodes::{Arrival, Attached, Media, NodeConnection, NodeReply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::frame::close;
use hearth_shared::grant::Grant;
use hearth_shared::identity::DeviceId;
use hearth_shared::link::{Invoke, Outcome};
use hearth_shared::reading::RequestId;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A node that was not ready has run nothing: it is asked again, so often, so long apart.
const READY_RETRIES: u32 = 4;
const READY_PAUSE: Duration = Duration::from_millis(500);

/// How long a node may take to answer a ping when a second connection with its key comes.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// What a node answered.
#[derive(Debug)]
pub(crate) struct NodeAnswer {
    /// The result as JSON text, or code and message.
    pub(crate) outcome: Result<String, (String, String)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct JsonNode {
    id: DeviceId,
    /// Weak: the client holds the node.
    client: Weak<Client>,
    media: MediaStore,
    waiting: Mutex<HashMap<String, oneshot::Sender<NodeAnswer>>>,
}

/// Lists a node as connected for as long as the value lives. A node that cannot be attached is closed.
pub(super) async fn attach(gateway: &Gateway, client: &Arc<Client>, claims: NodeClaims) -> Option<Attached> {
    let device = client.device.clone()?;
    let node = Arc::new(JsonNode {
        id: device.id,
        client: Arc::downgrade(client),
        media: gateway.hub.nodes.media().clone(),
        waiting: Mutex::default(),
    });
    let _ = client.node.set(Arc::clone(&node));
    let arrival = Arrival {
        declared: policy::surface(&claims.commands, device.id, &gateway.hub.config.nodes),
        device,
        declaration: None,
        caps: claims.caps,
        approvers: ApproverSet::default(),
        version: client.client.version.clone(),
        remote: client.peer,
        connection: node,
    };
    match gateway.hub.nodes.attach(arrival).await {
        Ok(mut attached) => {
            attached.announce().await;
            Some(attached)
        }
        Err(error) => {
            tracing::warn!(node = %client.label(), %error, "node refused");
            client.outbound.close(close::POLICY, &error.to_string());
            None
        }
    }
}

fn not_connected() -> CommandError {
    CommandError::new(ErrorCode::NotConnected, "node not connected")
}

fn only_ours<T>(what: &str) -> Result<T, CommandError> {
    let message = format!("this node speaks the JSON protocol and has no {what}; only the hub checks it");
    Err(CommandError::new(ErrorCode::UnknownCommand, message))
}

impl JsonNode {
    fn waiting(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<NodeAnswer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer; false when nobody waits for it (any more).
    pub(crate) fn answered(&self, id: &str, answer: NodeAnswer) -> bool {
        let waiter = self.waiting().remove(id);
        waiter.is_some_and(|w| w.send(answer).is_ok())
    }

    /// Whether a request is running.
    pub(crate) fn runs(&self, id: &str) -> bool {
        self.waiting().contains_key(id)
    }

    /// Foreign nodes send pictures as base64 inside the result. They are stored like everybody else's, and
    /// the text is taken out: it would fill transcripts and the database. What cannot be stored stays.
    async fn store_picture(&self, request: RequestId, outcome: Outcome) -> (Outcome, Vec<Media>) {
        let Outcome::Done { result } = &outcome else { return (outcome, Vec::new()) };
        let Some((mime, bytes, rest)) = picture(result) else { return (outcome, Vec::new()) };
        match self.media.put(self.id, request, mime, &bytes).await {
            Ok(media) => (Outcome::Done { result: rest }, vec![media]),
            Err(error) => {
                tracing::warn!(%error, "cannot store a picture of a foreign node");
                (outcome, Vec::new())
            }
        }
    }

    fn tell_cancel(&self, id: &str) {
        if let Some(client) = self.client.upgrade() {
            client.outbound.targeted("node.invoke.cancel", &json!({ "invokeId": id, "nodeId": self.id }));
        }
    }

    async fn ask(&self, invoke: &Invoke, id: &str, deadline: Instant) -> Result<NodeAnswer, CommandError> {
        let client = self.client.upgrade().ok_or_else(not_connected)?;
        let gone = client.outbound.closed();
        let (answer, wait) = oneshot::channel();
        if self.waiting().insert(id.to_owned(), answer).is_some() {
            return Err(CommandError::new(ErrorCode::Busy, "this request is running already"));
        }
        // Taken out again however this ends; a caller who leaves in the middle withdraws the request.
        let asked = Asked { node: self, id, answered: false };
        let left = deadline.saturating_duration_since(Instant::now());
        let params = (!invoke.params.is_empty()).then_some(&invoke.params);
        client.outbound.targeted(
            "node.invoke.request",
            &json!({
                "id": id,
                "nodeId": self.id,
                "command": invoke.command,
                "paramsJSON": params,
                "timeoutMs": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                "idempotencyKey": invoke.request,
            }),
        );
        drop(client);
        tokio::select! {
            answer = wait => {
                asked.done();
                answer.map_err(|_| CommandError::new(ErrorCode::Cancelled, "withdrawn"))
            }
            () = gone => {
                asked.done();
                Err(CommandError::new(
                    ErrorCode::OutcomeUnknown,
                    "the node went away while the command was running; whether it finished is not known",
                ))
            }
            () = tokio::time::sleep_until(deadline) => {
                Err(CommandError::new(ErrorCode::Timeout, "node invoke timed out"))
            }
        }
    }
}

struct Asked<'a> {
    node: &'a JsonNode,
    id: &'a str,
    answered: bool,
}

impl Asked<'_> {
    fn done(mut self) {
        self.answered = true;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.node.waiting().remove(self.id);
        if !self.answered {
            self.node.tell_cancel(self.id);
        }
    }
}

impl NodeConnection for JsonNode {
    fn invoke(&self, invoke: Invoke) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        Box::pin(async move {
            let deadline = Instant::now() + Duration::from_millis(invoke.timeout_ms);
            let mut retries = 0;
            loop {
                // Each attempt has an id of its own, so that a late answer to one is not taken for another.
                let id = match retries {
                    0 => invoke.request.to_string(),
                    n => format!("{}-{n}", invoke.request),
                };
                let answer = self.ask(&invoke, &id, deadline).await?;
                let outcome = match answer.outcome {
                    Err((code, _))
                        if code == "NODE_NOT_READY"
                            && retries < READY_RETRIES
                            && Instant::now() + READY_PAUSE < deadline =>
                    {
                        retries += 1;
                        tokio::time::sleep(READY_PAUSE).await;
                        continue;
                    }
                    Ok(result) => Outcome::Done { result },
                    Err((code, message)) => {
                        Outcome::Failed(CommandError::new(known(&code), error_text(&code, &message)))
                    }
                };
                let (outcome, media) = self.store_picture(invoke.request, outcome).await;
                return Ok(NodeReply { outcome, media, head: None });
            }
        })
    }

    fn ask_challenge(
        &self,
        _: Invoke,
    ) -> BoxFuture<'_, Result<Result<SignedChallenge, NodeReply>, CommandError>> {
        Box::pin(async { only_ours("challenges") })
    }

    fn grant(&self, _: RequestId, _: Grant, _: Duration) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        Box::pin(async { only_ours("grants") })
    }

    fn cancel(&self, request: RequestId) {
        // Whoever waits hears of it at once, because his sender is dropped.
        let id = request.to_string();
        let waiter = self.waiting().remove(&id);
        if waiter.is_some() {
            self.tell_cancel(&id);
        }
    }

    fn change_approvers(&self, _: ApproversChange) -> BoxFuture<'_, Result<ApproverSet, CommandError>> {
        Box::pin(async { only_ours("list of approvers") })
    }

    fn surface(&self, _: Vec<String>) {
        // It is told by the event `node.pair.resolved`.
    }

    fn probe(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            match self.client.upgrade() {
                Some(client) => client.probe(PROBE_LIMIT).await,
                None => false,
            }
        })
    }

    fn close(&self, code: u16, reason: &str) {
        if let Some(client) = self.client.upgrade() {
            client.outbound.close(code, reason);
        }
    }
}

/// Type and bytes of the picture or clip in a result, and the result without it.
fn picture(result: &str) -> Option<(&'static str, Vec<u8>, String)> {
    let mut value: Value = serde_json::from_str(result).ok()?;
    let fields = value.as_object_mut()?;
    let mime = match fields.get("format").and_then(Value::as_str)? {
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "webp" => "image/webp",
        "mp4" => "video/mp4",
        _ => return None,
    };
    let bytes = STANDARD.decode(fields.get("base64").and_then(Value::as_str)?).ok()?;
    fields.remove("base64");
    Some((mime, bytes, value.to_string()))
}

/// The node's own code stays in front of the text: `CODE: text`, once.
fn error_text(code: &str, message: &str) -> String {
    let text = message.strip_prefix(code).map_or(message, |rest| rest.trim_start_matches([':', ' ']));
    format!("{code}: {text}")
}

/// Code and text of a foreign node's error; the reverse of what [`NodeConnection::invoke`] writes.
pub(crate) fn foreign_error(error: &CommandError) -> Option<(&str, &str)> {
    let (code, text) = error.message.split_once(": ")?;
    let is_code =
        !code.is_empty() && code.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
    is_code.then_some((code, text))
}

/// The hub's code for a foreign one.
fn known(code: &str) -> ErrorCode {
    match code {
        "INVALID_REQUEST" => ErrorCode::InvalidParams,
        "TIMEOUT" | "LOCATION_TIMEOUT" => ErrorCode::Timeout,
        "SYSTEM_RUN_DENIED"
        | "CAMERA_DISABLED"
        | "CAMERA_PERMISSION_REQUIRED"
        | "MIC_PERMISSION_REQUIRED" => ErrorCode::Denied,
        "NODE_NOT_READY" | "NODE_BACKGROUND_UNAVAILABLE" | "UNAVAILABLE" => ErrorCode::Busy,
        "PAYLOAD_TOO_LARGE" => ErrorCode::TooLarge,
        "CAMERA_UNAVAILABLE" => ErrorCode::Hardware,
        _ => ErrorCode::Internal,
    }
}

/// The result of a node as JSON text: `payloadJSON` as it is when it is JSON, else the payload written.
pub(crate) fn result_text(payload_json: Option<String>, payload: Option<Value>) -> Result<String, String> {
    match (payload_json, payload) {
        (Some(text), _) => match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            Ok(_) => Ok(text),
            Err(error) => Err(format!("payloadJSON is not JSON: {error}")),
        },
        (None, Some(payload)) => Ok(payload.to_string()),
        (None, None) => Ok("null".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_codes_stand_once_and_can_be_read_back() {
        for message in
            ["camera requires foreground", "NODE_BACKGROUND_UNAVAILABLE: camera requires foreground"]
        {
            let text = error_text("NODE_BACKGROUND_UNAVAILABLE", message);
            let error = CommandError::new(ErrorCode::Busy, text);
            assert_eq!(
                foreign_error(&error),
                Some(("NODE_BACKGROUND_UNAVAILABLE", "camera requires foreground"))
            );
        }
        assert_eq!(foreign_error(&CommandError::new(ErrorCode::Busy, "no code: here")), None);
    }

    #[test]
    fn pictures_are_taken_out_of_results() {
        let (mime, bytes, rest) =
            picture(r#"{"format":"jpg","base64":"/9j/4AAQSkZJRg==","width":1,"height":1}"#).unwrap();
        assert_eq!((mime, &bytes[..2]), ("image/jpeg", &[0xff, 0xd8][..]));
        assert_eq!(rest, r#"{"format":"jpg","height":1,"width":1}"#);
        for other in ["null", "{}", r#"{"format":"exe","base64":"AAAA"}"#, r#"{"format":"jpg","base64":"!"}"#]
        {
            assert!(picture(other).is_none(), "{other}");
        }
    }

    #[test]
    fn results_are_json_or_an_error() {
        assert_eq!(result_text(Some("{\"a\":1}".into()), None), Ok("{\"a\":1}".into()));
        assert_eq!(result_text(None, Some(json!([1]))), Ok("[1]".into()));
        assert_eq!(result_text(None, None), Ok("null".into()));
        assert!(result_text(Some("{".into()), None).is_err());
    }
}
