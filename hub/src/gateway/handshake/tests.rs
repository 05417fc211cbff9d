//! The handshake's states, one after the other, over real sockets.

use crate::gateway::rig::{Peer, Rig, connect_params, node_params};
use hearth_shared::connect::JsonProofVersion;
use hearth_shared::identity::SecretKey;
use serde_json::{Value, json};
use std::time::Duration;

/// A change of what a client sends.
type Change<'a> = &'a dyn Fn(&mut Value);

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

/// Refused with this code and reason, then closed with `close`.
async fn refused(mut peer: Peer, error: Value, code: &str, details: &str, close: u16) -> Value {
    assert_eq!(error["code"], code, "{error}");
    assert_eq!(error["details"]["code"].as_str().unwrap_or(""), details, "{error}");
    assert_eq!(peer.closed().await.0, close);
    error
}

#[tokio::test]
async fn a_client_with_the_token_gets_a_complete_hello() {
    let rig = Rig::start().await;
    let (_peer, hello) = rig.device(&key(1), |_| {}).await;
    let hello = hello.unwrap();
    assert_eq!(hello["protocol"], 4);
    assert_eq!(hello["auth"]["method"], "token");
    assert_eq!(hello["auth"]["role"], "operator");
    assert_eq!(hello["auth"]["scopes"].as_array().unwrap().len(), 5);
    assert!(hello["auth"]["deviceToken"].as_str().unwrap().len() == 43);
    assert!(hello["features"]["methods"].as_array().unwrap().iter().any(|m| m == "node.invoke"));
    assert!(hello["features"]["events"].as_array().unwrap().iter().any(|m| m == "presence"));
    assert_eq!(hello["policy"]["tickIntervalMs"], 30_000);
    assert_eq!(hello["policy"]["maxPayload"], 26_214_400);
    assert_eq!(hello["snapshot"]["health"]["ok"], true);
    assert!(hello["snapshot"]["presence"].as_array().unwrap().iter().any(|p| p["reason"] == "self"));
    for field in ["connId", "version", "bootId"] {
        assert!(!hello["server"][field].as_str().unwrap().is_empty());
    }
    // The second visit keeps the token: nothing new is told.
    let (_peer, hello) = rig.device(&key(1), |_| {}).await;
    assert!(hello.unwrap()["auth"].get("deviceToken").is_none());
}

#[tokio::test]
async fn both_signature_versions_are_taken() {
    let rig = Rig::start().await;
    for version in [JsonProofVersion::V2, JsonProofVersion::V3] {
        let mut peer = rig.dial().await;
        let mut params = connect_params();
        params["auth"] = json!({ "token": rig.token() });
        peer.sign(&mut params, &key(1), version);
        peer.call("connect", params).await.unwrap();
    }
}

#[tokio::test]
async fn every_failure_of_the_device_proof_has_its_code_in_order() {
    let rig = Rig::start().await;
    // Later faults are present as well: the first check that fails speaks.
    let stale =
        |device: &mut Value| device["signedAt"] = json!(device["signedAt"].as_i64().unwrap() - 121_000);
    let cases: [(&str, &str, &str, Change<'_>); 6] = [
        ("device identity mismatch", "DEVICE_AUTH_DEVICE_ID_MISMATCH", "device-id-mismatch", &|d| {
            d["id"] = key(9).device_id().to_string().into();
            stale(d);
            d["nonce"] = "".into();
        }),
        ("device identity mismatch", "DEVICE_AUTH_DEVICE_ID_MISMATCH", "device-id-mismatch", &|d| {
            d["publicKey"] = "not a key".into();
        }),
        ("device signature expired", "DEVICE_AUTH_SIGNATURE_EXPIRED", "device-signature-stale", &|d| {
            stale(d);
            d["nonce"] = "".into();
        }),
        ("device nonce required", "DEVICE_AUTH_NONCE_REQUIRED", "device-nonce-missing", &|d| {
            d["nonce"] = " ".into();
            d["signature"] = "AAAA".into();
        }),
        ("device nonce mismatch", "DEVICE_AUTH_NONCE_MISMATCH", "device-nonce-mismatch", &|d| {
            d["nonce"] = "x".into();
            d["signature"] = "AAAA".into();
        }),
        ("device signature invalid", "DEVICE_AUTH_SIGNATURE_INVALID", "device-signature", &|d| {
            d["signature"] = key(1).sign(b"something else").to_string().into();
        }),
    ];
    for (message, code, reason, change) in cases {
        let mut peer = rig.dial().await;
        let mut params = connect_params();
        params["auth"] = json!({ "token": rig.token() });
        peer.sign(&mut params, &key(1), JsonProofVersion::V3);
        change(&mut params["device"]);
        let error = peer.call("connect", params).await.unwrap_err();
        assert_eq!(error["message"], message);
        assert_eq!(error["details"]["reason"], reason);
        refused(peer, error, "INVALID_REQUEST", code, 1008).await;
    }
}

#[tokio::test]
async fn a_signature_over_other_claims_is_refused() {
    let rig = Rig::start().await;
    let changes: [fn(&mut Value); 4] = [
        |p| p["scopes"] = json!(["operator.admin"]),
        |p| p["client"]["platform"] = "darwin".into(),
        |p| p["auth"]["token"] = "other".into(),
        |p| p["client"]["id"] = "gateway-client".into(),
    ];
    for change in changes {
        let mut peer = rig.dial().await;
        let mut params = connect_params();
        params["scopes"] = json!(["operator.read"]);
        params["auth"] = json!({ "token": rig.token() });
        peer.sign(&mut params, &key(1), JsonProofVersion::V3);
        change(&mut params);
        let error = peer.call("connect", params).await.unwrap_err();
        refused(peer, error, "INVALID_REQUEST", "DEVICE_AUTH_SIGNATURE_INVALID", 1008).await;
    }
}

#[tokio::test]
async fn secrets_that_do_not_fit_have_their_codes() {
    let rig = Rig::start().await;
    let (peer, hello) = rig.device(&key(1), |p| p["auth"] = json!({ "token": "wrong" })).await;
    let error = hello.unwrap_err();
    assert_eq!(error["details"]["authReason"], "token_mismatch");
    assert_eq!(error["details"]["canRetryWithDeviceToken"], true);
    refused(peer, error, "INVALID_REQUEST", "AUTH_TOKEN_MISMATCH", 1008).await;

    let (peer, hello) = rig.device(&key(1), |p| p["auth"] = json!({})).await;
    refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_TOKEN_MISSING", 1008).await;

    let mut peer = rig.dial().await;
    let error = peer.call("connect", connect_params()).await.unwrap_err();
    assert_eq!(error["message"], "device identity required");
    refused(peer, error, "NOT_PAIRED", "DEVICE_IDENTITY_REQUIRED", 1008).await;

    let (peer, hello) = rig.device(&key(1), |p| p["auth"] = json!({ "deviceToken": "wrong" })).await;
    refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_DEVICE_TOKEN_MISMATCH", 1008).await;

    let (_peer, hello) = rig.device(&key(1), |p| p["auth"] = json!({ "password": rig.token() })).await;
    assert_eq!(hello.unwrap()["auth"]["method"], "token", "the other place for the same secret");
}

#[tokio::test]
async fn versions_meet_or_close_with_1002() {
    let rig = Rig::start().await;
    for (min, max, ok) in [(4, 4, true), (3, 4, true), (4, 9, true), (3, 3, false), (5, 5, false)] {
        let mut peer = rig.dial().await;
        let mut params = connect_params();
        params["minProtocol"] = min.into();
        params["maxProtocol"] = max.into();
        params["auth"] = json!({ "token": rig.token() });
        match peer.call("connect", params).await {
            Ok(hello) => assert!(ok && hello["protocol"] == 4, "{min}..{max}"),
            Err(error) => {
                assert!(!ok, "{min}..{max}: {error}");
                assert_eq!(error["message"], "protocol mismatch");
                assert_eq!(error["details"]["expectedProtocol"], 4);
                assert_eq!(error["details"]["minimumProbeProtocol"], 3);
                refused(peer, error, "INVALID_REQUEST", "PROTOCOL_MISMATCH", 1002).await;
            }
        }
    }
    let (_peer, hello) = rig
        .device(&key(2), |p| {
            node_params(p);
            p["minProtocol"] = 3.into();
            p["maxProtocol"] = 3.into();
        })
        .await;
    assert_eq!(hello.unwrap()["protocol"], 4, "a node of version 3 is answered with 4");
}

#[tokio::test]
async fn parameters_are_closed_and_the_first_request_is_connect() {
    let rig = Rig::start().await;
    let changes: [(&str, Change<'_>); 4] = [
        ("invalid connect params: at root: unexpected property 'foo'", &|p: &mut Value| p["foo"] = 1.into()),
        (
            "invalid connect params: at /client/id: must be equal to one of the allowed values",
            &|p: &mut Value| p["client"]["id"] = "my-client".into(),
        ),
        ("invalid role", &|p: &mut Value| p["role"] = "bogus".into()),
        (
            "invalid connect params: at /client/version: must NOT have fewer than 1 characters",
            &|p: &mut Value| p["client"]["version"] = "".into(),
        ),
    ];
    for (message, change) in changes {
        let mut peer = rig.dial().await;
        let mut params = connect_params();
        change(&mut params);
        let error = peer.call("connect", params).await.unwrap_err();
        assert_eq!(error["message"], message);
        refused(peer, error, "INVALID_REQUEST", "", 1008).await;
    }
    let mut peer = rig.dial().await;
    let error = peer.call("health", json!({})).await.unwrap_err();
    assert_eq!(error["message"], "invalid handshake: first request must be connect");
    assert_eq!(peer.closed().await.0, 1008);
    for text in
        ["", "[]", "{", r#"{"type":"req","id":"","method":"connect"}"#, r#"{"type":"event","event":"x"}"#]
    {
        let mut peer = rig.dial().await;
        peer.send(text).await;
        assert_eq!(peer.closed().await, (1008, "invalid request frame".into()), "{text}");
    }
}

#[tokio::test]
async fn a_frame_over_64_kib_before_connect_is_too_big_and_one_after_is_not() {
    let rig = Rig::start().await;
    let mut peer = rig.dial().await;
    peer.send("x".repeat(65_537)).await;
    assert_eq!(peer.closed().await.0, 1009);
    let mut peer = rig.owner(&["operator.read"]).await;
    let error = peer.call("x".repeat(300_000).as_str(), json!({})).await.unwrap_err();
    assert!(error["message"].as_str().unwrap().starts_with("unknown method: xxx"));
    assert!(error["message"].as_str().unwrap().len() < 200);
}

#[tokio::test]
async fn requests_sent_behind_connect_are_answered_after_it() {
    let rig = Rig::start().await;
    let mut peer = rig.dial().await;
    let mut params = connect_params();
    params["auth"] = json!({ "token": rig.token() });
    let connect = peer.request("connect", params).await;
    let mut ids = Vec::new();
    for _ in 0..15 {
        ids.push(peer.request("health", json!({})).await);
    }
    assert_eq!(peer.answer(&connect).await.unwrap()["type"], "hello-ok");
    let mut answered = std::collections::HashSet::new();
    while answered.len() < ids.len() {
        let frame = peer.frame().await;
        if frame["type"] == "res" {
            assert_eq!(frame["ok"], true);
            assert!(ids.iter().any(|id| frame["id"] == id.as_str()));
            answered.insert(frame["id"].to_string());
        }
    }
}

#[tokio::test]
async fn rights_are_those_approved_for_the_device() {
    let rig = Rig::with(|c| c.gateway.auto_approve_local = false).await;
    rig.hub.devices.open_window(Duration::from_secs(60), vec!["127.0.0.1:1".into()]).await.unwrap();
    let only_read = |p: &mut Value| p["scopes"] = json!(["operator.read"]);
    let (peer, hello) = rig.device(&key(1), only_read).await;
    let error = refused(peer, hello.unwrap_err(), "NOT_PAIRED", "PAIRING_REQUIRED", 1008).await;
    assert_eq!(error["details"]["reason"], "not-paired");
    let request = error["details"]["requestId"].as_str().unwrap().to_owned();
    assert!(!request.is_empty());

    let (peer, hello) = rig.device(&key(1), only_read).await;
    let again = refused(peer, hello.unwrap_err(), "NOT_PAIRED", "PAIRING_REQUIRED", 1008).await;
    assert_eq!(again["details"]["requestId"], request.as_str(), "a retry is the same request");

    let mut owner = rig.owner(&["operator.pairing", "operator.read"]).await;
    let list = owner.call("device.pair.list", json!({})).await.unwrap();
    assert_eq!(list["pending"][0]["requestId"], request.as_str());
    let approved = owner.call("device.pair.approve", json!({ "requestId": request })).await.unwrap();
    assert_eq!(approved["device"]["scopes"], json!(["operator.read"]));
    assert_eq!(owner.event("device.pair.resolved").await["payload"]["decision"], "approved");

    let (mut peer, hello) = rig.device(&key(1), only_read).await;
    assert_eq!(hello.unwrap()["auth"]["scopes"], json!(["operator.read"]));
    let error = peer.call("chat.send", json!({"sessionKey":"main","message":"x","idempotencyKey":"q"})).await;
    let error = error.unwrap_err();
    assert_eq!(error["code"], "FORBIDDEN");
    assert_eq!(error["message"], "missing scope: operator.write");
    assert_eq!(error["details"]["requiredScopes"], json!(["operator.write"]));

    // More rights are a new question to a person.
    let (peer, hello) = rig.device(&key(1), |_| {}).await;
    let error = refused(peer, hello.unwrap_err(), "NOT_PAIRED", "PAIRING_REQUIRED", 1008).await;
    assert_eq!(error["details"]["reason"], "scope-upgrade");
    assert_eq!(error["details"]["approvedScopes"], json!(["operator.read"]));
}

#[tokio::test]
async fn a_stranger_at_the_closed_window_is_counted_and_not_listed() {
    let rig = Rig::start().await;
    let (peer, hello) = rig.device(&key(1), |p| p["auth"] = json!({})).await;
    refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_TOKEN_MISSING", 1008).await;
    assert_eq!(rig.hub.devices.window().knocks_while_closed, 1);
    assert!(rig.hub.devices.list().await.unwrap().0.is_empty());
}

#[tokio::test]
async fn a_device_without_any_secret_is_approved_fetches_its_token_once_and_needs_it_then() {
    let rig = Rig::start().await;
    rig.hub.devices.open_window(Duration::from_secs(60), vec!["127.0.0.1:1".into()]).await.unwrap();
    let bare = |p: &mut Value| p["auth"] = json!({});
    let (peer, hello) = rig.device(&key(1), bare).await;
    let error = refused(peer, hello.unwrap_err(), "NOT_PAIRED", "PAIRING_REQUIRED", 1008).await;
    rig.hub.devices.approve(error["details"]["requestId"].as_str().unwrap(), "test").await.unwrap();
    let (peer, hello) = rig.device(&key(1), bare).await;
    let token = hello.unwrap()["auth"]["deviceToken"].as_str().unwrap().to_owned();
    drop(peer);
    let (peer, hello) = rig.device(&key(1), bare).await;
    refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_TOKEN_MISSING", 1008).await;
    for field in ["deviceToken", "token"] {
        let (_peer, hello) = rig.device(&key(1), |p| p["auth"] = json!({ field: token })).await;
        assert_eq!(hello.unwrap()["auth"]["method"], "device-token");
    }
    // Another device cannot use it.
    let (peer, hello) = rig.device(&key(2), |p| p["auth"] = json!({ "deviceToken": token })).await;
    refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_DEVICE_TOKEN_MISMATCH", 1008).await;
}

#[tokio::test]
async fn a_setup_code_admits_one_node_with_its_surface() {
    let rig = Rig::start().await;
    let mut owner = rig.owner(&["operator.admin"]).await;
    let code = owner.call("device.pair.setupCode", json!({ "bootstrapProfile": "node" })).await.unwrap();
    assert_eq!(code["access"], "node");
    use base64::Engine as _;
    let contents =
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(code["setupCode"].as_str().unwrap());
    let contents: Value = serde_json::from_slice(&contents.unwrap()).unwrap();
    let token = contents["bootstrapToken"].clone();
    let claim = |p: &mut Value| {
        node_params(p);
        p["auth"] = json!({ "bootstrapToken": token });
    };
    let (mut node, hello) = rig.device(&key(2), claim).await;
    let hello = hello.unwrap();
    assert_eq!(hello["auth"]["method"], "bootstrap-token");
    assert!(hello["auth"]["deviceToken"].is_string());
    // The first answer comes after the node is attached.
    node.call("node.pending.pull", json!({})).await.unwrap();
    let nodes = owner.call("node.list", json!({})).await.unwrap();
    assert_eq!(nodes["nodes"][0]["approvalState"], "approved");
    assert_eq!(nodes["nodes"][0]["commands"], json!(["camera.snap", "system.which"]));
    assert_eq!(nodes["nodes"][0]["checkedOnNode"], false);

    let (peer, hello) = rig.device(&key(3), claim).await;
    let error =
        refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_BOOTSTRAP_TOKEN_INVALID", 1008).await;
    assert_eq!(error["details"]["recommendedNextStep"], "review_auth_configuration");
    owner.event("hearth.alarm").await;
}

#[tokio::test]
async fn a_page_comes_in_by_its_link_once_and_with_the_links_rights() {
    let rig = Rig::start().await;
    let mut tokened = rig.owner(&["operator.admin"]).await;
    let error = tokened.call("hearth.page.link", json!({})).await.unwrap_err();
    assert_eq!(error["code"], "FORBIDDEN", "the token file alone makes nobody an approver: {error}");
    let (mut owner, hello) = rig.device(&key(1), |_| {}).await;
    hello.unwrap();
    let link = owner.call("hearth.page.link", json!({ "rights": "guest" })).await.unwrap();
    let url = link["urls"][0].as_str().unwrap();
    let (base, secret) = url.split_once("/#join=").unwrap();
    assert_eq!(base, format!("http://{}", rig.address), "the secret is in the fragment only");
    let claim = |p: &mut Value| {
        p["client"]["id"] = "webchat-ui".into();
        p["client"]["mode"] = "webchat".into();
        p["auth"] = json!({ "bootstrapToken": secret });
    };
    let (peer, hello) = rig.device(&key(2), |p| p["auth"] = json!({ "bootstrapToken": secret })).await;
    refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_BOOTSTRAP_TOKEN_INVALID", 1008).await;
    let (mut page, hello) = rig.device(&key(3), claim).await;
    let hello = hello.unwrap();
    assert_eq!(hello["auth"]["scopes"], json!(["operator.read", "operator.write"]));
    let token = hello["auth"]["deviceToken"].clone();
    let error = page.call("hearth.page.link", json!({})).await.unwrap_err();
    assert_eq!(error["code"], "FORBIDDEN", "{error}");
    let (peer, hello) = rig.device(&key(4), claim).await;
    refused(peer, hello.unwrap_err(), "INVALID_REQUEST", "AUTH_BOOTSTRAP_TOKEN_INVALID", 1008).await;
    owner.event("hearth.alarm").await;
    let (_page, hello) = rig.device(&key(3), |p| p["auth"] = json!({ "deviceToken": token })).await;
    assert!(hello.is_ok(), "later visits show the device's own token");
}

#[tokio::test]
async fn wrong_tokens_are_limited_and_lock_nobody_out() {
    let rig = Rig::start().await;
    let (_peer, hello) = rig.device(&key(1), |_| {}).await;
    let token = hello.unwrap()["auth"]["deviceToken"].clone();
    let mut last = Value::Null;
    for _ in 0..=crate::gateway::rate::MAX_FAILURES {
        let (_peer, hello) = rig.device(&key(7), |p| p["auth"] = json!({ "token": "wrong" })).await;
        last = hello.unwrap_err();
    }
    assert_eq!(last["details"]["code"], "AUTH_RATE_LIMITED");
    assert!(last["retryAfterMs"].as_u64().unwrap() <= 60_000);
    let (_peer, hello) = rig.device(&key(1), |p| p["auth"] = json!({ "deviceToken": token })).await;
    assert!(hello.is_ok(), "a device that proves its key has its own count");
    rig.owner(&["operator.read"]).await;
}

#[tokio::test]
async fn a_flood_of_garbage_does_not_keep_clients_out() {
    use tokio::io::AsyncWriteExt as _;
    let rig = Rig::start().await;
    let mut sockets = Vec::new();
    for i in 0..400u32 {
        let mut socket = tokio::net::TcpStream::connect(rig.address).await.unwrap();
        let junk: Vec<u8> = match i % 4 {
            0 => Vec::new(),
            1 => vec![0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
            2 => b"GET / HTTP/1.1\r\nX: ".to_vec(),
            _ => i.to_le_bytes().repeat(50),
        };
        let _ = socket.write_all(&junk).await;
        sockets.push(socket);
    }
    let mut peer = rig.owner(&["operator.read"]).await;
    let status = peer.call("status", json!({})).await.unwrap();
    let waiting = status["connections"]["unauthenticated"].as_u64().unwrap();
    assert!(waiting <= hearth_shared::limits::MAX_UNAUTHENTICATED as u64, "{status}");
}

#[tokio::test]
async fn who_says_nothing_is_closed_at_the_deadline() {
    use tokio::io::AsyncReadExt as _;
    let rig = Rig::start().await;
    let mut silent = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let mut challenged = rig.dial().await;
    let (read, close) = tokio::join!(
        tokio::time::timeout(crate::gateway::rig::PATIENCE, async {
            let mut byte = [0];
            silent.read(&mut byte).await
        }),
        challenged.closed(),
    );
    assert!(matches!(read.expect("closed in time"), Ok(0) | Err(_)));
    assert_eq!(close, (1008, "handshake timeout".into()));
}
