//! A client of a running hub: protocol 4 over one WebSocket.
//!
//! On this machine it finds the hub by `hub.addr`, shows the token file and signs with `cli.key`; the hub
//! lets it in as the owner's. From elsewhere it pins the hub's TLS key and must be approved like any
//! device. One owner reads the socket: requests are told apart by their ids, so several may be open.

mod connect;
mod target;

pub use connect::{Access, CAP_APPROVALS, CAP_TOOL_EVENTS};
pub use target::{Local, Remote, Target, pin_of, tls_key_fits};

use super::error::{Exit, Failure};
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::frame::{ErrorShape, EventFrame, Frame, Request, Response};
use hearth_shared::limits::{DEFAULT_TIMEOUT_MS, LIVENESS_TIMEOUT_MS};
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// How long an ordinary request may take.
const CALL: Duration = Duration::from_millis(DEFAULT_TIMEOUT_MS);
/// How long the hub may be silent; it pings and ticks well within that.
const SILENCE: Duration = Duration::from_millis(LIVENESS_TIMEOUT_MS + 15_000);
/// Frames kept while an answer is waited for; the oldest events go first.
const MAX_KEPT: usize = 4096;

/// A connection below the WebSocket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// What comes from the hub.
#[derive(Debug)]
pub enum Incoming {
    /// The answer to the request with this id.
    Answer { id: String, result: Result<Value, ErrorShape> },
    /// An event.
    Event(EventFrame),
}

/// A connected client.
pub struct Client {
    socket: WebSocketStream<Box<dyn Stream>>,
    next_id: u64,
    kept: VecDeque<Incoming>,
    hello: Value,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

impl Client {
    /// What the hub said when it let this client in.
    #[must_use]
    pub fn hello(&self) -> &Value {
        &self.hello
    }

    /// Whether the hub has a method.
    #[must_use]
    pub fn has_method(&self, name: &str) -> bool {
        self.hello["features"]["methods"].as_array().is_some_and(|all| all.iter().any(|m| m == name))
    }

    /// Sends a request and returns its id.
    ///
    /// # Errors
    /// The hub is gone.
    pub async fn send(&mut self, method: &str, params: Value) -> Result<String, Failure> {
        self.next_id += 1;
        let id = format!("c{}", self.next_id);
        let request = Frame::Request(Request { id: id.clone(), method: method.into(), params });
        let text = serde_json::to_string(&request)
            .map_err(|e| Failure::failed(format!("cannot write the request: {e}"), "report this fault"))?;
        self.socket.send(Message::text(text)).await.map_err(|e| gone(&e.to_string()))?;
        Ok(id)
    }

    /// The next answer or event, kept ones first. Cancellation safe.
    ///
    /// # Errors
    /// The hub is gone, or silent for too long.
    pub async fn next(&mut self) -> Result<Incoming, Failure> {
        if let Some(kept) = self.kept.pop_front() {
            return Ok(kept);
        }
        self.read().await
    }

    async fn read(&mut self) -> Result<Incoming, Failure> {
        loop {
            let message = tokio::time::timeout(SILENCE, self.socket.next())
                .await
                .map_err(|_| gone(&format!("nothing came for {} s", SILENCE.as_secs())))?;
            match message {
                Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                    Ok(Frame::Response(response)) => return Ok(answer(response)),
                    Ok(Frame::Event(event)) => return Ok(Incoming::Event(event)),
                    Ok(Frame::Request(_)) | Err(_) => {
                        return Err(Failure::failed(
                            "the hub sent something that is no frame of protocol 4",
                            "check with `hearth --version` that both are of one version",
                        ));
                    }
                },
                Some(Ok(Message::Close(frame))) => return Err(closed(frame.as_ref())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(gone(&error.to_string())),
                None => return Err(gone("the connection ended")),
            }
        }
    }

    /// Sends a request and waits for its answer; what else comes is kept for [`Client::next`].
    ///
    /// # Errors
    /// The hub's error, as a [`Failure`]; or it is gone, or did not answer within 30 seconds.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Failure> {
        self.call_within(CALL, method, params).await
    }

    /// As [`Client::call`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_within(
        &mut self,
        limit: Duration,
        method: &str,
        params: Value,
    ) -> Result<Value, Failure> {
        self.try_call(limit, method, params).await?.map_err(|e| refused(&e))
    }

    /// As [`Client::call_within`], with the hub's error as it came.
    ///
    /// # Errors
    /// The hub is gone, or did not answer in time.
    pub async fn try_call(
        &mut self,
        limit: Duration,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, ErrorShape>, Failure> {
        let deadline = Instant::now() + limit;
        let wanted = self.send(method, params).await?;
        loop {
            let incoming = tokio::time::timeout_at(deadline, self.read()).await.map_err(|_| {
                Failure::new(
                    Exit::Unreachable,
                    format!("the hub did not answer `{method}` within {} s", limit.as_secs()),
                    "look at `hearth logs`, then try again",
                )
            })??;
            match incoming {
                Incoming::Answer { id, result } if id == wanted => return Ok(result),
                other => {
                    if self.kept.len() >= MAX_KEPT {
                        self.kept.pop_front();
                    }
                    self.kept.push_back(other);
                }
            }
        }
    }

    /// Says goodbye.
    pub async fn close(mut self) {
        let _ = tokio::time::timeout(Duration::from_millis(500), self.socket.close(None)).await;
    }
}

fn answer(response: Response) -> Incoming {
    let result = if response.ok {
        Ok(response.payload.unwrap_or_default())
    } else {
        Err(response.error.unwrap_or_else(|| ErrorShape::new("UNAVAILABLE", "failed without a reason")))
    };
    Incoming::Answer { id: response.id, result }
}

fn gone(why: &str) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!("the connection to the hub ended: {why}"),
        "look at `hearth status` and `hearth logs`, then try again",
    )
}

fn closed(frame: Option<&CloseFrame>) -> Failure {
    let Some(frame) = frame else { return gone("the hub closed it") };
    let reason = super::output::safe_line(&frame.reason);
    match u16::from(frame.code) {
        1012 => Failure::new(
            Exit::Unreachable,
            "the hub stops or restarts",
            "wait a moment and try again; `hearth status` tells when it is back",
        ),
        code => gone(&format!("the hub closed it ({code} {reason})")),
    }
}

/// The hub's refusal, with exit code and next step.
#[must_use]
pub fn refused(error: &ErrorShape) -> Failure {
    let details = error.details.as_ref().unwrap_or(&Value::Null);
    let text = details["message"].as_str().unwrap_or(&error.message);
    let message = super::output::safe_line(text);
    let code = details["code"].as_str().or(details["reason"].as_str()).unwrap_or(&error.code);
    let (exit, next) = match code {
        "UNKNOWN_NODE" => (Exit::NotFound, "see `hearth nodes list`"),
        "UNKNOWN_REQUEST" | "UNKNOWN_DEVICE" => (Exit::NotFound, "see `hearth devices list`"),
        "APPROVAL_NOT_FOUND" => (Exit::NotFound, "see `hearth approvals list --all`"),
        "command not allowlisted" | "command not declared by node" => {
            (Exit::NotFound, "see `hearth nodes show NODE` for what it can do")
        }
        "UNKNOWN_COMMAND" | "UNKNOWN_SENSOR" | "NOT_FOUND" => {
            (Exit::NotFound, "see `hearth nodes show NODE`")
        }
        "MISSING_SCOPE" => (Exit::Denied, "ask the hub's owner to approve more rights for this device"),
        "APPROVAL_DENIED" => (Exit::Denied, "`hearth approvals list --all` tells who decided"),
        "DENIED" => (Exit::Denied, "the message names the rule and who may change it"),
        "NOBODY_TO_ASK" => {
            (Exit::Denied, "keep `hearth chat` or `hearth approver run` open, so that somebody can be asked")
        }
        "APPROVER_NOT_ENOUGH" => (Exit::Denied, "decide with a person's own key: `hearth approver allow ID`"),
        "APPROVAL_ALREADY_RESOLVED" => (Exit::Failed, "see `hearth approvals show ID`"),
        "APPROVAL_CHANGED" => (Exit::Failed, super::approve::CHANGED),
        "NOT_CONNECTED" => (Exit::Failed, "see `hearth nodes list`; the node connects again by itself"),
        "TIMEOUT" => (Exit::Failed, "try again, or allow more time with --timeout"),
        "INVALID_PARAMS" => (Exit::Usage, "see `hearth nodes show NODE` for what the command takes"),
        "AMBIGUOUS" => (Exit::Usage, "give more of the id"),
        _ => match error.code.as_str() {
            "FORBIDDEN" | "NOT_PAIRED" => {
                (Exit::Denied, "see `hearth devices list` for what this device may do")
            }
            "APPROVAL_NOT_FOUND" => (Exit::NotFound, "see `hearth approvals list --all`"),
            "UNAVAILABLE" => (Exit::Failed, "look at `hearth status` and `hearth logs`, then try again"),
            _ => (Exit::Failed, "see `hearth --help`"),
        },
    };
    Failure::new(exit, message, next)
}

#[cfg(test)]
mod tests;
