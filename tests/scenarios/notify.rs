//! A person who is not looking is told, and a request waits for him.

use hearth_shared::identity::SecretKey;
use hearth_tests::process::{command, eventually};
use hearth_tests::server::StubServer;
use hearth_tests::{JsonClient, TestHub, TestNode};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
/// A browser's keys: those of RFC 8291, section 5.
const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn subscription(endpoint: &str) -> Value {
    json!({ "endpoint": endpoint, "expirationTime": null, "keys": { "p256dh": P256DH, "auth": AUTH } })
}

#[test]
fn an_approval_reaches_a_person_who_is_not_connected_and_tells_no_details() {
    let server = StubServer::start();
    let folder = tempfile::tempdir().unwrap();
    let (script, told) = (folder.path().join("tell.sh"), folder.path().join("told"));
    std::fs::write(&script, "printf '%s|%s|%s\\n' \"$1\" \"$HEARTH_KIND\" \"$HEARTH_ID\" >> \"$2\"\n")
        .unwrap();
    let hub = TestHub::start_with(&format!(
        "[notify]\ncommand = [\"/bin/sh\", {script:?}, \"{{text}}\", {told:?}]\npush_services = [\"{url}\"]\n\
         [notify.ntfy]\nurl = \"{url}/topic\"\ntoken = \"tk-secret\"\n",
        url = server.url
    ));
    let _node = TestNode::paired(&hub, "garage", "");

    // A page subscribes and closes.
    let scopes = ["operator.read", "operator.write", "operator.approvals"];
    let mut page = JsonClient::connect(&hub, &SecretKey::generate().unwrap(), &scopes, &["approvals"]);
    let key = page.call("push.web.vapidPublicKey", &json!({}));
    assert_eq!(key["payload"]["vapidPublicKey"].as_str().unwrap().len(), 87, "{key}");
    // The hub calls push services only, never what a page likes it to call.
    for endpoint in [format!("http://127.0.0.1:{}/media/x", hub.port), "https://192.168.1.1/".into()] {
        let refused = page.call("push.web.subscribe", &subscription(&endpoint));
        assert_eq!(refused["ok"], false, "{endpoint}");
    }
    let endpoint = format!("{}/push/1", server.url);
    let done = page.call("push.web.subscribe", &subscription(&endpoint));
    assert_eq!(done["ok"], true, "{done}");
    drop(page);

    let test = hub.json(&["notify", "test"]);
    let ways: Vec<(&str, bool)> = test["sent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| (w["way"].as_str().unwrap(), w["ok"] == true))
        .collect();
    assert_eq!(ways, [("command", true), ("ntfy", true), ("push", true)], "{test}");

    // A device that may not decide is not told of what waits.
    let mut guest = JsonClient::connect(&hub, &SecretKey::generate().unwrap(), &["operator.read"], &[]);
    let done = guest.call("push.web.subscribe", &subscription(&format!("{}/push/2", server.url)));
    assert_eq!(done["ok"], true, "{done}");
    drop(guest);

    let mut snap = command("hearth", hub.home(), &["nodes", "invoke", "garage", "camera.snap", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ntfy = eventually("ntfy hears of it", PATIENCE, || server.requests("/topic").into_iter().nth(1));
    assert_eq!(ntfy.text(), "A request waits for your yes or no");
    assert_eq!(ntfy.header("authorization"), Some("Bearer tk-secret"));
    assert_eq!(ntfy.header("priority"), Some("high"));
    let pushed =
        eventually("the browser hears of it", PATIENCE, || server.requests("/push/1").into_iter().nth(1));
    assert_eq!(pushed.header("content-encoding"), Some("aes128gcm"));
    assert_eq!(pushed.header("urgency"), Some("high"));
    assert_eq!(pushed.header("ttl"), Some("1800"));
    let permission = pushed.header("authorization").unwrap();
    assert!(
        permission.starts_with("vapid t=")
            && permission.contains(key["payload"]["vapidPublicKey"].as_str().unwrap())
    );
    let first = &server.requests("/push/1")[0];
    assert_eq!(first.body.len(), pushed.body.len(), "the length tells nothing");
    let lines = eventually("the command ran", PATIENCE, || {
        let text = std::fs::read_to_string(&told).ok()?;
        (text.lines().count() == 2).then_some(text)
    });
    let line = lines.lines().nth(1).unwrap();
    assert!(line.starts_with("A request waits for your yes or no|approval|"), "{line}");
    for text in [&lines, &ntfy.text()] {
        assert!(!text.contains("camera") && !text.contains("garage"), "{text}");
    }
    assert!(!hub.log().contains("tk-secret") && !hub.log().contains("/push/1"), "secrets in the log");

    // Nobody was connected all that time; the request waited for the person who was told.
    let id = line.rsplit('|').next().unwrap();
    let _ = hub.cli(&["approvals", "allow", id]).ok();
    assert!(snap.wait().unwrap().success());

    assert!(server.requests("/push/2").is_empty());
    let devices = hub.json(&["devices", "list"]);
    let guest =
        devices["paired"].as_array().unwrap().iter().find(|d| d["scopes"] == json!(["operator.read"]));
    let guest = guest.unwrap_or_else(|| panic!("{devices}"))["deviceId"].as_str().unwrap();
    assert_eq!(hub.json(&["notify", "show"])["browsers"], 2);
    let _ = hub.cli(&["devices", "remove", guest]).ok();
    assert_eq!(hub.json(&["notify", "show"])["browsers"], 1, "a subscription goes with its device");

    // A browser that withdrew is forgotten.
    server.answer(410);
    let _ = hub.cli(&["notify", "test"]);
    assert_eq!(hub.json(&["notify", "show"])["browsers"], 0);
}

#[test]
fn what_waits_is_told_again_after_a_restart_and_a_way_that_fails_is_named() {
    let server = StubServer::start();
    let mut hub = TestHub::start_with(&format!(
        "[notify]\ndetails = true\nlanguage = \"zh\"\n[notify.ntfy]\nurl = \"{}/topic\"\n",
        server.url
    ));
    let node = TestNode::paired(&hub, "garage", "");
    let mut snap = command("hearth", hub.home(), &["nodes", "invoke", "garage", "camera.snap"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let told = eventually("told", PATIENCE, || server.requests("/topic").into_iter().next());
    assert!(told.text().starts_with("有一个请求") && told.text().contains("garage"), "{}", told.text());
    hub.kill();
    hub.restart();
    let again = eventually("told again", PATIENCE, || server.requests("/topic").into_iter().nth(1));
    assert_eq!(again.text(), told.text());
    let _ = snap.kill();
    let _ = snap.wait();
    drop(node);

    server.answer(403);
    let failed = hub.cli(&["notify", "test"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stdout.contains("403") && failed.stderr.contains("1 of 1"), "{failed:?}");
    let none = TestHub::start();
    let refused = none.cli(&["notify", "test"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("no way is set up"), "{refused:?}");
}
