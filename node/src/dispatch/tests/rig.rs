//! A guard on a real database, a board that counts, and the keys around them.

use crate::capability::{Bytes, Inventory, Output, Prepared};
use crate::config::Config;
use crate::dispatch::{Dispatcher, Reply, Runs};
use crate::guard::Guard;
use hearth_shared::approver::{Approver, ApproverKind, ApproverSet};
use hearth_shared::chain::Head;
use hearth_shared::challenge::{Challenge, SignedChallenge};
use hearth_shared::command::{Invocation, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::{DeviceId, SecretKey};
use hearth_shared::link::{Invoke, Outcome, PartDecl};
use hearth_shared::reading::{BootId, Correlation, RequestId};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// What it is asked for comes to `facts`; each run takes a permit of `gate`, unless it is cancelled.
#[derive(Debug)]
pub(super) struct CountingBoard {
    pub(super) facts: Mutex<Value>,
    pub(super) always: AtomicBool,
    pub(super) runs: AtomicU64,
    pub(super) started: Semaphore,
    pub(super) gate: Semaphore,
    pub(super) picture: Mutex<Vec<u8>>,
    pub(super) last: Mutex<Option<Invocation>>,
    /// Called at the beginning of each run.
    pub(super) probe: Mutex<Option<Probe>>,
}

pub(super) struct Probe(pub(super) Box<dyn Fn() + Send>);

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl CountingBoard {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            facts: Mutex::new(json!({"line": "simulated:4", "safe": false})),
            always: AtomicBool::new(true),
            runs: AtomicU64::new(0),
            started: Semaphore::new(0),
            gate: Semaphore::new(1_000),
            picture: Mutex::new(b"a picture".to_vec()),
            last: Mutex::new(None),
            probe: Mutex::new(None),
        })
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }
}

impl Runs for CountingBoard {
    fn inventory(&self) -> Inventory {
        let part = |id: &str| PartDecl { id: id.into(), name: id.into(), detail: String::new() };
        Inventory {
            commands: vec!["camera.snap", "gpio.list", "gpio.pulse", "gpio.read", "gpio.write", "system.run"],
            cameras: vec![part("cam0"), part("cam1")],
            pins: vec![part("heater"), part("pump")],
            ..Inventory::default()
        }
    }

    async fn prepare(&self, invocation: Invocation) -> Result<Prepared, CommandError> {
        if matches!(&invocation, Invocation::GpioRead(p) if p.pin == "none") {
            return Err(CommandError::new(ErrorCode::NotFound, "no pin `none`"));
        }
        let facts = self.facts.lock().unwrap().clone();
        let always_possible = self.always.load(Ordering::SeqCst);
        Ok(Prepared { invocation, facts, always_possible, executable: None })
    }

    async fn run(
        &self,
        prepared: Prepared,
        _timeout: Duration,
        cancel: CancellationToken,
    ) -> Result<Output, CommandError> {
        if let Some(probe) = &*self.probe.lock().unwrap() {
            (probe.0)();
        }
        self.started.add_permits(1);
        tokio::select! {
            permit = self.gate.acquire() => permit.unwrap().forget(),
            () = cancel.cancelled() => return Err(CommandError::new(ErrorCode::Cancelled, "stopped")),
        }
        let n = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let attachments = match &prepared.invocation {
            Invocation::CameraSnap(_) => {
                vec![Bytes { mime: "image/jpeg".into(), data: self.picture.lock().unwrap().clone() }]
            }
            _ => Vec::new(),
        };
        *self.last.lock().unwrap() = Some(prepared.invocation);
        Ok(Output { result: json!({ "run": n }).to_string(), attachments })
    }
}

pub(super) struct Rig {
    pub(super) dir: tempfile::TempDir,
    pub(super) guard: Arc<Guard>,
    pub(super) board: Arc<CountingBoard>,
    pub(super) dispatcher: Dispatcher<CountingBoard>,
    pub(super) node: Arc<SecretKey>,
    pub(super) hub: SecretKey,
    pub(super) person: SecretKey,
    pub(super) other: SecretKey,
    pub(super) config: Config,
}

pub(super) const HUB: DeviceId = DeviceId([0xaa; 32]);

pub(super) fn approver(key: &SecretKey, kind: ApproverKind, admin: bool) -> Approver {
    Approver { key: key.public(), kind, admin, name: "somebody".into() }
}

pub(super) fn config(text: &str) -> Config {
    toml::from_str(text).unwrap()
}

pub(super) fn open(dir: &Path, node: &Arc<SecretKey>, config: &Config) -> Arc<Guard> {
    let path = dir.join("node.db");
    let database =
        move || redb::Builder::new().set_cache_size(1 << 20).create(&path).map_err(|e| e.to_string());
    let boot = BootId::fresh().unwrap();
    let guard = Guard::open(database, Arc::clone(node), boot, config, dir).unwrap();
    guard.record_start().unwrap();
    guard
}

impl Rig {
    /// A paired node: the hub's key and two persons' keys, so that need `person` is in force.
    pub(super) fn new(config_text: &str) -> Self {
        let rig = Self::with_approvers(config_text, true);
        assert!(rig.guard.person_in_force());
        rig
    }

    /// With the hub's key only.
    pub(super) fn hub_only(config_text: &str) -> Self {
        Self::with_approvers(config_text, false)
    }

    fn with_approvers(config_text: &str, persons: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [node, hub, person, other] = [1, 2, 3, 4].map(|seed| SecretKey::from_seed(&[seed; 32]));
        let (node, config) = (Arc::new(node), config(config_text));
        let guard = open(dir.path(), &node, &config);
        let mut approvers = vec![approver(&hub, ApproverKind::Hub, false)];
        if persons {
            approvers.push(approver(&person, ApproverKind::Terminal, true));
            approvers.push(approver(&other, ApproverKind::Page, false));
        }
        guard.adopt(HUB, ApproverSet { epoch: 1, approvers, recovery: None }).unwrap();
        let board = CountingBoard::new();
        let dispatcher = Dispatcher::new(Arc::clone(&guard), Arc::clone(&board));
        Self { dir, guard, board, dispatcher, node, hub, person, other, config }
    }

    /// The node's program starts again on the same files.
    pub(super) async fn restart(self) -> Self {
        let Self { dir, guard, board, dispatcher, node, hub, person, other, config } = self;
        dispatcher.shutdown(Duration::from_secs(10)).await;
        drop((guard, dispatcher));
        let guard = open(dir.path(), &node, &config);
        let dispatcher = Dispatcher::new(Arc::clone(&guard), Arc::clone(&board));
        Self { dir, guard, board, dispatcher, node, hub, person, other, config }
    }

    pub(super) async fn invoke(&self, invoke: &Invoke) -> Reply {
        let reply = self.dispatcher.invoke(invoke.clone()).await;
        self.checked(invoke.request, reply)
    }

    pub(super) async fn ask(&self, invoke: &Invoke) -> (Challenge, SignedChallenge) {
        let signed = self.dispatcher.ask_challenge(invoke.clone()).await.unwrap();
        (signed.open(&self.node.public()).unwrap(), signed)
    }

    pub(super) async fn ask_fails(&self, invoke: &Invoke) -> CommandError {
        let reply = *self.dispatcher.ask_challenge(invoke.clone()).await.unwrap_err();
        failed(&self.checked(invoke.request, reply))
    }

    pub(super) async fn grant(&self, request: RequestId, grant: Grant) -> Reply {
        let reply = self.dispatcher.grant(request, grant).await;
        self.checked(request, reply)
    }

    /// Asks, and signs what came.
    pub(super) async fn decide(&self, invoke: &Invoke, key: &SecretKey, decision: Decision) -> Reply {
        let (_, signed) = self.ask(invoke).await;
        self.grant(invoke.request, Grant::sign(key, signed.digest(), decision, 7)).await
    }

    /// Every reply bears a receipt over the node's audit log as it is.
    fn checked(&self, request: RequestId, reply: Reply) -> Reply {
        assert_eq!(reply.frame.request, request);
        assert_eq!(reply.frame.attachments as usize, reply.attachments.len());
        reply.frame.verify(&self.node.public()).unwrap();
        assert!(reply.frame.head.seq <= self.guard.head().seq);
        reply
    }

    pub(super) fn kinds(&self) -> Vec<String> {
        self.guard.audit_verify().unwrap();
        self.guard.audit_records(0, 10_000).unwrap().into_iter().map(|r| r.kind).collect()
    }

    pub(super) fn audited(&self, kind: &str) -> usize {
        self.kinds().iter().filter(|k| *k == kind).count()
    }
}

pub(super) fn request(seed: u8) -> RequestId {
    RequestId([seed; 16])
}

pub(super) fn invoke(seed: u8, command: &str, params: &str) -> Invoke {
    Invoke {
        request: request(seed),
        command: command.into(),
        params: params.into(),
        timeout_ms: 30_000,
        raise: Need::None,
        correlation: Correlation([9; 16]),
        head: Head::default(),
    }
}

pub(super) fn pulse(seed: u8) -> Invoke {
    invoke(seed, "gpio.pulse", r#"{"pin":"pump","durationMs":20000}"#)
}

pub(super) fn failed(reply: &Reply) -> CommandError {
    match &reply.frame.outcome {
        Outcome::Failed(error) => error.clone(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn done(reply: &Reply) -> &str {
    match &reply.frame.outcome {
        Outcome::Done { result } => result,
        other => panic!("{other:?}"),
    }
}

pub(super) fn asked(reply: &Reply) -> Need {
    match &reply.frame.outcome {
        Outcome::ApprovalRequired { need, .. } => *need,
        other => panic!("{other:?}"),
    }
}
