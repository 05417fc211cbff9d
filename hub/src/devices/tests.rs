use super::*;
use crate::home::Home;
use crate::store::now_ms;
use hearth_shared::approver::{Approver, ApproverKind};
use hearth_shared::identity::SecretKey;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;

struct Desk {
    devices: Devices,
    audit: Audit,
    events: Receiver<crate::bus::Event>,
    _dir: tempfile::TempDir,
}

async fn desk() -> Desk {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::locate(Some(dir.path()));
    home.create().unwrap();
    let store = Store::open(&home.database()).unwrap();
    let bus = Bus::default();
    let events = bus.subscribe();
    let audit = Audit::open(store.clone()).await.unwrap();
    let keys = Arc::new(HubKeys::open(&home).unwrap());
    Desk { devices: Devices::new(store, bus, audit.clone(), keys), audit, events, _dir: dir }
}

impl Desk {
    async fn kinds(&self) -> Vec<String> {
        self.audit.records(0, 1000).await.unwrap().into_iter().map(|r| r.kind).collect()
    }

    async fn open(&self) -> PairingWindow {
        self.devices.open_window(Duration::from_secs(600), vec!["hub:1".into()]).await.unwrap()
    }
}

fn asks(seed: u8, ip: &str) -> PendingDevice {
    let key = SecretKey::from_seed(&[seed; 32]).public();
    PendingDevice {
        request_id: String::new(),
        key,
        device_id: key.device_id(),
        name: format!("phone {seed}"),
        role: Role::Operator,
        kind: LinkKind::Json,
        platform: "linux".into(),
        device_family: String::new(),
        client_id: "cli".into(),
        client_mode: "cli".into(),
        scopes: vec![Scope::Write, Scope::Read],
        surface: Vec::new(),
        words: None,
        remote_ip: ip.into(),
        created_ms: now_ms(),
    }
}

async fn waits(desk: &Desk, asks: PendingDevice) -> Arc<PendingDevice> {
    match desk.devices.knock(asks).await.unwrap() {
        Knocked::Pending(pending) => pending,
        Knocked::Accepted(_) => panic!("accepted"),
    }
}

#[tokio::test]
async fn knocks_are_counted_while_closed_and_limited_while_open() {
    let desk = desk().await;
    assert!(matches!(desk.devices.knock(asks(1, "192.168.1.9")).await, Err(DeviceError::WindowClosed)));
    assert_eq!(desk.devices.window().knocks_while_closed, 1);
    assert!(desk.devices.list().await.unwrap().0.is_empty(), "never a card");
    desk.open().await;
    for seed in 1..=3 {
        waits(&desk, asks(seed, "192.168.1.9")).await;
    }
    assert!(matches!(desk.devices.knock(asks(4, "192.168.1.9")).await, Err(DeviceError::TooMany(3))));
    waits(&desk, asks(5, "127.0.0.1")).await;
    desk.devices.close_window().await;
    // This machine's own may knock without a window: whoever is on it has an account here.
    waits(&desk, asks(6, "::1")).await;
}

#[tokio::test]
async fn a_retry_keeps_its_request_and_changed_content_replaces_it() {
    let mut desk = desk().await;
    let first = waits(&desk, asks(1, "127.0.0.1")).await;
    let again = waits(&desk, asks(1, "127.0.0.1")).await;
    assert_eq!(first.request_id, again.request_id);
    let mut wider = asks(1, "127.0.0.1");
    wider.scopes.push(Scope::Admin);
    let other = waits(&desk, wider).await;
    assert_ne!(first.request_id, other.request_id);
    let mut replaced = false;
    while let Ok(event) = desk.events.try_recv() {
        if let crate::bus::Event::DevicePairResolved { request_id, decision, .. } = event {
            assert_eq!((request_id.as_str(), decision), (first.request_id.as_str(), "rejected"));
            replaced = true;
        }
    }
    assert!(replaced);
    assert_eq!(desk.devices.list().await.unwrap().0.len(), 1);
    assert!(matches!(desk.devices.approve(&first.request_id, "t").await, Err(DeviceError::Unknown { .. })));
}

#[tokio::test]
async fn approval_gives_what_was_shown_and_rejection_is_remembered() {
    let desk = desk().await;
    let pending = waits(&desk, asks(1, "127.0.0.1")).await;
    let device = desk.devices.approve(&pending.request_id[..8], "owner").await.unwrap();
    assert_eq!(device.scopes, [Scope::Read, Scope::Write]);
    assert_eq!((device.approved_via.as_str(), device.state), ("owner", DeviceState::Accepted));
    let mut greedy = asks(1, "127.0.0.1");
    greedy.scopes = vec![Scope::Admin];
    match desk.devices.knock(greedy.clone()).await.unwrap() {
        Knocked::Accepted(device) => assert_eq!(device.scopes, [Scope::Read, Scope::Write], "never as asked"),
        Knocked::Pending(_) => panic!("pending"),
    }
    // The upgrade is asked for by itself, and the device stays as it is until somebody says yes.
    let upgrade = desk.devices.ask_upgrade(greedy).await.unwrap();
    desk.devices.reject(&upgrade.request_id, "owner").await.unwrap();
    assert_eq!(desk.devices.find("phone 1").await.unwrap().state, DeviceState::Accepted);

    waits(&desk, asks(2, "127.0.0.1")).await;
    let id = desk.devices.reject("PHONE 2", "owner").await.unwrap();
    assert!(matches!(desk.devices.knock(asks(2, "127.0.0.1")).await, Err(DeviceError::Refused("rejected"))));
    desk.devices.remove(&id.to_string(), "owner").await.unwrap();
    waits(&desk, asks(2, "127.0.0.1")).await;
    let kinds = desk.kinds().await;
    for kind in ["device.accepted", "device.rejected", "device.removed"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind}");
    }
}

#[tokio::test]
async fn a_phone_may_hold_two_roles_with_one_key() {
    let desk = desk().await;
    desk.devices.admit(asks(1, "127.0.0.1"), "silent").await.unwrap();
    let mut node = asks(1, "127.0.0.1");
    (node.role, node.scopes, node.surface) = (Role::Node, Vec::new(), vec!["camera.snap".into()]);
    let pending = waits(&desk, node.clone()).await;
    let device = desk.devices.approve(&pending.request_id, "owner").await.unwrap();
    assert_eq!(device.roles, [Role::Operator, Role::Node]);
    assert_eq!(device.scopes, [Scope::Read, Scope::Write], "the operator's rights stay");
    assert!(matches!(desk.devices.knock(node).await, Ok(Knocked::Accepted(_))));
}

#[tokio::test]
async fn tokens_are_checked_rotated_and_end_with_the_device() {
    let mut desk = desk().await;
    let id = desk.devices.admit(asks(1, "127.0.0.1"), "silent").await.unwrap().id;
    let devices = desk.devices.clone();
    let token = devices.issue_token(id, Role::Operator).await.unwrap();
    assert!(devices.check_token(id, Role::Operator, token.expose()).await.unwrap());
    assert!(!devices.check_token(id, Role::Node, token.expose()).await.unwrap());
    assert!(!devices.check_token(id, Role::Operator, "wrong").await.unwrap());
    assert!(devices.issue_token(id, Role::Node).await.is_err(), "a role it does not hold");
    let (_, fresh) = devices.rotate("phone 1", Role::Operator, "owner").await.unwrap();
    assert!(!devices.check_token(id, Role::Operator, token.expose()).await.unwrap());
    assert!(devices.check_token(id, Role::Operator, fresh.expose()).await.unwrap());
    assert!(devices.tokens(id).await.unwrap()[0].rotated_ms.is_some());
    devices.revoke("phone 1", "owner").await.unwrap();
    assert!(!devices.check_token(id, Role::Operator, fresh.expose()).await.unwrap());
    assert!(matches!(devices.issue_token(id, Role::Operator).await, Err(DeviceError::Refused("revoked"))));
    let mut closed = 0;
    while let Ok(event) = desk.events.try_recv() {
        closed += u8::from(matches!(event, crate::bus::Event::DeviceClosed { code: 4001, .. }));
    }
    assert_eq!(closed, 2);
    for record in desk.audit.records(0, 1000).await.unwrap() {
        assert!(!record.body.contains(token.expose()) && !record.body.contains(fresh.expose()));
    }
}

#[tokio::test]
async fn several_codes_may_be_out_and_the_window_ends_by_itself() {
    let desk = desk().await;
    let (first, second) = (desk.open().await, desk.open().await);
    assert_ne!(first.contents.secret, second.contents.secret);
    for window in [&first, &second] {
        let seed = if window.expires_ms == first.expires_ms { 1 } else { 2 };
        let node = PendingDevice { role: Role::Node, ..asks(seed, "10.0.0.1") };
        desk.devices.redeem(&window.contents.secret, node, "bootstrap").await.unwrap();
    }
    for _ in 0..16 {
        desk.open().await;
    }
    let more = desk.devices.open_window(Duration::from_secs(1), vec!["hub:1".into()]).await;
    assert!(matches!(more, Err(DeviceError::TooManyCodes(16))));
    desk.devices.close_window().await;
    desk.devices.open_window(Duration::from_millis(30), vec!["hub:1".into()]).await.unwrap();
    waits(&desk, PendingDevice { words: Some("a b c d".into()), ..asks(9, "10.0.0.1") }).await;
    tokio::time::timeout(Duration::from_secs(5), async {
        while desk.devices.window().open {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert!(desk.devices.list().await.unwrap().0.is_empty(), "who waited by words ends with the window");
}

#[tokio::test]
async fn setup_codes_carry_the_known_approvers() {
    let desk = desk().await;
    let key = SecretKey::from_seed(&[40; 32]).public();
    let person = Approver { key, kind: ApproverKind::Terminal, admin: true, name: "Ada".into() };
    desk.devices.add_known_approver(person.clone(), "owner").await.unwrap();
    let hub = Approver { kind: ApproverKind::Hub, ..person.clone() };
    assert!(matches!(desk.devices.add_known_approver(hub, "owner").await, Err(DeviceError::NotAPerson)));
    let window = desk.open().await;
    let decoded = SetupCode::decode(window.code.expose()).unwrap();
    assert_eq!(decoded, window.contents);
    assert_eq!(decoded.approvers.len(), 2);
    assert_eq!(decoded.approvers[1], person);
    assert!(decoded.approvers[0].kind == ApproverKind::Hub && !decoded.approvers[0].admin);
    desk.devices.remove_known_approver("ada", "owner").await.unwrap();
    assert!(desk.devices.known_approvers().await.unwrap().is_empty());
}

#[tokio::test]
async fn names_are_escaped_cut_and_given_by_the_owner() {
    let desk = desk().await;
    let mut odd = asks(1, "127.0.0.1");
    odd.name = format!("a\u{202e}{}", "b".repeat(100));
    let pending = waits(&desk, odd).await;
    assert!(pending.name.starts_with("a\\u{202e}b") && pending.name.ends_with('…'));
    let id = desk.devices.approve(&pending.request_id, "owner").await.unwrap().id;
    desk.devices.rename(&id.to_string(), " 手机 ").await.unwrap();
    assert_eq!(desk.devices.find("手机").await.unwrap().id, id);
    desk.devices.rename("手机", "").await.unwrap();
    assert_eq!(desk.devices.get(id).await.unwrap().unwrap().name, pending.name);
}

fn page(seed: u8) -> PendingDevice {
    PendingDevice { scopes: vec![Scope::Admin], ..asks(seed, "192.168.1.9") }
}

#[tokio::test]
async fn a_link_lets_one_page_in_with_its_own_rights_and_a_second_use_alarms() {
    let mut desk = desk().await;
    let ttl = Duration::from_secs(60);
    let link = desk.devices.make_link(ttl, &[Scope::Read, Scope::Write], "test").await.unwrap();
    // It needs no window, and neither opening nor closing one ends it.
    desk.open().await;
    desk.devices.close_window().await;
    let node = PendingDevice { role: Role::Node, ..page(9) };
    let as_node = desk.devices.redeem(&link.secret, node, "bootstrap").await;
    assert!(matches!(as_node, Err(DeviceError::BadCode)), "a link is no code for a node");
    let device = desk.devices.redeem(&link.secret, page(1), "bootstrap").await.unwrap();
    assert_eq!(device.scopes, [Scope::Read, Scope::Write], "the link's rights, not those asked for");
    // The same browser again: its answer was lost on the way.
    assert_eq!(desk.devices.redeem(&link.secret, page(1), "bootstrap").await.unwrap().id, device.id);
    let thief = desk.devices.redeem(&link.secret, page(2), "bootstrap").await;
    assert!(matches!(thief, Err(DeviceError::BadCode)));
    let alarmed = std::iter::from_fn(|| desk.events.try_recv().ok())
        .any(|e| matches!(e, crate::bus::Event::Alarm { message } if message.contains("link for a page")));
    assert!(alarmed);
}

#[tokio::test]
async fn a_link_ends_and_a_setup_code_is_none() {
    let desk = desk().await;
    let link = desk.devices.make_link(Duration::ZERO, &[Scope::Read], "test").await.unwrap();
    let late = desk.devices.redeem(&link.secret, page(1), "bootstrap").await;
    assert!(matches!(late, Err(DeviceError::BadCode)));
    let window = desk.open().await;
    let as_page = desk.devices.redeem(&window.contents.secret, page(1), "bootstrap").await;
    assert!(matches!(as_page, Err(DeviceError::BadCode)), "a node's code lets no page in");
    for _ in 0..16 {
        desk.devices.make_link(Duration::from_secs(60), &[Scope::Read], "test").await.unwrap();
    }
    let more = desk.devices.make_link(Duration::from_secs(60), &[Scope::Read], "test").await;
    assert!(matches!(more, Err(DeviceError::TooManyLinks(16))));
}
