//! Being found by name, in a network of its own: a fresh network namespace with one cable.

use hearth_tests::TestHub;
use hearth_tests::process::{eventually, skip};
use mdns_sd::{HostnameResolutionEvent, ServiceDaemon, ServiceEvent};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const ADDRESS: &str = "10.77.0.1";
/// Of the second hub: the same name at another address is a conflict.
const OTHER: &str = "10.77.0.2";

#[test]
fn the_hub_is_found_by_name() {
    if !Command::new("unshare").args(["--net", "ip", "link"]).output().is_ok_and(|o| o.status.success()) {
        return skip("a network namespace needs root, `unshare` and `ip`");
    }
    hearth_tests::process::binaries();
    let inside = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "discovery::inside", "--nocapture"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&inside.stdout).into_owned();
    assert!(
        inside.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&inside.stderr)
    );
}

fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

/// First address that the name has on the network.
fn resolve(client: &ServiceDaemon, name: &str) -> Option<String> {
    let events = client.resolve_hostname(name, Some(2000)).unwrap();
    while let Ok(event) = events.recv_timeout(Duration::from_secs(3)) {
        if let HostnameResolutionEvent::AddressesFound(_, addresses) = event {
            return addresses.iter().next().map(|a| a.to_ip_addr().to_string());
        }
    }
    None
}

/// Runs in the namespace that the test above made.
#[test]
#[ignore = "the test above runs it in a network namespace"]
fn inside() {
    ip(&["link", "set", "lo", "up"]);
    ip(&["link", "add", "home", "type", "veth", "peer", "name", "wall"]);
    ip(&["link", "set", "wall", "up"]);
    ip(&["link", "set", "home", "up"]);
    ip(&["addr", "add", &format!("{ADDRESS}/24"), "dev", "home"]);
    let mut hub = TestHub::start_with("bind = [\"0.0.0.0\"]\nname = \"attic\"\n");
    let client = ServiceDaemon::new().unwrap();
    let found = eventually("hearth.local has an address", PATIENCE, || resolve(&client, "hearth.local."));
    assert_eq!(found, ADDRESS);
    for service in ["_hearth._tcp.local.", "_openclaw-gw._tcp.local."] {
        let events = client.browse(service).unwrap();
        let resolved = eventually("the service", PATIENCE, || match events.recv_timeout(PATIENCE) {
            Ok(ServiceEvent::ServiceResolved(service)) => Some(service),
            _ => None,
        });
        assert_eq!(resolved.get_port(), hub.port);
        assert_eq!(resolved.get_hostname(), "hearth.local.");
        assert!(resolved.get_fullname().starts_with("attic."), "{}", resolved.get_fullname());
    }
    // The certificate names what was found.
    let names = hub.json(&["cert", "show"])["names"].to_string();
    assert!(names.contains("hearth.local") && names.contains(ADDRESS), "{names}");

    // A second hub leaves the first its name and answers to its own.
    ip(&["addr", "add", &format!("{OTHER}/24"), "dev", "home"]);
    let second = TestHub::start_with(&format!("bind = [\"127.0.0.1\", \"{OTHER}\"]\n"));
    let id = second.json(&["status"])["hub"]["hubId"].as_str().unwrap().to_owned();
    let own = format!("hearth-{}.local.", &id[..6]);
    let found = eventually("the second hub's own name", PATIENCE, || resolve(&client, &own));
    assert_eq!(found, OTHER);
    assert!(second.json(&["cert", "show"])["names"].to_string().contains(own.trim_end_matches('.')));
    hub.stop();

    // Switched off, or on this machine only: silence.
    drop(second);
    let quiet = TestHub::start_with("bind = [\"0.0.0.0\"]\n[discovery]\nmdns = false\n");
    let fresh = ServiceDaemon::new().unwrap();
    assert_eq!(resolve(&fresh, "hearth.local."), None);
    drop(quiet);
    let _local = TestHub::start();
    assert_eq!(resolve(&fresh, "hearth.local."), None);
}
