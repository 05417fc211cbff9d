//! Requests from the question to the outcome, against a node in memory and a real database.

pub(crate) mod node;
mod restarts;

use super::*;
use crate::approvals::{ApprovalStatus, Card};
use crate::config::Config;
use crate::devices::{DeviceState, LinkKind};
use crate::home::Home;
use futures_util::FutureExt as _;
use hearth_shared::grant::Grant;
use hearth_shared::identity::{Digest, SecretKey};
use node::{Die, Directory, FakeNode};
use std::path::PathBuf;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    _dir: tempfile::TempDir,
    database: PathBuf,
    keys: Arc<HubKeys>,
    person: SecretKey,
    node: Arc<FakeNode>,
    config: Config,
}

struct Hub {
    actions: Actions,
    bus: Bus,
    audit: Audit,
    store: Store,
    tasks: Tasks,
}

impl World {
    fn of(kind: LinkKind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        let keys = Arc::new(HubKeys::open(&home).unwrap());
        let person = SecretKey::generate().unwrap();
        let node = FakeNode::new(&keys.identity, &person, kind);
        Self { database: home.database(), _dir: dir, keys, person, node, config: Config::default() }
    }

    fn new() -> Self {
        Self::of(LinkKind::Hearth)
    }

    async fn start(&self) -> Hub {
        let store = Store::open(&self.database).unwrap();
        let (bus, tasks) = (Bus::default(), Tasks::default());
        let audit = Audit::open(store.clone()).await.unwrap();
        let directory = Arc::new(Directory(self.node.clone()));
        let config = Arc::new(self.config.clone());
        let actions = Actions::with_directory(
            store.clone(),
            bus.clone(),
            audit.clone(),
            directory,
            self.keys.clone(),
            config,
            tasks.clone(),
        );
        actions.approvers_connected(1);
        actions.resume().await.unwrap();
        Hub { actions, bus, audit, store, tasks }
    }

    fn request(&self, command: &str, params: Value) -> ActionRequest {
        ActionRequest {
            host: Host::Node,
            node: self.node.id(),
            command: command.into(),
            params,
            requester: "terminal: owner".into(),
            requester_device: None,
            reason: Some("the tank is empty".into()),
            session_key: Some("agent:main:main".into()),
            run_id: None,
            timeout: Duration::from_secs(10),
            idempotency_key: None,
            wait_for_node: false,
            ask_for: None,
            correlation: Correlation([1; 16]),
        }
    }

    fn write(&self) -> ActionRequest {
        self.request("gpio.write", json!({"pin": "pump", "value": true}))
    }
}

impl Hub {
    async fn stop(self) {
        self.tasks.stop.cancel();
        self.tasks.tracker.close();
        tokio::time::timeout(PATIENCE, self.tasks.tracker.wait()).await.expect("every task ends");
    }

    async fn until(&self, id: RequestId, state: ActionState) -> Action {
        let mut events = self.bus.subscribe();
        let reached = async {
            loop {
                if let Some(action) = self.actions.get(id).await.unwrap()
                    && action.state == state
                {
                    return action;
                }
                let _ = events.recv().await;
            }
        };
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(action) => action,
            Err(_) => panic!("not {state:?}: {:?}", self.actions.get(id).await),
        }
    }

    async fn asking(&self, request: ActionRequest) -> RequestId {
        let id = self.actions.submit(request).await.unwrap();
        self.until(id, ActionState::Asking).await;
        id
    }

    async fn ended(&self, id: RequestId) -> Action {
        tokio::time::timeout(PATIENCE, self.actions.wait(id)).await.expect("ends").unwrap()
    }

    async fn code(&self, id: RequestId) -> ErrorCode {
        self.ended(id).await.error.expect("failed").code
    }

    async fn owner(&self, id: RequestId, decision: Decision) -> Result<Approval, ActionError> {
        let by = Decider::Hub { who: "terminal: owner".into(), seen: None };
        self.actions.decide(&id.to_string(), decision, by).await
    }

    async fn kinds(&self) -> Vec<String> {
        self.audit.records(0, 1000).await.unwrap().into_iter().map(|r| r.kind).collect()
    }
}

fn seen(card: &Card) -> Decider {
    let digest = card.challenge.as_ref().map(|c| c.digest());
    Decider::Hub { who: "terminal: owner".into(), seen: digest }
}

fn signed(person: &SecretKey, card: &Card, decision: Decision) -> Decider {
    let digest = card.challenge.as_ref().unwrap().digest();
    Decider::Person { grant: Box::new(Grant::sign(person, digest, decision, 1)) }
}

fn refused(result: Result<RequestId, ActionError>) -> CommandError {
    match result {
        Err(ActionError::Refused(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn looking_needs_nobody_and_leaves_a_record() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.actions.submit(world.request("gpio.read", json!({"pin": "pump"}))).await.unwrap();
    let action = hub.ended(id).await;
    assert_eq!(action.result.unwrap()["ok"], 1);
    assert_eq!(hub.ended(id).await.state, ActionState::Done, "readable once more");
    let in_database = hub.store.read(move |c| record::load(c, &id)).await.unwrap();
    assert!(in_database.is_none(), "no write to the card for a look");
    let (audit, tasks) = (hub.audit.clone(), hub.tasks.clone());
    hub.stop().await;
    drop(tasks);
    assert_eq!(audit.records(0, 10).await.unwrap()[0].kind, "node.observed");
    let report = audit.verify().await.unwrap();
    assert!(report.is_sound() && report.nodes.len() == 1, "{report:?}");
}

#[tokio::test]
async fn a_yes_with_the_card_runs_it_once_and_everything_is_in_the_log() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    let listed = hub.actions.approvals(false).await.unwrap();
    assert_eq!(listed[0].sentence, "Switch pin pump on");
    assert_eq!(listed[0].reason.as_deref(), Some("the tank is empty"));
    let card = hub.actions.card(&id.to_string()[..8]).await.unwrap();
    assert_eq!(card.shown.as_ref().unwrap().params, json!({"pin": "pump", "value": true}));
    let approval = hub.actions.decide(&id.to_string(), Decision::AllowOnce, seen(&card)).await.unwrap();
    assert_eq!(approval.status, ApprovalStatus::Allowed);
    let action = hub.ended(id).await;
    assert_eq!(action.state, ActionState::Done, "{action:?}");
    assert_eq!(world.node.runs().len(), 1);
    assert!(hub.actions.approvals(false).await.unwrap().is_empty());
    let kinds = hub.kinds().await;
    assert_eq!(
        kinds,
        ["action.submitted", "approval.requested", "approval.decided", "grant.sent", "action.finished"]
    );
    let report = hub.audit.verify().await.unwrap();
    assert!(report.is_sound());
    let holders: Vec<&str> = report.holders.iter().map(|h| h.holder.as_str()).collect();
    assert_eq!(holders, ["approver:terminal: owner", &format!("node:{}", world.node.id())]);
    hub.stop().await;
}

#[tokio::test]
async fn a_no_ends_it_and_the_node_is_told_nothing() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    world.node.leave();
    hub.owner(id, Decision::Deny).await.unwrap();
    assert_eq!(hub.code(id).await, ErrorCode::ApprovalDenied);
    assert!(world.node.runs().is_empty());
    assert!(matches!(
        hub.owner(id, Decision::AllowOnce).await,
        Err(ActionError::AlreadyDecided { status: "denied", .. })
    ));
    hub.stop().await;
}

#[tokio::test]
async fn of_many_deciders_at_once_exactly_one_wins() {
    let world = World::new();
    let hub = world.start().await;
    for round in 0..5 {
        let id =
            hub.asking(world.request("gpio.write", json!({"pin": "lamp", "value": round % 2 == 0}))).await;
        let deciders = (0..8).map(|i| {
            let decision = if i % 2 == 0 { Decision::AllowOnce } else { Decision::Deny };
            let by = Decider::Hub { who: format!("person {i}"), seen: None };
            let actions = hub.actions.clone();
            tokio::spawn(async move { actions.decide(&id.to_string(), decision, by).await })
        });
        let results = futures_util::future::join_all(deciders.collect::<Vec<_>>()).await;
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().map(Result::unwrap).partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        assert!(lost.iter().all(|r| matches!(r, Err(ActionError::AlreadyDecided { .. }))), "{lost:?}");
        let allowed = won[0].as_ref().unwrap().status == ApprovalStatus::Allowed;
        assert_eq!(hub.ended(id).await.state == ActionState::Done, allowed);
    }
    let decided = hub.kinds().await.iter().filter(|k| *k == "approval.decided").count();
    assert_eq!(decided, 5);
    hub.stop().await;
}

#[tokio::test]
async fn nobody_decides_in_time() {
    let mut world = World::new();
    world.config.approvals.lifetime_s = 1;
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    assert_eq!(hub.code(id).await, ErrorCode::ApprovalExpired);
    assert_eq!(hub.actions.approval(&id.to_string()).await.unwrap().status, ApprovalStatus::Expired);
    assert!(matches!(
        hub.owner(id, Decision::AllowOnce).await,
        Err(ActionError::AlreadyDecided { status: "expired", .. })
    ));
    hub.stop().await;
}

#[tokio::test]
async fn with_nobody_to_ask_it_ends_and_says_so() {
    let mut world = World::new();
    let hub = world.start().await;
    hub.actions.approvers_connected(0);
    let id = hub.actions.submit(world.write()).await.unwrap();
    assert_eq!(hub.code(id).await, ErrorCode::NobodyToAsk);
    // A client that says a moment later that it can show approvals is in time.
    let id = hub.actions.submit(world.write()).await.unwrap();
    hub.until(id, ActionState::Running).await;
    hub.actions.approvers_connected(1);
    hub.until(id, ActionState::Asking).await;
    hub.stop().await;
    world.config.approvals.wait_for_approver = true;
    let hub = world.start().await;
    hub.actions.approvers_connected(0);
    hub.asking(world.write()).await;
    hub.stop().await;
}

#[tokio::test]
async fn what_changed_since_it_was_shown_is_not_signed() {
    let world = World::new();
    let hub = world.start().await;
    for change in [FakeNode::change_facts, FakeNode::change_policy] {
        let id = hub.asking(world.write()).await;
        let which = id.to_string();
        let card = hub.actions.card(&which).await.unwrap();
        change(&world.node);
        for by in [seen(&card), Decider::Hub { who: "chat".into(), seen: None }] {
            let result = hub.actions.decide(&which, Decision::AllowOnce, by).await;
            assert!(matches!(result, Err(ActionError::Changed)), "{result:?}");
        }
        // Somebody else looks at it as it is now: the first one still has not.
        let again = hub.actions.card(&which).await.unwrap();
        let result = hub.actions.decide(&which, Decision::AllowOnce, seen(&card)).await;
        assert!(matches!(result, Err(ActionError::Changed)), "{result:?}");
        hub.actions.decide(&which, Decision::AllowOnce, seen(&again)).await.unwrap();
        assert_eq!(hub.ended(id).await.state, ActionState::Done);
    }
    // A card that nobody was shown.
    let id = hub.asking(world.write()).await;
    let by = Decider::Hub { who: "chat".into(), seen: Some(Digest([9; 32])) };
    assert!(matches!(
        hub.actions.decide(&id.to_string(), Decision::AllowOnce, by).await,
        Err(ActionError::Changed)
    ));
    // A restart of the node alone changes nothing that a person saw.
    let card = hub.actions.card(&id.to_string()).await.unwrap();
    world.node.restart();
    hub.actions.decide(&id.to_string(), Decision::AllowOnce, seen(&card)).await.unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    hub.stop().await;
}

#[tokio::test]
async fn need_person_takes_a_persons_key() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.request("system.run", json!({"command": ["uptime"]}))).await;
    let which = id.to_string();
    assert!(matches!(hub.owner(id, Decision::AllowOnce).await, Err(ActionError::NotEnough(_))));
    let card = hub.actions.card(&which).await.unwrap();
    let decide = |key: SecretKey| {
        let by = signed(&key, &card, Decision::AllowOnce);
        hub.actions.decide(&which, Decision::AllowOnce, by)
    };
    let stranger = decide(SecretKey::generate().unwrap()).await;
    assert!(
        matches!(&stranger, Err(ActionError::NotEnough(why)) if why.contains("not an approver")),
        "{stranger:?}"
    );
    let own = decide(SecretKey::from_seed(&world.keys.identity.seed())).await;
    assert!(matches!(own, Err(ActionError::NotEnough(_))), "the hub's key is no person: {own:?}");
    // The signature must say what is decided.
    let other = signed(&world.person, &card, Decision::AllowAlways);
    assert!(matches!(
        hub.actions.decide(&which, Decision::AllowOnce, other).await,
        Err(ActionError::NotEnough(_))
    ));
    let by = signed(&world.person, &card, Decision::AllowOnce);
    let approval = hub.actions.decide(&which, Decision::AllowOnce, by).await.unwrap();
    assert!(approval.decided_by.unwrap().starts_with("approver: anna ("));
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    hub.stop().await;
}

#[tokio::test]
async fn a_persons_signature_that_comes_too_late_is_asked_for_again() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.request("system.run", json!({"command": ["uptime"]}))).await;
    let which = id.to_string();
    let card = hub.actions.card(&which).await.unwrap();
    world.node.forget_challenges();
    let mut events = hub.bus.subscribe();
    hub.actions
        .decide(&which, Decision::AllowOnce, signed(&world.person, &card, Decision::AllowOnce))
        .await
        .unwrap();
    let asked_again = async {
        while !matches!(events.recv().await, Ok(Event::ApprovalRequested { id: asked }) if asked == id) {}
    };
    tokio::time::timeout(PATIENCE, asked_again).await.unwrap();
    let approval = hub.actions.approval(&which).await.unwrap();
    assert_eq!(approval.status, ApprovalStatus::Pending);
    assert!(approval.note.unwrap().contains("no such challenge"));
    // Away: a signature could not be used, and is not taken.
    let card = hub.actions.card(&which).await.unwrap();
    world.node.leave();
    let late = hub
        .actions
        .decide(&which, Decision::AllowOnce, signed(&world.person, &card, Decision::AllowOnce))
        .await;
    assert!(matches!(&late, Err(ActionError::NotEnough(why)) if why.contains("is away")), "{late:?}");
    assert!(hub.actions.card(&which).await.unwrap().challenge.is_none());
    world.node.come_back(&hub.bus);
    hub.actions
        .decide(&which, Decision::AllowOnce, signed(&world.person, &card, Decision::AllowOnce))
        .await
        .unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    assert_eq!(world.node.runs().len(), 1);
    hub.stop().await;
}

#[tokio::test]
async fn always_is_the_hubs_to_sign_only_for_pictures() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    assert!(matches!(hub.owner(id, Decision::AllowAlways).await, Err(ActionError::NotEnough(_))));
    let snap = || world.request("camera.snap", json!({}));
    let id = hub.asking(snap()).await;
    assert_eq!(hub.actions.approval(&id.to_string()).await.unwrap().params["deviceId"], "front");
    hub.owner(id, Decision::AllowAlways).await.unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    let id = hub.actions.submit(snap()).await.unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done, "the node's rule lets the next one through");
    hub.stop().await;
}

#[tokio::test]
async fn the_hubs_rules_can_only_narrow() {
    let mut world = World::new();
    world.config.nodes.deny = vec!["system.*".into()];
    world.config.nodes.ask = vec!["gpio.read".into()];
    let hub = world.start().await;
    let run = world.request("system.run", json!({"command": ["ls"]}));
    let error = refused(hub.actions.submit(run).await);
    assert_eq!(error.code, ErrorCode::Denied);
    assert!(error.message.contains("`system.*` in `nodes.deny`"), "{error}");
    let id = hub.asking(world.request("gpio.read", json!({"pin": "pump"}))).await;
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    hub.stop().await;
}

#[tokio::test]
async fn a_key_stands_for_one_action() {
    let world = World::new();
    let hub = world.start().await;
    let keyed = |value: bool| ActionRequest {
        idempotency_key: Some("k1".into()),
        ..world.request("gpio.write", json!({"pin": "pump", "value": value}))
    };
    let first = hub.asking(keyed(true)).await;
    let many = (0..6).map(|_| hub.actions.submit(keyed(true)));
    for again in futures_util::future::join_all(many).await {
        assert_eq!(again.unwrap(), first);
    }
    assert!(matches!(hub.actions.submit(keyed(false)).await, Err(ActionError::KeyReused)));
    let other = ActionRequest { requester: "terminal: guest".into(), ..keyed(false) };
    assert_ne!(hub.asking(other).await, first, "keys of others are not ours");
    hub.stop().await;
    let hub = world.start().await;
    assert_eq!(hub.actions.submit(keyed(true)).await.unwrap(), first);
    hub.stop().await;
}

#[tokio::test]
async fn the_number_of_open_requests_is_limited() {
    let world = World::new();
    let hub = world.start().await;
    let many = (0..open::MAX_OPEN_EACH + 6).map(|_| hub.actions.submit(world.write()));
    let results = futures_util::future::join_all(many).await;
    let (taken, limited): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), limited.len()), (open::MAX_OPEN_EACH, 6));
    for result in limited {
        assert_eq!(refused(result).code, ErrorCode::RateLimited);
    }
    for id in taken {
        hub.actions.cancel(id.unwrap(), "terminal: owner").await.unwrap();
    }
    hub.asking(world.write()).await;
    hub.stop().await;
}

#[tokio::test]
async fn withdrawn_in_every_state() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    hub.actions.cancel(id, "terminal: owner").await.unwrap();
    assert_eq!(hub.code(id).await, ErrorCode::Cancelled);
    assert_eq!(hub.actions.approval(&id.to_string()).await.unwrap().status, ApprovalStatus::Cancelled);
    assert!(matches!(hub.owner(id, Decision::AllowOnce).await, Err(ActionError::AlreadyDecided { .. })));
    // By leaving before there was an id.
    let mut events = hub.bus.subscribe();
    assert!(hub.actions.submit(world.write()).now_or_never().is_none());
    let id = loop {
        match tokio::time::timeout(PATIENCE, events.recv()).await.unwrap() {
            Ok(Event::ActionChanged { id }) => break id,
            other => drop(other),
        }
    };
    assert_eq!(hub.code(id).await, ErrorCode::Cancelled);
    // On its way: the node is told, and its answer counts.
    world.node.stall();
    world.node.set_need("system.notify", Need::None);
    let notify = world.request("system.notify", json!({"title": "hello", "body": "x"}));
    for request in [notify, world.request("gpio.read", json!({"pin": "pump"}))] {
        let id = hub.actions.submit(request).await.unwrap();
        hub.until(id, ActionState::Running).await;
        hub.actions.cancel(id, "terminal: owner").await.unwrap();
        assert_eq!(hub.code(id).await, ErrorCode::Cancelled);
    }
    assert!(world.node.cancelled.is_cancelled());
    hub.stop().await;
}

#[tokio::test]
async fn a_foreign_node_is_gated_by_the_hub_alone() {
    let mut world = World::of(LinkKind::Json);
    let hub = world.start().await;
    let run = || world.request("system.run", json!({"command": ["ls", "-l"]}));
    let error = refused(hub.actions.submit(run()).await);
    assert!(error.message.contains("nodes.foreign_execute"), "{error}");
    let forged = world.request("canvas.present", json!({"approved": true}));
    assert_eq!(refused(hub.actions.submit(forged).await).code, ErrorCode::Denied);
    let id = hub.asking(world.request("canvas.present", json!({"url": "x"}))).await;
    let card = hub.actions.card(&id.to_string()).await.unwrap();
    assert!(card.challenge.is_none() && !card.approval.checked_on_node);
    assert!(matches!(hub.owner(id, Decision::AllowAlways).await, Err(ActionError::NotEnough(_))));
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    assert_eq!(world.node.runs(), [("canvas.present".into(), json!({"url": "x"}))]);
    let look = hub.actions.submit(world.request("system.which", json!({"bins": ["ls"]}))).await.unwrap();
    assert_eq!(hub.ended(look).await.state, ActionState::Done, "looking asks nobody");
    hub.stop().await;

    world.config.nodes.foreign_execute = vec![world.node.id().to_string()];
    let hub = world.start().await;
    let run = || world.request("system.run", json!({"command": ["ls", "-l"]}));
    let id = hub.asking(run()).await;
    assert_eq!(hub.actions.approval(&id.to_string()).await.unwrap().sentence, "Run ls -l");
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    hub.ended(id).await;
    let sent = &world.node.runs()[2].1;
    assert_eq!((&sent["command"], &sent["approved"]), (&json!(["ls", "-l"]), &json!(true)));
    assert_eq!(sent["runId"], id.to_string());
    hub.stop().await;
}

#[tokio::test]
async fn approvers_of_a_node_are_changed_through_the_hub() {
    let world = World::new();
    let hub = world.start().await;
    let mut set = world.node.approvers.clone();
    set.epoch += 1;
    set.approvers.retain(|a| a.name != "anna");
    let node = world.node.id();
    let change = ApproversChange::sign(&world.person, &node, set.clone());
    let after = hub.actions.change_approvers(&node.to_string(), change, "anna").await.unwrap();
    assert_eq!(after, set);
    let forged = ApproversChange::sign(&world.keys.identity, &node, set);
    let error = hub.actions.change_approvers(&node.to_string(), forged, "anna").await.unwrap_err();
    assert!(matches!(error, ActionError::Refused(_)));
    assert_eq!(hub.kinds().await, ["approvers.changed", "approvers.changed"]);
    hub.stop().await;
}
