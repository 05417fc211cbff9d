//! A node in memory: rules, challenges, grants, journal and log as a real one has them, and faults on
//! demand.

use crate::actions::NodeDirectory;
use crate::bus::{Bus, Event};
use crate::devices::{Device, DeviceState, LinkKind};
use crate::nodes::{NodeConnection, NodeError, NodeReply, NodeView};
use futures_util::future::BoxFuture;
use hearth_shared::approver::{Approver, ApproverKind, ApproverSet, ApproversChange};
use hearth_shared::chain::Head;
use hearth_shared::challenge::{AlwaysRule, Challenge, SignedChallenge};
use hearth_shared::command::{Class, Need, spec};
use hearth_shared::connect::Role;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::{DeviceId, Digest, Nonce, SecretKey};
use hearth_shared::link::{CommandDecl, Declaration, Invoke, Outcome, PartDecl};
use hearth_shared::reading::{BootId, RequestId};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// Where the link (or the node) dies, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Die {
    /// A grant is lost on its way.
    BeforeStart,
    /// The node loses power in the middle.
    AfterStart,
    /// It ran; the answer is lost.
    AfterRun,
}

#[derive(Debug)]
struct State {
    connected: bool,
    boot: u8,
    policy: u8,
    facts: Value,
    needs: HashMap<&'static str, Need>,
    open: HashMap<RequestId, (Digest, Challenge)>,
    journal: HashMap<RequestId, Option<Outcome>>,
    runs: Vec<(String, Value)>,
    always: Vec<AlwaysRule>,
    head: Head,
    die: Option<Die>,
    stall: bool,
    died: Arc<tokio::sync::Notify>,
}

#[derive(Debug)]
pub(crate) struct FakeNode {
    pub(super) key: SecretKey,
    pub(super) approvers: ApproverSet,
    hub: DeviceId,
    kind: LinkKind,
    state: Mutex<State>,
    pub(super) device_state: Mutex<DeviceState>,
    under_way: Mutex<HashSet<RequestId>>,
    pub(super) cancelled: tokio_util::sync::CancellationToken,
}

pub(super) const SURFACE: &[&str] = &[
    "camera.snap",
    "gpio.pulse",
    "gpio.read",
    "gpio.write",
    "system.notify",
    "system.run",
    "camera:front",
    "pin:pump",
    "pin:lamp",
];

impl FakeNode {
    pub(crate) fn new(hub: &SecretKey, person: &SecretKey, kind: LinkKind) -> Arc<Self> {
        let entry = |key: &SecretKey, kind, name: &str| Approver {
            key: key.public(),
            kind,
            admin: false,
            name: name.into(),
        };
        let approvers =
            vec![entry(hub, ApproverKind::Hub, "hub"), entry(person, ApproverKind::Terminal, "anna")];
        let needs = HashMap::from([
            ("gpio.write", Need::Hub),
            ("gpio.pulse", Need::Hub),
            ("camera.snap", Need::Hub),
            ("system.run", Need::Person),
        ]);
        Arc::new(Self {
            key: SecretKey::generate().unwrap(),
            approvers: ApproverSet { epoch: 1, approvers, recovery: None },
            hub: hub.device_id(),
            kind,
            state: Mutex::new(State {
                connected: true,
                boot: 1,
                policy: 1,
                facts: json!({"line": 4}),
                needs,
                open: HashMap::new(),
                journal: HashMap::new(),
                runs: Vec::new(),
                always: Vec::new(),
                head: Head::default(),
                die: None,
                stall: false,
                died: Arc::default(),
            }),
            device_state: Mutex::new(DeviceState::Accepted),
            under_way: Mutex::default(),
            cancelled: tokio_util::sync::CancellationToken::new(),
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap())
    }

    pub(super) fn id(&self) -> DeviceId {
        self.key.device_id()
    }
    pub(super) fn leave(&self) {
        self.with(|s| s.connected = false);
    }
    pub(super) fn come_back(&self, bus: &Bus) {
        self.with(|s| s.connected = true);
        bus.emit(Event::NodeConnected { node: self.id() });
    }
    pub(super) fn restart(&self) {
        self.with(|s| {
            s.boot += 1;
            s.open.clear();
        });
    }
    pub(super) fn change_facts(&self) {
        self.with(|s| s.facts = json!({"line": 5}));
    }
    pub(super) fn change_policy(&self) {
        self.with(|s| s.policy += 1);
    }
    pub(super) fn set_need(&self, command: &'static str, need: Need) {
        self.with(|s| s.needs.insert(command, need));
    }
    pub(super) fn die_at(&self, die: Die) {
        self.with(|s| s.die = Some(die));
    }
    /// Waits until it died as [`FakeNode::die_at`] told.
    pub(super) async fn dead(&self) {
        let died = self.with(|s| s.died.clone());
        tokio::time::timeout(super::PATIENCE, died.notified()).await.unwrap();
    }
    pub(super) fn stall(&self) {
        self.with(|s| s.stall = true);
    }
    pub(super) fn forget_challenges(&self) {
        self.with(|s| s.open.clear());
    }
    pub(super) fn runs(&self) -> Vec<(String, Value)> {
        self.with(|s| s.runs.clone())
    }

    fn reply(state: &mut State, outcome: Outcome) -> Result<NodeReply, CommandError> {
        let record = state.head.next(0, "test", "{}".into());
        state.head = record.head();
        Ok(NodeReply { outcome, media: Vec::new(), head: Some(state.head) })
    }

    fn fail(state: &mut State, code: ErrorCode, why: &str) -> Result<NodeReply, CommandError> {
        Self::reply(state, Outcome::Failed(CommandError::new(code, why)))
    }

    fn died(state: &mut State) -> Result<NodeReply, CommandError> {
        state.connected = false;
        state.die = None;
        state.died.notify_one();
        Err(CommandError::new(ErrorCode::NotConnected, "the link died"))
    }

    fn recall(state: &mut State, request: &RequestId) -> Option<Result<NodeReply, CommandError>> {
        match state.journal.get(request).cloned() {
            None => None,
            Some(Some(outcome)) => Some(Self::reply(state, outcome)),
            Some(None) => Some(Self::fail(state, ErrorCode::OutcomeUnknown, "it was started")),
        }
    }

    fn run(
        state: &mut State,
        request: RequestId,
        command: &str,
        params: Value,
    ) -> Result<NodeReply, CommandError> {
        let observes = spec(command).is_some_and(|s| s.class == Class::Observe);
        if !observes {
            state.journal.insert(request, None);
        }
        if state.die == Some(Die::AfterStart) {
            return Self::died(state);
        }
        state.runs.push((command.into(), params));
        let outcome = Outcome::Done { result: json!({"ok": state.runs.len()}).to_string() };
        if !observes {
            state.journal.insert(request, Some(outcome.clone()));
        }
        if state.die == Some(Die::AfterRun) {
            return Self::died(state);
        }
        Self::reply(state, outcome)
    }

    fn check_connected(state: &State) -> Result<(), CommandError> {
        let gone = || CommandError::new(ErrorCode::NotConnected, "the connection ended");
        if state.connected { Ok(()) } else { Err(gone()) }
    }

    fn do_invoke(&self, invoke: &Invoke) -> Result<NodeReply, CommandError> {
        self.with(|s| {
            Self::check_connected(s)?;
            if let Some(known) = Self::recall(s, &invoke.request) {
                return known;
            }
            let params: Value = serde_json::from_str(&invoke.params).unwrap();
            let need = s.needs.get(invoke.command.as_str()).copied().unwrap_or_default().max(invoke.raise);
            let known = s.always.iter().any(|r| r.command == invoke.command && r.params == params);
            if self.kind == LinkKind::Hearth && need > Need::None && !known {
                let class = spec(&invoke.command).unwrap().class;
                return Self::reply(s, Outcome::ApprovalRequired { need, class, rule: "test".into() });
            }
            Self::run(s, invoke.request, &invoke.command, params)
        })
    }

    fn do_challenge(&self, invoke: &Invoke) -> Result<Result<SignedChallenge, NodeReply>, CommandError> {
        self.with(|s| {
            Self::check_connected(s)?;
            if let Some(known) = Self::recall(s, &invoke.request) {
                return known.map(Err);
            }
            let params: Value = serde_json::from_str(&invoke.params).unwrap();
            let class = spec(&invoke.command).unwrap().class;
            let always = (class == Class::Capture).then(|| AlwaysRule {
                command: invoke.command.clone(),
                params: params.clone(),
                facts: s.facts.clone(),
            });
            let challenge = Challenge {
                v: 1,
                hub: self.hub,
                node: self.id(),
                name: "garage".into(),
                request: invoke.request,
                boot: BootId([s.boot; 16]),
                nonce: Nonce(hearth_shared::identity::random().unwrap()),
                policy: Digest([s.policy; 32]),
                class,
                need: s.needs.get(invoke.command.as_str()).copied().unwrap_or_default().max(invoke.raise),
                command: invoke.command.clone(),
                params,
                facts: s.facts.clone(),
                always,
                valid_ms: 60_000,
            };
            let signed = SignedChallenge::issue(&challenge, &self.key).unwrap();
            s.open.insert(invoke.request, (signed.digest(), challenge));
            Ok(Ok(signed))
        })
    }

    fn do_grant(&self, request: RequestId, grant: &Grant) -> Result<NodeReply, CommandError> {
        self.with(|s| {
            Self::check_connected(s)?;
            if s.die == Some(Die::BeforeStart) {
                return Self::died(s);
            }
            if let Some(known) = Self::recall(s, &request) {
                return known;
            }
            let Some((digest, challenge)) = s.open.remove(&request) else {
                return Self::fail(s, ErrorCode::GrantRefused, "no such challenge is open");
            };
            let current = challenge.policy == Digest([s.policy; 32]) && challenge.facts == s.facts;
            if let Err(error) = grant.verify(&digest, challenge.need, &self.approvers) {
                return Self::fail(s, ErrorCode::GrantRefused, &error.to_string());
            }
            if !current {
                return Self::fail(s, ErrorCode::GrantRefused, "the policy changed");
            }
            if grant.decision == Decision::AllowAlways {
                s.always.extend(challenge.always.clone());
            }
            Self::run(s, request, &challenge.command, challenge.params)
        })
    }

    pub(crate) fn view(&self) -> NodeView {
        let (connected, needs) = self.with(|s| (s.connected, s.needs.clone()));
        let hearth = self.kind == LinkKind::Hearth;
        let declared: Vec<String> = if hearth {
            SURFACE.iter().map(ToString::to_string).chain(["gpio.list".into(), "pin:door".into()]).collect()
        } else {
            ["system.run", "system.which", "canvas.present", "camera.snap"].map(String::from).to_vec()
        };
        let approved =
            declared.iter().filter(|d| !["gpio.list", "pin:door"].contains(&d.as_str())).cloned().collect();
        let part = |id: &str| PartDecl { id: id.into(), name: id.into(), detail: String::new() };
        let declaration = hearth.then(|| Declaration {
            name: "garage".into(),
            version: "0.1.0".into(),
            platform: "linux".into(),
            arch: "x86_64".into(),
            model: String::new(),
            simulated: true,
            commands: needs
                .iter()
                .map(|(name, need)| CommandDecl {
                    name: (*name).into(),
                    class: spec(name).unwrap().class,
                    need: *need,
                })
                .collect(),
            cameras: vec![part("front")],
            pins: vec![part("lamp"), part("pump")],
            sensors: Vec::new(),
            policy: Digest([1; 32]),
            person_ready: true,
        });
        NodeView {
            device: Device {
                id: self.id(),
                key: self.key.public(),
                name: "garage".into(),
                role: Role::Node,
                roles: vec![Role::Node],
                kind: self.kind,
                state: *self.device_state.lock().unwrap(),
                platform: "linux".into(),
                device_family: String::new(),
                client_id: String::new(),
                client_mode: String::new(),
                scopes: Vec::new(),
                approved_via: "code".into(),
                created_ms: 1,
                approved_ms: 1,
                last_seen_ms: None,
                last_seen_reason: None,
            },
            declaration,
            declared,
            approved,
            pending: Vec::new(),
            refused: Vec::new(),
            pending_request: None,
            pending_ms: None,
            caps: Vec::new(),
            approvers: self.approvers.clone(),
            connected,
            connected_ms: None,
            remote_ip: None,
            version: "0.1.0".into(),
        }
    }
}

#[derive(Debug)]
struct Link(Arc<FakeNode>);

/// A link carries one exchange about a request at a time.
struct Exchange<'a>(&'a FakeNode, RequestId);

impl<'a> Exchange<'a> {
    async fn begin(node: &'a FakeNode, request: RequestId) -> Result<Self, CommandError> {
        if !node.under_way.lock().unwrap().insert(request) {
            return Err(CommandError::new(ErrorCode::Busy, "under way already"));
        }
        let exchange = Self(node, request);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        Ok(exchange)
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        self.0.under_way.lock().unwrap().remove(&self.1);
    }
}

impl NodeConnection for Link {
    fn invoke(&self, invoke: Invoke) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        Box::pin(async move {
            let _exchange = Exchange::begin(&self.0, invoke.request).await?;
            if self.0.with(|s| s.stall) {
                self.0.cancelled.cancelled().await;
                return Err(CommandError::new(ErrorCode::Cancelled, "stopped"));
            }
            self.0.do_invoke(&invoke)
        })
    }
    fn ask_challenge(
        &self,
        invoke: Invoke,
    ) -> BoxFuture<'_, Result<Result<SignedChallenge, NodeReply>, CommandError>> {
        Box::pin(async move {
            let _exchange = Exchange::begin(&self.0, invoke.request).await?;
            self.0.do_challenge(&invoke)
        })
    }
    fn grant(
        &self,
        request: RequestId,
        grant: Grant,
        _: std::time::Duration,
    ) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        Box::pin(async move {
            let _exchange = Exchange::begin(&self.0, request).await?;
            self.0.do_grant(request, &grant)
        })
    }
    fn cancel(&self, _: RequestId) {
        self.0.cancelled.cancel();
    }
    fn change_approvers(&self, change: ApproversChange) -> BoxFuture<'_, Result<ApproverSet, CommandError>> {
        let applied = self.0.approvers.apply(&self.0.id(), &change);
        Box::pin(async move { applied.map_err(|e| CommandError::new(ErrorCode::Denied, e.to_string())) })
    }
    fn surface(&self, _: Vec<String>) {}
    fn close(&self, _: u16, _: &str) {}
}

#[derive(Debug)]
pub(super) struct Directory(pub(super) Arc<FakeNode>);

impl NodeDirectory for Directory {
    fn view(&self, node: DeviceId) -> BoxFuture<'_, Result<NodeView, NodeError>> {
        let view = (node == self.0.id()).then(|| self.0.view());
        Box::pin(async move { view.ok_or_else(|| NodeError::Unknown(node.to_string())) })
    }
    fn connection(&self, node: &DeviceId) -> Option<Arc<dyn NodeConnection>> {
        let here = *node == self.0.id() && self.0.with(|s| s.connected);
        here.then(|| Arc::new(Link(self.0.clone())) as Arc<dyn NodeConnection>)
    }
}
