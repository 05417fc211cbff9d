//! Sessions over HTTP, with an HTTP client that is not ours.

use crate::gateway::rig::{PATIENCE, Peer, Rig, connect_params};
use futures_util::StreamExt as _;
use hearth_shared::connect::JsonProofVersion;
use hearth_shared::identity::SecretKey;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use std::pin::Pin;

type Lines = Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>;

/// A page's side of a session.
struct Page {
    client: Client,
    base: String,
    id: String,
    secret: String,
    body: Lines,
    have: String,
    next: u64,
}

impl Page {
    async fn open(rig: &Rig) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().unwrap();
        let base = format!("http://{}", rig.address);
        let answer = client.post(format!("{base}/stream")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        let body: Lines = Box::pin(answer.bytes_stream());
        let mut page = Self {
            client,
            base,
            id: String::new(),
            secret: String::new(),
            body,
            have: String::new(),
            next: 0,
        };
        let first = page.frame().await.unwrap();
        assert_eq!(first["type"], "stream");
        page.id = first["id"].as_str().unwrap().to_owned();
        page.secret = first["secret"].as_str().unwrap().to_owned();
        page
    }

    /// A line; `None` at the end of the body.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.have.find('\n') {
                let line = self.have[..end].to_owned();
                self.have.drain(..=end);
                return Some(line);
            }
            match tokio::time::timeout(PATIENCE, self.body.next()).await.expect("a line in time") {
                Some(Ok(bytes)) => self.have.push_str(std::str::from_utf8(&bytes).unwrap()),
                Some(Err(_)) | None => return None,
            }
        }
    }

    async fn frame(&mut self) -> Option<Value> {
        loop {
            let line = self.line().await?;
            if !line.is_empty() {
                return Some(serde_json::from_str(&line).unwrap());
            }
        }
    }

    async fn post(&self, secret: &str, body: String) -> Response {
        let address = format!("{}/stream/{}", self.base, self.id);
        self.client.post(address).bearer_auth(secret).body(body).send().await.unwrap()
    }

    async fn send(&self, frame: &Value) {
        let answer = self.post(&self.secret, frame.to_string()).await;
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next.to_string();
        self.send(&json!({ "type": "req", "id": id, "method": method, "params": params })).await;
        loop {
            let frame = self.frame().await.expect("an answer");
            if frame["id"] == id.as_str() {
                return frame;
            }
        }
    }

    /// Signs in as a device with the gateway token.
    async fn connect(rig: &Rig, key: &SecretKey) -> Self {
        let mut page = Self::open(rig).await;
        let challenge = page.frame().await.unwrap();
        assert_eq!(challenge["event"], "connect.challenge");
        let mut params = connect_params();
        params["auth"] = json!({ "token": rig.token() });
        Peer::sign_with(&mut params, key, JsonProofVersion::V3, &challenge["payload"]);
        let hello = page.call("connect", params).await;
        assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
        page
    }
}

#[tokio::test]
async fn a_session_over_http_is_the_same_session() {
    let rig = Rig::start().await;
    let key = SecretKey::generate().unwrap();
    let mut page = Page::connect(&rig, &key).await;
    assert_eq!(page.call("health", json!({})).await["ok"], true);
    assert_eq!(page.call("connect", json!({})).await["error"]["code"], "INVALID_REQUEST");
    // Several frames in one request, in order; an empty request is a sign of life.
    assert_eq!(page.post(&page.secret, String::new()).await.status(), StatusCode::NO_CONTENT);
    let request = |id: &str| json!({ "type": "req", "id": id, "method": "health", "params": {} }).to_string();
    let both = format!("{}\n{}\n", request("a"), request("b"));
    assert_eq!(page.post(&page.secret, both).await.status(), StatusCode::NO_CONTENT);
    let mut answered = Vec::new();
    while answered.len() < 2 {
        let frame = page.frame().await.unwrap();
        if frame["type"] == "res" {
            answered.push(frame["id"].as_str().unwrap().to_owned());
        }
    }
    answered.sort();
    assert_eq!(answered, ["a", "b"]);

    // What closes a socket closes it, with the same code as its last line.
    let device = key.device_id().to_string();
    let mut owner = rig.owner(&["operator.admin", "operator.pairing"]).await;
    owner.call("device.pair.remove", json!({ "deviceId": device })).await.unwrap();
    let last = loop {
        let frame = page.frame().await.expect("a last line");
        if frame["type"] == "close" {
            break frame;
        }
    };
    assert_eq!(last["code"], 4001);
    assert!(page.line().await.is_none(), "the body ends");
    assert_eq!(page.post(&page.secret, request("c")).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn only_who_has_the_secret_may_speak() {
    let rig = Rig::start().await;
    let page = Page::open(&rig).await;
    for secret in ["", "x", &"A".repeat(page.secret.len())] {
        assert_eq!(page.post(secret, "{}".into()).await.status(), StatusCode::UNAUTHORIZED, "{secret}");
    }
    let other = Page::open(&rig).await;
    assert_eq!(page.post(&other.secret, "{}".into()).await.status(), StatusCode::UNAUTHORIZED);
    let bare = page.client.post(format!("{}/stream/{}", page.base, page.id)).body("{}").send().await.unwrap();
    assert_eq!(bare.status(), StatusCode::UNAUTHORIZED);
    let query = format!("{}/stream/{}?secret={}", page.base, page.id, page.secret);
    assert_eq!(page.client.post(query).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    for path in ["/stream", &format!("/stream/{}", page.id)] {
        let got = page.client.get(format!("{}{path}", page.base)).send().await.unwrap();
        assert_eq!(got.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
}

#[tokio::test]
async fn pages_of_others_and_proxies_open_none() {
    let rig = Rig::start().await;
    let client = Client::builder().no_proxy().build().unwrap();
    let open = |name: &'static str, value: String| {
        client.post(format!("http://{}/stream", rig.address)).header(name, value).send()
    };
    for origin in ["null", "https://evil.example", "http://127.0.0.1:1", "https://127.0.0.1"] {
        let answer = open("origin", origin.into()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{origin}");
    }
    assert_eq!(open("x-forwarded-for", "192.0.2.1".into()).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(open("host", "evil.example".into()).await.unwrap().status(), StatusCode::MISDIRECTED_REQUEST);
    let own = open("origin", format!("http://{}", rig.address)).await.unwrap();
    assert_eq!(own.status(), StatusCode::OK);
    // A page, even the hub's own, never has the standing of this machine's owner.
    let mut body: Lines = Box::pin(own.bytes_stream());
    let first = body.next().await.unwrap().unwrap();
    let first: Value = serde_json::from_slice(first.split(|b| *b == b'\n').next().unwrap()).unwrap();
    let mut params = connect_params();
    params["auth"] = json!({ "token": rig.token() });
    let connect = json!({ "type": "req", "id": "1", "method": "connect", "params": params });
    let address = format!("http://{}/stream/{}", rig.address, first["id"].as_str().unwrap());
    let sent = client.post(address).bearer_auth(first["secret"].as_str().unwrap()).body(connect.to_string());
    assert_eq!(sent.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let mut rest = String::new();
    while let Some(Ok(bytes)) = tokio::time::timeout(PATIENCE, body.next()).await.unwrap() {
        rest.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(
        rest.contains("DEVICE_IDENTITY_REQUIRED") && rest.contains(r#"{"type":"close","code":1008"#),
        "{rest}"
    );
}

#[tokio::test]
async fn sizes_are_those_of_sockets() {
    let rig = Rig::start().await;
    let page = Page::open(&rig).await;
    let large = json!({ "type": "req", "id": "1", "method": "connect", "params": "x".repeat(70_000) });
    let refused = page.post(&page.secret, large.to_string()).await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let mut page = Page::connect(&rig, &SecretKey::generate().unwrap()).await;
    let answer = page.call("health", json!({ "padding": "x".repeat(70_000) })).await;
    assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "taken, and read: {answer}");
    assert_eq!(page.post(&page.secret, "\u{7f}not json".into()).await.status(), StatusCode::NO_CONTENT);
    let last = loop {
        match page.frame().await {
            Some(frame) if frame["type"] == "close" => break frame,
            Some(_) => {}
            None => panic!("no last line"),
        }
    };
    assert_eq!(last["code"], 1008, "as a socket");
}

#[tokio::test]
async fn who_leaves_is_gone_and_a_hub_that_stops_says_so() {
    let rig = Rig::start().await;
    let count = async |rig: &Rig| {
        let mut owner = rig.owner(&["operator.read"]).await;
        owner.call("status", json!({})).await.unwrap()["connections"]["clients"].as_u64().unwrap()
    };
    let page = Page::connect(&rig, &SecretKey::generate().unwrap()).await;
    assert_eq!(count(&rig).await, 2);
    drop(page);
    let start = std::time::Instant::now();
    while count(&rig).await != 1 {
        assert!(start.elapsed() < PATIENCE, "still listed");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let mut page = Page::connect(&rig, &SecretKey::generate().unwrap()).await;
    rig.stop.cancel();
    let mut seen = Vec::new();
    while let Some(frame) = page.frame().await {
        seen.push(frame);
    }
    assert!(seen.iter().any(|f| f["event"] == "shutdown"), "{seen:?}");
    assert_eq!(seen.last().unwrap(), &json!({ "type": "close", "code": 1012, "reason": "service restart" }));
}
