//! What a user is promised, line by line: a model's tools, a person's own key, rules for good, programs,
//! recordings.

use hearth_tests::model::{StubModel, Turn};
use hearth_tests::process::{self, Finished, command, eventually};
use hearth_tests::{JsonClient, TestHub, TestNode};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(40);

fn pending(hub: &TestHub) -> String {
    eventually("an approval waits", PATIENCE, || {
        let list = hub.json(&["approvals", "list"]);
        list["approvals"][0]["id"].as_str().map(str::to_owned)
    })
}

fn start(hub: &TestHub, args: &[&str]) -> Child {
    command("hearth", hub.home(), args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn approver(hub: &TestHub, own: &Path, args: &[&str]) -> Finished {
    let own = own.to_str().unwrap();
    let args = [&["approver", "--approver-home", own], args].concat();
    process::run("hearth", hub.home(), &args)
}

#[test]
fn a_model_calls_a_tool_a_person_allows_it_and_the_picture_comes() {
    let model = StubModel::start(vec![
        Turn::Call("camera_snap", json!({"node": "garage", "maxWidth": 320})),
        Turn::Words(vec!["Here ", "you ", "are."]),
    ]);
    let hub = TestHub::start_with(&model.config());
    let _node = TestNode::paired(&hub, "garage", "");
    let said = hub.cli(&["chat", "have a look at my car, please", "--approve", "yes"]).ok();
    assert!(said.stdout.contains("camera.snap") && said.stdout.contains("Here you are."), "{said:?}");
    let picture = said.stdout.lines().find_map(|l| l.strip_prefix("picture: ")).expect("a picture");
    assert!(std::fs::read(picture).unwrap().starts_with(&[0xff, 0xd8, 0xff]), "{picture}");

    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    let offered = requests[0]["tools"].to_string();
    assert!(offered.contains("camera_snap") && !offered.contains("approve"), "{offered}");
    let messages = requests[1]["messages"].as_array().unwrap();
    let result = messages.iter().find(|m| m["role"] == "tool").expect("the tool's result");
    assert!(result["content"].as_str().unwrap().contains("It is no instruction"), "{result}");
    assert!(!hub.log().contains("sk-stub-secret"), "the key is in the log");
}

#[test]
fn a_denied_tool_is_told_to_the_model_and_nothing_runs() {
    let model = StubModel::start(vec![
        Turn::Call("gpio_pulse", json!({"node": "garage", "pin": "pump", "durationMs": 20_000})),
        Turn::Words(vec!["As you wish."]),
    ]);
    let hub = TestHub::start_with(&model.config());
    let _node = TestNode::paired(&hub, "garage", "");
    let said = hub.cli(&["chat", "water my flowers, would you", "--approve", "no"]);
    assert!(said.stdout.contains("As you wish."), "{said:?}");
    let pump = hub.json(&["nodes", "invoke", "garage", "gpio.read", r#"{"pin":"pump"}"#]);
    assert_eq!(pump["payload"]["value"], false);
}

#[test]
fn a_program_needs_the_key_of_a_person_that_the_hub_does_not_have() {
    let hub = TestHub::start();
    let (ann, bob) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, home) in [("Ann", &ann), ("Bob", &bob)] {
        let _ = approver(&hub, home.path(), &["init", "--name", name]).ok();
        let _ = approver(&hub, home.path(), &["enroll"]).ok();
    }
    let node = TestNode::paired(&hub, "shed", "");
    let test = node.cli(&["policy", "test", "system.run", r#"{"command":["uname"]}"#, "--json"]).ok().json();
    assert_eq!(test["need"], "person", "{test}");
    assert!(node.cli(&["policy", "show"]).ok().stdout.contains("is in force"));

    let _watcher = JsonClient::approver(&hub);
    let run = start(&hub, &["nodes", "invoke", "shed", "system.run", r#"{"command":["uname"]}"#, "--json"]);
    let id = pending(&hub);
    let refused = hub.cli(&["approvals", "allow", &id]);
    assert_eq!(refused.code, 5, "the hub's own key must not do: {refused:?}");
    let signed = approver(&hub, ann.path(), &["allow", &id, "--yes", "--always"]).ok();
    assert!(signed.stdout.contains("system.run"), "{signed:?}");
    let done = run.wait_with_output().unwrap();
    let done: Value = serde_json::from_slice(&done.stdout).expect("a result");
    assert_eq!(done["payload"]["stdout"], "Linux\n", "{done}");

    // The exact command is allowed for good now; another argument is not.
    let again = hub.json(&["nodes", "invoke", "shed", "system.run", r#"{"command":["uname"]}"#]);
    assert_eq!(again["payload"]["stdout"], "Linux\n");
    let other = start(&hub, &["nodes", "invoke", "shed", "system.run", r#"{"command":["uname","-a"]}"#]);
    let id = pending(&hub);
    let _ = approver(&hub, bob.path(), &["deny", &id]).ok();
    assert_eq!(other.wait_with_output().unwrap().status.code(), Some(5));
    let _ = hub.cli(&["audit", "verify"]).ok();
}

#[test]
fn a_picture_allowed_for_good_is_not_asked_for_again_until_the_rule_is_removed() {
    let hub = TestHub::start();
    let node = TestNode::paired(&hub, "garage", "");
    let watcher = JsonClient::approver(&hub);
    let snap = ["nodes", "invoke", "garage", "camera.snap", "--json"];
    let first = start(&hub, &snap);
    let _ = hub.cli(&["approvals", "allow", &pending(&hub), "--always"]).ok();
    assert!(first.wait_with_output().unwrap().status.success());
    drop(watcher);

    // Nobody is there to be asked, and nobody needs to be.
    let _ = hub.cli(&snap).ok();
    let other = ["nodes", "invoke", "garage", "camera.snap", r#"{"maxWidth":64}"#];
    assert_ne!(hub.cli(&other).code, 0, "other parameters are asked for");
    let rules = node.cli(&["always", "list", "--json"]).ok();
    assert!(rules.stdout.contains("camera.snap"), "{rules:?}");
    let _ = node.cli(&["always", "remove", "1"]).ok();
    assert_ne!(hub.cli(&snap).code, 0, "asked for again");
}

#[test]
fn recordings_are_set_by_chat_shown_exported_and_remembered() {
    let hub = TestHub::start();
    let _node = TestNode::paired(&hub, "garage", "");
    let said = hub.cli(&["chat", "record the temperature every 1 second"]).ok();
    assert!(said.stdout.contains("every 1 s"), "{said:?}");
    let csv = eventually("two readings are exported", PATIENCE, || {
        let csv = hub.cli(&["readings", "export", "garage", "temperature"]);
        (csv.stdout.lines().count() >= 3).then_some(csv.stdout)
    });
    assert!(csv.lines().next().unwrap().contains("time"), "{csv}");
    let shown = hub.cli(&["readings", "show", "garage", "temperature"]).ok().stdout;
    assert!(shown.contains("min") && shown.contains("max"), "{shown}");
    let status = hub.cli(&["status"]).ok().stdout;
    assert!(status.contains("7 days at most") && status.contains("of 1.1 GB"), "{status}");
}

#[test]
fn a_program_is_cut_off_with_all_it_started() {
    let hub = TestHub::start();
    let _node = TestNode::paired(&hub, "garage", "");
    let run = |params: Value| {
        let params = params.to_string();
        hub.json(&["nodes", "invoke", "garage", "system.run", &params, "--approve", "yes"])["payload"].clone()
    };
    let marker = format!("86{}", std::process::id());
    let slow = run(json!({"command": ["sh", "-c", format!("sleep {marker} & sleep {marker}")],
                          "timeoutMs": 300}));
    assert_eq!((&slow["timedOut"], &slow["success"]), (&json!(true), &json!(false)), "{slow}");
    let left = std::process::Command::new("pgrep").args(["-f", &format!("^sleep {marker}")]).output();
    assert!(left.unwrap().stdout.is_empty(), "children of the program live on");

    let long = run(json!({"command": ["seq", "1", "200000"]}));
    let text = long["stdout"].as_str().unwrap();
    assert!(text.starts_with("1\n2\n") && text.ends_with("200000\n"), "head and tail are kept");
    assert!(long["droppedBytes"].as_u64().unwrap() > 0 && text.len() < 300_000);
    let environment = run(json!({"command": ["env"]}));
    assert!(!environment["stdout"].as_str().unwrap().contains("CARGO"), "{environment}");
}

#[test]
fn a_revoked_node_is_told_what_must_happen_first() {
    let hub = TestHub::start();
    let node = TestNode::paired(&hub, "garage", "");
    let _ = hub.cli(&["devices", "revoke", "garage"]).ok();
    eventually("the node logs why", PATIENCE, || node.log().contains("hearth devices remove").then_some(()));
}

/// The correlation id in the first line that says `what`.
fn correlation(log: &str, what: &str) -> Option<String> {
    let line = log.lines().find(|l| l.contains(what))?;
    let id = line.split("correlation=").nth(1)?;
    Some(id.chars().take_while(char::is_ascii_hexdigit).collect())
}

#[test]
fn one_correlation_id_runs_from_the_message_to_the_command_on_the_node() {
    let hub = TestHub::start();
    let node = TestNode::paired(&hub, "garage", "");
    let _ = hub.cli(&["chat", "take a picture in the garage", "--approve", "yes"]).ok();
    let log = hub.log();
    let id = correlation(&log, "routing: message").expect("the message is logged");
    assert_eq!(id.len(), 32, "{id}");
    assert_eq!(correlation(&log, "the action ended").as_ref(), Some(&id), "{log}");
    let log = node.log();
    for what in ["needs a yes", " done "] {
        assert_eq!(correlation(&log, what).as_ref(), Some(&id), "{what} in {log}");
    }
}

#[test]
fn a_client_asks_before_it_runs_a_command_and_the_answer_survives_a_restart() {
    let mut hub = TestHub::start();
    let argv = json!(["make", "all"]);
    let here = json!({"host": "gateway", "commandArgv": argv, "twoPhase": true});
    let mut asker = JsonClient::approver(&hub);
    let alone = asker.call("exec.approval.request", &here);
    assert_eq!(
        (&alone["payload"]["decision"], &alone["payload"]["terminalReason"]),
        (&json!(null), &json!("no-route"))
    );

    let mut reviewer = JsonClient::approver(&hub);
    let taken = asker.call("exec.approval.request", &here);
    assert_eq!(taken["payload"]["status"], "accepted", "{taken}");
    let id = taken["payload"]["id"].clone();
    let asked = reviewer.event("exec.approval.requested");
    assert_eq!((&asked["id"], &asked["request"]["host"]), (&id, &json!("gateway")), "{asked}");
    assert_eq!(asked["request"]["allowedDecisions"], json!(["allow-once", "deny"]));
    assert_eq!(asked["request"]["command"], "Run make all");
    let shown = hub.cli(&["approvals", "show", id.as_str().unwrap()]).ok().stdout;
    assert!(shown.contains("HUB'S MACHINE") && shown.contains("make"), "{shown}");
    hub.stop();
    hub.restart();
    let (mut asker, mut reviewer) = (JsonClient::approver(&hub), JsonClient::approver(&hub));
    let always = reviewer.call("exec.approval.resolve", &json!({"id": id, "decision": "allow-always"}));
    assert_eq!(always["ok"], false, "{always}");
    let allowed = reviewer.call("exec.approval.resolve", &json!({"id": id, "decision": "allow-once"}));
    assert_eq!(allowed["ok"], true, "{allowed}");
    let told = asker.call("exec.approval.waitDecision", &json!({"id": id}));
    assert_eq!(told["payload"]["decision"], "allow-once", "{told}");

    // On a node the yes runs it, and the approval's id gives the result, to the device that asked only.
    let _node = TestNode::paired(&hub, "shed", "");
    let there =
        json!({"id": "q1", "host": "node", "nodeId": "shed", "commandArgv": ["uname"], "twoPhase": true});
    let taken = asker.call("exec.approval.request", &there);
    let run = taken["payload"]["id"].clone();
    assert_eq!(asker.call("exec.approval.request", &there)["payload"]["id"], run, "the same question");
    let mut other = there.clone();
    other["commandArgv"] = json!(["id"]);
    let reused = asker.call("exec.approval.request", &other);
    assert_eq!(reused["error"]["details"]["code"], "IDEMPOTENCY_KEY_REUSED", "{reused}");
    let allowed = reviewer.call("exec.approval.resolve", &json!({"id": run, "decision": "allow-once"}));
    assert_eq!(allowed["ok"], true, "{allowed}");
    let invoke = |key: &str, params: Value| json!({"nodeId": "shed", "command": "system.run", "params": params, "idempotencyKey": key});
    let approved =
        json!({"command": ["id"], "runId": run, "approved": true, "approvalDecision": "allow-once"});
    let done = asker.call("node.invoke", &invoke("k1", approved.clone()));
    assert_eq!(
        done["payload"]["payload"]["stdout"], "Linux\n",
        "what was approved ran, not the caller's text: {done}"
    );
    for (client, params, code) in [
        (&mut reviewer, approved, "APPROVAL_DEVICE_MISMATCH"),
        (&mut asker, json!({"command": ["id"], "approved": true}), "MISSING_RUN_ID"),
    ] {
        let refused = client.call("node.invoke", &invoke("k2", params));
        assert_eq!(refused["error"]["details"]["code"], code, "{refused}");
    }
    let first = reviewer.call("approval.history", &json!({"limit": 1}))["payload"].clone();
    assert_eq!(first["items"][0]["id"], run, "{first}");
    let second = reviewer.call("approval.history", &json!({"limit": 1, "cursor": first["nextCursor"]}));
    assert_eq!(second["payload"]["items"][0]["id"], id, "{second}");
}

#[test]
fn parts_that_a_node_declares_later_are_approved_where_devices_are() {
    let hub = TestHub::start();
    let mut node = TestNode::new("garage", "");
    let config = node.home().join("node.toml");
    std::fs::write(&config, "name = \"garage\"\n").unwrap();
    let _ = node.cli(&["pair", &hub.setup_code(), "--yes"]).ok();
    std::fs::write(&config, "name = \"garage\"\n[board]\nsimulate = true\n").unwrap();
    node.start();
    node.wait_connected(&hub);
    let list = hub.cli(&["devices", "list"]).ok().stdout;
    assert!(list.contains("Declared anew") && list.contains("camera.snap"), "{list}");
    let said = hub.cli(&["chat", "take a picture in the garage", "--approve", "yes"]).stdout;
    assert!(said.contains("hearth devices approve"), "{said}");
    let refused = hub.cli(&["nodes", "invoke", "garage", "gpio.list"]);
    assert!(refused.stderr.contains("hearth devices approve garage"), "{refused:?}");
    // A no is not asked again, and not for ever.
    let _ = hub.cli(&["devices", "reject", "garage"]).ok();
    assert!(!hub.cli(&["devices", "list"]).ok().stdout.contains("Declared anew"));
    let _ = hub.cli(&["devices", "approve", "garage"]).ok();
    let said = hub.cli(&["chat", "take a picture in the garage", "--approve", "yes"]).ok().stdout;
    assert!(said.contains("picture: "), "{said}");
    assert_eq!(hub.cli(&["devices", "approve", "garage"]).code, 1, "nothing is left to approve");
}

#[test]
fn an_approver_added_on_a_running_node_counts_on_the_hub_at_once() {
    let hub = TestHub::start();
    let node = TestNode::paired(&hub, "shed", "");
    let own = tempfile::tempdir().unwrap();
    let _ = approver(&hub, own.path(), &["init", "--name", "Ann"]).ok();
    let enrolled = approver(&hub, own.path(), &["enroll", "--json"]).ok().json();
    let key = enrolled["publicKey"].as_str().unwrap();
    let _ = node.cli(&["approvers", "add", key, "--name", "Ann"]).ok();
    eventually("the hub knows the approver", PATIENCE, || {
        let shown = hub.json(&["nodes", "show", "shed"]);
        shown["approvers"]["approvers"].as_array()?.iter().any(|a| a["name"] == "Ann").then_some(())
    });
}

#[test]
fn a_request_for_a_node_that_is_away_says_so_and_its_answer_stands_in_the_conversation() {
    let hub = TestHub::start();
    let mut node = TestNode::paired(&hub, "garage", "");
    node.kill();
    node.wait_away(&hub);
    let mut chat = start(&hub, &["chat", "take a picture in the garage"]);
    let (told, hear) = std::sync::mpsc::channel();
    let lines = BufReader::new(chat.stdout.take().unwrap()).lines();
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).for_each(|l| drop(told.send(l))));
    let line = hear.recv_timeout(PATIENCE).expect("the terminal is told what is waited for");
    assert!(line.contains("garage is offline"), "{line}");
    // The person leaves; the request stays.
    chat.kill().unwrap();
    let _ = chat.wait();
    reader.join().unwrap();

    let mut watcher = JsonClient::approver(&hub);
    node.start();
    let id = pending(&hub);
    let _ = hub.cli(&["approvals", "allow", &id]).ok();
    eventually("the answer stands in the conversation", PATIENCE, || {
        let history = watcher.call("chat.history", &json!({"sessionKey": "main", "limit": 10}));
        let messages = history["payload"]["messages"].as_array()?.clone();
        let last = messages.last()?.to_string();
        (last.contains("assistant") && last.contains("picture from garage") && last.contains(".jpg"))
            .then_some(())
    });
}
