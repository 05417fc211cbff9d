//! The pairing window of our own nodes.

use crate::devices::{DeviceError, Scope};
use crate::gateway::Gateway;
use crate::gateway::answer::{Answer, Outward as _, forbidden, invalid};
use crate::gateway::methods::{Access, Call, Method, NoParams, method};
use hearth_shared::identity::{DeviceId, Digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

const ADMIN: Access = Access::Operator(Scope::Admin);
const PAIRING: Access = Access::Operator(Scope::Pairing);

pub(super) const OPEN: Method = method!("hearth.pair.open", ADMIN, open, OpenParams => Opened);
pub(super) const CLOSE: Method = method!("hearth.pair.close", PAIRING, close, NoParams => Window);
pub(super) const STATUS: Method = method!("hearth.pair.status", PAIRING, status, NoParams => Window);
pub(super) const REVOKE: Method = method!("hearth.device.revoke", ADMIN, revoke, DeviceParams => Revoked);

/// Longest window.
pub(super) const MAX_WINDOW_MS: u64 = 24 * 3_600_000;
/// Addresses a code may carry.
const MAX_ADDRESSES: usize = 8;

/// Opens the window and makes a setup code. Only for programs on this machine: the code lets a node in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OpenParams {
    /// How long, at most a day; `pairing.window_s` when left out.
    #[schemars(range(min = 1000, max = 86_400_000))]
    ttl_ms: Option<u64>,
    /// `host:port` to put into the code; where this hub listens when left out.
    addresses: Option<Vec<String>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Opened {
    /// The setup code; whoever has it can pair one node.
    code: String,
    expires_at_ms: u64,
    addresses: Vec<String>,
    /// True when nothing but this machine can reach these addresses.
    loopback_only: bool,
    hub_id: DeviceId,
    tls_pin: Digest,
    /// Persons whose keys the code carries.
    approvers: Vec<String>,
}

async fn open(call: Call, params: OpenParams) -> Answer<Opened> {
    if !call.client.local {
        return Err(forbidden(
            "a setup code is shown on the hub's own machine only: run `hearth pair` there",
        ));
    }
    let gateway = &call.gateway;
    let ttl = params.ttl_ms.unwrap_or(gateway.hub.config.pairing.window_s * 1000);
    if !(1000..=MAX_WINDOW_MS).contains(&ttl) {
        return Err(invalid(format!("ttlMs must be 1000 to {MAX_WINDOW_MS}")));
    }
    let addresses = params.addresses.unwrap_or_else(|| reachable(gateway));
    let well_formed = |a: &String| {
        a.len() <= 255 && a.rsplit_once(':').is_some_and(|(h, p)| !h.is_empty() && p.parse::<u16>().is_ok())
    };
    if addresses.is_empty() || addresses.len() > MAX_ADDRESSES || !addresses.iter().all(well_formed) {
        return Err(invalid("addresses must be 1 to 8 of the form host:port"));
    }
    let loopback_only = gateway.addresses.iter().all(|a| a.ip().is_loopback());
    let window = gateway
        .hub
        .devices
        .open_window(Duration::from_millis(ttl), addresses)
        .await
        .map_err(DeviceError::outward)?;
    Ok(Opened {
        // To be shown on this machine, on the owner's own request.
        code: window.code.expose().to_owned(),
        expires_at_ms: window.expires_ms,
        addresses: window.contents.addresses,
        loopback_only,
        hub_id: window.contents.hub.device_id(),
        tls_pin: window.contents.spki,
        approvers: window
            .contents
            .approvers
            .iter()
            .filter(|a| a.is_person())
            .map(|a| a.name.clone())
            .collect(),
    })
}

/// Where nodes can reach this hub: configured names, then the addresses it listens on. A wildcard stands
/// for the address this machine uses towards the network.
pub(super) fn reachable(gateway: &Gateway) -> Vec<String> {
    let port = gateway.addresses.first().map_or(0, SocketAddr::port);
    let hosts = &gateway.hub.config.gateway.hosts;
    let mut all: Vec<String> = Vec::new();
    for address in &gateway.addresses {
        let ips = if address.ip().is_unspecified() { outward(address.ip()) } else { vec![address.ip()] };
        all.extend(ips.into_iter().map(|ip| SocketAddr::new(ip, address.port()).to_string()));
    }
    if !gateway.addresses.iter().all(|a| a.ip().is_loopback()) {
        all.extend(hosts.iter().map(|h| format!("{h}:{port}")));
    }
    // What only this machine reaches comes last.
    all.sort_by_key(|a| is_local(a));
    all.dedup();
    all.truncate(MAX_ADDRESSES);
    all
}

/// Where other machines reach this hub; empty when only this one can.
pub(super) fn network_addresses(gateway: &Gateway) -> Vec<String> {
    if gateway.addresses.iter().all(|a| a.ip().is_loopback()) {
        return Vec::new();
    }
    let port = gateway.addresses.first().map_or(0, SocketAddr::port);
    let mut all = reachable(gateway);
    all.retain(|a| !is_local(a));
    all.push(format!("{}:{port}", crate::cert::names::LOCAL_NAME));
    all
}

/// Whether `host:port` is on loopback.
pub(super) fn is_local(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|a| a.ip().is_loopback())
}

/// This machine's address towards the network: connecting a UDP socket sends nothing, but makes the system
/// choose the route.
fn outward(wildcard: IpAddr) -> Vec<IpAddr> {
    let towards = |from: IpAddr, to: IpAddr| -> Option<IpAddr> {
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).ok()?;
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_unspecified()).then_some(ip)
    };
    // Documentation addresses: never on the way to anything.
    let v4 = || towards(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let v6 = || towards(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into());
    let mut ips: Vec<IpAddr> = match wildcard {
        IpAddr::V4(_) => v4().into_iter().collect(),
        IpAddr::V6(_) => v4().into_iter().chain(v6()).collect(),
    };
    ips.push(Ipv4Addr::LOCALHOST.into());
    ips
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Window {
    open: bool,
    expires_at_ms: Option<u64>,
    knocks_while_closed: u64,
}

fn window(gateway: &Gateway) -> Window {
    let now = gateway.hub.devices.window();
    Window { open: now.open, expires_at_ms: now.expires_ms, knocks_while_closed: now.knocks_while_closed }
}

async fn close(call: Call, _: NoParams) -> Answer<Window> {
    call.gateway.hub.devices.close_window().await;
    Ok(window(&call.gateway))
}

async fn status(call: Call, _: NoParams) -> Answer<Window> {
    Ok(window(&call.gateway))
}

/// A device: its id, a unique prefix of it, or its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeviceParams {
    device_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    device_id: DeviceId,
}

/// It may not come back until it is removed.
async fn revoke(call: Call, params: DeviceParams) -> Answer<Revoked> {
    let by = call.client.label();
    let devices = &call.gateway.hub.devices;
    let device_id = devices.revoke(&params.device_id, &by).await.map_err(DeviceError::outward)?;
    Ok(Revoked { device_id })
}
