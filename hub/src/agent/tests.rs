//! From a message to its reply through the whole hub below the sockets: real database, real transcripts,
//! real actions and approvals, and nodes in memory at the end of it.

use super::providers::openai::tests::{OK, data, end, serve, text};
use crate::actions::ActionState;
use crate::bus::Event;
use crate::channels::Inbound;
use crate::config::{Config, ModelConfig};
use crate::devices::{Device, LinkKind, PendingDevice};
use crate::home::Home;
use crate::hub::Hub;
use crate::nodes::{Arrival, Attached, NodeConnection, NodeReply};
use crate::routing::Routed;
use futures_util::future::BoxFuture;
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::command::sensor::Quantity;
use hearth_shared::command::{Need, spec};
use hearth_shared::connect::Role;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::Grant;
use hearth_shared::identity::{Digest, SecretKey};
use hearth_shared::link::{CommandDecl, Declaration, Invoke, Outcome, PartDecl, SensorDecl};
use hearth_shared::reading::RequestId;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const MAIN: &str = "agent:main:main";

/// Runs everything at once; what the hub asks for, it has asked before.
#[derive(Debug, Default)]
struct Board {
    ran: Mutex<Vec<(String, String)>>,
}

impl NodeConnection for Board {
    fn invoke(&self, invoke: Invoke) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        self.ran.lock().unwrap().push((invoke.command.clone(), invoke.params.clone()));
        let result = match invoke.command.as_str() {
            "sensor.read" => json!({ "sensor": "temperature", "value": 21.44, "unit": "°C" }),
            "gpio.pulse" => json!({ "pin": "pump", "name": "Pump", "direction": "output", "value": true }),
            "camera.snap" => {
                json!({ "format": "jpg", "width": 1, "height": 1, "deviceId": "cam", "sizeBytes": 1 })
            }
            _ => json!({}),
        };
        let outcome = Outcome::Done { result: result.to_string() };
        Box::pin(std::future::ready(Ok(NodeReply { outcome, media: Vec::new(), head: None })))
    }
    fn ask_challenge(
        &self,
        _: Invoke,
    ) -> BoxFuture<'_, Result<Result<SignedChallenge, NodeReply>, CommandError>> {
        Box::pin(std::future::ready(Err(CommandError::new(ErrorCode::Internal, "no challenges here"))))
    }
    fn grant(&self, _: RequestId, _: Grant, _: Duration) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        Box::pin(std::future::ready(Err(CommandError::new(ErrorCode::Internal, "no grants here"))))
    }
    fn cancel(&self, _: RequestId) {}
    fn change_approvers(&self, _: ApproversChange) -> BoxFuture<'_, Result<ApproverSet, CommandError>> {
        Box::pin(std::future::ready(Err(CommandError::new(ErrorCode::Internal, "no approvers here"))))
    }
    fn surface(&self, _: Vec<String>) {}
    fn close(&self, _: u16, _: &str) {}
}

struct House {
    dir: tempfile::TempDir,
    config: Config,
    key: SecretKey,
    board: Arc<Board>,
}

fn declaration() -> Declaration {
    let part = |id: &str, name: &str, detail: &str| PartDecl {
        id: id.into(),
        name: name.into(),
        detail: detail.into(),
    };
    let command =
        |name: &str| CommandDecl { name: name.into(), class: spec(name).unwrap().class, need: Need::None };
    Declaration {
        name: "garage".into(),
        version: "0.1.0".into(),
        platform: "linux".into(),
        arch: "aarch64".into(),
        model: String::new(),
        simulated: true,
        commands: ["camera.snap", "gpio.pulse", "sensor.read"].map(command).to_vec(),
        cameras: vec![part("cam", "Camera", "simulated")],
        pins: vec![part("pump", "Pump", "output")],
        sensors: vec![SensorDecl {
            id: "temperature".into(),
            name: "Temperature".into(),
            quantity: Quantity::Temperature,
            unit: "°C".into(),
        }],
        policy: Digest([0; 32]),
        person_ready: false,
    }
}

impl House {
    fn new() -> Self {
        let mut config = Config::default();
        // What moves something or takes a picture is asked by the hub.
        config.nodes.ask = vec!["camera.snap".into(), "gpio.pulse".into()];
        Self {
            dir: tempfile::tempdir().unwrap(),
            config,
            key: SecretKey::generate().unwrap(),
            board: Arc::default(),
        }
    }

    async fn open(&self) -> Arc<Hub> {
        let hub = Hub::open(Home::locate(Some(self.dir.path())), self.config.clone()).await.unwrap();
        hub.actions.approvers_connected(1);
        hub
    }

    /// Pairs (the first time) and connects the node, as a foreign one: the hub itself asks for it.
    async fn connect(&self, hub: &Hub) -> Attached {
        let id = self.key.device_id();
        let device: Device = match hub.devices.get(id).await.unwrap() {
            Some(device) => device,
            None => hub.devices.admit(self.asks(), "owner").await.unwrap(),
        };
        let declaration = declaration();
        let mut attached = hub
            .nodes
            .attach(Arrival {
                device,
                declared: declaration.surface(),
                declaration: Some(declaration),
                caps: Vec::new(),
                approvers: ApproverSet::default(),
                version: "0.1.0".into(),
                remote: "127.0.0.1:1".parse().unwrap(),
                connection: self.board.clone(),
            })
            .await
            .unwrap();
        attached.announce().await;
        if hub.nodes.find("garage").await.unwrap().pending_request.is_some() {
            hub.nodes.approve_surface("garage", "owner").await.unwrap();
        }
        attached
    }

    fn asks(&self) -> PendingDevice {
        PendingDevice {
            request_id: "r".into(),
            key: self.key.public(),
            device_id: self.key.device_id(),
            name: "garage".into(),
            role: Role::Node,
            kind: LinkKind::Json,
            platform: "linux".into(),
            device_family: String::new(),
            client_id: "node-host".into(),
            client_mode: "node".into(),
            scopes: Vec::new(),
            surface: declaration().surface(),
            words: None,
            remote_ip: "127.0.0.1".into(),
            created_ms: 0,
        }
    }

    fn ran(&self) -> Vec<String> {
        self.board.ran.lock().unwrap().iter().map(|r| r.0.clone()).collect()
    }
}

fn inbound(id: &str, text: &str) -> Inbound {
    Inbound {
        channel: "terminal".into(),
        sender: "owner".into(),
        session: "main".into(),
        message_id: id.into(),
        text: text.into(),
        attachments: Vec::new(),
        may_decide: true,
        reply_to: None,
    }
}

async fn send(hub: &Hub, id: &str, text: &str) -> Routed {
    hub.router.deliver(inbound(id, text)).await.unwrap()
}

/// Sends, waits for the end, and returns the reply or the error.
async fn say(hub: &Hub, id: &str, text: &str) -> String {
    send(hub, id, text).await;
    ended(hub, id).await
}

async fn ended(hub: &Hub, id: &str) -> String {
    let run = hub.agent.wait(id, PATIENCE).await.unwrap().unwrap_or_else(|| panic!("{id} does not end"));
    run.reply.or(run.error).unwrap_or_else(|| format!("{:?}", run.state))
}

async fn roles(hub: &Hub) -> Vec<String> {
    let (lines, _) = hub.sessions.history(MAIN, 100, 0).await.unwrap();
    lines.into_iter().map(|l| l.role).collect()
}

/// The id of the approval that waits.
async fn asking(hub: &Hub) -> RequestId {
    let mut events = hub.bus.subscribe();
    let found = async {
        loop {
            if let Some(approval) = hub.actions.approvals(false).await.unwrap().first() {
                let action = hub.actions.get(approval.id).await.unwrap();
                if action.is_some_and(|a| a.state == ActionState::Asking) {
                    return approval.id;
                }
            }
            let _ = events.recv().await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("nobody is asked")
}

async fn stop(hub: Arc<Hub>) {
    hub.tasks.stop.cancel();
    hub.tasks.tracker.close();
    tokio::time::timeout(PATIENCE, hub.tasks.tracker.wait()).await.expect("every task ends");
}

#[tokio::test]
async fn a_question_is_answered_from_the_sensor_and_written_down() {
    let house = House::new();
    let hub = house.open().await;
    let _node = house.connect(&hub).await;
    let mut events = hub.bus.subscribe();
    assert_eq!(say(&hub, "m1", "how warm is the garage?").await, "Temperature (garage): 21.4 °C.");
    assert_eq!(roles(&hub).await, ["user", "assistant", "toolResult", "assistant"]);
    let mut states = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let Event::Chat(chat) = event {
            states.push((chat.seq, chat.state));
        }
    }
    assert_eq!(states.iter().map(|s| s.1).collect::<Vec<_>>(), ["delta", "final"]);
    assert!(states.windows(2).all(|w| w[0].0 < w[1].0), "numbers rise");
    // The same message again is the same run, and nothing is measured twice.
    assert_eq!(send(&hub, "m1", "how warm is the garage?").await.status, "ok");
    assert_eq!(house.ran(), ["sensor.read"]);
    assert!(say(&hub, "m2", "温室多少度").await.contains("没有"));
    stop(hub).await;
}

#[tokio::test]
async fn what_needs_a_person_waits_over_a_restart_and_others_are_answered_meanwhile() {
    let house = House::new();
    let hub = house.open().await;
    let node = house.connect(&hub).await;
    assert_eq!(send(&hub, "m1", "turn the pump on for 20 seconds").await.status, "started");
    let id = asking(&hub).await;
    // The lane is free while a person is waited for.
    assert!(say(&hub, "m2", "status").await.contains("1 waiting for a decision"));
    assert_eq!(send(&hub, "m1", "turn the pump on for 20 seconds").await.status, "in_flight");
    drop(node);
    stop(hub).await;

    let hub = house.open().await;
    let _node = house.connect(&hub).await;
    assert_eq!(asking(&hub).await, id, "the same request");
    let mut refused = inbound("m3", &format!("/approve {id} allow-once"));
    refused.may_decide = false;
    hub.router.deliver(refused).await.unwrap();
    assert!(ended(&hub, "m3").await.contains("may not decide"));
    assert!(house.ran().is_empty());
    let short = &id.to_string()[..8];
    assert!(say(&hub, "m4", &format!("/approve {short} allow-once")).await.starts_with("Allowed once"));
    let reply = ended(&hub, "m1").await;
    assert_eq!(
        reply,
        "Pump (garage) is on for 20 s, then back to its safe state, allowed by terminal: owner."
    );
    assert_eq!(house.ran(), ["gpio.pulse"], "once");
    let (lines, _) = hub.sessions.history(MAIN, 100, 0).await.unwrap();
    let own: Vec<&str> =
        lines.iter().filter(|l| l.run_id.as_deref() == Some("m1")).map(|l| l.role.as_str()).collect();
    assert_eq!(own, ["user", "assistant", "toolResult", "assistant"], "no line twice");
    stop(hub).await;
}

#[tokio::test]
async fn a_node_that_is_away_is_waited_for_and_a_no_is_told() {
    let house = House::new();
    let hub = house.open().await;
    drop(house.connect(&hub).await);
    assert!(say(&hub, "m0", "how warm is the garage?").await.contains("offline"));
    send(&hub, "m1", "take a picture in the garage").await;
    let mut events = hub.bus.subscribe();
    let _node = house.connect(&hub).await;
    let id = asking(&hub).await;
    say(&hub, "m2", &format!("/approve {id} deny")).await;
    assert_eq!(ended(&hub, "m1").await, "Not done: terminal: owner said no.");
    assert!(house.ran().is_empty());
    let told = std::iter::from_fn(|| events.try_recv().ok()).any(|e| {
        matches!(&e, Event::Chat(c) if c.state == "status" && c.fields["phase"] == "waiting_approval"
            && c.fields["text"].as_str().unwrap().contains("/approve"))
    });
    assert!(told, "the way to decide is told");
    stop(hub).await;
}

#[tokio::test]
async fn stop_withdraws_and_leaves_a_whole_transcript() {
    let house = House::new();
    let hub = house.open().await;
    let _node = house.connect(&hub).await;
    send(&hub, "m1", "take a picture").await;
    let id = asking(&hub).await;
    assert_eq!(say(&hub, "m2", "/stop").await, "Stopped.");
    assert_eq!(ended(&hub, "m1").await, "Stopped");
    let action = tokio::time::timeout(PATIENCE, hub.actions.wait(id)).await.unwrap().unwrap();
    assert_eq!(action.error.unwrap().code, ErrorCode::Cancelled);
    let (lines, _) = hub.sessions.history(MAIN, 100, 0).await.unwrap();
    let result = lines.iter().find(|l| l.role == "toolResult").expect("the call has a result");
    assert_eq!(result.is_error, Some(true));
    assert_eq!(say(&hub, "m3", "/stop").await, "Nothing is going on in this conversation.");
    assert!(say(&hub, "m4", "/new").await.starts_with("A new conversation"));
    assert_eq!(roles(&hub).await, ["user", "assistant"]);
    stop(hub).await;
}

#[tokio::test]
async fn the_model_calls_tools_and_its_mistakes_are_its_own() {
    let call = |index: u32, name: &str, arguments: &str| {
        data(&json!({ "choices": [{ "delta": { "tool_calls": [{ "index": index, "id": format!("x{index}"),
            "function": { "name": name, "arguments": arguments } }] } }] }))
    };
    let stub = serve(vec![
        vec![
            OK.into(),
            text("Let me look."),
            call(0, "sensor_read", r#"{"node":"garage","sensor":"temperature"}"#),
            call(1, "gpio_pulse", "{broken"),
            end("tool_calls"),
        ],
        vec![OK.into(), text("It is 21.4 °C, "), text("cool enough."), end("stop")],
    ])
    .await;
    let mut house = House::new();
    house.config.agent.model = Some(ModelConfig {
        base_url: stub.url.clone(),
        name: "m".into(),
        api_key_env: None,
        api_key: None,
        context_tokens: 32_768,
    });
    let hub = house.open().await;
    let _node = house.connect(&hub).await;
    let reply = say(&hub, "m1", "tell me whether the lettuce in the garage is happy").await;
    assert_eq!(reply, "It is 21.4 °C, cool enough.");
    assert_eq!(house.ran(), ["sensor.read"]);
    assert_eq!(roles(&hub).await, ["user", "assistant", "toolResult", "toolResult", "assistant"]);
    let second = stub.requests.lock().unwrap()[1].clone();
    assert!(second.contains("Data from node garage") && second.contains("no JSON object"), "{second}");
    // A request the grammar understands wholly needs no model: the server has no third answer.
    assert_eq!(say(&hub, "m2", "how warm is the garage?").await, "Temperature (garage): 21.4 °C.");
    stop(hub).await;
}

#[tokio::test]
async fn a_question_back_is_remembered_and_limits_are_told() {
    let house = House::new();
    let hub = house.open().await;
    let _node = house.connect(&hub).await;
    assert_eq!(say(&hub, "m1", "turn it on for 5 s").await, "Do you mean Pump (garage)?");
    send(&hub, "m2", "yes").await;
    asking(&hub).await;
    assert!(say(&hub, "m3", "turn on the lamp for 5 s").await.contains("`lamp`"));
    assert!(say(&hub, "m4", "sing me a song").await.contains("[agent.model]"));
    let mut long = inbound("m5", "x");
    long.text = "x".repeat(40_000);
    assert!(hub.router.deliver(long).await.unwrap_err().to_string().contains("32768"));
    stop(hub).await;
}
