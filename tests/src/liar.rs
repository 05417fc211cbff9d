//! A node that lies: it speaks the link with a real key and says whatever a test wants.

use crate::hub::TestHub;
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::approver::ApproverSet;
use hearth_shared::chain::Head;
use hearth_shared::command::{Class, Need};
use hearth_shared::connect::{EXPORTER_LABEL, LinkTranscript, Role};
use hearth_shared::identity::{Digest, Nonce, SecretKey};
use hearth_shared::link::{
    CommandDecl, Declaration, Invoke, Knock, LinkFrame as _, NodeHello, Outcome, PATH, Refused, ResultFrame,
    SUBPROTOCOL, ToHub, ToNode, VERSIONS,
};
use hearth_shared::pairing::SetupCode;
use hearth_shared::pin::PinVerifier;
use hearth_shared::reading::{BootId, Epoch, RequestId};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;

const PATIENCE: Duration = Duration::from_secs(20);

/// Who it claims to be, over all its connections.
#[derive(Debug)]
pub struct Liar {
    /// Its key.
    pub key: SecretKey,
    /// What it declares.
    pub declaration: Declaration,
    /// Its outbox.
    pub epoch: Epoch,
    address: String,
    pin: Digest,
}

/// One connection of it. Blocking, for tests.
#[derive(Debug)]
pub struct LiarLink {
    runtime: Runtime,
    socket: WebSocketStream<TlsStream<TcpStream>>,
}

impl Liar {
    /// A fresh key, paired with a setup code of `hub`, and its first connection.
    ///
    /// # Panics
    /// When the hub does not take it.
    #[must_use]
    pub fn paired(hub: &TestHub, name: &str) -> (Self, LiarLink) {
        let code = SetupCode::decode(&hub.setup_code()).expect("a code");
        let command = |name: &str, class| CommandDecl { name: name.into(), class, need: Need::None };
        let liar = Self {
            key: SecretKey::generate().expect("entropy"),
            declaration: Declaration {
                name: name.into(),
                version: "0.1.0".into(),
                platform: "linux".into(),
                arch: "aarch64".into(),
                model: String::new(),
                simulated: true,
                commands: vec![command("camera.snap", Class::Capture), command("gpio.list", Class::Observe)],
                cameras: Vec::new(),
                pins: Vec::new(),
                sensors: Vec::new(),
                policy: Digest([1; 32]),
                person_ready: false,
            },
            epoch: Epoch([7; 16]),
            address: format!("127.0.0.1:{}", hub.port),
            pin: code.spki,
        };
        let link = liar.connect(Knock::Code { secret: code.secret }).expect("it is let in");
        (liar, link)
    }

    /// A result with a receipt, rightly signed.
    #[must_use]
    pub fn result(&self, request: RequestId, result: &str) -> ResultFrame {
        let outcome = Outcome::Done { result: result.into() };
        ResultFrame::sign(&self.key, request, outcome, 0, Head::default())
    }

    /// Connects once more.
    ///
    /// # Errors
    /// What the hub says when it refuses.
    ///
    /// # Panics
    /// When the hub says nothing at all.
    pub fn connect(&self, knock: Knock) -> Result<LiarLink, Refused> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (mut socket, exporter) = runtime.block_on(dial(&self.address, self.pin));
        let welcome = runtime.block_on(async {
            let Some(ToNode::Hello(hub)) = next(&mut socket).await else { panic!("no hello") };
            let (nonce, boot) = (Nonce([9; 32]), BootId([9; 16]));
            let declaration = self.declaration.encode();
            let transcript = LinkTranscript {
                hub_id: hub.hub.device_id(),
                hub_nonce: hub.nonce,
                node_nonce: nonce,
                tls_exporter: exporter,
                role: Role::Node,
                declaration: Digest::of(&declaration),
                link_version: *VERSIONS.end(),
                boot_id: boot,
            };
            let hello = NodeHello {
                version: *VERSIONS.end(),
                key: self.key.public(),
                nonce,
                boot,
                knock,
                declaration,
                signature: transcript.sign_as_node(&self.key),
                approvers: ApproverSet::default(),
                head: Head::default(),
                hub_head: Head::default(),
                outbox_epoch: self.epoch,
                outbox_next: 1,
                mono_ms: 1_000,
                wall_ms: None,
            };
            send(&mut socket, &ToHub::Hello(Box::new(hello))).await;
            next(&mut socket).await
        });
        match welcome {
            Some(ToNode::Welcome(_)) => Ok(LiarLink { runtime, socket }),
            Some(ToNode::Refused(refused)) => Err(refused),
            other => panic!("neither welcome nor refusal: {other:?}"),
        }
    }
}

impl LiarLink {
    /// Sends a frame; false when the hub has closed.
    pub fn send(&mut self, frame: &ToHub) -> bool {
        self.runtime.block_on(send(&mut self.socket, frame))
    }

    /// Sends bytes that are no frame; false when the hub has closed.
    pub fn send_bytes(&mut self, bytes: Vec<u8>) -> bool {
        self.runtime.block_on(self.socket.send(Message::Binary(bytes.into()))).is_ok()
    }

    /// The next frame that is no ping; pings are answered. `None` when the hub has closed.
    pub fn frame(&mut self) -> Option<ToNode> {
        self.runtime.block_on(async {
            loop {
                match next(&mut self.socket).await {
                    Some(ToNode::Ping { id, .. }) => {
                        send(&mut self.socket, &ToHub::Pong { id, mono_ms: 1_000, wall_ms: None }).await;
                    }
                    other => return other,
                }
            }
        })
    }

    /// The next request.
    ///
    /// # Panics
    /// When something else comes.
    pub fn invoke(&mut self) -> Invoke {
        loop {
            match self.frame() {
                Some(ToNode::Invoke(invoke)) => return invoke,
                Some(ToNode::Surface { .. }) => {}
                other => panic!("no request: {other:?}"),
            }
        }
    }

    /// The request that is withdrawn next.
    ///
    /// # Panics
    /// When none is.
    pub fn cancelled(&mut self) -> RequestId {
        match self.frame() {
            Some(ToNode::Cancel { request }) => request,
            other => panic!("nothing is withdrawn: {other:?}"),
        }
    }

    /// Answers pings for a while.
    ///
    /// # Panics
    /// When anything else comes.
    pub fn answer_pings(&mut self, span: Duration) {
        self.runtime.block_on(async {
            let answering = async {
                while let Some(frame) = next(&mut self.socket).await {
                    let ToNode::Ping { id, .. } = frame else { panic!("{frame:?}") };
                    send(&mut self.socket, &ToHub::Pong { id, mono_ms: 1_000, wall_ms: None }).await;
                }
            };
            let _ = timeout(span, answering).await;
        });
    }

    /// How far the hub has stored its outbox after what was sent last; `None` when it closed instead.
    pub fn acknowledged(&mut self) -> Option<u64> {
        loop {
            if let ToNode::OutboxAck(mark) = self.frame()? {
                return Some(mark.seq);
            }
        }
    }

    /// Reads on until the hub closes, and gives its last word.
    pub fn ended(&mut self) -> Option<Refused> {
        let mut last = None;
        while let Some(frame) = self.frame() {
            if let ToNode::Refused(refused) = frame {
                last = Some(refused);
            }
        }
        last
    }
}

async fn dial(address: &str, pin: Digest) -> (WebSocketStream<TlsStream<TcpStream>>, [u8; 32]) {
    let tcp = TcpStream::connect(address).await.expect("the hub listens");
    let config = PinVerifier::pinned(pin).client_config().expect("TLS 1.3");
    let name = ServerName::try_from("hearth").expect("a name");
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("the pinned key");
    let exporter = tls.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None).expect("TLS is up");
    let mut request = format!("wss://{address}{PATH}").into_client_request().expect("a request");
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(SUBPROTOCOL));
    let (socket, _) = tokio_tungstenite::client_async(request, tls).await.expect("an upgrade");
    (socket, exporter)
}

/// False when the hub has closed or takes nothing any more.
async fn send(socket: &mut WebSocketStream<TlsStream<TcpStream>>, frame: &ToHub) -> bool {
    let message = Message::Binary(frame.encode().expect("it fits a frame").into());
    matches!(timeout(PATIENCE, socket.send(message)).await, Ok(Ok(())))
}

async fn next(socket: &mut WebSocketStream<TlsStream<TcpStream>>) -> Option<ToNode> {
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("the hub says something or closes") {
            Some(Ok(Message::Binary(bytes))) => return Some(ToNode::decode(&bytes).expect("a frame")),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            Some(Ok(_)) => {}
        }
    }
}
