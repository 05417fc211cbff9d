//! `device.pair.*` and `device.token.*`: who may connect.

use super::{Access, Call, Method, NoParams, encode, method};
use crate::devices::{Device, DeviceError, PendingDevice, Scope};
use crate::gateway::answer::{Answer, Outward as _, forbidden, invalid};
use crate::store::now_ms;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hearth_shared::connect::Role;
use hearth_shared::identity::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

const PAIRING: Access = Access::Operator(Scope::Pairing);

pub(super) const METHODS: &[Method] = &[
    method!("device.pair.list", PAIRING, list, NoParams => DeviceList),
    method!("device.pair.approve", PAIRING, approve, RequestParams => Approved),
    method!("device.pair.reject", PAIRING, reject, RequestParams => Rejected),
    method!("device.pair.remove", PAIRING, remove, DeviceParams => Removed),
    method!("device.pair.rename", PAIRING, rename, RenameParams => Renamed),
    method!("device.pair.setupCode", Access::Operator(Scope::Admin), setup_code, SetupParams => SetupCode),
    method!("device.token.rotate", PAIRING, rotate, TokenParams => Rotated),
    method!("device.token.revoke", PAIRING, revoke, TokenParams => Revoked),
];

/// A device that waits.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingEntry {
    request_id: String,
    device_id: String,
    public_key: String,
    display_name: String,
    platform: String,
    device_family: String,
    client_id: String,
    client_mode: String,
    role: Role,
    roles: Vec<Role>,
    scopes: Vec<String>,
    /// Of a node: what it declares, approved in the same step.
    commands: Vec<String>,
    /// `hearth` or `json`: the protocol it speaks.
    link: String,
    /// Words to compare with those on the device's screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<String>,
    remote_ip: String,
    silent: bool,
    is_repair: bool,
    ts: u64,
}

fn pending(p: &PendingDevice) -> PendingEntry {
    PendingEntry {
        request_id: p.request_id.clone(),
        device_id: p.device_id.to_string(),
        public_key: p.key.to_base64url(),
        display_name: p.name.clone(),
        platform: p.platform.clone(),
        device_family: p.device_family.clone(),
        client_id: p.client_id.clone(),
        client_mode: p.client_mode.clone(),
        role: p.role,
        roles: vec![p.role],
        scopes: scopes(&p.scopes),
        commands: p.surface.clone(),
        link: encode(&p.kind).as_str().unwrap_or_default().to_owned(),
        words: p.words.clone(),
        remote_ip: p.remote_ip.clone(),
        silent: false,
        is_repair: false,
        ts: p.created_ms,
    }
}

/// The same as the payload of `device.pair.requested`.
pub(crate) fn pending_value(p: &PendingDevice) -> Value {
    encode(&pending(p))
}

fn scopes(scopes: &[Scope]) -> Vec<String> {
    scopes.iter().map(|s| s.as_str().to_owned()).collect()
}

/// A known device; no secrets.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeviceEntry {
    device_id: String,
    public_key: String,
    display_name: String,
    platform: String,
    device_family: String,
    client_id: String,
    client_mode: String,
    role: Role,
    roles: Vec<Role>,
    scopes: Vec<String>,
    /// `hearth` or `json`.
    link: String,
    /// `accepted`, `rejected` or `revoked`.
    state: String,
    approved_via: String,
    created_at_ms: u64,
    approved_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_reason: Option<String>,
    connected: bool,
    tokens: Vec<TokenEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TokenEntry {
    role: Role,
    scopes: Vec<String>,
    created_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotated_at_ms: Option<u64>,
}

async fn entry(call: &Call, device: Device) -> Answer<DeviceEntry> {
    let gateway = &call.gateway;
    let tokens = gateway.hub.devices.tokens(device.id).await.map_err(DeviceError::outward)?;
    let connected = gateway.clients.snapshot().iter().any(|c| c.device_id() == Some(device.id))
        || gateway.hub.nodes.connection(&device.id).is_some();
    let granted = scopes(&device.scopes);
    Ok(DeviceEntry {
        device_id: device.id.to_string(),
        public_key: device.key.to_base64url(),
        display_name: device.name,
        platform: device.platform,
        device_family: device.device_family,
        client_id: device.client_id,
        client_mode: device.client_mode,
        role: device.role,
        roles: device.roles,
        link: encode(&device.kind).as_str().unwrap_or_default().to_owned(),
        state: device.state.as_str().to_owned(),
        approved_via: device.approved_via,
        created_at_ms: device.created_ms,
        approved_at_ms: device.approved_ms,
        last_seen_at_ms: device.last_seen_ms,
        last_seen_reason: device.last_seen_reason,
        connected,
        tokens: tokens
            .into_iter()
            .map(|t| TokenEntry {
                role: t.role,
                scopes: if t.role == Role::Operator { granted.clone() } else { Vec::new() },
                created_at_ms: t.created_ms,
                rotated_at_ms: t.rotated_ms,
            })
            .collect(),
        scopes: granted,
    })
}

/// Who waits and who is known.
#[derive(Debug, Serialize, JsonSchema)]
struct DeviceList {
    pending: Vec<PendingEntry>,
    paired: Vec<DeviceEntry>,
}

async fn list(call: Call, _: NoParams) -> Answer<DeviceList> {
    let (waiting, known) = call.gateway.hub.devices.list().await.map_err(DeviceError::outward)?;
    let mut paired = Vec::with_capacity(known.len());
    for device in known {
        paired.push(entry(&call, device).await?);
    }
    Ok(DeviceList { pending: waiting.iter().map(|p| pending(p)).collect(), paired })
}

/// A waiting request: its id, a unique prefix of it, or the device's id or name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequestParams {
    request_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Approved {
    request_id: String,
    device: DeviceEntry,
}

/// Whoever lets an operator in hands out rights; nobody hands out more than he has.
fn may_hand_out(call: &Call, wanted: &[Scope]) -> Answer<()> {
    let missing = wanted.iter().find(|s| !s.satisfied_by(&call.client.scopes));
    match missing {
        Some(scope) => Err(super::missing_scope(*scope)),
        None => Ok(()),
    }
}

async fn approve(call: Call, params: RequestParams) -> Answer<Approved> {
    let devices = &call.gateway.hub.devices;
    let (waiting, _) = devices.list().await.map_err(DeviceError::outward)?;
    if let Some(asks) = waiting.iter().find(|p| {
        p.request_id.starts_with(&params.request_id)
            || p.device_id.to_string().starts_with(&params.request_id)
            || p.name == params.request_id
    }) {
        may_hand_out(&call, &asks.scopes)?;
    }
    let device =
        devices.approve(&params.request_id, &call.client.label()).await.map_err(DeviceError::outward)?;
    Ok(Approved { request_id: params.request_id, device: entry(&call, device).await? })
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Rejected {
    request_id: String,
    device_id: String,
}

async fn reject(call: Call, params: RequestParams) -> Answer<Rejected> {
    let by = call.client.label();
    let id = call.gateway.hub.devices.reject(&params.request_id, &by).await.map_err(DeviceError::outward)?;
    Ok(Rejected { request_id: params.request_id, device_id: id.to_string() })
}

/// A known device: its id, a unique prefix of it, or its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeviceParams {
    device_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Removed {
    device_id: String,
}

async fn remove(call: Call, params: DeviceParams) -> Answer<Removed> {
    let by = call.client.label();
    let id = call.gateway.hub.devices.remove(&params.device_id, &by).await.map_err(DeviceError::outward)?;
    Ok(Removed { device_id: id.to_string() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RenameParams {
    device_id: String,
    /// At most 64 characters.
    #[schemars(length(min = 1, max = 64))]
    label: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Renamed {
    device_id: String,
    label: String,
}

/// A name as people type it.
pub(super) fn check_name(name: &str) -> Answer<()> {
    let length = name.trim().chars().count();
    if length == 0 || length > hearth_shared::limits::MAX_NAME_CHARS {
        return Err(invalid("a name has 1 to 64 characters"));
    }
    Ok(())
}

async fn rename(call: Call, params: RenameParams) -> Answer<Renamed> {
    check_name(&params.label)?;
    let devices = &call.gateway.hub.devices;
    let id = devices.rename(&params.device_id, &params.label).await.map_err(DeviceError::outward)?;
    Ok(Renamed { device_id: id.to_string(), label: params.label })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenParams {
    device_id: String,
    role: Role,
    /// Rights cannot be changed by rotating; taken if they are those the device has.
    scopes: Option<Vec<String>>,
}

/// Own operator tokens may be handled by everybody who may pair; everything else takes an admin.
async fn token_device(call: &Call, params: &TokenParams) -> Answer<Device> {
    let device = call.gateway.hub.devices.find(&params.device_id).await.map_err(DeviceError::outward)?;
    let own = params.role == Role::Operator && call.client.device_id() == Some(device.id);
    if !own {
        call.require(Scope::Admin)?;
    }
    if let Some(wanted) = &params.scopes
        && wanted.iter().any(|w| !Scope::parse(w).is_some_and(|s| s.satisfied_by(&device.scopes)))
    {
        return Err(forbidden("a token cannot hold more rights than were approved for its device"));
    }
    Ok(device)
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Rotated {
    device_id: String,
    role: Role,
    scopes: Vec<String>,
    rotated_at_ms: u64,
    /// `in-band` to the device itself, else `withheld-cross-device`.
    token_delivery: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

async fn rotate(call: Call, params: TokenParams) -> Answer<Rotated> {
    let device = token_device(&call, &params).await?;
    let by = call.client.label();
    let devices = &call.gateway.hub.devices;
    let (id, token) =
        devices.rotate(&device.id.to_string(), params.role, &by).await.map_err(DeviceError::outward)?;
    let own = call.client.device_id() == Some(id) && call.client.role == params.role;
    Ok(Rotated {
        device_id: id.to_string(),
        role: params.role,
        scopes: if params.role == Role::Operator { scopes(&device.scopes) } else { Vec::new() },
        rotated_at_ms: now_ms(),
        token_delivery: if own { "in-band" } else { "withheld-cross-device" }.into(),
        // To the device that asked, over its own proved connection.
        token: own.then(|| token.expose().to_owned()),
    })
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    device_id: String,
    role: Role,
    revoked_at_ms: u64,
}

async fn revoke(call: Call, params: TokenParams) -> Answer<Revoked> {
    let device = token_device(&call, &params).await?;
    let by = call.client.label();
    let devices = &call.gateway.hub.devices;
    let id =
        devices.revoke_token(&device.id.to_string(), params.role, &by).await.map_err(DeviceError::outward)?;
    Ok(Revoked { device_id: id.to_string(), role: params.role, revoked_at_ms: now_ms() })
}

/// A code for foreign JSON nodes; our own nodes pair with `hearth pair`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SetupParams {
    /// Address to put into the code; this hub's first one when left out.
    public_url: Option<String>,
    #[serde(rename = "preferRemoteUrl")]
    _prefer_remote_url: Option<bool>,
    /// Also as a picture for phones.
    include_qr: Option<bool>,
    /// Only `node` is offered.
    bootstrap_profile: Option<String>,
    #[serde(rename = "joinUrl")]
    _join_url: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SetupCode {
    setup_id: String,
    setup_code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    qr_data_url: Option<String>,
    gateway_url: String,
    auth: String,
    url_source: String,
    access: String,
    expires_at_ms: u64,
}

async fn setup_code(call: Call, params: SetupParams) -> Answer<SetupCode> {
    if params.bootstrap_profile.as_deref().is_some_and(|p| p != "node") {
        return Err(invalid("only the bootstrapProfile `node` is offered: operators are let in by a person"));
    }
    let gateway = &call.gateway;
    let (url, source) = match params.public_url {
        Some(url) if url.starts_with("wss://") || url.starts_with("ws://127.0.0.1:") => {
            (url, "request.publicUrl")
        }
        Some(_) => return Err(invalid("publicUrl must begin with wss:// (or ws://127.0.0.1:)")),
        None => {
            let address = gateway.addresses.first().copied();
            let address = address.ok_or_else(|| invalid("this hub has no address"))?;
            let scheme = if address.ip().is_loopback() { "ws" } else { "wss" };
            (format!("{scheme}://{address}"), "gateway.bind")
        }
    };
    let ttl = Duration::from_secs(gateway.hub.config.pairing.window_s);
    let address = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest).to_owned();
    let window = gateway.hub.devices.open_window(ttl, vec![address]).await.map_err(DeviceError::outward)?;
    let secret = &window.contents.secret;
    let contents = json!({
        "url": url,
        "bootstrapToken": URL_SAFE_NO_PAD.encode(secret.0),
        "expiresAtMs": window.expires_ms,
        "tlsFingerprint": gateway.hub.keys.spki,
    });
    let code = URL_SAFE_NO_PAD.encode(contents.to_string());
    let qr = params.include_qr.unwrap_or(false).then(|| qr_data_url(&format!("oc-pair://{code}"))).flatten();
    Ok(SetupCode {
        setup_id: DeviceId(secret.digest().0).short(),
        setup_code: code,
        qr_data_url: qr,
        gateway_url: url,
        auth: "token".into(),
        url_source: source.into(),
        access: "node".into(),
        expires_at_ms: window.expires_ms,
    })
}

/// A QR code as SVG in a data URL.
fn qr_data_url(text: &str) -> Option<String> {
    let code = qrcode::QrCode::new(text).ok()?;
    let width = code.width();
    let mut path = String::new();
    for (i, _) in code.to_colors().iter().enumerate().filter(|(_, c)| **c == qrcode::Color::Dark) {
        path.push_str(&format!("M{} {}h1v1h-1z", i % width + 4, i / width + 4));
    }
    let side = width + 8;
    let svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {side} {side}'>\
         <path fill='#fff' d='M0 0h{side}v{side}H0z'/><path d='{path}'/></svg>"
    );
    Some(format!("data:image/svg+xml;base64,{}", base64::engine::general_purpose::STANDARD.encode(svg)))
}
