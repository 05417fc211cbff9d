//! A cable between hub and node that is cut, slow or lossy, in a network namespace of its own.

use hearth_tests::process::{self, command, eventually};
use hearth_tests::{Cable, Finished, JsonClient, TestHub, TestNode};
use serde_json::{Value, json};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(hub: &TestHub, args: &[&str]) -> Child {
    command("hearth", hub.home(), args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A hub that listens on the cable, and a simulated board at its other end, paired by a code.
fn pair(cable: &Cable, config: &str) -> (TestHub, TestNode) {
    let hub = TestHub::start_with(&cable.config());
    let node = attach(cable, &hub, config);
    (hub, node)
}

fn attach(cable: &Cable, hub: &TestHub, config: &str) -> TestNode {
    let mut node = TestNode::new("garage", config);
    node.move_into(&cable.namespace);
    let _ = node.cli(&["pair", &hub.setup_code(), "--yes"]).ok();
    node.start();
    node.wait_connected(hub);
    node
}

fn pending(hub: &TestHub) -> String {
    eventually("an approval waits", PATIENCE, || {
        let list = hub.cli(&["approvals", "list", "--json"]);
        let list: Value = serde_json::from_str(&list.stdout).ok()?;
        list["approvals"][0]["id"].as_str().map(str::to_owned)
    })
}

fn transcript(hub: &TestHub) -> String {
    let folder = hub.home().join("agents/main/sessions");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|f| std::fs::read_to_string(f.path()).ok()).collect()
}

/// How often the node says that it ran something.
fn runs(node: &TestNode, command: &str) -> usize {
    let audit = node.cli(&["audit", "show", "--json"]).ok();
    let audit = audit.json();
    let records = audit["records"].as_array().expect("records").iter();
    records.filter(|r| r["kind"] == "request.started" && r.to_string().contains(command)).count()
}

#[test]
fn a_yes_given_while_the_cable_is_cut_takes_effect_once_when_it_is_back() {
    let Some(cable) = Cable::lay(1) else { return };
    let (hub, node) = pair(&cable, "");
    let mut person = JsonClient::approver(&hub);
    let chat = start(&hub, &["chat", "turn the pump on for 600 seconds"]);
    let id = pending(&hub);
    cable.cut();
    // For a minute nobody can know that the node is not there; the yes counts all the same.
    let decision = json!({"id": id, "kind": "exec", "decision": "allow-once"});
    let said = person.call("approval.resolve", &decision);
    assert_eq!(said["ok"], true, "{said}");
    assert_eq!(runs(&node, "gpio.pulse"), 0);
    cable.mend();
    let answer = eventually("the answer is in the history", PATIENCE, || {
        let text = transcript(&hub);
        text.lines().find(|l| l.contains(":reply\"")).map(str::to_owned)
    });
    assert!(answer.contains("pump (garage) is on"), "{answer}");
    assert!(chat.wait_with_output().unwrap().status.success());
    let read = hub.json(&["nodes", "invoke", "garage", "gpio.read", r#"{"pin":"pump"}"#]);
    assert_eq!(read["payload"]["value"], true, "{read}");
    assert_eq!(runs(&node, "gpio.pulse"), 1);
    let _ = hub.cli(&["audit", "verify"]).ok();
}

fn approver(hub: &TestHub, own: &std::path::Path, args: &[&str]) -> Finished {
    let args = [&["approver", "--approver-home", own.to_str().unwrap()], args].concat();
    process::run("hearth", hub.home(), &args)
}

#[test]
fn a_persons_yes_is_asked_for_again_when_the_cable_was_cut() {
    let Some(cable) = Cable::lay(2) else { return };
    let hub = TestHub::start_with(&cable.config());
    let (ann, bob) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, home) in [("Ann", &ann), ("Bob", &bob)] {
        let _ = approver(&hub, home.path(), &["init", "--name", name]).ok();
        let _ = approver(&hub, home.path(), &["enroll"]).ok();
    }
    let node = attach(&cable, &hub, "");
    let _watcher = JsonClient::approver(&hub);
    let run = start(&hub, &["nodes", "invoke", "garage", "system.run", r#"{"command":["uname"]}"#, "--json"]);
    let id = pending(&hub);
    cable.cut();
    let early = approver(&hub, ann.path(), &["allow", &id, "--yes"]);
    assert!(early.stderr.contains("garage is away") && early.stderr.contains("goes on waiting"), "{early:?}");
    cable.mend();
    eventually("the node answers", PATIENCE, || {
        (hub.cli(&["nodes", "invoke", "garage", "gpio.list"]).code == 0).then_some(())
    });
    assert_eq!(pending(&hub), id, "it waits on");
    let _ = approver(&hub, ann.path(), &["allow", &id, "--yes"]).ok();
    assert!(run.wait_with_output().unwrap().status.success());
    assert_eq!(runs(&node, "system.run"), 1);
    let _ = hub.cli(&["audit", "verify"]).ok();
}

#[test]
fn a_picture_over_a_slow_line_holds_up_nothing_and_its_wait_ends_when_the_node_dies() {
    let Some(cable) = Cable::lay(3) else { return };
    let (hub, mut node) = pair(&cable, "[policy]\ncapture = \"none\"\n");
    cable.throttle(20);
    let snap = ["nodes", "invoke", "garage", "camera.snap", r#"{"maxWidth":1920,"quality":1}"#, "--json"];
    let mut picture = start(&hub, &snap);
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..3 {
        let asked = Instant::now();
        let _ = hub.cli(&["nodes", "invoke", "garage", "gpio.list"]).ok();
        assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    }
    assert!(picture.try_wait().unwrap().is_none(), "meant to be asked while the picture was coming");
    assert!(picture.wait_with_output().unwrap().status.success());

    let half = start(&hub, &snap);
    std::thread::sleep(Duration::from_secs(2));
    node.kill();
    node.start();
    let died = Instant::now();
    let ended = half.wait_with_output().unwrap();
    // A dead node behind a slow line is noticed by its silence, after a minute.
    assert!(died.elapsed() < Duration::from_secs(120), "{:?}", died.elapsed());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() || said.contains("OUTCOME_UNKNOWN"), "{said}");
    assert_eq!(runs(&node, "camera.snap"), 2, "no picture was taken twice: {said}");
}
