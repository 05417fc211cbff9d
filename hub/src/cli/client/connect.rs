//! The handshake: challenge, signature, hello.

use super::{Client, Incoming, Target};
use crate::cli::error::{Exit, Failure};
use crate::cli::output::safe_line;
use hearth_shared::connect::JsonProof;
use hearth_shared::frame::{ErrorShape, PROTOCOL};
use hearth_shared::limits::{HANDSHAKE_TIMEOUT_MS, MAX_PAYLOAD};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// This client can show approvals.
pub const CAP_APPROVALS: &str = "approvals";
/// This client wants tool events.
pub const CAP_TOOL_EVENTS: &str = "tool-events";

/// Identity of this program in the protocol.
const CLIENT_ID: &str = "cli";
const PLATFORM: &str = "linux";
const FAMILY: &str = "Linux";

/// What a client asks for.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    /// Rights, for example `operator.read`.
    pub scopes: &'a [&'a str],
    /// Abilities.
    pub caps: &'a [&'a str],
    /// Name in lists of devices.
    pub name: &'a str,
}

impl Access<'static> {
    /// Everything the owner may do, without offering to be asked.
    pub const OWNER: Self = Self {
        scopes: &[
            "operator.admin",
            "operator.read",
            "operator.write",
            "operator.approvals",
            "operator.questions",
            "operator.pairing",
        ],
        caps: &[],
        name: "hearth command line",
    };

    /// As [`Access::OWNER`], and this terminal can be asked.
    pub const ASKABLE: Self = Self { caps: &[CAP_APPROVALS, CAP_TOOL_EVENTS], ..Self::OWNER };
}

impl Client {
    /// Connects and is let in.
    ///
    /// # Errors
    /// Exit code 3 when the hub cannot be reached, 5 when it does not let this device in.
    pub async fn connect(target: &Target, access: Access<'_>) -> Result<Self, Failure> {
        let stream = target.dial().await?;
        let limit = Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
        let late = |_| {
            Failure::new(
                Exit::Unreachable,
                format!(
                    "the hub at {} did not finish the handshake within {} s",
                    target.name(),
                    limit.as_secs()
                ),
                "look at `hearth logs`",
            )
        };
        tokio::time::timeout(limit, Self::shake(target, stream, access)).await.map_err(late)?
    }

    async fn shake(
        target: &Target,
        stream: Box<dyn super::Stream>,
        access: Access<'_>,
    ) -> Result<Self, Failure> {
        let mut config = WebSocketConfig::default();
        config.read_buffer_size = 16 * 1024;
        config.max_message_size = Some(MAX_PAYLOAD);
        config.max_frame_size = Some(MAX_PAYLOAD);
        let (socket, _) = client_async_with_config(target.url(), stream, Some(config))
            .await
            .map_err(|e| upgrade_failed(target, &e))?;
        let mut client = Self { socket, next_id: 0, kept: VecDeque::new(), hello: Value::Null };
        let challenge = match client.read().await? {
            Incoming::Event(event) if event.event == "connect.challenge" => event.payload.unwrap_or_default(),
            _ => return Err(not_a_hub(target)),
        };
        let nonce = challenge["nonce"].as_str().ok_or_else(|| not_a_hub(target))?;
        let signed_at_ms = challenge["ts"].as_i64().unwrap_or(crate::store::now_ms() as i64);
        let params = connect_params(target, access, nonce, signed_at_ms);
        let id = client.send("connect", params).await?;
        loop {
            match client.read().await? {
                Incoming::Answer { id: of, result: Ok(hello) } if of == id => {
                    client.hello = hello;
                    return Ok(client);
                }
                Incoming::Answer { id: of, result: Err(error) } if of == id => {
                    return Err(not_let_in(target, &error));
                }
                other => client.kept.push_back(other),
            }
        }
    }
}

fn connect_params(target: &Target, access: Access<'_>, nonce: &str, signed_at_ms: i64) -> Value {
    let key = target.key();
    let (token, auth) = match target {
        Target::Local(local) => (local.token.expose(), json!({ "token": local.token.expose() })),
        Target::Remote(remote) => match &remote.token {
            Some(token) => (token.expose(), json!({ "deviceToken": token.expose() })),
            None => ("", Value::Null),
        },
    };
    let scopes: Vec<String> = access.scopes.iter().map(|s| (*s).to_owned()).collect();
    let device_id = key.device_id().to_string();
    let proof = JsonProof {
        device_id: &device_id,
        client_id: CLIENT_ID,
        client_mode: CLIENT_ID,
        role: "operator",
        scopes: &scopes,
        signed_at_ms,
        token,
        nonce,
        platform: PLATFORM,
        device_family: FAMILY,
    };
    let signature = proof.sign(key).to_string();
    let mut params = json!({
        "minProtocol": PROTOCOL,
        "maxProtocol": PROTOCOL,
        "client": {
            "id": CLIENT_ID,
            "mode": CLIENT_ID,
            "version": hearth_shared::VERSION,
            "displayName": access.name,
            "platform": PLATFORM,
            "deviceFamily": FAMILY,
        },
        "role": "operator",
        "scopes": scopes,
        "caps": access.caps,
        "device": {
            "id": device_id,
            "publicKey": key.public().to_base64url(),
            "signature": signature,
            "signedAt": signed_at_ms,
            "nonce": nonce,
        },
    });
    if !auth.is_null() {
        params["auth"] = auth;
    }
    params
}

fn not_a_hub(target: &Target) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!("what answers at {} is no Hearth hub", target.name()),
        "check the address; `hearth doctor` tells what listens there",
    )
}

fn upgrade_failed(target: &Target, error: &WsError) -> Failure {
    if let WsError::Http(response) = error {
        let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let said = serde_json::from_str::<Value>(&body)
            .ok()
            .and_then(|v| v["error"]["message"].as_str().map(str::to_owned))
            .unwrap_or_default();
        return Failure::new(
            Exit::Unreachable,
            format!("the hub at {} refused: {} {}", target.name(), response.status(), safe_line(&said)),
            "check the address, and `gateway.hosts` in the hub's config.toml",
        );
    }
    Failure::new(
        Exit::Unreachable,
        format!("what answers at {} speaks no WebSocket: {error}", target.name()),
        "check the address; `hearth doctor` tells what listens there",
    )
}

fn not_let_in(target: &Target, error: &ErrorShape) -> Failure {
    let details = error.details.as_ref().unwrap_or(&Value::Null);
    let message = safe_line(&error.message);
    let code = details["code"].as_str().unwrap_or(&error.code);
    match (code, target) {
        ("PAIRING_REQUIRED", _) => Failure::denied(
            format!("the hub at {} does not know this device yet: {message}", target.name()),
            "approve it on the hub with `hearth devices approve`, then run this again",
        ),
        ("AUTH_TOKEN_MISMATCH" | "AUTH_TOKEN_MISSING", Target::Local(_)) => Failure::denied(
            format!("the hub did not take this home's token: {message}"),
            "name the directory of the running hub with --home",
        ),
        _ => Failure::denied(
            format!("the hub at {} did not let this device in: {message}", target.name()),
            "see `hearth devices list` on the hub",
        ),
    }
}
