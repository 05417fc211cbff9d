//! The command line's promises: exit codes, one next step in every error, JSON everywhere.

use hearth_tests::process::{command, finish, run};
use hearth_tests::{Finished, TestHub, TestNode};
use std::path::Path;
use std::process::Stdio;

fn hearth(home: &Path, args: &[&str]) -> Finished {
    run("hearth", home, args)
}

/// Exit code and next step, in both forms.
fn fails(home: &Path, args: &[&str], code: i32) {
    let text = hearth(home, args);
    assert_eq!(text.code, code, "{args:?}: {text:?}");
    assert!(text.stderr.contains("next: ") || text.stderr.contains("`hearth "), "a next step: {text:?}");
    let mut with_json = args.to_vec();
    with_json.push("--json");
    let json = hearth(home, &with_json);
    assert_eq!(json.code, code, "{args:?}: {json:?}");
    let last = json.stderr.lines().next_back().unwrap_or_default();
    let error: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {json:?}"));
    assert_eq!(error["error"]["exit"], code, "{json:?}");
    assert!(error["error"]["next"].as_str().is_some_and(|n| !n.is_empty()), "{json:?}");
}

#[test]
fn exit_codes_without_a_hub() {
    let dir = tempfile::tempdir().unwrap();
    let home = &dir.path().join("home");
    for args in [&["status"][..], &["nodes", "list"], &["approvals", "list"], &["chat", "hello"]] {
        fails(home, args, 3);
    }
    for args in [&["bogus"][..], &["nodes"], &["pair", "--ttl", "1s"], &["approvals", "allow"]] {
        assert_eq!(hearth(home, args).code, 2, "{args:?}");
    }
    fails(home, &["readings", "export", "--from", "never"], 2);
    fails(home, &["restore", "no-such.tar"], 4);
    fails(home, &["logs"], 4);
    let help = hearth(home, &["run", "--help"]).ok();
    assert!(help.stdout.contains("--port"));
    assert!(hearth(home, &["--help"]).ok().stdout.contains("Exit codes:"));
    // Whether there are faults depends on the machine; that it looks and tells does not.
    let findings = hearth(home, &["doctor", "--json"]).json();
    assert!(findings["findings"].as_array().is_some_and(|f| f.len() > 2));
    std::fs::create_dir(home).unwrap();
    std::fs::write(home.join("config.toml"), "[gateway]\nprot = 1\n").unwrap();
    let refused = hearth(home, &["config", "check"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains(":2: ") && refused.stderr.contains("gateway.port"), "{refused:?}");
    fails(home, &["run"], 1);
}

#[test]
fn exit_codes_with_a_hub_and_a_node() {
    let hub = TestHub::start();
    let node = TestNode::paired(&hub, "garage", "");
    node.wait_connected(&hub);
    fails(hub.home(), &["nodes", "show", "attic"], 4);
    fails(hub.home(), &["approvals", "show", "ffff"], 4);
    fails(hub.home(), &["devices", "remove", "nobody"], 4);
    fails(hub.home(), &["devices", "approve"], 4);
    fails(hub.home(), &["nodes", "invoke", "garage", "gpio.pulse", "{\"pin\":\"pump\"}"], 2);
    fails(hub.home(), &["nodes", "invoke", "garage", "camera.snap", "--approve", "no"], 5);
    // Nobody is there who could be asked.
    fails(hub.home(), &["nodes", "invoke", "garage", "camera.snap"], 5);
    // A second hub on the same directory, and another program on its port.
    fails(hub.home(), &["run"], 1);
    let other = tempfile::tempdir().unwrap();
    let port = hub.port.to_string();
    fails(other.path(), &["run", "--port", &port], 1);

    let picture = other.path().join("picture.jpg");
    let snap = [
        "nodes",
        "invoke",
        "garage",
        "camera.snap",
        "--approve",
        "yes",
        "--output",
        picture.to_str().unwrap(),
    ];
    let _ = hub.cli(&snap).ok();
    assert!(std::fs::metadata(&picture).unwrap().len() > 1000);

    for args in [
        &["status"][..],
        &["nodes", "list"],
        &["nodes", "show", "garage"],
        &["devices", "list"],
        &["approvals", "list", "--all"],
        &["readings", "show"],
        &["audit", "show"],
        &["audit", "verify"],
        &["config", "show"],
    ] {
        assert!(hub.json(args).is_object(), "{args:?}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_fault() {
    let home = tempfile::tempdir().unwrap();
    let mut example = command("hearth", home.path(), &["config", "example"]);
    let mut child = example.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    let _ = finish(&mut command("hearth", home.path(), &["config", "example"])).ok();
}
