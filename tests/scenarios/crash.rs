//! kill -9 of either side while readings flow and an approval waits: nothing committed is lost,
//! nothing is doubled, nothing runs without a yes.

use hearth_tests::process::eventually;
use hearth_tests::{JsonClient, TestHub, TestNode};
use serde_json::Value;
use std::time::Duration;

const SENSOR: &str = "[[board.sensor]]\nid = \"temperature\"\nquantity = \"temperature\"\ninterval_ms = 100\n\
     [[board.pin]]\nid = \"pump\"\ndirection = \"output\"\n";

/// 20 here, more with `HEARTH_CRASH_ROUNDS`.
fn rounds() -> u32 {
    std::env::var("HEARTH_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

fn stored(hub: &TestHub) -> u64 {
    let database = rusqlite::Connection::open(hub.home().join("hub.db")).unwrap();
    database.query_row("SELECT count(*) FROM readings", [], |r| r.get::<_, i64>(0)).unwrap_or(0) as u64
}

#[test]
fn readings_and_approval_survive_kills_of_either_side() {
    let mut hub = TestHub::start();
    let mut node = TestNode::paired(&hub, "garage", SENSOR);
    let approver = JsonClient::approver(&hub);
    let mut chat = std::process::Command::new(hearth_tests::process::binaries().join("hearth"))
        .args(["chat", "turn the pump on for 600 seconds", "--home"])
        .arg(hub.home())
        .stdin(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let id = eventually("an approval waits", Duration::from_secs(30), || {
        let list = hub.cli(&["approvals", "list", "--json"]);
        let list: Value = serde_json::from_str(&list.stdout).ok()?;
        list["approvals"][0]["id"].as_str().map(str::to_owned)
    });
    drop(approver);

    for round in 0..rounds() {
        // Not in step with the group commit of a second: the kill hits every phase.
        std::thread::sleep(Duration::from_millis(u64::from(round * 137 % 1100)));
        if round % 2 == 0 {
            hub.kill();
            hub.restart();
        } else {
            node.kill();
            node.start();
        }
    }
    let _ = chat.kill();
    let _ = chat.wait();
    // The node backs off after a hub that was away; give it one good connection.
    node.kill();
    node.start();
    node.wait_connected(&hub);
    let before = stored(&hub);
    eventually("readings flow again", Duration::from_secs(30), || (stored(&hub) > before).then_some(()));

    let database = rusqlite::Connection::open(hub.home().join("hub.db")).unwrap();
    let one = |sql: &str| database.query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap();
    let doubled = one("SELECT count(*) FROM (SELECT epoch, seq FROM \
                       (SELECT epoch, seq FROM readings UNION ALL SELECT epoch, seq FROM undated UNION ALL \
                        SELECT epoch, seq FROM node_events) GROUP BY epoch, seq HAVING count(*) > 1)");
    assert_eq!(doubled, 0, "an item is stored twice");
    let missing =
        one("SELECT coalesce(sum(seq - have - lost - refused), 0) FROM (SELECT e.seq, e.lost, e.refused, \
                       (SELECT count(*) FROM readings r WHERE r.epoch = e.id) + \
                       (SELECT count(*) FROM undated u WHERE u.epoch = e.id) + \
                       (SELECT count(*) FROM node_events n WHERE n.epoch = e.id) AS have FROM epochs e)");
    assert_eq!(missing, 0, "an item below the mark is not there");

    let waiting = hub.json(&["approvals", "list"]);
    assert_eq!(waiting["approvals"][0]["id"], id.as_str(), "the approval waits on: {waiting}");
    let pump = |hub: &TestHub| {
        hub.json(&["nodes", "invoke", "garage", "gpio.read", r#"{"pin":"pump"}"#]).to_string()
    };
    assert!(pump(&hub).contains("\"value\":false"), "nothing ran without a yes");
    let _ = hub.cli(&["approvals", "allow", &id]).ok();
    eventually("the pump runs", Duration::from_secs(30), || {
        pump(&hub).contains("\"value\":true").then_some(())
    });
    assert_eq!(hub.cli(&["audit", "verify"]).code, 0, "the hub's log is whole");
    assert_eq!(node.cli(&["audit", "verify"]).code, 0, "the node's log is whole");
}
