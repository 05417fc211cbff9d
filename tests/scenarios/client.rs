//! A client that lies, floods, or leaves: it harms itself at most.

use hearth_shared::identity::SecretKey;
use hearth_tests::process::eventually;
use hearth_tests::{JsonClient, Liar, TestHub, TestNode};
use serde_json::{Value, json};
use std::time::Duration;

const WRITE: [&str; 3] = ["operator.read", "operator.write", "operator.approvals"];

fn connect(hub: &TestHub) -> JsonClient {
    let client = JsonClient::connect(hub, &SecretKey::generate().unwrap(), &WRITE, &["approvals"]);
    assert_eq!(client.hello["ok"], true, "{}", client.hello);
    client
}

fn send(session: &str, text: &str, key: &str) -> Value {
    json!({"sessionKey": session, "message": text, "idempotencyKey": key})
}

#[test]
fn the_same_key_for_another_request_is_refused_and_nothing_runs_twice() {
    let hub = TestHub::start();
    let node = TestNode::paired(&hub, "garage", "[policy]\nactuate = \"none\"\n");
    let mut client = connect(&hub);
    let pulse = |ms: u64| {
        json!({"nodeId": "garage", "command": "gpio.pulse", "idempotencyKey": "k",
                                 "params": {"pin": "pump", "durationMs": ms}})
    };
    let first = client.call("node.invoke", &pulse(600_000));
    let same = client.call("node.invoke", &pulse(600_000));
    let other = client.call("node.invoke", &pulse(1_000));
    assert_eq!((&first["ok"], &same["ok"]), (&true.into(), &true.into()), "{first} {same}");
    assert_eq!(first["payload"]["requestId"], same["payload"]["requestId"]);
    assert_eq!(other["ok"], false, "{other}");
    let chat = client.call("chat.send", &send("main", "status", "c"));
    let again = client.call("chat.send", &send("main", "turn the pump on for 5 seconds", "c"));
    assert!(again["ok"] == false || again["payload"]["runId"] == chat["payload"]["runId"], "{chat} {again}");
    let audit = node.cli(&["audit", "show", "--json"]).ok().json();
    let started = audit["records"].as_array().unwrap().iter().filter(|r| r["kind"] == "request.started");
    assert_eq!(started.count(), 1);
}

#[test]
fn a_thousand_messages_at_once_are_limited_and_the_hub_answers_others() {
    let hub = TestHub::start();
    let mut client = connect(&hub);
    let mut accepted = 0;
    for n in 0..1_000 {
        let answer = client.call("chat.send", &send("main", "status", &format!("k{n}")));
        accepted += u32::from(answer["ok"] == true);
    }
    assert!((30..200).contains(&accepted), "{accepted} were taken");
    let mut other = connect(&hub);
    assert_eq!(other.call("health", &json!({}))["ok"], true);
    assert_eq!(hub.cli(&["status"]).code, 0);
}

#[test]
fn a_caller_who_leaves_withdraws_the_request_from_the_node() {
    let hub = TestHub::start();
    let (_liar, mut link) = Liar::paired(&hub, "liar");
    let request = std::thread::scope(|scope| {
        let asked = scope.spawn(|| link.invoke().request);
        let mut client = connect(&hub);
        let params = json!({"nodeId": "liar", "command": "gpio.list", "idempotencyKey": "k"});
        client.say("node.invoke", &params);
        asked.join().unwrap()
    });
    let cancelled = link.cancelled();
    assert_eq!(cancelled, request);
}

#[test]
fn of_two_people_who_decide_at_the_same_moment_one_wins_and_both_are_told_the_same() {
    let hub = TestHub::start();
    let _node = TestNode::paired(&hub, "garage", "");
    for _ in 0..5 {
        let mut people = [connect(&hub), connect(&hub)];
        let mut asking = connect(&hub);
        asking.say(
            "node.invoke",
            &json!({"nodeId": "garage", "command": "camera.snap", "idempotencyKey":
            SecretKey::generate().unwrap().device_id().to_string()}),
        );
        let id = eventually("an approval waits", Duration::from_secs(20), || {
            let list = hub.json(&["approvals", "list"]);
            list["approvals"][0]["id"].as_str().map(str::to_owned)
        });
        let mut answers = std::thread::scope(|scope| {
            let decide = |(person, decision): (&mut JsonClient, &str)| {
                person.call("approval.resolve", &json!({"id": id, "kind": "exec", "decision": decision}))
            };
            let both = people.iter_mut().zip(["deny", "allow-once"]);
            let both: Vec<_> = both.map(|one| scope.spawn(move || decide(one))).collect();
            both.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        let won = answers.iter().position(|a| a["ok"] == true).expect("one wins");
        let lost = answers.remove(1 - won);
        assert_eq!(lost["ok"], false, "{lost}");
        let decided = ["deny", "allow-once"][won];
        for person in &mut people {
            assert_eq!(person.event("exec.approval.resolved")["decision"], decided);
        }
    }
}
