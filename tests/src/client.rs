//! An independent JSON client: written against the protocol's description, not with the hub's own code.

use crate::hub::TestHub;
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::connect::JsonProof;
use hearth_shared::identity::SecretKey;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const PATIENCE: Duration = Duration::from_secs(30);

/// A connected operator with a device key of its own. Blocking, for tests.
#[derive(Debug)]
pub struct JsonClient {
    runtime: Runtime,
    socket: WebSocketStream<TcpStream>,
    next: u64,
    /// Events that came while an answer was awaited.
    events: std::collections::VecDeque<Value>,
    /// Payload of `hello-ok`, or the error of a refused connect.
    pub hello: Value,
}

impl JsonClient {
    /// Connects as an operator that can show approvals, with the hub's token.
    ///
    /// # Panics
    /// When the hub refuses it.
    #[must_use]
    pub fn approver(hub: &TestHub) -> Self {
        let scopes = ["operator.read", "operator.write", "operator.approvals"];
        let client = Self::connect(hub, &SecretKey::generate().expect("entropy"), &scopes, &["approvals"]);
        assert_eq!(client.hello["ok"], true, "{}", client.hello);
        client
    }

    /// Connects with these scopes and capabilities; look at [`JsonClient::hello`] for the outcome.
    ///
    /// # Panics
    /// When the hub does not answer.
    #[must_use]
    pub fn connect(hub: &TestHub, key: &SecretKey, scopes: &[&str], caps: &[&str]) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let token = std::fs::read_to_string(hub.home().join("token")).expect("the hub's token");
        let address = format!("127.0.0.1:{}", hub.port);
        let (socket, hello) = runtime.block_on(async {
            let stream = TcpStream::connect(&address).await.expect("the hub listens");
            let url = format!("ws://{address}/");
            let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.expect("an upgrade");
            let challenge = next_json(&mut socket).await.expect("a challenge");
            assert_eq!(challenge["event"], "connect.challenge");
            let connect = connect_params(&challenge, key, token.trim(), scopes, caps);
            send(&mut socket, &json!({"type": "req", "id": "1", "method": "connect", "params": connect}))
                .await;
            let hello = next_json(&mut socket).await.expect("an answer");
            (socket, hello)
        });
        Self { runtime, socket, next: 1, events: std::collections::VecDeque::new(), hello }
    }

    /// Calls a method and gives the whole response.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next.to_string();
        self.runtime.block_on(async {
            send(&mut self.socket, &json!({"type": "req", "id": id, "method": method, "params": params}))
                .await;
            loop {
                let frame = next_json(&mut self.socket).await.expect("an answer");
                if frame["type"] == "res" && frame["id"] == id.as_str() {
                    return frame;
                }
                self.events.push_back(frame);
            }
        })
    }

    /// Calls a method and waits for nothing.
    pub fn say(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let request = json!({"type": "req", "id": self.next.to_string(), "method": method, "params": params});
        self.runtime.block_on(send(&mut self.socket, &request));
    }

    /// Waits for an event by name and gives its payload.
    ///
    /// # Panics
    /// When it does not come.
    pub fn event(&mut self, name: &str) -> Value {
        self.runtime.block_on(async {
            loop {
                let frame = match self.events.pop_front() {
                    Some(frame) => frame,
                    None => next_json(&mut self.socket).await.unwrap_or_else(|| panic!("event {name}")),
                };
                if frame["type"] == "event" && frame["event"] == name {
                    return frame["payload"].clone();
                }
            }
        })
    }

    /// Waits until the hub closes the connection and gives the close code.
    ///
    /// # Panics
    /// When it does not.
    pub fn closed(&mut self) -> Option<u16> {
        self.runtime.block_on(async {
            loop {
                match tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("the hub closes") {
                    Some(Ok(Message::Close(frame))) => return frame.map(|f| f.code.into()),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                }
            }
        })
    }
}

fn connect_params(challenge: &Value, key: &SecretKey, token: &str, scopes: &[&str], caps: &[&str]) -> Value {
    let scopes: Vec<String> = scopes.iter().map(ToString::to_string).collect();
    let nonce = challenge["payload"]["nonce"].as_str().expect("a nonce");
    let id = key.device_id().to_string();
    let signed_at_ms = challenge["payload"]["ts"].as_i64().expect("a time");
    let proof = JsonProof {
        device_id: &id,
        client_id: "test",
        client_mode: "test",
        role: "operator",
        scopes: &scopes,
        signed_at_ms,
        token,
        nonce,
        platform: "linux",
        device_family: "Linux",
    };
    json!({
        "minProtocol": 4, "maxProtocol": 4, "role": "operator", "scopes": scopes, "caps": caps,
        "client": {"id": "test", "mode": "test", "version": "1", "platform": "linux", "deviceFamily": "Linux"},
        "auth": {"token": token},
        "device": {"id": id, "publicKey": key.public().to_base64url(), "signature": proof.sign(key).to_string(),
                   "signedAt": signed_at_ms, "nonce": nonce},
    })
}

async fn send(socket: &mut WebSocketStream<TcpStream>, frame: &Value) {
    socket.send(Message::text(frame.to_string())).await.expect("the hub takes it");
}

/// The next text frame; `None` when the connection ends or nothing comes in time.
async fn next_json(socket: &mut WebSocketStream<TcpStream>) -> Option<Value> {
    loop {
        match tokio::time::timeout(PATIENCE, socket.next()).await.ok()?? {
            Ok(Message::Text(text)) => return serde_json::from_str(&text).ok(),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}
