//! The hub's side of the link, step by step, so that a test can do each of them wrongly.

use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::chain::Head;
use hearth_shared::command::Need;
use hearth_shared::connect::{EXPORTER_LABEL, LinkTranscript, Role};
use hearth_shared::identity::{Digest, Nonce, SecretKey};
use hearth_shared::link::{
    HubHello, Invoke, LinkFrame as _, NodeHello, PATH, ResultFrame, SUBPROTOCOL, ToHub, ToNode, Welcome,
};
use hearth_shared::pin::spki_pin;
use hearth_shared::reading::{Correlation, RequestId};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;

pub(super) struct Hub {
    pub(super) key: SecretKey,
    pub(super) spki: Digest,
    pub(super) address: String,
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

/// One connection.
pub(super) struct Peer {
    ws: WebSocketStream<TlsStream<TcpStream>>,
    pub(super) exporter: [u8; 32],
    pub(super) nonce: Nonce,
}

impl Hub {
    pub(super) async fn new() -> Self {
        let tls = rcgen::generate_simple_self_signed(vec!["hub".into()]).unwrap();
        let certificate = tls.cert.der().clone();
        let spki = spki_pin(&certificate).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(tls.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            key: SecretKey::generate().unwrap(),
            spki,
            address: listener.local_addr().unwrap().to_string(),
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        }
    }

    /// TCP and TLS; `None` when the node does not finish the TLS handshake.
    pub(super) async fn accept_tls(&self) -> Option<TlsStream<TcpStream>> {
        let (tcp, _) = self.listener.accept().await.unwrap();
        self.acceptor.accept(tcp).await.ok()
    }

    #[allow(clippy::result_large_err)] // the callback's type is the library's
    pub(super) async fn accept(&self) -> Peer {
        let tls = self.accept_tls().await.unwrap();
        let exporter = tls.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None).unwrap();
        let check = |request: &Request, mut response: Response| {
            assert_eq!(request.uri().path(), PATH);
            let name = "sec-websocket-protocol";
            assert_eq!(request.headers()[name], SUBPROTOCOL);
            assert!(!request.headers().contains_key("origin"));
            response.headers_mut().insert(name, HeaderValue::from_static(SUBPROTOCOL));
            Ok(response)
        };
        let ws = tokio_tungstenite::accept_hdr_async(tls, check).await.unwrap();
        Peer { ws, exporter, nonce: Nonce::fresh().unwrap() }
    }

    /// An honest handshake up to the welcome.
    pub(super) async fn admit(&self, change: impl FnOnce(&mut Welcome)) -> (Peer, NodeHello) {
        let mut peer = self.accept().await;
        let hello = peer.hello(self).await;
        peer.transcript(self, &hello).verify_node(&hello.key, &hello.signature).unwrap();
        peer.welcome(self, &hello, change).await;
        (peer, hello)
    }
}

impl Peer {
    pub(super) async fn send(&mut self, frame: ToNode) {
        let bytes = frame.encode().unwrap();
        self.ws.send(Message::Binary(bytes.into())).await.unwrap();
    }

    /// The next frame; `None` when the node closed.
    pub(super) async fn receive(&mut self) -> Option<ToHub> {
        loop {
            match self.ws.next().await {
                Some(Ok(Message::Binary(bytes))) => return Some(ToHub::decode(&bytes).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return None,
            }
        }
    }

    pub(super) async fn send_hello(&mut self, hub: &Hub) {
        let hello = HubHello {
            min_version: 1,
            max_version: 7,
            hub: hub.key.public(),
            nonce: self.nonce,
            time_ms: 0,
            name: "home\u{202e}".into(),
        };
        self.send(ToNode::Hello(hello)).await;
    }

    pub(super) async fn hello(&mut self, hub: &Hub) -> NodeHello {
        self.send_hello(hub).await;
        match self.receive().await {
            Some(ToHub::Hello(hello)) => *hello,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn transcript(&self, hub: &Hub, hello: &NodeHello) -> LinkTranscript {
        LinkTranscript {
            hub_id: hub.key.device_id(),
            hub_nonce: self.nonce,
            node_nonce: hello.nonce,
            tls_exporter: self.exporter,
            role: Role::Node,
            declaration: Digest::of(&hello.declaration),
            link_version: hello.version,
            boot_id: hello.boot,
        }
    }

    pub(super) async fn welcome(&mut self, hub: &Hub, hello: &NodeHello, change: impl FnOnce(&mut Welcome)) {
        let mut welcome = Welcome {
            signature: self.transcript(hub, hello).sign_as_hub(&hub.key),
            newly_paired: false,
            approved: vec!["camera.snap".into()],
            mark: None,
            tick_ms: 30_000,
            time_ms: 0,
            head: Head::default(),
        };
        change(&mut welcome);
        self.send(ToNode::Welcome(Box::new(welcome))).await;
    }

    pub(super) async fn ping(&mut self, id: u64) {
        self.send(ToNode::Ping { id, hub_time_ms: 0 }).await;
    }

    pub(super) async fn result(&mut self) -> ResultFrame {
        match self.receive().await {
            Some(ToHub::Result(result)) => *result,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn request(n: u16, command: &str, params: &str) -> Invoke {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    Invoke {
        request: RequestId(id),
        command: command.into(),
        params: params.into(),
        timeout_ms: 30_000,
        raise: Need::None,
        correlation: Correlation([9; 16]),
        head: Head::default(),
    }
}
