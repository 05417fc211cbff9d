//! One pairing step, visible where somebody knocks.

use hearth_tests::process::{command, eventually};
use hearth_tests::{TestHub, TestNode};
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_code_works_once_and_a_second_use_alarms_the_owner() {
    let hub = TestHub::start();
    let code = hub.setup_code();
    let mut first = TestNode::new("garage", "");
    let _ = first.cli(&["pair", &code, "--yes"]).ok();
    first.start();
    first.wait_connected(&hub);

    let second = TestNode::new("thief", "");
    let refused = second.cli(&["pair", &code, "--yes"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.stderr.contains("hearth pair"), "says what to do: {refused:?}");
    let audit = hub.json(&["audit", "show"]).to_string();
    assert!(audit.to_lowercase().contains("alarm") || audit.contains("reused"), "{audit}");
}

#[test]
fn the_door_is_closed_by_default() {
    let hub = TestHub::start();
    let node = TestNode::new("garage", "");
    let refused = node.cli(&["pair", &format!("127.0.0.1:{}", hub.port), "--yes"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert_eq!(
        hub.json(&["devices", "list"])["pending"].as_array().map(Vec::len),
        Some(0),
        "a knock is no card"
    );
}

#[test]
fn words_are_confirmed_on_both_ends() {
    let hub = TestHub::start();
    let _ = hub.setup_code();
    let node = TestNode::new("garage", "");
    let address = format!("127.0.0.1:{}", hub.port);
    let mut pairing = command("hearth-node", node.home(), &["pair", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let words = eventually("the hub shows the words", Duration::from_secs(20), || {
        let pending = hub.json(&["devices", "list"]);
        pending["pending"][0]["words"].as_str().map(str::to_owned)
    });
    assert_eq!(words.split_whitespace().count(), 4, "{words}");
    let _ = hub.cli(&["devices", "approve", "garage"]).ok();
    pairing.stdin.take().unwrap().write_all(b"y\ny\n").unwrap();
    let done = pairing.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}");
    assert!(said.contains(&words), "the node shows the same words: {said}");
    let mut node = node;
    node.start();
    node.wait_connected(&hub);
}

#[test]
fn revoking_and_removing_close_the_open_link_at_once() {
    let hub = TestHub::start();
    let revoked = TestNode::paired(&hub, "garage", "");
    let _ = hub.cli(&["devices", "revoke", "garage"]).ok();
    revoked.wait_away(&hub);
    let removed = TestNode::paired(&hub, "cellar", "");
    let _ = hub.cli(&["nodes", "remove", "cellar"]).ok();
    let gone = eventually("the node is gone", Duration::from_secs(10), || {
        let nodes = hub.json(&["nodes", "list"]);
        nodes["nodes"].as_array()?.iter().all(|n| n["displayName"] != "cellar").then_some(nodes)
    });
    drop((gone, removed));
}
