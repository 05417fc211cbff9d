//! Sessions, events, HTTP and foreign nodes, over real sockets.

use super::rig::{PATIENCE, Peer, Rig, node_params};
use hearth_shared::identity::SecretKey;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

/// Sends raw HTTP and gives status and the whole answer.
async fn http(rig: &Rig, request: String) -> (u16, String) {
    let mut socket = TcpStream::connect(rig.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = async {
        let mut piece = [0; 4096];
        loop {
            match socket.read(&mut piece).await {
                Ok(0) | Err(_) => break,
                Ok(n) => answer.extend(&piece[..n]),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer in time");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, text)
}

fn get(path: &str, host: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n")
}

fn upgrade(path: &str, host: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

#[tokio::test]
async fn plain_routes_answer_known_hosts_only() {
    let rig = Rig::with(|c| c.gateway.hosts = vec!["hub.example".into()]).await;
    for host in ["localhost", "127.0.0.1:18789", "[::1]:1", "hub.example", "HUB.example:80"] {
        let (status, text) = http(&rig, get("/healthz", host, "")).await;
        assert_eq!(status, 200, "{host}: {text}");
        assert!(text.contains("content-security-policy: default-src 'none'"));
        assert!(text.contains("x-content-type-options: nosniff"));
    }
    for host in ["evil.example", "192.0.2.7", "localhost.evil.example", "a@localhost"] {
        let (status, _) = http(&rig, get("/healthz", host, "")).await;
        assert!(status == 421 || status == 400, "{host}: {status}");
    }
    assert_eq!(http(&rig, get("/readyz", "localhost", "")).await.0, 200);
    assert_eq!(http(&rig, get("/nothing", "localhost", "")).await.0, 404);
    let post = "POST /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(http(&rig, post.into()).await.0, 405);
}

#[tokio::test]
async fn upgrades_from_pages_and_proxies_are_refused() {
    let rig = Rig::start().await;
    let host = rig.address.to_string();
    for origin in ["null", "http://evil.example", "https://127.0.0.1"] {
        let (status, text) = http(&rig, upgrade("/", &host, &format!("Origin: {origin}\r\nX: 1\r\n"))).await;
        assert_eq!(status, 403, "{origin}");
        assert!(text.contains("origin_not_allowed"));
    }
    for header in ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1"] {
        let (status, text) = http(&rig, upgrade("/", &host, &format!("{header}\r\n"))).await;
        assert_eq!(status, 403, "{header}");
        assert!(text.contains("proxy_attribution_required"));
    }
    // A node link on plain loopback: the node would have no key to pin.
    let (status, text) =
        http(&rig, upgrade("/link", &host, "Sec-WebSocket-Protocol: hearth.link.v1\r\n")).await;
    assert_eq!(status, 426);
    assert!(text.contains("tls_required"));
    assert_eq!(http(&rig, upgrade("/link", &host, "")).await.0, 400, "without its sub-protocol");
}

#[tokio::test]
async fn an_origin_of_the_hub_itself_connects_and_has_no_local_trust() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let rig = Rig::start().await;
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let mut request = format!("ws://{}/", rig.address).into_client_request().unwrap();
    request.headers_mut().insert("Origin", format!("http://{}", rig.address).parse().unwrap());
    let (socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let mut peer = Peer::over(socket).await;
    let mut params = super::rig::connect_params();
    params["auth"] = json!({ "token": rig.token() });
    let error = peer.call("connect", params).await.unwrap_err();
    assert_eq!(error["details"]["code"], "DEVICE_IDENTITY_REQUIRED", "a page needs a device of its own");
}

#[tokio::test]
async fn tls_on_the_same_port() {
    use rustls::pki_types::ServerName;
    let rig = Rig::start().await;
    let pin = hearth_shared::pin::PinVerifier::pinned(rig.hub.keys.spki);
    let config = pin.client_config().unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let name = ServerName::try_from("hearth.local").unwrap();
    let mut tls = connector.connect(name, stream).await.unwrap();
    tls.write_all(get("/healthz", "localhost", "").as_bytes()).await.unwrap();
    let mut text = String::new();
    let _ = tls.read_to_string(&mut text).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

#[tokio::test]
async fn unknown_methods_wrong_roles_and_missing_rights_have_their_words() {
    let rig = Rig::start().await;
    let mut owner = rig.owner(&["operator.read"]).await;
    let error = owner.call("nope.method", json!({})).await.unwrap_err();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!("INVALID_REQUEST"), &json!("unknown method: nope.method"))
    );
    let error = owner.call("node.invoke", json!({})).await.unwrap_err();
    assert_eq!(error["details"]["missingScope"], "operator.write");
    let error = owner.call("node.event", json!({ "event": "x" })).await.unwrap_err();
    assert_eq!(error["message"], "unauthorized role: operator");
    let error = owner.call("connect", json!({})).await.unwrap_err();
    assert_eq!(error["message"], "connect is only valid as the first request");
    let error = owner.call("health", json!({ "x": 1 })).await.unwrap_err();
    assert_eq!(error["message"], "invalid health params: at root: unexpected property 'x'");
    let (mut node, hello) = rig.device(&key(2), node_params).await;
    hello.unwrap();
    let error = node.call("node.list", json!({})).await.unwrap_err();
    assert_eq!(error["message"], "unauthorized role: node");
}

#[tokio::test]
async fn the_token_file_alone_decides_nothing() {
    let rig = Rig::start().await;
    let mut owner = rig.owner(&["operator.admin"]).await;
    let error = owner.call("exec.approval.resolve", json!({ "id": "x", "decision": "allow-once" })).await;
    assert_eq!(error.unwrap_err()["code"], "FORBIDDEN");
    let approver = json!({ "key": key(9).public(), "kind": "terminal", "admin": true, "name": "me" });
    let error = owner.call("hearth.approvers.add", json!({ "approver": approver })).await.unwrap_err();
    assert_eq!(error["code"], "FORBIDDEN");
    let (mut device, hello) = rig.device(&key(1), |_| {}).await;
    hello.unwrap();
    let error = device.call("exec.approval.resolve", json!({ "id": "x", "decision": "maybe" })).await;
    assert_eq!(error.unwrap_err()["message"], "invalid decision");
    let error = device.call("exec.approval.resolve", json!({ "id": "x", "decision": "allow-once" })).await;
    assert_eq!(error.unwrap_err()["details"]["reason"], "APPROVAL_NOT_FOUND");
    device.call("hearth.approvers.add", json!({ "approver": approver })).await.unwrap();
}

#[tokio::test]
async fn removing_rotating_and_revoking_close_with_4001() {
    let rig = Rig::start().await;
    let mut owner = rig.owner(&["operator.admin"]).await;
    let id = key(1).device_id().to_string();
    for (method, params) in [
        ("device.token.rotate", json!({ "deviceId": id, "role": "operator" })),
        ("device.token.revoke", json!({ "deviceId": id, "role": "operator" })),
        ("device.pair.remove", json!({ "deviceId": id })),
    ] {
        let (mut peer, hello) = rig.device(&key(1), |_| {}).await;
        hello.unwrap();
        // A method's answer shows that the session is listed.
        peer.call("health", json!({})).await.unwrap();
        let answer = owner.call(method, params).await.unwrap();
        assert!(answer.get("token").is_none(), "a token is told to its own device only");
        assert_eq!(peer.closed().await.0, 4001, "{method}");
    }
    let (mut peer, hello) = rig.device(&key(1), |_| {}).await;
    hello.unwrap();
    let own = peer.call("device.token.rotate", json!({ "deviceId": id, "role": "operator" })).await;
    // The answer and the close race; when the answer arrives it holds the token.
    if let Ok(own) = own {
        assert_eq!(own["tokenDelivery"], "in-band");
        assert!(own["token"].is_string());
    }
}

#[tokio::test]
async fn everybody_hears_of_the_shutdown_before_the_close() {
    let rig = Rig::start().await;
    let mut owner = rig.owner(&["operator.read"]).await;
    owner.call("health", json!({})).await.unwrap();
    rig.stop.cancel();
    assert_eq!(owner.event("shutdown").await["payload"]["reason"], "gateway stopping");
    assert_eq!(owner.closed().await, (1012, "service restart".into()));
}

#[tokio::test]
async fn presence_is_numbered_and_lists_whoever_stays() {
    let rig = Rig::start().await;
    let mut owner = rig.owner(&["operator.read"]).await;
    let first = owner.event("presence").await;
    let version = first["stateVersion"]["presence"].as_u64().unwrap();
    let (_page, hello) = rig.device(&key(1), |p| p["client"]["mode"] = "ui".into()).await;
    hello.unwrap();
    let second = owner.event("presence").await;
    assert!(second["stateVersion"]["presence"].as_u64().unwrap() > version);
    assert!(second["seq"].as_u64().unwrap() > first["seq"].as_u64().unwrap());
    assert!(second["payload"]["presence"].as_array().unwrap().iter().any(|p| p["mode"] == "ui"));
}

#[tokio::test]
async fn requests_over_the_rate_are_told_when_to_come_back() {
    let rig = Rig::with(|c| c.gateway.requests_per_second = 2).await;
    let mut owner = rig.owner(&["operator.read"]).await;
    let mut last = Ok(Value::Null);
    for _ in 0..20 {
        last = owner.call("health", json!({})).await;
        if last.is_err() {
            break;
        }
    }
    let error = last.unwrap_err();
    assert_eq!(error["code"], "UNAVAILABLE");
    assert_eq!(error["retryable"], true);
    assert!(error["retryAfterMs"].as_u64().unwrap() <= 500);
}

/// A foreign node that is in, approved, and an operator that may invoke.
async fn with_node() -> (Rig, Peer, Peer, String) {
    let rig = Rig::start().await;
    let (mut node, hello) = rig.device(&key(2), node_params).await;
    assert_eq!(hello.unwrap()["auth"]["role"], "node");
    // The first answer comes after the node is attached.
    node.call("node.pending.pull", json!({})).await.unwrap();
    let (owner, hello) = rig.device(&key(1), |p| p["caps"] = json!(["approvals"])).await;
    hello.unwrap();
    (rig, node, owner, key(2).device_id().to_string())
}

async fn approve(owner: &mut Peer, node: &mut Peer) {
    let list = owner.call("node.pair.list", json!({})).await.unwrap();
    let pending = &list["pending"][0];
    assert_eq!(
        pending["commands"],
        json!(["camera.snap", "system.which"]),
        "what the hub does not know is left out"
    );
    assert_eq!(pending["requiredApproveScopes"], json!(["operator.pairing", "operator.admin"]));
    let params = json!({ "requestId": pending["requestId"] });
    owner.call("node.pair.approve", params).await.unwrap();
    assert_eq!(node.event("node.pair.resolved").await["payload"]["decision"], "approved");
}

#[tokio::test]
async fn a_foreign_node_waits_for_approval_and_then_answers() {
    let (_rig, mut node, mut owner, id) = with_node().await;
    let invoke = |key: &str, command: &str| {
        json!({ "nodeId": id, "command": command, "params": { "bins": ["ls"] }, "idempotencyKey": key,
            "timeoutMs": 10_000 })
    };
    let error = owner.call("node.invoke", invoke("k1", "system.which")).await.unwrap_err();
    assert_eq!(error["details"]["code"], "PAIRING_CHANGED");
    assert_eq!(error["retryable"], true);
    approve(&mut owner, &mut node).await;

    let error = owner.call("node.invoke", invoke("k2", "fs.listDir")).await.unwrap_err();
    assert_eq!(error["details"]["reason"], "command not declared by node");
    let error =
        owner.call("node.invoke", json!({ "nodeId": id, "command": "system.which" })).await.unwrap_err();
    assert_eq!(error["message"], "invalid node.invoke params: must have required property 'idempotencyKey'");

    let wanted = owner.request("node.invoke", invoke("k3", "system.which")).await;
    let request = node.event("node.invoke.request").await;
    assert!(request.get("seq").is_none());
    let payload = &request["payload"];
    assert_eq!(payload["command"], "system.which");
    let params: Value = serde_json::from_str(payload["paramsJSON"].as_str().unwrap()).unwrap();
    assert_eq!(params["bins"], json!(["ls"]));
    assert!(payload["timeoutMs"].as_u64().unwrap() <= 10_000);
    let result = json!({ "id": payload["id"], "nodeId": id, "ok": true, "payloadJSON": "{\"bins\":{\"ls\":\"/bin/ls\"}}" });
    assert_eq!(node.call("node.invoke.result", result.clone()).await.unwrap(), json!({ "ok": true }));
    let answer = owner.answer(&wanted).await.unwrap();
    assert_eq!(answer["payload"]["bins"]["ls"], "/bin/ls");
    assert_eq!(answer["payloadJSON"], "{\"bins\":{\"ls\":\"/bin/ls\"}}");
    assert_eq!(
        node.call("node.invoke.result", result).await.unwrap(),
        json!({ "ok": true, "ignored": true }),
        "a second answer is ignored"
    );
}

#[tokio::test]
async fn errors_and_timeouts_of_a_foreign_node_have_the_documented_form() {
    let (_rig, mut node, mut owner, id) = with_node().await;
    approve(&mut owner, &mut node).await;
    let params = |key: &str, ms: u64| {
        json!({ "nodeId": id, "command": "system.which", "params": { "bins": ["ls"] }, "idempotencyKey": key,
            "timeoutMs": ms })
    };
    let wanted = owner.request("node.invoke", params("k1", 10_000)).await;
    let request = node.event("node.invoke.request").await;
    let error = json!({ "code": "NODE_BACKGROUND_UNAVAILABLE", "message": "camera requires foreground" });
    let result = json!({ "id": request["payload"]["id"], "nodeId": id, "ok": false, "error": error });
    node.call("node.invoke.result", result).await.unwrap();
    let error = owner.answer(&wanted).await.unwrap_err();
    assert_eq!(error["code"], "INVALID_REQUEST");
    assert_eq!(error["details"]["nodeError"]["code"], "NODE_BACKGROUND_UNAVAILABLE");

    let error = owner.call("node.invoke", params("k2", 700)).await.unwrap_err();
    assert_eq!(error["code"], "UNAVAILABLE");
    assert!(error["message"].as_str().unwrap().starts_with("TIMEOUT"), "{error}");
    let cancel = node.event("node.invoke.cancel").await;
    assert_eq!(cancel["payload"]["nodeId"], id.as_str());

    // A caller who leaves withdraws his request.
    owner.request("node.invoke", params("k3", 60_000)).await;
    let request = loop {
        let request = node.event("node.invoke.request").await;
        if request["payload"]["timeoutMs"].as_u64().unwrap() > 10_000 {
            break request;
        }
    };
    drop(owner);
    let cancel = node.event("node.invoke.cancel").await;
    assert_eq!(cancel["payload"]["invokeId"], request["payload"]["id"]);
}

#[tokio::test]
async fn a_foreign_node_speaks_for_itself_only_and_its_updates_are_taken() {
    let (rig, mut node, _owner, id) = with_node().await;
    let other = key(9).device_id().to_string();
    let error = node.call("node.invoke.result", json!({ "id": "x", "nodeId": other, "ok": true })).await;
    assert_eq!(error.unwrap_err()["message"], "nodeId is not this node's id");
    let taken = node.call("node.event", json!({ "event": "foo.bar", "payload": {} })).await.unwrap();
    assert_eq!(
        taken,
        json!({ "ok": true, "event": "foo.bar", "handled": false, "reason": "unsupported_event" })
    );
    let mut reader = rig.owner(&["operator.read"]).await;
    let stats = json!({ "event": "node.host.stats", "payloadJSON": "{\"cpuCount\":2}" });
    assert_eq!(node.call("node.event", stats).await.unwrap()["handled"], true);
    assert_eq!(reader.event("hearth.node.event").await["payload"]["payload"]["cpuCount"], 2);
    for (method, params) in [
        (
            "node.runnerInventory.update",
            json!({ "protocolFeatures": [], "workerHost": { "enabled": false } }),
        ),
        ("node.skills.update", json!({ "skills": [] })),
        ("node.pluginTools.update", json!({ "tools": [] })),
        ("node.pending.drain", json!({ "maxItems": 5 })),
    ] {
        assert_eq!(node.call(method, params).await.unwrap()["nodeId"], id.as_str(), "{method}");
    }
}

#[tokio::test]
async fn pictures_of_foreign_nodes_are_stored_and_served_to_who_may_see() {
    let (rig, mut node, mut owner, id) = with_node().await;
    approve(&mut owner, &mut node).await;
    let wanted = owner
        .request(
            "node.invoke",
            json!({ "nodeId": id, "command": "camera.snap", "params": {}, "idempotencyKey": "p", "timeoutMs": 15_000 }),
        )
        .await;
    // Capturing needs a yes; the request is asked for, decided, and goes on.
    let asked = owner.event("exec.approval.requested").await;
    assert_eq!(asked["payload"]["request"]["warningText"], "not checked on the node");
    let approval = asked["payload"]["id"].clone();
    owner.call("exec.approval.resolve", json!({ "id": approval, "decision": "allow-once" })).await.unwrap();
    let request = node.event("node.invoke.request").await;
    let picture = "{\"format\":\"jpg\",\"base64\":\"/9j/4AAQSkZJRg==\",\"width\":1,\"height\":1}";
    let result = json!({ "id": request["payload"]["id"], "nodeId": id, "ok": true, "payloadJSON": picture });
    node.call("node.invoke.result", result).await.unwrap();
    let answer = owner.answer(&wanted).await.unwrap();
    assert_eq!(answer["payload"]["base64"], "/9j/4AAQSkZJRg==");
    let media = &answer["media"][0];
    assert_eq!(media["mime"], "image/jpeg");
    let path = format!("/media/{}", media["id"].as_str().unwrap());
    assert_eq!(http(&rig, get(&path, "localhost", "")).await.0, 401);
    let wrong = "Authorization: Bearer wrong\r\n";
    assert_eq!(http(&rig, get(&path, "localhost", wrong)).await.0, 401);
    let right = format!("Authorization: Bearer {}\r\n", rig.token());
    let (status, text) = http(&rig, get(&path, "localhost", &right)).await;
    assert_eq!(status, 200);
    assert!(text.contains("content-type: image/jpeg") && text.contains("JFIF"), "{text}");
    assert_eq!(http(&rig, get("/media/none", "localhost", &right)).await.0, 404);
}

#[tokio::test]
async fn agent_answers_twice_with_one_id_and_the_run_can_be_waited_for() {
    let rig = Rig::start().await;
    let (mut owner, hello) = rig.device(&key(1), |_| {}).await;
    hello.unwrap();
    let params = json!({ "message": "status", "sessionKey": "main", "idempotencyKey": "run-1" });
    let id = owner.request("agent", params.clone()).await;
    let accepted = owner.answer(&id).await.unwrap();
    assert_eq!((&accepted["status"], &accepted["runId"]), (&json!("accepted"), &json!("run-1")));
    assert_eq!(accepted["sessionKey"], "agent:main:main");
    let done = owner.answer(&id).await.unwrap();
    assert_eq!(done["status"], "ok", "{done}");
    let text = done["result"]["payloads"][0]["text"].as_str().unwrap();
    assert!(!text.is_empty());
    let waited = owner.call("agent.wait", json!({ "runId": "run-1" })).await.unwrap();
    assert_eq!((&waited["status"], &waited["terminalReply"]["text"]), (&json!("ok"), &json!(text)));
    let again = json!({ "message": "status", "sessionKey": "main", "idempotencyKey": "run-1" });
    assert_eq!(
        owner.call("chat.send", again).await.unwrap()["status"],
        "ok",
        "the same message is not run twice"
    );
    for (text, session) in [("is the pump on?", "main"), ("status", "agent:main:other")] {
        let other = json!({ "message": text, "sessionKey": session, "idempotencyKey": "run-1" });
        let error = owner.call("chat.send", other).await.unwrap_err();
        assert_eq!(error["details"]["code"], "IDEMPOTENCY_KEY_REUSED", "{text} in {session}: {error}");
    }
    let history = owner.call("chat.history", json!({ "sessionKey": "main", "limit": 10 })).await.unwrap();
    let roles: Vec<&str> =
        history["messages"].as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!((roles.first(), roles.last()), (Some(&"user"), Some(&"assistant")));
    assert_eq!(history["messages"][0]["__openclaw"]["seq"], 1);
    let sessions = owner.call("sessions.list", json!({ "limit": 5 })).await.unwrap();
    assert_eq!(sessions["sessions"][0]["key"], "agent:main:main");
    let error = owner.call("agent.wait", json!({ "runId": "none" })).await.unwrap_err();
    assert_eq!(error["code"], "INVALID_REQUEST");
}

#[tokio::test]
async fn the_page_about_trust_is_public_and_strict() {
    let rig = Rig::start().await;
    let ask = async |path: &str| http(&rig, get(path, "localhost", "")).await;
    let (status, page) = ask("/trust").await;
    assert_eq!(status, 200);
    let policy = page.lines().find(|l| l.starts_with("content-security-policy: ")).unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("require-trusted-types-for 'script'"));
    assert!(!policy.contains("unsafe"), "{policy}");
    let (_, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(!body.contains("style=") && !body.contains("onclick") && !body.contains("//cdn"));
    for file in ["/trust.css", "/trust.js"] {
        assert!(body.contains(file));
        assert_eq!(ask(file).await.0, 200, "{file}");
    }
    let authority = rig.hub.cert.authority();
    let (_, described) = ask("/trust/authority.json").await;
    assert!(described.contains(&authority.fingerprint()) && described.contains("hearth.local"));
    assert!(!described.contains("127.0.0.1"));
    let (_, profile) = ask("/trust/hearth-authority.mobileconfig").await;
    assert!(profile.contains("content-type: application/x-apple-aspen-config"));
    assert!(profile.contains("com.apple.security.root") && !profile.contains("PRIVATE"));
    let (_, certificate) = ask("/trust/hearth-authority.crt").await;
    assert!(certificate.contains("content-type: application/x-x509-ca-cert"));
    assert_eq!(http(&rig, get("/trust", "hearth.local", "")).await.0, 200, "known by that name");
}
