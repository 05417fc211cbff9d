//! The certificate for browsers, judged by a TLS program that is not ours.

use hearth_tests::process::skip;
use hearth_tests::{TestHub, TestNode};
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether `openssl` accepts the hub under this name when it trusts the authority in `roots`.
fn accepted(hub: &TestHub, roots: &Path, name: &str) -> bool {
    let address = format!("127.0.0.1:{}", hub.port);
    let flag = if name.parse::<std::net::IpAddr>().is_ok() { "-verify_ip" } else { "-verify_hostname" };
    let done = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-verify_return_error", flag, name, "-CAfile"])
        .arg(roots)
        .stdin(Stdio::null())
        .output()
        .expect("openssl starts");
    done.status.success() && String::from_utf8_lossy(&done.stdout).contains("Verify return code: 0 (ok)")
}

#[test]
fn another_tls_program_accepts_the_hub_once_it_trusts_the_authority() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skip("openssl is not installed");
    }
    let mut hub = TestHub::start();
    let node = TestNode::paired(&hub, "garage", "");
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("authority.pem");
    let export = |hub: &TestHub| {
        let _ = hub.cli(&["cert", "export", roots.to_str().unwrap()]).ok();
    };
    export(&hub);
    for name in ["hearth.local", "localhost", "127.0.0.1"] {
        assert!(accepted(&hub, &roots, name), "{name}");
    }
    for name in ["example.org", "printer.local", "192.168.1.1"] {
        assert!(!accepted(&hub, &roots, name), "{name}");
    }
    let before = hub.json(&["cert", "show"]);
    hub.stop();
    hub.restart();
    assert_eq!(hub.json(&["cert", "show"]), before, "a restart makes nothing new");

    let renewed = hub.json(&["cert", "renew"]);
    assert_eq!(renewed["fingerprint"], before["fingerprint"]);
    assert!(accepted(&hub, &roots, "hearth.local"), "what was installed still holds");
    let other = hub.json(&["cert", "renew", "--authority"]);
    assert_ne!(other["fingerprint"], before["fingerprint"]);
    assert!(!accepted(&hub, &roots, "hearth.local"), "the old authority vouches no more");
    export(&hub);
    assert!(accepted(&hub, &roots, "hearth.local"));

    // All that time nodes and command lines went by the key.
    hub.stop();
    hub.restart();
    node.wait_connected(&hub);
    let audit = hub.json(&["audit", "show"]).to_string();
    assert_eq!(audit.matches("certificate.renewed").count(), 2, "{audit}");
    let key = std::fs::read_to_string(hub.home().join("authority.pem")).unwrap();
    let exported = std::fs::read_to_string(&roots).unwrap();
    assert!(key.contains("PRIVATE KEY") && !exported.contains("PRIVATE KEY"));
}
