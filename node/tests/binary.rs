//! The real program as a process, against a hub over real TLS sockets.
#![allow(clippy::large_futures, clippy::unwrap_used)] // tests

#[path = "../src/link/tests/hub.rs"]
#[allow(dead_code)] // the unit tests use the rest
mod hub;

use hearth_shared::approver::{Approver, ApproverKind};
use hearth_shared::error::ErrorCode;
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::{PublicKey, SecretKey};
use hearth_shared::link::{Knock, Outcome, Refused, RefusedCode, ToHub, ToNode};
use hearth_shared::pairing::{CodeSecret, SetupCode};
use hearth_shared::reading::{BootId, Mark};
use hub::{Hub, Peer, request};
use serde_json::Value;
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

const DEADLINE: Duration = Duration::from_secs(60);

struct Node {
    _dir: tempfile::TempDir,
    home: PathBuf,
    hub: Hub,
}

impl Node {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        Self { _dir: dir, home, hub: Hub::new().await }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth-node"));
        command.arg("--home").arg(&self.home).args(arguments);
        command.env_remove("HEARTH_LOG").env_remove("HEARTH_NODE_NAME").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end with this on stdin.
    async fn call(&self, arguments: &[&str], stdin: &str) -> (i32, String, String) {
        let mut child = self.command(arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).await.unwrap();
        let Output { status, stdout, stderr } =
            tokio::time::timeout(DEADLINE, child.wait_with_output()).await.unwrap().unwrap();
        let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
        (status.code().unwrap_or(-1), text(stdout), text(stderr))
    }

    fn code(&self) -> String {
        self.code_of(self.hub.key.public())
    }

    fn code_of(&self, key: PublicKey) -> String {
        let hub = Approver { key, kind: ApproverKind::Hub, admin: false, name: "home".into() };
        let code = SetupCode {
            addresses: vec![self.hub.address.clone()],
            hub: key,
            spki: self.hub.spki,
            secret: CodeSecret([7; 32]),
            approvers: vec![hub],
        };
        code.encode().expose().to_owned()
    }

    async fn pair(&self) {
        let code = self.code();
        let hub = async {
            let mut peer = self.hub.accept().await;
            let hello = peer.hello(&self.hub).await;
            assert!(matches!(hello.knock, Knock::Code { .. }));
            peer.welcome(&self.hub, &hello, |w| w.newly_paired = true).await;
            while peer.receive().await.is_some() {}
        };
        // The code through stdin, so that it does not stand in the list of processes.
        let call = self.call(&["pair", "-", "--yes", "--simulate", "--name", "garage", "--json"], &code);
        let ((exit, out, err), ()) = tokio::join!(call, hub);
        assert_eq!(exit, 0, "{err}");
        let out: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(out["node"]["name"], "garage");
    }

    fn start(&self) -> Child {
        let mut command = self.command(&["run", "--simulate"]);
        command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    async fn status(&self) -> Value {
        let (exit, out, err) = self.call(&["status", "--json"], "").await;
        assert_eq!(exit, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }
}

/// The next frame that is neither readings nor a change of the declaration.
async fn frame(peer: &mut Peer) -> ToHub {
    loop {
        match tokio::time::timeout(DEADLINE, peer.receive()).await.unwrap().unwrap() {
            ToHub::Outbox { .. } | ToHub::Declare { .. } | ToHub::Approvers(_) => {}
            frame => return frame,
        }
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn pair_run_approve_status_and_stop() {
    let node = Node::new().await;
    node.pair().await;
    let other = node.code_of(SecretKey::generate().unwrap().public());
    let (exit, _, err) = node.call(&["pair", &other, "--yes"], "").await;
    assert_eq!(exit, 1);
    assert!(err.contains("another hub") && err.contains("hearth-node reset"), "{err}");
    // With the same hub again, after that one had removed the node: the list stays as it is.
    node.pair().await;

    let mut child = node.start();
    let (mut peer, hello) = node.hub.admit(|_| {}).await;
    assert_eq!((hello.knock.clone(), hello.approvers.epoch), (Knock::Paired, 1));

    // A picture needs the hub's yes: challenge, grant, attachment, receipt.
    let snap = request(1, "camera.snap", "{}");
    peer.send(ToNode::Invoke(snap.clone())).await;
    let ToHub::Result(result) = frame(&mut peer).await else { panic!("no result") };
    assert!(matches!(result.outcome, Outcome::ApprovalRequired { .. }), "{:?}", result.outcome);
    peer.send(ToNode::AskChallenge(snap.clone())).await;
    let ToHub::Challenge { challenge, .. } = frame(&mut peer).await else { panic!("no challenge") };
    assert_eq!(challenge.open(&hello.key).unwrap().name, "garage");
    let grant = Grant::sign(&node.hub.key, challenge.digest(), Decision::AllowOnce, 1);
    peer.send(ToNode::Grant { request: snap.request, grant }).await;
    let ToHub::Attachment(attachment) = frame(&mut peer).await else { panic!("no picture") };
    let mut picture = Vec::new();
    let result = loop {
        match frame(&mut peer).await {
            ToHub::Chunk { bytes, transfer } => {
                let credit = bytes.len() as u32;
                picture.extend(bytes);
                peer.send(ToNode::Credit { transfer, bytes: credit }).await;
            }
            ToHub::Result(result) => break result,
            other => panic!("{other:?}"),
        }
    };
    result.verify(&hello.key).unwrap();
    assert_eq!(picture.len() as u64, attachment.size);
    assert_eq!(picture[..2], [0xff, 0xd8], "a JPEG");

    // Edited rules are in force after SIGHUP, and the hub is told.
    let file = node.home.join("node.toml");
    let text = std::fs::read_to_string(&file).unwrap() + "\n[policy]\ncapture = \"deny\"\n";
    std::fs::write(&file, text).unwrap();
    signal(&child, rustix::process::Signal::HUP);
    loop {
        match tokio::time::timeout(DEADLINE, peer.receive()).await.unwrap().unwrap() {
            ToHub::Declare { declaration } => {
                assert_ne!(declaration, hello.declaration);
                break;
            }
            ToHub::Outbox { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    peer.send(ToNode::Invoke(request(2, "camera.snap", "{}"))).await;
    let ToHub::Result(denied) = frame(&mut peer).await else { panic!("no result") };
    assert!(matches!(&denied.outcome, Outcome::Failed(e) if e.code == ErrorCode::Denied), "{denied:?}");

    // The running node answers beside the link.
    let status = node.status().await;
    assert_eq!(status["running"], true);
    assert_eq!(status["link"]["state"], "online");
    assert_eq!(status["hub"]["id"], node.hub.key.device_id().to_string());
    assert!(status["health"].get("error").is_none(), "{}", status["health"]);
    let key = "11".repeat(32);
    let (exit, out, err) = node.call(&["approvers", "add", &key, "--name", "anna", "--json"], "").await;
    assert_eq!((exit, err.as_str()), (0, ""), "through the control socket");
    let list: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["approvers"].as_array().unwrap().len(), 2);
    let id = list["approvers"][1]["id"].as_str().unwrap();
    let (exit, _, err) = node.call(&["approvers", "remove", &id[..8]], "").await;
    assert_eq!(exit, 0, "{err}");
    let (exit, _, err) = node.call(&["run", "--simulate"], "").await;
    assert_eq!(exit, 1);
    assert!(err.contains(&format!("process {}", child.id().unwrap())), "{err}");

    signal(&child, rustix::process::Signal::TERM);
    assert!(matches!(frame(&mut peer).await, ToHub::Goodbye { .. }));
    let exit = tokio::time::timeout(DEADLINE, child.wait()).await.unwrap().unwrap();
    assert!(exit.success());
    assert!(!node.home.join("control.sock").exists());
    let status = node.status().await;
    assert_eq!((&status["running"], &status["approvers"]["total"]), (&Value::Bool(false), &Value::from(1)));

    let (exit, out, err) = node.call(&["reset", "--yes", "--json"], "").await;
    assert_eq!(exit, 0, "{err}");
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_ne!(out["node"], hello.key.device_id().to_string());
    assert_eq!(node.call(&["run"], "").await.0, 3);
}

#[tokio::test]
async fn readings_survive_kill_9_at_any_moment() {
    let node = Node::new().await;
    node.pair().await;
    let sensor = "\n[board]\nsimulate = true\n[[board.sensor]]\nid = \"t\"\nquantity = \"temperature\"\ninterval_ms = 100\n";
    let file = node.home.join("node.toml");
    let text = std::fs::read_to_string(&file).unwrap() + sensor;
    std::fs::write(&file, text).unwrap();
    let mut mark: Option<Mark> = None;
    let mut seen: HashSet<(BootId, u64)> = HashSet::new();
    let mut boots = HashSet::new();
    for round in 0..8u64 {
        let mut child = node.start();
        let (mut peer, hello) = node.hub.admit(|w| w.mark = mark).await;
        boots.insert(hello.boot);
        // At least two batches, so that some were acknowledged and some not when the process dies.
        for batch in 0..2 + round % 2 {
            let (epoch, items) = loop {
                match tokio::time::timeout(DEADLINE, peer.receive()).await.unwrap().unwrap() {
                    ToHub::Outbox { epoch, items } => break (epoch, items),
                    _ => continue,
                }
            };
            for item in items {
                let next = mark.map_or(1, |m| m.seq + 1);
                assert!(mark.is_none_or(|m| m.epoch == epoch), "the same life of the outbox");
                assert!(item.seq <= next, "a gap before {}", item.seq);
                if item.seq == next {
                    mark = Some(Mark { epoch, seq: item.seq });
                    assert!(seen.insert((item.boot, item.mono_ms)), "recorded once, arrived once");
                }
            }
            if batch == 0 {
                peer.send(ToNode::OutboxAck(mark.unwrap())).await;
            }
            if batch == 1 && round % 2 == 0 {
                break;
            }
            peer.send(ToNode::OutboxAck(mark.unwrap())).await;
        }
        child.start_kill().unwrap();
        child.wait().await.unwrap();
    }
    assert_eq!(boots.len(), 8);
    assert!(seen.iter().map(|(b, _)| *b).collect::<HashSet<_>>().len() == 8, "readings of every start");
}

#[tokio::test]
async fn words_are_shown_and_only_a_yes_pairs() {
    let node = Node::new().await;
    let address = node.hub.address.clone();
    for (answer, exit) in [("n\n", 1), ("", 1), ("y\n", 0)] {
        let hub = async {
            let mut peer = node.hub.accept().await;
            let hello = peer.hello(&node.hub).await;
            assert!(matches!(hello.knock, Knock::Words { .. }));
            peer.send(ToNode::WordsNonce { nonce: hello.nonce }).await;
            assert!(matches!(peer.receive().await, Some(ToHub::WordsReveal { .. })));
            let said = peer.receive().await;
            if exit == 0 {
                assert_eq!(said, Some(ToHub::WordsConfirmed));
                peer.welcome(&node.hub, &hello, |w| w.newly_paired = true).await;
                while peer.receive().await.is_some() {}
            } else {
                assert!(matches!(said, Some(ToHub::Goodbye { .. })), "{said:?}");
            }
        };
        let arguments = ["pair", address.as_str(), "--simulate"];
        let ((code, out, err), ()) = tokio::join!(node.call(&arguments, answer), hub);
        assert_eq!(code, exit, "{out}{err}");
        let words = out.lines().find_map(|l| l.strip_prefix("Words:  ")).unwrap();
        assert_eq!(words.split(' ').count(), 4);
        assert_eq!(node.home.join("hub.json").exists(), exit == 0);
    }
}

#[tokio::test]
async fn exit_codes_and_messages() {
    let node = Node::new().await;
    assert_eq!(node.call(&["frobnicate"], "").await.0, 2);
    assert_eq!(node.call(&["status"], "").await.0, 3);
    assert_eq!(node.call(&["pair", "-"], "").await.0, 2, "nothing to pair with");
    assert_eq!(node.call(&["pair", "{\"code\": 1}"], "").await.0, 2);
    let hub = async {
        let mut peer = node.hub.accept().await;
        peer.hello(&node.hub).await;
        let message = "no pairing window is open; run `hearth pair` on the hub".to_owned();
        peer.send(ToNode::Refused(Refused { code: RefusedCode::PairingClosed, message, retry_after_ms: 0 }))
            .await;
    };
    let code = node.code();
    let arguments = ["pair", code.as_str(), "--yes"];
    let ((exit, _, err), ()) = tokio::join!(node.call(&arguments, ""), hub);
    assert_eq!(exit, 4);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains("run `hearth pair`"), "{err}");
    assert_eq!(node.call(&["pair", &code], "").await.0, 1, "nobody to ask");
    std::fs::write(node.home.join("node.toml"), "nane = \"x\"\n").unwrap();
    let (exit, _, err) = node.call(&["config", "check"], "").await;
    assert_eq!(exit, 1);
    assert!(err.contains("node.toml:1: unknown key `nane`; did you mean `name`?"), "{err}");
    let (exit, out, _) = node.call(&["config", "example"], "").await;
    assert_eq!(exit, 0);
    assert!(out.contains("[policy]"));
}
