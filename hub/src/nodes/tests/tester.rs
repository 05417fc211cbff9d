//! A hub without a gateway, and a node that can be told to lie.

use crate::approvals::audit::Audit;
use crate::bus::{Bus, Event};
use crate::config::Config;
use crate::devices::{DeviceState, Devices};
use crate::home::Home;
use crate::hub::Tasks;
use crate::keys::HubKeys;
use crate::nodes::{NodeConnection, Nodes, Parts};
use crate::store::{Store, StoreError};
use futures_util::{SinkExt as _, StreamExt as _};
use hearth_shared::approver::ApproverSet;
use hearth_shared::chain::Head;
use hearth_shared::command::sensor::Quantity;
use hearth_shared::command::{Class, Need};
use hearth_shared::connect::{LinkTranscript, Role};
use hearth_shared::identity::{Digest, Nonce, PublicKey, SecretKey};
use hearth_shared::link::{
    CommandDecl, Declaration, HubHello, Invoke, Knock, LinkFrame as _, NodeHello, Outcome, PartDecl, Refused,
    RefusedCode, ResultFrame, SensorDecl, ToHub, ToNode, Welcome,
};
use hearth_shared::pairing::CodeSecret;
use hearth_shared::reading::{BootId, Correlation, Epoch, RequestId};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role as WsRole, WebSocketConfig};

pub const EXPORTER: [u8; 32] = [7; 32];
/// No wait in these tests is longer unless something is broken.
pub const SOON: Duration = Duration::from_secs(10);

pub struct Hub {
    pub nodes: Nodes,
    pub devices: Devices,
    pub audit: Audit,
    pub bus: Bus,
    pub keys: Arc<HubKeys>,
    pub store: Store,
    pub tasks: Tasks,
    _dir: tempfile::TempDir,
    listener: TcpListener,
}

impl Hub {
    pub async fn start() -> Self {
        Self::with_tick(Duration::from_secs(30)).await
    }

    pub async fn with_tick(tick: Duration) -> Self {
        Self::build(tick, Config::default()).await
    }

    pub async fn build(tick: Duration, config: Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        home.create().unwrap();
        let store = Store::open(&home.database()).unwrap();
        let bus = Bus::default();
        let keys = Arc::new(HubKeys::open(&home).unwrap());
        let audit = Audit::open(store.clone()).await.unwrap();
        let devices = Devices::new(store.clone(), bus.clone(), audit.clone(), keys.clone());
        let tasks = Tasks::default();
        let parts = Parts {
            store: store.clone(),
            bus: bus.clone(),
            audit: audit.clone(),
            devices: devices.clone(),
            keys: keys.clone(),
            config: Arc::new(config),
            tasks: tasks.clone(),
        };
        let nodes = Nodes::assemble(parts, &home, tick);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { nodes, devices, audit, bus, keys, store, tasks, _dir: dir, listener }
    }

    /// A socket to the hub, with a link being served at its other end.
    pub async fn dial(&self, exporter: [u8; 32]) -> Socket {
        let address = self.listener.local_addr().unwrap();
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), self.listener.accept());
        let (theirs, peer) = theirs.unwrap();
        let config =
            WebSocketConfig::default().read_buffer_size(4096).max_message_size(Some(512 * 1024 + 64));
        let served = WebSocketStream::from_raw_socket(theirs, WsRole::Server, Some(config)).await;
        let nodes = self.nodes.clone();
        self.tasks.spawn(async move { nodes.serve_link(served, peer, exporter, || {}).await });
        let socket = WebSocketStream::from_raw_socket(ours.unwrap(), WsRole::Client, Some(config)).await;
        Socket { socket }
    }

    pub async fn code(&self) -> CodeSecret {
        let window = self.devices.open_window(Duration::from_secs(600), vec!["h:1".into()]).await.unwrap();
        window.contents.secret.clone()
    }

    /// A node that was paired with a code and is connected.
    pub async fn paired(&self, node: &Node) -> (Socket, Box<Welcome>) {
        let secret = self.code().await;
        self.connect(node, Knock::Code { secret }).await.unwrap()
    }

    pub async fn connect(&self, node: &Node, knock: Knock) -> Result<(Socket, Box<Welcome>), Refused> {
        let mut socket = self.dial(EXPORTER).await;
        let hello = socket.hub_hello().await;
        socket.send(&node.hello(&hello, knock, EXPORTER)).await;
        match socket.next().await {
            Some(ToNode::Welcome(welcome)) => Ok((socket, welcome)),
            Some(ToNode::Refused(refused)) => Err(refused),
            other => panic!("neither welcome nor refusal: {other:?}"),
        }
    }

    /// Makes every write that needs room fail, as on a full card.
    pub async fn fill_database(&self) {
        let filled = self
            .store
            .write(|t| {
                let pages: i64 =
                    t.query_row("SELECT page_count FROM pragma_page_count()", [], |r| r.get(0))?;
                t.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
                Ok(())
            })
            .await;
        filled.unwrap();
        // Use up what room there is in the pages.
        loop {
            let one = self.audit.append("test.fill", serde_json::json!({ "x": "y".repeat(1_000) })).await;
            match one {
                Ok(_) => {}
                Err(StoreError::Full) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub async fn free_database(&self) {
        let freed = self
            .store
            .write(|t| {
                t.query_row("PRAGMA max_page_count = 1000000", [], |_| Ok(()))?;
                Ok(())
            })
            .await;
        freed.unwrap();
    }

    /// Connects when the node's old connection is off the list.
    pub async fn connect_when_free(&self, node: &Node) -> (Socket, Box<Welcome>) {
        timeout(SOON, async {
            while self.nodes.connection(&node.key.device_id()).is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        self.connect(node, Knock::Paired).await.unwrap()
    }

    pub async fn refused(&self, node: &Node, knock: Knock) -> RefusedCode {
        self.connect(node, knock).await.map(|_| ()).unwrap_err().code
    }

    pub fn connection(&self, node: &Node) -> Arc<dyn NodeConnection> {
        self.nodes.connection(&node.key.device_id()).unwrap()
    }

    pub async fn audit_kinds(&self) -> Vec<String> {
        self.audit.records(0, 1000).await.unwrap().into_iter().map(|r| r.kind).collect()
    }

    pub async fn state(&self, node: &Node) -> Option<DeviceState> {
        self.devices.get(node.key.device_id()).await.unwrap().map(|d| d.state)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.tasks.stop.cancel();
    }
}

/// The next event that `wanted` takes something out of.
pub async fn event<T>(
    events: &mut broadcast::Receiver<Event>,
    mut wanted: impl FnMut(Event) -> Option<T>,
) -> T {
    timeout(SOON, async {
        loop {
            if let Some(found) = wanted(events.recv().await.unwrap()) {
                return found;
            }
        }
    })
    .await
    .expect("the event came")
}

pub fn alarm(event: Event) -> Option<String> {
    match event {
        Event::Alarm { message } => Some(message),
        _ => None,
    }
}

pub struct Socket {
    pub socket: WebSocketStream<TcpStream>,
}

impl Socket {
    pub async fn send(&mut self, frame: &ToHub) {
        self.socket.send(Message::Binary(frame.encode().unwrap().into())).await.unwrap();
    }

    /// The next frame; `None` when the hub has closed.
    pub async fn next(&mut self) -> Option<ToNode> {
        timeout(SOON, async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Binary(bytes))) => return Some(ToNode::decode(&bytes).unwrap()),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                    Some(Ok(_)) => {}
                }
            }
        })
        .await
        .expect("the hub said something")
    }

    pub async fn hub_hello(&mut self) -> HubHello {
        match self.next().await {
            Some(ToNode::Hello(hello)) => hello,
            other => panic!("no hello: {other:?}"),
        }
    }

    /// The next frame that is no ping, which is answered.
    pub async fn frame(&mut self) -> Option<ToNode> {
        loop {
            match self.next().await {
                Some(ToNode::Ping { .. }) => {
                    // A sign of life that measures no clock: its id belongs to no ping.
                    self.send(&ToHub::Pong { id: 0, mono_ms: 0, wall_ms: None }).await;
                }
                other => return other,
            }
        }
    }

    pub async fn invoke(&mut self) -> Invoke {
        match self.frame().await {
            Some(ToNode::Invoke(invoke)) => invoke,
            other => panic!("no invoke: {other:?}"),
        }
    }

    /// How the hub ends it: the code of a refusal, if it gives one.
    pub async fn ended(&mut self) -> Option<RefusedCode> {
        let mut code = None;
        while let Some(frame) = self.next().await {
            if let ToNode::Refused(refused) = frame {
                code = Some(refused.code);
            }
        }
        code
    }
}

pub struct Node {
    pub key: SecretKey,
    pub boot: BootId,
    pub epoch: Epoch,
    pub next: u64,
    pub declaration: Declaration,
    pub version: u16,
    pub mono_ms: u64,
    pub wall_ms: Option<u64>,
}

impl Node {
    pub fn new(seed: u8, name: &str) -> Self {
        Self {
            key: SecretKey::from_seed(&[seed; 32]),
            boot: BootId([seed; 16]),
            epoch: Epoch([seed; 16]),
            next: 1,
            declaration: declaration(name),
            version: 1,
            mono_ms: 5_000,
            wall_ms: None,
        }
    }

    pub fn public(&self) -> PublicKey {
        self.key.public()
    }

    pub fn transcript(&self, hello: &HubHello, nonce: Nonce, exporter: [u8; 32]) -> LinkTranscript {
        LinkTranscript {
            hub_id: hello.hub.device_id(),
            hub_nonce: hello.nonce,
            node_nonce: nonce,
            tls_exporter: exporter,
            role: Role::Node,
            declaration: Digest::of(&self.declaration.encode()),
            link_version: self.version,
            boot_id: self.boot,
        }
    }

    pub fn hello(&self, hello: &HubHello, knock: Knock, exporter: [u8; 32]) -> ToHub {
        let nonce = Nonce([9; 32]);
        ToHub::Hello(Box::new(NodeHello {
            version: self.version,
            key: self.public(),
            nonce,
            boot: self.boot,
            knock,
            declaration: self.declaration.encode(),
            signature: self.transcript(hello, nonce, exporter).sign_as_node(&self.key),
            approvers: ApproverSet::default(),
            head: Head::default(),
            hub_head: Head::default(),
            outbox_epoch: self.epoch,
            outbox_next: self.next,
            mono_ms: self.mono_ms,
            wall_ms: self.wall_ms,
        }))
    }

    pub fn result(&self, request: RequestId, outcome: Outcome, attachments: u32) -> ToHub {
        ToHub::Result(Box::new(ResultFrame::sign(&self.key, request, outcome, attachments, Head::default())))
    }

    pub fn done(&self, request: RequestId, result: &str) -> ToHub {
        self.result(request, Outcome::Done { result: result.into() }, 0)
    }
}

pub fn declaration(name: &str) -> Declaration {
    let command = |name: &str, class, need| CommandDecl { name: name.into(), class, need };
    Declaration {
        name: name.into(),
        version: "0.1.0".into(),
        platform: "linux".into(),
        arch: "aarch64".into(),
        model: String::new(),
        simulated: true,
        commands: vec![
            command("camera.snap", Class::Capture, Need::Hub),
            command("gpio.list", Class::Observe, Need::None),
        ],
        cameras: vec![PartDecl { id: "cam".into(), name: "Camera".into(), detail: String::new() }],
        pins: Vec::new(),
        sensors: vec![SensorDecl {
            id: "temp".into(),
            name: "Temperature".into(),
            quantity: Quantity::Temperature,
            unit: "°C".into(),
        }],
        policy: Digest([1; 32]),
        person_ready: false,
    }
}

pub fn request(n: u8) -> RequestId {
    RequestId([n; 16])
}

pub fn invoke(n: u8, command: &str, timeout_ms: u64) -> Invoke {
    Invoke {
        request: request(n),
        command: command.into(),
        params: "{}".into(),
        timeout_ms,
        raise: Need::None,
        correlation: Correlation([0; 16]),
        head: Head::default(),
    }
}
