//! A request, a person, a grant: durable over everything that can happen between them.

use hearth_tests::process::{command, eventually};
use hearth_tests::{JsonClient, TestHub, TestNode};
use serde_json::{Value, json};
use std::process::{Child, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(40);

/// Says something in a process of its own, which waits for the answer.
fn say(hub: &TestHub, text: &str) -> Child {
    command("hearth", hub.home(), &["chat", text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn pending(hub: &TestHub) -> Vec<Value> {
    let list = hub.cli(&["approvals", "list", "--json"]);
    let list: Value = serde_json::from_str(&list.stdout).unwrap_or_default();
    list["approvals"].as_array().cloned().unwrap_or_default()
}

fn wait_pending(hub: &TestHub) -> String {
    eventually("an approval waits", PATIENCE, || pending(hub).first()?["id"].as_str().map(str::to_owned))
}

/// Whether the pump runs, asked of the node itself.
fn pump(hub: &TestHub) -> Option<bool> {
    let read = hub.cli(&["nodes", "invoke", "garage", "gpio.read", r#"{"pin":"pump"}"#, "--json"]);
    let value: Value = serde_json::from_str(&read.stdout).ok()?;
    value["payload"]["value"].as_bool().or_else(|| value["result"]["value"].as_bool())
}

fn transcript(hub: &TestHub) -> String {
    let folder = hub.home().join("agents/main/sessions");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|f| std::fs::read_to_string(f.path()).ok()).collect()
}

#[test]
fn allowed_from_another_terminal_the_pump_runs_and_the_chat_is_answered() {
    let hub = TestHub::start();
    let _node = TestNode::paired(&hub, "garage", "");
    let _approver = JsonClient::approver(&hub);
    let chat = say(&hub, "turn the pump on for 20 seconds");
    let id = wait_pending(&hub);
    assert_eq!(pump(&hub), Some(false), "nothing runs before the yes");
    let card = hub.json(&["approvals", "show", &id]);
    assert_eq!(card["card"]["shown"]["command"], "gpio.pulse", "{card}");
    let _ = hub.cli(&["approvals", "allow", &id]).ok();
    let said = chat.wait_with_output().unwrap();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(pump(&hub), Some(true));

    let again = hub.cli(&["approvals", "deny", &id]);
    assert_ne!(again.code, 0, "the first decision wins: {again:?}");
    assert!(hub.cli(&["audit", "verify"]).code == 0);
}

#[test]
fn denied_is_exit_code_5_and_nothing_runs() {
    let hub = TestHub::start();
    let _node = TestNode::paired(&hub, "garage", "");
    let _approver = JsonClient::approver(&hub);
    let chat = say(&hub, "turn the pump on for 20 seconds");
    let id = wait_pending(&hub);
    let _ = hub.cli(&["approvals", "deny", &id]).ok();
    let said = chat.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(5), "{said:?}");
    assert_eq!(pump(&hub), Some(false));
}

#[test]
fn with_nobody_to_ask_the_request_ends_at_once_and_says_so() {
    let hub = TestHub::start();
    let _node = TestNode::paired(&hub, "garage", "");
    let said = say(&hub, "turn the pump on for 20 seconds").wait_with_output().unwrap();
    assert!(!said.status.success());
    let text = String::from_utf8_lossy(&said.stdout).to_string() + &String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("nobody") || text.contains("Nobody"), "{text}");
}

#[test]
fn it_survives_kills_of_both_sides_and_the_answer_reaches_the_session() {
    let mut hub = TestHub::start();
    let mut node = TestNode::paired(&hub, "garage", "");
    let approver = JsonClient::approver(&hub);
    let mut chat = say(&hub, "turn the pump on for 600 seconds");
    let id = wait_pending(&hub);
    drop(approver);
    hub.kill();
    let _ = chat.kill();
    let _ = chat.wait();
    node.kill();
    hub.restart();
    assert_eq!(wait_pending(&hub), id, "the request waits on");

    // Decided while the node is away: kept, and signed over a fresh challenge when it is back.
    let _ = hub.cli(&["approvals", "allow", &id]).ok();
    hub.kill();
    hub.restart();
    node.start();
    node.wait_connected(&hub);
    eventually("the pump runs", PATIENCE, || (pump(&hub) == Some(true)).then_some(()));
    let answer = eventually("the answer is in the session", PATIENCE, || {
        let text = transcript(&hub);
        text.lines().rev().find(|l| l.contains("\"assistant\"") && l.contains("pump")).map(str::to_owned)
    });
    assert!(!answer.contains("error"), "{answer}");
    assert_eq!(hub.cli(&["audit", "verify"]).code, 0);
}

#[test]
fn two_people_deciding_at_once_one_wins_and_both_learn_it() {
    let hub = TestHub::start();
    let _node = TestNode::paired(&hub, "garage", "");
    let (mut anna, mut ben) = (JsonClient::approver(&hub), JsonClient::approver(&hub));
    let chat = say(&hub, "turn the pump on for 20 seconds");
    let id = wait_pending(&hub);
    let decide = |decision: &str| json!({"id": id, "kind": "exec", "decision": decision});
    let first = anna.call("approval.resolve", &decide("deny"));
    let second = ben.call("approval.resolve", &decide("allow-once"));
    assert_eq!(first["ok"], true, "{first}");
    assert_eq!(second["ok"], false, "{second}");
    assert_eq!(ben.event("exec.approval.resolved")["decision"], "deny");
    assert_eq!(chat.wait_with_output().unwrap().status.code(), Some(5));
    assert_eq!(pump(&hub), Some(false));
}
