//! By which names and addresses this hub is reached.

use crate::config::GatewayConfig;
use hearth_shared::identity::DeviceId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The name every hub asks for on its network.
pub const LOCAL_NAME: &str = "hearth.local";
/// Addresses a certificate names at most: a machine with many containers has as many interfaces.
const MAX_ADDRESSES: usize = 32;

/// The name that no second hub on the same network wants: from the hub's id.
#[must_use]
pub fn unique_name(hub: DeviceId) -> String {
    format!("hearth-{}.local", &hub.to_string()[..6])
}

/// Every host name that is this hub's, lower case, the most likely first.
#[must_use]
pub fn host_names(config: &GatewayConfig, hub: DeviceId) -> Vec<String> {
    let mut all = vec![LOCAL_NAME.to_owned(), unique_name(hub)];
    let machine = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let machine = machine.split('.').next().unwrap_or_default();
    all.push(format!("{machine}.local"));
    if let Some(name) = &config.name {
        all.extend([format!("{name}.local"), name.clone()]);
    }
    all.extend(config.hosts.iter().cloned());
    all.push("localhost".into());
    let mut seen = std::collections::HashSet::new();
    all.into_iter()
        .map(|name| name.trim_end_matches('.').to_lowercase())
        .filter(|name| is_host_name(name) && seen.insert(name.clone()))
        .collect()
}

/// Letters, digits and hyphens in dotted labels (RFC 1123); addresses are none.
fn is_host_name(name: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label) && name.parse::<IpAddr>().is_err()
}

/// Addresses on which this hub listens and that its authority may vouch for: private ones and loopback.
/// A wildcard stands for those of every interface.
#[must_use]
pub fn addresses(config: &GatewayConfig) -> Vec<IpAddr> {
    let mut all = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    for bound in &config.bind {
        if !bound.is_unspecified() {
            all.push(bound.to_canonical());
            continue;
        }
        match if_addrs::get_if_addrs() {
            // An IPv6 wildcard takes IPv4 too.
            Ok(found) => all.extend(
                found.iter().map(if_addrs::Interface::ip).filter(|ip| bound.is_ipv6() || ip.is_ipv4()),
            ),
            Err(error) => tracing::warn!(%error, "the network interfaces cannot be listed"),
        }
    }
    all.retain(|ip| is_private(*ip));
    all.sort();
    all.dedup();
    all.truncate(MAX_ADDRESSES);
    all
}

/// What no stranger on the internet can have: loopback, private, unique local, shared (RFC 6598). Link-local
/// addresses need a zone, which no browser takes.
#[must_use]
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_loopback() || v4.is_private() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(v6) => v6 == Ipv6Addr::LOCALHOST || v6.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub() -> DeviceId {
        hearth_shared::identity::SecretKey::from_seed(&[1; 32]).device_id()
    }

    #[test]
    fn names_are_clean_and_once() {
        let config = GatewayConfig {
            name: Some("Attic".into()),
            hosts: vec!["hub.example.".into(), "bad name".into(), "192.168.1.5".into(), "attic".into()],
            ..GatewayConfig::default()
        };
        let names = host_names(&config, hub());
        assert_eq!(names[0], "hearth.local");
        assert_eq!(names[1], unique_name(hub()));
        for name in ["attic.local", "attic", "hub.example", "localhost"] {
            assert_eq!(names.iter().filter(|n| *n == name).count(), 1, "{name}: {names:?}");
        }
        assert!(names.iter().all(|n| !n.contains(' ') && n.parse::<IpAddr>().is_err()), "{names:?}");
    }

    #[test]
    fn only_private_addresses_are_vouched_for() {
        let config = GatewayConfig {
            bind: ["192.168.1.5", "8.8.8.8", "fd00::1", "2001:4860::1", "100.64.0.1", "fe80::1"]
                .map(|a| a.parse().unwrap())
                .to_vec(),
            ..GatewayConfig::default()
        };
        let expected: Vec<IpAddr> =
            ["100.64.0.1", "127.0.0.1", "192.168.1.5", "fd00::1"].map(|a| a.parse().unwrap()).to_vec();
        assert_eq!(addresses(&config), expected);
    }
}
