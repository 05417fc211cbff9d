//! The client against a scripted hub on a real socket.

use super::*;
use crate::home::Home;
use hearth_shared::connect::JsonProof;
use hearth_shared::identity::PublicKey;
use serde_json::json;
use std::path::Path;
use tokio::net::{TcpListener, TcpStream};

type Peer = WebSocketStream<TcpStream>;

struct Scripted {
    home: Home,
    listener: TcpListener,
    _dir: tempfile::TempDir,
}

impl Scripted {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        write(&home.address(), &listener.local_addr().unwrap().to_string());
        write(&home.token(), "the-token\n");
        Self { home, listener, _dir: dir }
    }

    async fn accept(&self) -> Peer {
        let (tcp, _) = self.listener.accept().await.unwrap();
        let mut peer = tokio_tungstenite::accept_async(tcp).await.unwrap();
        say(
            &mut peer,
            json!({"type":"event","event":"connect.challenge","payload":{"nonce":"n-1","ts":1234}}),
        )
        .await;
        peer
    }

    async fn connected(&self) -> (Client, Peer) {
        let target = Target::local(&self.home).unwrap();
        let client = Client::connect(&target, Access::OWNER);
        let hub = async {
            let mut peer = self.accept().await;
            let connect = hear(&mut peer).await;
            say(&mut peer, json!({"type":"res","id":connect["id"],"ok":true,"payload":{"features":{"methods":["health"]}}})).await;
            peer
        };
        let (client, peer) = tokio::join!(client, hub);
        (client.unwrap(), peer)
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

async fn say(peer: &mut Peer, value: Value) {
    peer.send(Message::text(value.to_string())).await.unwrap();
}

async fn hear(peer: &mut Peer) -> Value {
    loop {
        if let Message::Text(text) = peer.next().await.unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

#[tokio::test]
async fn the_connect_is_signed_with_the_key_of_the_home() {
    let hub = Scripted::new().await;
    let target = Target::local(&hub.home).unwrap();
    let serve = async {
        let mut peer = hub.accept().await;
        let connect = hear(&mut peer).await;
        say(&mut peer, json!({"type":"res","id":connect["id"],"ok":true,"payload":{}})).await;
        connect
    };
    let (client, connect) = tokio::join!(Client::connect(&target, Access::ASKABLE), serve);
    client.unwrap();
    let p = &connect["params"];
    let key = PublicKey::from_wire(p["device"]["publicKey"].as_str().unwrap()).unwrap();
    let scopes: Vec<String> = serde_json::from_value(p["scopes"].clone()).unwrap();
    let id = p["device"]["id"].as_str().unwrap();
    assert_eq!(key.device_id().to_string(), id);
    let proof = JsonProof {
        device_id: id,
        client_id: p["client"]["id"].as_str().unwrap(),
        client_mode: p["client"]["mode"].as_str().unwrap(),
        role: "operator",
        scopes: &scopes,
        signed_at_ms: 1234,
        token: "the-token",
        nonce: "n-1",
        platform: p["client"]["platform"].as_str().unwrap(),
        device_family: p["client"]["deviceFamily"].as_str().unwrap(),
    };
    let signature =
        hearth_shared::identity::Signature::from_wire(p["device"]["signature"].as_str().unwrap()).unwrap();
    assert_eq!(proof.verify(&key, &signature).unwrap(), hearth_shared::connect::JsonProofVersion::V3);
    assert_eq!(p["caps"], json!(["approvals", "tool-events"]));
    // The key stays for the next time.
    assert!(hub.home.cli_key().exists());
}

#[tokio::test]
async fn answers_find_their_request_and_events_are_kept_in_order() {
    let hub = Scripted::new().await;
    let (mut client, mut peer) = hub.connected().await;
    assert!(client.has_method("health") && !client.has_method("other"));
    let first = client.send("agent.wait", json!({})).await.unwrap();
    let serve = async {
        let wait = hear(&mut peer).await;
        let health = hear(&mut peer).await;
        say(&mut peer, json!({"type":"event","event":"tick","payload":{"ts":1},"seq":1})).await;
        say(&mut peer, json!({"type":"res","id":wait["id"],"ok":true,"payload":{"status":"ok"}})).await;
        say(&mut peer, json!({"type":"res","id":health["id"],"ok":true,"payload":{"ok":true}})).await;
    };
    let (health, ()) = tokio::join!(client.call("health", json!({})), serve);
    assert_eq!(health.unwrap(), json!({"ok": true}));
    assert!(matches!(client.next().await.unwrap(), Incoming::Event(e) if e.event == "tick"));
    match client.next().await.unwrap() {
        Incoming::Answer { id, result } => assert_eq!((id, result.unwrap()), (first, json!({"status":"ok"}))),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn refusals_become_exit_codes_with_a_next_step() {
    let hub = Scripted::new().await;
    let (mut client, mut peer) = hub.connected().await;
    for (error, exit) in [
        (json!({"code":"INVALID_REQUEST","message":"no node `x`","details":{"code":"UNKNOWN_NODE"}}), 4),
        (json!({"code":"FORBIDDEN","message":"DENIED: rule","details":{"code":"DENIED"}}), 5),
        (json!({"code":"FORBIDDEN","message":"x","details":{"code":"NOBODY_TO_ASK"}}), 5),
        (
            json!({"code":"INVALID_REQUEST","message":"unknown or expired approval id","details":{"reason":"APPROVAL_NOT_FOUND"}}),
            4,
        ),
        (json!({"code":"UNAVAILABLE","message":"x"}), 1),
        (json!({"code":"INVALID_REQUEST","message":"x","details":{"code":"INVALID_PARAMS"}}), 2),
    ] {
        let serve = async {
            let request = hear(&mut peer).await;
            say(&mut peer, json!({"type":"res","id":request["id"],"ok":false,"error":error})).await;
        };
        let (answer, ()) = tokio::join!(client.call("node.invoke", json!({})), serve);
        let failure = answer.unwrap_err();
        assert_eq!(failure.code(), exit, "{failure}");
        assert!(!failure.next().is_empty());
    }
}

#[tokio::test]
async fn an_unknown_device_is_told_how_to_be_let_in() {
    let hub = Scripted::new().await;
    let target = Target::local(&hub.home).unwrap();
    let serve = async {
        let mut peer = hub.accept().await;
        let connect = hear(&mut peer).await;
        let error =
            json!({"code":"NOT_PAIRED","message":"pairing required","details":{"code":"PAIRING_REQUIRED"}});
        say(&mut peer, json!({"type":"res","id":connect["id"],"ok":false,"error":error})).await;
    };
    let (client, ()) = tokio::join!(Client::connect(&target, Access::OWNER), serve);
    let failure = client.unwrap_err();
    assert_eq!(failure.code(), 5);
    assert!(failure.next().contains("hearth devices approve"));
}

#[tokio::test]
async fn no_hub_and_a_gone_hub_are_exit_code_3() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::locate(Some(dir.path()));
    assert_eq!(Target::local(&home).unwrap_err().code(), 3);

    let hub = Scripted::new().await;
    let (mut client, peer) = hub.connected().await;
    drop(peer);
    assert_eq!(client.call("health", json!({})).await.unwrap_err().code(), 3);

    let target = Target::local(&hub.home).unwrap();
    drop(hub.listener);
    assert_eq!(Client::connect(&target, Access::OWNER).await.unwrap_err().code(), 3);
}

#[tokio::test]
async fn something_else_on_the_port_is_named_as_such() {
    let hub = Scripted::new().await;
    let target = Target::local(&hub.home).unwrap();
    let serve = async {
        use tokio::io::AsyncWriteExt as _;
        let (mut tcp, _) = hub.listener.accept().await.unwrap();
        tcp.write_all(b"SSH-2.0-OpenSSH_9\r\n").await.unwrap();
        tcp
    };
    let (client, _tcp) = tokio::join!(Client::connect(&target, Access::OWNER), serve);
    let failure = client.unwrap_err();
    assert_eq!(failure.code(), 3);
    assert!(failure.message().contains("speaks no WebSocket"), "{failure}");
}

#[test]
fn remote_addresses_are_checked() {
    let key = || hearth_shared::identity::SecretKey::from_seed(&[1; 32]);
    let pin = "ab".repeat(32);
    let url = |url: &str| Target::remote(url, &pin, None, key()).map(|t| t.url());
    assert_eq!(url("wss://hub.lan").unwrap(), "wss://hub.lan:18789/");
    assert_eq!(url("wss://10.0.0.1:5/").unwrap(), "wss://10.0.0.1:5/");
    assert_eq!(url("wss://[::1]:5").unwrap(), "wss://[::1]:5/");
    for bad in ["ws://hub", "wss://", "wss://a/b", "wss://u@h", "https://x"] {
        assert_eq!(url(bad).unwrap_err().code(), 2, "{bad}");
    }
    assert_eq!(Target::remote("wss://a", "zz", None, key()).unwrap_err().code(), 2);
}
