//! A real hub on a free port, for tests: real sockets, real database, a client that speaks raw frames.

use super::Gateway;
use crate::config::Config;
use crate::home::Home;
use crate::hub::Hub;
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::connect::{JsonProof, JsonProofVersion};
use hearth_shared::identity::SecretKey;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

/// Longest wait of a test for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running hub; stops when dropped.
pub(crate) struct Rig {
    pub(crate) hub: Arc<Hub>,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
        self.hub.tasks.stop.cancel();
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.gateway.port = 0;
        change(&mut config);
        let listeners = Gateway::bind(&config.gateway).await.unwrap();
        let address = listeners.addresses()[0];
        let hub = Hub::open(Home::locate(Some(dir.path())), config).await.unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(Gateway::run(Arc::clone(&hub), listeners, stop.clone()));
        Self { hub, address, stop, _dir: dir }
    }

    pub(crate) fn token(&self) -> String {
        self.hub.keys.token.expose().to_owned()
    }

    /// A socket that has been challenged.
    pub(crate) async fn dial(&self) -> Peer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let url = format!("ws://{}/", self.address);
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        Peer::over(socket).await
    }

    /// An operator without a device, with these rights.
    pub(crate) async fn owner(&self, scopes: &[&str]) -> Peer {
        let mut peer = self.dial().await;
        let mut params = connect_params();
        params["scopes"] = json!(scopes);
        params["auth"] = json!({ "token": self.token() });
        let hello = peer.call("connect", params).await.unwrap();
        assert_eq!(hello["type"], "hello-ok");
        peer
    }

    /// A device with the gateway token.
    pub(crate) async fn device(
        &self,
        key: &SecretKey,
        change: impl FnOnce(&mut Value),
    ) -> (Peer, Result<Value, Value>) {
        let mut peer = self.dial().await;
        let mut params = connect_params();
        params["auth"] = json!({ "token": self.token() });
        change(&mut params);
        peer.sign(&mut params, key, JsonProofVersion::V3);
        let hello = peer.call("connect", params).await;
        (peer, hello)
    }
}

/// Parameters that a command line sends.
pub(crate) fn connect_params() -> Value {
    json!({
        "minProtocol": 4, "maxProtocol": 4,
        "client": { "id": "cli", "version": "1", "platform": "linux", "deviceFamily": "Linux", "mode": "cli" },
        "role": "operator",
        "scopes": ["operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing"],
        "caps": [],
    })
}

/// Parameters of a foreign node.
pub(crate) fn node_params(params: &mut Value) {
    params["client"] = json!({
        "id": "node-host", "version": "1", "platform": "linux", "deviceFamily": "Linux", "mode": "node",
        "displayName": "Interop Node",
    });
    params["role"] = "node".into();
    params["scopes"] = json!([]);
    params["caps"] = json!(["system"]);
    params["commands"] = json!(["system.which", "system.run", "fs.listDir", "camera.snap"]);
}

/// A raw client.
pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) nonce: String,
    pub(crate) ts: i64,
    next: u64,
    /// Events that came while an answer was waited for.
    pub(crate) events: Vec<Value>,
}

impl Peer {
    /// Takes the challenge.
    pub(crate) async fn over(socket: WebSocketStream<TcpStream>) -> Self {
        let mut peer = Self { socket, nonce: String::new(), ts: 0, next: 0, events: Vec::new() };
        let challenge = peer.frame().await;
        assert_eq!(challenge["event"], "connect.challenge");
        peer.nonce = challenge["payload"]["nonce"].as_str().unwrap().to_owned();
        peer.ts = challenge["payload"]["ts"].as_i64().unwrap();
        peer
    }

    pub(crate) fn sign(&self, params: &mut Value, key: &SecretKey, version: JsonProofVersion) {
        Self::sign_with(params, key, version, &json!({ "nonce": self.nonce, "ts": self.ts }));
    }

    /// Signs for a challenge that was taken elsewhere.
    pub(crate) fn sign_with(
        params: &mut Value,
        key: &SecretKey,
        version: JsonProofVersion,
        challenge: &Value,
    ) {
        let nonce = challenge["nonce"].as_str().unwrap();
        let ts = challenge["ts"].as_i64().unwrap();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let scopes: Vec<String> = params["scopes"].as_array().unwrap().iter().map(text).collect();
        let auth = &params["auth"];
        let token = ["token", "deviceToken", "bootstrapToken"]
            .into_iter()
            .find_map(|f| auth[f].as_str())
            .unwrap_or_default()
            .to_owned();
        let id = key.device_id().to_string();
        let client = params["client"].clone();
        let proof = JsonProof {
            device_id: &id,
            client_id: &text(&client["id"]),
            client_mode: &text(&client["mode"]),
            role: &text(&params["role"]),
            scopes: &scopes,
            signed_at_ms: ts,
            token: &token,
            nonce,
            platform: &text(&client["platform"]),
            device_family: &text(&client["deviceFamily"]),
        };
        let signature = key.sign(proof.payload(version).as_bytes());
        params["device"] = json!({
            "id": id, "publicKey": key.public().to_base64url(), "signature": signature.to_string(),
            "signedAt": ts, "nonce": nonce,
        });
    }

    pub(crate) async fn send(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// Sends a request; its id comes back.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> String {
        self.next += 1;
        let id = format!("r{}-{method}", self.next);
        self.send(json!({ "type": "req", "id": id, "method": method, "params": params }).to_string()).await;
        id
    }

    /// The next frame; panics at a close.
    pub(crate) async fn frame(&mut self) -> Value {
        match self.next().await {
            Ok(frame) => frame,
            Err(close) => panic!("closed: {close:?}"),
        }
    }

    /// The next frame, or code and reason of the close.
    pub(crate) async fn next(&mut self) -> Result<Value, (u16, String)> {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("a frame in time");
            match message {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    let frame = frame.map(|f| (u16::from(f.code), f.reason.to_string()));
                    return Err(frame.unwrap_or((1005, String::new())));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err((1006, String::new())),
            }
        }
    }

    pub(crate) async fn answer(&mut self, id: &str) -> Result<Value, Value> {
        loop {
            let frame = self.frame().await;
            if frame["type"] == "event" {
                self.events.push(frame);
            } else if frame["id"] == id {
                return if frame["ok"] == true {
                    Ok(frame["payload"].clone())
                } else {
                    Err(frame["error"].clone())
                };
            }
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.request(method, params).await;
        self.answer(&id).await
    }

    /// Waits for an event, also among those that came before.
    pub(crate) async fn event(&mut self, name: &str) -> Value {
        if let Some(i) = self.events.iter().position(|e| e["event"] == name) {
            return self.events.remove(i);
        }
        loop {
            let frame = self.frame().await;
            if frame["event"] == name {
                return frame;
            }
        }
    }

    /// Reads until the close.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Err(close) = self.next().await {
                return close;
            }
        }
    }
}
