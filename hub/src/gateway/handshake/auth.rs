//! Secrets and known devices: who is let in, as what, with which rights.
//!
//! ```text
//! secret shown                 device key proved       not proved
//! gateway token                pairing below           loopback, no Origin: declared scopes, never decides
//! setup code, page link        admitted, used up       refused
//! device token                 accepted device         refused
//! none                         first visit after a     refused
//!                              person's approval, or a
//!                              knock in an open window
//!
//! pairing: accepted device ► in; unknown and local and allowed ► admitted; else ► knock, NOT_PAIRED
//! ```

use super::Refusal;
use super::device::Proved;
use super::params::{AuthParams, ClientId, ClientMode, ConnectParams};
use crate::devices::{Device, DeviceError, DeviceState, Knocked, LinkKind, PendingDevice, Scope};
use crate::gateway::answer::{Outward as _, invalid};
use crate::gateway::http::Conn;
use crate::gateway::json_node;
use crate::gateway::rate::{Secret, Who};
use crate::store::now_ms;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hearth_shared::connect::Role;
use hearth_shared::frame::ErrorShape;
use hearth_shared::identity::SecretText;
use hearth_shared::pairing::CodeSecret;
use serde_json::json;
use std::time::{Duration, Instant};

/// What a client was given.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) method: &'static str,
    pub(super) scopes: Vec<Scope>,
    pub(super) device: Option<Device>,
    /// Its device token, to be kept by it.
    pub(super) token: Option<SecretText>,
}

/// Which secret fitted.
enum Shown {
    Shared,
    Bootstrap(CodeSecret),
    DeviceToken(SecretText),
    None,
}

pub(super) async fn authorise(
    conn: &Conn,
    params: &ConnectParams,
    role: Role,
    proved: Option<Proved>,
    local_trust: bool,
) -> Result<Grant, Refusal> {
    let shown = secret(conn, &params.auth, role, proved).await?;
    let Some(proved) = proved else { return without_device(params, role, &shown, local_trust) };
    let asks = || asks(conn, params, role, proved);
    let devices = &conn.gateway.hub.devices;
    match shown {
        Shown::Bootstrap(code) => {
            // Nodes hold setup codes, pages hold links; which of the two it is, the database knows.
            let fits = match role {
                Role::Node => params.client.id == ClientId::NodeHost,
                Role::Operator => params.client.id == ClientId::WebchatUi,
            };
            if !fits {
                return Err(bootstrap_invalid(conn, proved));
            }
            let device = match devices.redeem(&code, asks(), "bootstrap").await {
                Ok(device) => device,
                Err(DeviceError::BadCode) => return Err(bootstrap_invalid(conn, proved)),
                Err(error) => return Err(refused(&error, proved, role)),
            };
            issue(conn, device, role, params, "bootstrap-token").await
        }
        Shown::DeviceToken(token) => {
            let device = accepted(conn, proved).await?;
            let scopes = granted(&device, params, role);
            Ok(Grant { method: "device-token", scopes, device: Some(device), token: Some(token) })
        }
        Shown::Shared => {
            let device = paired(conn, params, role, asks(), local_trust).await?;
            issue(conn, device, role, params, "token").await
        }
        Shown::None => {
            let device = first_visit(conn, role, asks()).await?;
            issue(conn, device, role, params, "device-token").await
        }
    }
}

/// Finds the secret that fits, or says what is wrong with those that were shown. Failures are counted per
/// kind; whoever proves a device's key is counted by that device, so no stranger can lock him out.
async fn secret(
    conn: &Conn,
    auth: &AuthParams,
    role: Role,
    proved: Option<Proved>,
) -> Result<Shown, Refusal> {
    let hub = &conn.gateway.hub;
    let limits = &conn.gateway.auth_limits;
    let now = Instant::now();
    let address = Who::Address(conn.peer.ip());
    let shared = [&auth.token, &auth.password].into_iter().flatten();
    let mut shared_wrong = false;
    for candidate in shared {
        // From elsewhere a blocked address is not even compared; this machine's own owner still gets in.
        let blocked = limits.blocked(Secret::Shared, address, now);
        let fits = hub.keys.token.matches(candidate.expose());
        if fits && (blocked.is_none() || conn.peer.ip().is_loopback()) {
            limits.succeeded(Secret::Shared, address);
            return Ok(Shown::Shared);
        }
        shared_wrong = true;
    }
    if let (Some(token), Some(proved)) = (&auth.bootstrap_token, proved) {
        if let Some(wait) = limits.blocked(Secret::Bootstrap, address, now) {
            return Err(rate_limited(wait));
        }
        let bytes = URL_SAFE_NO_PAD.decode(token.expose()).ok().and_then(|b| <[u8; 32]>::try_from(b).ok());
        return bytes.map(|b| Shown::Bootstrap(CodeSecret(b))).ok_or_else(|| bootstrap_invalid(conn, proved));
    }
    let mut device_wrong = false;
    if let (Some(token), Some(proved)) = (auth.device_token.as_ref().or(auth.token.as_ref()), proved) {
        let who = Who::Device(proved.id);
        if let Some(wait) = limits.blocked(Secret::Device, who, now) {
            return Err(rate_limited(wait));
        }
        let fits = hub.devices.check_token(proved.id, role, token.expose()).await;
        if fits.map_err(DeviceError::outward)? {
            limits.succeeded(Secret::Device, who);
            return Ok(Shown::DeviceToken(token.clone()));
        }
        if auth.device_token.is_some() {
            limits.failed(Secret::Device, who, now);
            device_wrong = true;
        }
    }
    if device_wrong {
        return Err(unauthorized(
            "device token mismatch (pair the device again or use the gateway token)",
            "AUTH_DEVICE_TOKEN_MISMATCH",
            "device_token_mismatch",
            false,
            "update_auth_credentials",
        ));
    }
    if shared_wrong {
        limits.failed(Secret::Shared, address, now);
        if let Some(wait) = limits.blocked(Secret::Shared, address, now) {
            return Err(rate_limited(wait));
        }
        let known = proved.is_some();
        return Err(unauthorized(
            "gateway token mismatch (use this hub's token, the file `token` in its home, or pair the device)",
            "AUTH_TOKEN_MISMATCH",
            "token_mismatch",
            known,
            if known { "retry_with_device_token" } else { "update_auth_credentials" },
        ));
    }
    Ok(Shown::None)
}

/// Programs of this machine's owner that have no key of their own: they hold the token file.
fn without_device(
    params: &ConnectParams,
    role: Role,
    shown: &Shown,
    local_trust: bool,
) -> Result<Grant, Refusal> {
    let known_shape = matches!(
        (params.client.id, params.client.mode),
        (ClientId::Cli, ClientMode::Cli)
            | (ClientId::GatewayClient, ClientMode::Backend)
            | (ClientId::Test, ClientMode::Test)
            | (ClientId::Cli | ClientId::GatewayClient | ClientId::Probe, ClientMode::Probe)
    );
    if !(matches!(shown, Shown::Shared) && local_trust && known_shape && role == Role::Operator) {
        return Err(ErrorShape::new("NOT_PAIRED", "device identity required")
            .with_details(json!({ "code": "DEVICE_IDENTITY_REQUIRED" }))
            .into());
    }
    let scopes = params.scopes.iter().filter_map(|s| Scope::parse(s)).collect();
    Ok(Grant { method: "token", scopes, device: None, token: None })
}

fn asks(conn: &Conn, params: &ConnectParams, role: Role, proved: Proved) -> PendingDevice {
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    let name = params.client.display_name.clone().unwrap_or_else(|| params.client.id.as_str().to_owned());
    let surface = if role == Role::Node {
        json_node::policy::surface(&params.commands, proved.id, &conn.gateway.hub.config.nodes)
    } else {
        Vec::new()
    };
    PendingDevice {
        request_id: String::new(),
        key: proved.key,
        device_id: proved.id,
        name,
        role,
        kind: LinkKind::Json,
        platform: params.client.platform.clone(),
        device_family: text(&params.client.device_family),
        client_id: params.client.id.as_str().into(),
        client_mode: params.client.mode.as_str().into(),
        scopes: wanted(params, role),
        surface,
        words: None,
        remote_ip: conn.peer.ip().to_string(),
        created_ms: now_ms(),
    }
}

/// Rights a client asks for; nodes have none.
fn wanted(params: &ConnectParams, role: Role) -> Vec<Scope> {
    match role {
        Role::Operator => params.scopes.iter().filter_map(|s| Scope::parse(s)).collect(),
        Role::Node => Vec::new(),
    }
}

/// Rights of this connection: what was approved for the device, less what it does not ask for.
fn granted(device: &Device, params: &ConnectParams, role: Role) -> Vec<Scope> {
    let mut scopes = wanted(params, role);
    scopes.retain(|s| s.satisfied_by(&device.scopes));
    scopes
}

async fn known(conn: &Conn, proved: Proved) -> Result<Option<Device>, Refusal> {
    Ok(conn.gateway.hub.devices.get(proved.id).await.map_err(DeviceError::outward)?)
}

async fn accepted(conn: &Conn, proved: Proved) -> Result<Device, Refusal> {
    match known(conn, proved).await? {
        Some(device) if device.state == DeviceState::Accepted => Ok(device),
        _ => Err(token_missing()),
    }
}

/// With the gateway token: known devices come in; this machine's own are admitted where the configuration
/// says so; everybody else waits for a person.
async fn paired(
    conn: &Conn,
    params: &ConnectParams,
    role: Role,
    asks: PendingDevice,
    local_trust: bool,
) -> Result<Device, Refusal> {
    let devices = &conn.gateway.hub.devices;
    let proved = Proved { id: asks.device_id, key: asks.key };
    let device = known(conn, proved).await?;
    let silent = local_trust && conn.gateway.hub.config.gateway.auto_approve_local;
    let complete = |d: &Device| {
        d.state == DeviceState::Accepted
            && d.kind == LinkKind::Json
            && d.roles.contains(&role)
            && wanted(params, role).iter().all(|s| s.satisfied_by(&d.scopes))
    };
    match device {
        Some(device) if complete(&device) => Ok(device),
        // A device that is a node stays one: only a person may make it an operator too.
        Some(device) if silent && device.roles.contains(&Role::Operator) => {
            admit(conn, asks, proved, role).await
        }
        None if silent => admit(conn, asks, proved, role).await,
        Some(device) if device.roles.contains(&role) => devices.ask_upgrade(asks).await.map_or_else(
            |error| Err(refused(&error, proved, role)),
            |pending| Err(not_paired(&pending, "scope-upgrade", Some(&device))),
        ),
        Some(device) => devices.ask_upgrade(asks).await.map_or_else(
            |error| Err(refused(&error, proved, role)),
            |pending| Err(not_paired(&pending, "role-upgrade", Some(&device))),
        ),
        None => knock(conn, asks, proved, role).await,
    }
}

async fn admit(conn: &Conn, mut asks: PendingDevice, proved: Proved, role: Role) -> Result<Device, Refusal> {
    // Nobody looked at what it declares: its surface waits for a person.
    asks.surface.clear();
    let admitted = conn.gateway.hub.devices.admit(asks, "silent").await;
    admitted.map_err(|error| refused(&error, proved, role))
}

async fn knock(conn: &Conn, asks: PendingDevice, proved: Proved, role: Role) -> Result<Device, Refusal> {
    match conn.gateway.hub.devices.knock(asks).await {
        Ok(Knocked::Accepted(device)) => Ok(*device),
        Ok(Knocked::Pending(pending)) => Err(not_paired(&pending, "not-paired", None)),
        Err(error) => Err(refused(&error, proved, role)),
    }
}

/// A device that proved its key and has no secret yet: it may knock while the window is open, and fetch
/// its first token once a person has approved it. Later visits need the token.
async fn first_visit(conn: &Conn, role: Role, asks: PendingDevice) -> Result<Device, Refusal> {
    let proved = Proved { id: asks.device_id, key: asks.key };
    match known(conn, proved).await? {
        Some(device)
            if device.state == DeviceState::Accepted
                && device.kind == LinkKind::Json
                && device.roles.contains(&role)
                && device.last_seen_ms.is_none() =>
        {
            Ok(device)
        }
        Some(_) => Err(token_missing()),
        None if !conn.gateway.hub.devices.window().open => {
            conn.gateway.hub.devices.count_closed_knock();
            Err(token_missing())
        }
        None => match conn.gateway.hub.devices.knock(asks).await {
            Ok(Knocked::Accepted(_)) | Err(DeviceError::WindowClosed) => Err(token_missing()),
            Ok(Knocked::Pending(pending)) => Err(not_paired(&pending, "not-paired", None)),
            Err(error) => Err(refused(&error, proved, role)),
        },
    }
}

async fn issue(
    conn: &Conn,
    device: Device,
    role: Role,
    params: &ConnectParams,
    method: &'static str,
) -> Result<Grant, Refusal> {
    let devices = &conn.gateway.hub.devices;
    // Only the digest of a token is kept, so an old one cannot be told again; and a new one at every
    // visit would void what another program of the same device holds.
    let has_one =
        devices.tokens(device.id).await.map_err(DeviceError::outward)?.iter().any(|t| t.role == role);
    let token = if has_one && method != "bootstrap-token" {
        None
    } else {
        Some(devices.issue_token(device.id, role).await.map_err(DeviceError::outward)?)
    };
    let scopes = granted(&device, params, role);
    Ok(Grant { method, scopes, device: Some(device), token })
}

fn unauthorized(what: &str, code: &str, reason: &str, retry: bool, next: &str) -> Refusal {
    invalid(format!("unauthorized: {what}"))
        .with_details(json!({
            "code": code,
            "authReason": reason,
            "canRetryWithDeviceToken": retry,
            "recommendedNextStep": next,
        }))
        .into()
}

fn token_missing() -> Refusal {
    unauthorized(
        "gateway token missing (use this hub's token, the file `token` in its home, or pair the device with `hearth pair`)",
        "AUTH_TOKEN_MISSING",
        "token_missing",
        false,
        "update_auth_configuration",
    )
}

fn bootstrap_invalid(conn: &Conn, proved: Proved) -> Refusal {
    tracing::info!(peer = %conn.peer, device = %proved.id.short(), "setup code refused");
    conn.gateway.auth_limits.failed(Secret::Bootstrap, Who::Address(conn.peer.ip()), Instant::now());
    unauthorized(
        "setup code or link invalid, expired, revoked, or already used (make a new one with `hearth pair` or `hearth page`)",
        "AUTH_BOOTSTRAP_TOKEN_INVALID",
        "bootstrap_token_invalid",
        false,
        "review_auth_configuration",
    )
}

fn rate_limited(wait: Duration) -> Refusal {
    let mut error = invalid("unauthorized: too many failed attempts; wait and retry").with_details(json!({
        "code": "AUTH_RATE_LIMITED",
        "authReason": "rate_limited",
        "canRetryWithDeviceToken": false,
        "recommendedNextStep": "wait_then_retry",
    }));
    error.retryable = Some(true);
    error.retry_after_ms = u64::try_from(wait.as_millis()).ok();
    error.into()
}

/// The documented form of "a person must let you in first"; the request is in the pending list.
fn not_paired(pending: &PendingDevice, reason: &str, known: Option<&Device>) -> Refusal {
    let why = match reason {
        "role-upgrade" => "device asks for a role it is not approved for",
        "scope-upgrade" => "device asks for more scopes than currently approved",
        _ => "device is not approved yet",
    };
    let message = format!("pairing required: {why}");
    let mut details = json!({
        "code": "PAIRING_REQUIRED",
        "reason": reason,
        "requestId": pending.request_id,
        "remediationHint": "Approve this device from the pending pairing requests (`hearth devices`).",
        "deviceId": pending.device_id,
        "requestedRole": pending.role,
        "recommendedNextStep": "wait_then_retry",
        "retryable": true,
        "pauseReconnect": false,
    });
    if pending.role == Role::Operator {
        details["requestedScopes"] = pending.scopes.iter().map(|s| s.as_str()).collect();
    }
    if let Some(device) = known {
        details["approvedRoles"] = json!(device.roles);
        details["approvedScopes"] = device.scopes.iter().map(|s| s.as_str()).collect();
    }
    let reason = format!("{message} (requestId: {})", pending.request_id);
    let error = ErrorShape::new("NOT_PAIRED", message).with_details(details);
    Refusal { reason: Some(reason), ..error.into() }
}

/// Not let in, and nobody is asked: the window is closed, too many wait, or a person said no before.
fn refused(error: &DeviceError, proved: Proved, role: Role) -> Refusal {
    let reason = match error {
        DeviceError::WindowClosed => "pairing-closed",
        DeviceError::TooMany(_) => "too-many-pending",
        DeviceError::WrongKind => "wrong-kind",
        DeviceError::Refused(_) => "refused",
        _ => "not-paired",
    };
    let message = match error {
        DeviceError::Store(_) | DeviceError::Identity(_) => "the hub could not answer; see its log".into(),
        other => other.to_string(),
    };
    ErrorShape::new("NOT_PAIRED", format!("pairing required: {message}"))
        .with_details(json!({
            "code": "PAIRING_REQUIRED",
            "reason": reason,
            "remediationHint": message,
            "deviceId": proved.id,
            "requestedRole": role,
        }))
        .into()
}
