//! Faults that were found by trying to break the finished programs; each must stay away.

use hearth_tests::process;
use hearth_tests::{JsonClient, TestHub, TestNode};
use std::time::Duration;

/// What `hearth run` or `hearth-node run` says on a home that it must refuse.
fn refusal(binary: &str, home: &std::path::Path) -> String {
    let ended = process::run(binary, home, &["run"]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    ended.stderr
}

#[test]
fn a_token_file_that_lost_its_content_lets_nobody_in() {
    let mut hub = TestHub::start();
    hub.stop();
    std::fs::write(hub.home().join("token"), "").unwrap();
    let said = refusal("hearth", hub.home());
    assert!(said.contains("token") && said.contains("remove the file"), "{said}");
    std::fs::remove_file(hub.home().join("token")).unwrap();
    hub.restart();
    assert_eq!(hub.cli(&["status"]).code, 0);
}

#[test]
fn a_home_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut hub = TestHub::start();
    hub.stop();
    std::fs::set_permissions(hub.home(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let said = refusal("hearth", hub.home());
    assert!(said.contains("written by other users"), "{said}");
    std::fs::set_permissions(hub.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    hub.restart();
    let mode = std::fs::metadata(hub.home()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "one that others could only read is closed");
}

#[test]
fn a_hub_that_cannot_note_its_address_answers_all_the_same() {
    let mut hub = TestHub::start();
    hub.stop();
    // As on a full card: the file cannot be written.
    std::fs::create_dir(hub.home().join("hub.tmp")).unwrap();
    hub.restart();
    assert!(!hub.home().join("hub.addr").exists());
    assert_eq!(hub.cli(&["status"]).code, 0, "found by the configuration");
    hub.stop();
    assert_eq!(hub.cli(&["status"]).code, 3, "and known not to run");
}

#[test]
fn a_hub_database_that_was_cut_short_is_not_begun_anew() {
    let mut hub = TestHub::start();
    hub.stop();
    let database = hub.home().join("hub.db");
    for beside in ["hub.db-wal", "hub.db-shm"] {
        let _ = std::fs::remove_file(hub.home().join(beside));
    }
    std::fs::File::options().write(true).open(&database).unwrap().set_len(300).unwrap();
    let said = refusal("hearth", hub.home());
    assert!(said.contains("hub.db is damaged") && said.contains("hearth restore"), "{said}");
    assert_eq!(std::fs::metadata(&database).unwrap().len(), 300, "and left as it is");
}

#[test]
fn a_damaged_node_database_is_named() {
    let hub = TestHub::start();
    let mut node = TestNode::paired(&hub, "garage", "");
    node.stop();
    let database = node.home().join("node.db");
    let whole = std::fs::read(&database).unwrap();
    let mut bytes = whole.clone();
    bytes[3 * 4096..].fill(0xa5);
    std::fs::write(&database, &bytes).unwrap();
    let said = refusal("hearth-node", node.home());
    assert!(said.contains("node.db") && said.contains("damaged"), "{said}");
    std::fs::write(&database, whole).unwrap();
    node.start();
    node.wait_connected(&hub);
}

#[test]
fn errors_never_echo_control_characters_or_whole_messages() {
    let hub = TestHub::start();
    let mut client = JsonClient::approver(&hub);
    for (method, key) in
        [("agent.wait", "runId"), ("sessions.resolve", "sessionId"), ("node.describe", "nodeId")]
    {
        for bad in ["\u{202e}\u{1b}[31m\0\u{200b}".to_owned(), "x".repeat(60_000)] {
            let answer = client.call(method, &serde_json::json!({ key: bad }));
            let message = answer["error"]["message"].as_str().expect("it is refused");
            assert!(message.chars().count() < 1_100, "{method}: {} characters", message.len());
            assert!(!message.chars().any(hearth_shared::identity::is_deceptive), "{method}: {message:?}");
        }
    }
}

#[test]
fn the_command_line_never_repeats_control_characters_or_whole_arguments() {
    let hub = TestHub::start();
    let node = TestNode::new("garage", "");
    let long = "x".repeat(100_000);
    for bad in ["\u{202e}\u{1b}[31m\u{200b}evil", &long] {
        let ended = [
            hub.cli(&["status", bad]),
            hub.cli(&["devices", "approve", bad]),
            hub.cli(&["completions", bad]),
            hub.cli(&["nodes", "show", bad, "--json"]),
            node.cli(&["status", bad]),
            node.cli(&["always", "remove", bad]),
        ];
        for said in ended {
            assert_ne!(said.code, 0, "{said:?}");
            assert!(said.stderr.chars().count() < 2_000, "{} characters", said.stderr.len());
            let hidden = |c: char| c != '\n' && hearth_shared::identity::is_deceptive(c);
            assert!(!said.stderr.chars().any(hidden), "{said:?}");
        }
    }
}

#[test]
fn what_ran_while_the_hub_was_killed_is_answered_by_the_node_when_both_are_back() {
    let mut hub = TestHub::start();
    let mut node = TestNode::paired(&hub, "garage", "[policy]\nexecute = \"none\"\n");
    let mark = node.home().join("ran");
    let script = format!("echo once >> {}; sleep 1; echo out", mark.display());
    let params = serde_json::json!({ "command": ["/bin/sh", "-c", script] }).to_string();
    let mut asking =
        process::command("hearth", hub.home(), &["nodes", "invoke", "garage", "system.run", &params])
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
    process::eventually("it runs", Duration::from_secs(20), || mark.exists().then_some(()));
    hub.kill();
    let _ = asking.wait();
    hub.restart();
    let end = process::eventually("it ends", Duration::from_secs(30), || {
        let audit = hub.json(&["audit", "show"]);
        let records = audit["records"].as_array()?.clone();
        records.into_iter().find(|r| r["kind"] == "action.finished")
    });
    assert!(end.to_string().contains("done"), "{end}");
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "once\n", "and nothing ran twice");
    node.stop();
}

#[test]
fn a_restore_that_was_cut_off_is_never_a_hub_that_begins_anew() {
    let mut hub = TestHub::start();
    let file = hub.home().join("saved.tar").display().to_string();
    let _ = hub.cli(&["backup", &file]).ok();
    hub.stop();
    // As a kill leaves it between the old database and the new one.
    let half = hub.home().join("restore-0123456789ab.tmp");
    std::fs::create_dir(&half).unwrap();
    std::fs::rename(hub.home().join("hub.db"), half.join("hub.db")).unwrap();
    let said = refusal("hearth", hub.home());
    assert!(said.contains("was cut off") && said.contains("hearth restore"), "{said}");
    let _ = hub.cli(&["restore", &file, "--force"]).ok();
    assert!(!half.exists(), "what was left is gone");
    hub.restart();
    assert_eq!(hub.cli(&["audit", "verify"]).code, 0);
}

#[test]
fn lost_keys_are_told_and_a_paired_node_makes_no_new_one() {
    let mut hub = TestHub::start();
    let mut node = TestNode::paired(&hub, "garage", "");
    node.stop();
    std::fs::remove_file(node.home().join("node.key")).unwrap();
    let said = refusal("hearth-node", node.home());
    assert!(said.contains("node.key is missing") && said.contains("reset"), "{said}");
    assert!(!node.home().join("node.key").exists());
    hub.stop();
    std::fs::remove_file(hub.home().join("hub.key")).unwrap();
    hub.restart();
    assert!(hub.log().contains("hub.key was not there and was made anew"), "{}", hub.log());
}

#[test]
fn an_older_copy_of_the_hubs_database_shows_against_what_nodes_hold() {
    let mut hub = TestHub::start();
    let mut node = TestNode::paired(&hub, "garage", "");
    node.stop();
    hub.stop();
    let old = hub.home().join("old.db");
    let database = rusqlite::Connection::open(hub.home().join("hub.db")).unwrap();
    database.execute("VACUUM INTO ?1", [old.to_str().unwrap()]).unwrap();
    drop(database);
    hub.restart();
    node.start();
    let _ = hub.cli(&["chat", "take a picture in the garage", "--approve", "yes"]).ok();
    assert_eq!(hub.cli(&["audit", "verify"]).code, 0);
    hub.stop();
    for beside in ["hub.db-wal", "hub.db-shm"] {
        let _ = std::fs::remove_file(hub.home().join(beside));
    }
    std::fs::rename(old, hub.home().join("hub.db")).unwrap();
    hub.restart();
    process::eventually("the node is back and the hub has noticed", Duration::from_secs(30), || {
        hub.log().contains("is not the one that node").then_some(())
    });
    let verified = hub.cli(&["audit", "verify"]);
    assert_ne!(verified.code, 0, "{verified:?}");
    assert!(format!("{}{}", verified.stdout, verified.stderr).contains("garage"), "{verified:?}");
}
