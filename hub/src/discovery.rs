//! Being found on the network (mDNS, RFC 6762 and 6763).
//!
//! A hub that listens on the network answers for `hearth.local`, and announces itself as `_hearth._tcp` and as
//! `_openclaw-gw._tcp`, so that people, nodes and OpenClaw's programs find it. Where a second hub has the name
//! already, it takes the one from its id (`hearth-1a2b3c.local`); its certificate knows both.
//!
//! What is announced is a hint and never a reason to trust: anybody on the network may say the same.

use crate::cert::names::{LOCAL_NAME, unique_name};
use crate::config::Config;
use crate::hub::Tasks;
use crate::keys::HubKeys;
use hearth_shared::identity::DeviceId;
use mdns_sd::{DaemonEvent, IfKind, ServiceDaemon, ServiceInfo};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Our own service, and the one that OpenClaw's programs look for.
const SERVICES: [&str; 2] = ["_hearth._tcp.local.", "_openclaw-gw._tcp.local."];
/// How often the machine's addresses are looked at, in seconds.
const LOOK_EVERY_S: u32 = 30;
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);
/// Longest label of a name (RFC 1035).
const MAX_LABEL: usize = 63;

/// What is announced.
#[derive(Debug, Clone)]
struct Announcement {
    hub: DeviceId,
    name: String,
    port: u16,
    /// Fixed addresses; empty stands for those of every interface.
    addresses: Vec<IpAddr>,
    ipv6: bool,
}

/// Announces the hub until it stops, if it listens on the network and the configuration lets it.
pub fn start(tasks: &Tasks, config: &Config, keys: &HubKeys, bound: &[SocketAddr]) {
    let reachable: Vec<&SocketAddr> = bound.iter().filter(|a| !a.ip().is_loopback()).collect();
    let Some(first) = reachable.first() else { return };
    if !config.discovery.mdns {
        return;
    }
    let wildcard = reachable.iter().any(|a| a.ip().is_unspecified());
    let announcement = Announcement {
        hub: keys.identity.device_id(),
        name: label(&config.gateway.display_name()),
        port: first.port(),
        addresses: if wildcard { Vec::new() } else { reachable.iter().map(|a| a.ip()).collect() },
        ipv6: reachable.iter().any(|a| a.is_ipv6()),
    };
    let stop = tasks.stop.clone();
    tasks.spawn(async move {
        if let Err(error) = announce(&announcement, stop.cancelled()).await {
            tracing::warn!(%error, "the hub cannot be found by name on the network; its address works");
        }
    });
}

/// Runs the responder until `stop`.
async fn announce(what: &Announcement, stop: impl Future<Output = ()>) -> Result<(), mdns_sd::Error> {
    let daemon = ServiceDaemon::new()?;
    daemon.disable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
    if !what.ipv6 {
        daemon.disable_interface(IfKind::IPv6)?;
    }
    daemon.set_ip_check_interval(LOOK_EVERY_S)?;
    let events = daemon.monitor()?;
    register(&daemon, what, LOCAL_NAME)?;
    let mut host = LOCAL_NAME.to_owned();
    let mut stop = std::pin::pin!(stop);
    loop {
        let event = tokio::select! {
            () = &mut stop => break,
            event = events.recv_async() => event,
        };
        match event {
            Ok(DaemonEvent::NameChange(change)) if host == LOCAL_NAME && is_host(&change.original) => {
                host = unique_name(what.hub);
                tracing::info!(
                    name = host,
                    "{LOCAL_NAME} is another hub's; this one answers to its own name"
                );
                register(&daemon, what, &host)?;
            }
            Ok(DaemonEvent::Error(error)) => tracing::debug!(%error, "mDNS"),
            Ok(event) => tracing::trace!(?event, "mDNS"),
            Err(_) => return Err(mdns_sd::Error::Msg("the responder ended".into())),
        }
    }
    // Others forget the name at once instead of when it runs out.
    if let Ok(ended) = daemon.shutdown() {
        let _ = tokio::time::timeout(GOODBYE, ended.recv_async()).await;
    }
    Ok(())
}

fn is_host(name: &str) -> bool {
    name.trim_end_matches('.').eq_ignore_ascii_case(LOCAL_NAME)
}

/// Registers the services under a host name; those of the same instance are replaced.
fn register(daemon: &ServiceDaemon, what: &Announcement, host: &str) -> Result<(), mdns_sd::Error> {
    let hub = what.hub.to_string();
    let port = what.port.to_string();
    let ours = vec![("v", "1"), ("hub", hub.as_str()), ("tls", "1")];
    let theirs = vec![
        ("role", "gateway"),
        ("transport", "gateway"),
        ("displayName", what.name.as_str()),
        ("lanHost", host),
        ("gatewayPort", port.as_str()),
        ("gatewayTls", "1"),
    ];
    for (service, properties) in SERVICES.into_iter().zip([ours, theirs]) {
        let mut info = ServiceInfo::new(
            service,
            &what.name,
            &format!("{host}."),
            &what.addresses[..],
            what.port,
            &properties[..],
        )?;
        if what.addresses.is_empty() {
            info = info.enable_addr_auto();
        }
        daemon.register(info)?;
    }
    Ok(())
}

/// The hub's name as the label of a service: at most 63 bytes, no control characters.
fn label(name: &str) -> String {
    let clean: String = name.chars().filter(|c| !c.is_control() && *c != '.').collect();
    let mut end = clean.len().min(MAX_LABEL);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    let cut = clean[..end].trim();
    if cut.is_empty() { "Hearth".into() } else { cut.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_labels() {
        assert_eq!(label("attic"), "attic");
        assert_eq!(label(" a.b\n "), "ab");
        assert_eq!(label("..."), "Hearth");
        assert!(label(&"家".repeat(64)).len() <= MAX_LABEL);
    }
}
