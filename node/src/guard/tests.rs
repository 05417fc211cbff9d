use super::*;
use hearth_shared::approver::{Approver, ApproverKind, ApproversChange, recovery_key};
use hearth_shared::identity::Digest;
use hearth_shared::reading::RequestId;
use serde_json::json;
use store::{AUDIT, META};

const HUB: DeviceId = DeviceId([0xaa; 32]);

struct Node {
    dir: tempfile::TempDir,
    key: Arc<SecretKey>,
}

impl Node {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), key: Arc::new(SecretKey::from_seed(&[1; 32])) }
    }

    fn opener(&self) -> impl Fn() -> Result<redb::Database, String> + Send + Sync + use<> {
        let path = self.dir.path().join("node.db");
        move || redb::Builder::new().create(&path).map_err(|e| e.to_string())
    }

    fn open(&self) -> Arc<Guard> {
        let boot = BootId::fresh().unwrap();
        let opened =
            Guard::open(self.opener(), Arc::clone(&self.key), boot, &Config::default(), self.dir.path());
        let guard = opened.unwrap();
        guard.record_start().unwrap();
        guard
    }
}

fn entry(seed: u8, kind: ApproverKind, admin: bool) -> Approver {
    Approver { key: SecretKey::from_seed(&[seed; 32]).public(), kind, admin, name: format!("a{seed}") }
}

fn first_set() -> ApproverSet {
    ApproverSet {
        epoch: 0,
        approvers: vec![entry(2, ApproverKind::Hub, false), entry(3, ApproverKind::Terminal, true)],
        recovery: None,
    }
}

#[test]
fn the_first_list_is_taken_once_and_stays() {
    let node = Node::new();
    let guard = node.open();
    assert!(guard.adopt(HUB, ApproverSet::default()).is_err(), "an empty list");
    let mut bad = first_set();
    bad.approvers[0].admin = true;
    assert!(guard.adopt(HUB, bad).is_err(), "the hub as admin");
    guard.adopt(HUB, first_set()).unwrap();
    assert_eq!((guard.hub(), guard.approvers().epoch), (Some(HUB), 1));
    for hub in [HUB, DeviceId([0xbb; 32])] {
        let error = guard.adopt(hub, first_set()).unwrap_err().to_string();
        assert!(error.contains("hearth-node reset"), "{error}");
    }
    drop(guard);
    let guard = node.open();
    assert_eq!((guard.hub(), guard.approvers().approvers.len()), (Some(HUB), 2));
    assert!(!guard.person_in_force());
    guard.forget().unwrap();
    assert_eq!((guard.hub(), guard.approvers()), (None, ApproverSet::default()));
    guard.adopt(DeviceId([0xbb; 32]), first_set()).unwrap();
}

#[test]
fn a_recovery_key_brings_the_list_back_and_only_the_owner_ends_need_person() {
    let node = Node::new();
    let guard = node.open();
    guard.adopt(HUB, first_set()).unwrap();
    let (phrase, set) = guard.create_recovery().unwrap();
    assert!(guard.person_in_force(), "one person and a recovery key");
    let recovery = recovery_key(&phrase).unwrap();
    // The person's key is lost; the paper one appoints another.
    let mut next = set.clone();
    next.epoch += 1;
    next.approvers[1] = entry(4, ApproverKind::Page, true);
    let change = ApproversChange::sign(&recovery, &node.key.device_id(), next.clone());
    assert_eq!(guard.change_approvers(&change).unwrap(), next);
    let stale = ApproversChange::sign(&recovery, &node.key.device_id(), set);
    assert!(matches!(
        guard.change_approvers(&stale),
        Err(GuardError::Approvers(ApproverError::WrongEpoch { expected: 4, found: 2 }))
    ));
    assert!(guard.remove_approver(&DeviceId([0; 32])).is_err());
    guard.remove_approver(&next.approvers[1].id()).unwrap();
    drop(guard);
    let guard = node.open();
    assert!(guard.person_in_force(), "nobody left, and still no program runs on the hub's word");
    let set = guard.reset_approvers().unwrap();
    assert_eq!((set.approvers.len(), set.recovery, guard.person_in_force()), (1, None, false));
    let set = guard.add_approver(entry(5, ApproverKind::Terminal, true)).unwrap();
    assert_eq!(set.epoch, 6, "older signed changes stay void");
    assert!(guard.add_approver(entry(5, ApproverKind::Page, false)).is_err(), "a key stands once");
    assert_eq!(guard.approvers(), set);
}

#[test]
fn the_declaration_is_in_order_and_says_what_is_needed() {
    let node = Node::new();
    let guard = node.open();
    let inventory = Inventory {
        commands: vec!["system.run", "gpio.list", "camera.snap"],
        model: "Board".into(),
        ..Inventory::default()
    };
    let declaration = guard.declaration(inventory);
    let needs: Vec<_> = declaration.commands.iter().map(|c| (c.name.as_str(), c.need.as_str())).collect();
    assert_eq!(needs, [("camera.snap", "hub"), ("gpio.list", "none"), ("system.run", "hub")]);
    assert_eq!(declaration.policy, guard.policy().digest());
    assert_eq!(Declaration::decode(&declaration.encode()).unwrap(), declaration);
}

#[test]
fn a_policy_that_cannot_be_understood_keeps_the_node_from_starting() {
    let node = Node::new();
    let config: Config = toml::from_str("[[policy.rule]]\ncommand = 'gpio.x'\nneed = 'none'").unwrap();
    let opened = Guard::open(node.opener(), Arc::clone(&node.key), BootId([0; 16]), &config, node.dir.path());
    assert!(matches!(opened, Err(GuardError::Policy(_))));
    let guard = node.open();
    let before = guard.policy().digest();
    assert!(guard.reload(&config).is_err());
    assert_eq!(guard.policy().digest(), before);
}

#[test]
fn the_log_is_cut_at_the_front_and_still_verifies() {
    let node = Node::new();
    let guard = node.open();
    for i in 0..100 {
        guard.audit("test", json!({ "i": i })).unwrap();
    }
    let report = guard.audit_verify().unwrap();
    assert_eq!((report.head, report.head.seq), (guard.head(), 101));
    let records = guard.audit_records(0, 1_000).unwrap();
    assert_eq!(records[0].seq, report.anchor.seq + 1);
    assert!(records.len() as u64 <= audit::MAX_RECORDS && report.anchor.seq > 0);
    drop(guard);
    let guard = node.open();
    assert_eq!(guard.head().seq, 102);
    guard.audit_verify().unwrap();
    guard.audit("test", json!({ "long": "x".repeat(10_000) })).unwrap();
    assert!(guard.audit_records(102, 1).unwrap()[0].body.len() < 100, "records are small");
}

#[test]
fn a_log_that_was_tampered_with_does_not_verify() {
    type Change = fn(&redb::WriteTransaction);
    let changes: [Change; 4] = [
        |txn| {
            let mut table = txn.open_table(AUDIT).unwrap();
            let mut record: Record = postcard::from_bytes(table.get(3).unwrap().unwrap().value()).unwrap();
            record.body.push(' ');
            table.insert(3, postcard::to_allocvec(&record).unwrap().as_slice()).unwrap();
        },
        |txn| {
            txn.open_table(AUDIT).unwrap().remove(3).unwrap();
        },
        // The tail goes, and the head with it.
        |txn| {
            let mut table = txn.open_table(AUDIT).unwrap();
            table.remove(5).unwrap();
            let last: Record = postcard::from_bytes(table.get(4).unwrap().unwrap().value()).unwrap();
            let forger = SecretKey::from_seed(&[9; 32]);
            let forged = audit::SignedHead { head: last.head(), signature: forger.sign(b"x") };
            let bytes = postcard::to_allocvec(&forged).unwrap();
            txn.open_table(META).unwrap().insert("audit.head", bytes.as_slice()).unwrap();
        },
        |txn| {
            txn.open_table(AUDIT).unwrap().remove(5).unwrap();
        },
    ];
    use redb::ReadableTable as _;
    for (i, change) in changes.iter().enumerate() {
        let node = Node::new();
        let guard = node.open();
        for n in 0..4 {
            guard.audit("test", json!(n)).unwrap();
        }
        assert_eq!(guard.audit_verify().unwrap().head.seq, 5);
        drop(guard);
        let database = node.opener()().unwrap();
        let txn = database.begin_write().unwrap();
        change(&txn);
        txn.commit().unwrap();
        drop(database);
        let store = Store::open(node.opener()).unwrap();
        assert!(audit::verify(&store, &node.key).is_err(), "change {i}");
    }
}

#[test]
fn the_journal_forgets_after_a_day_of_powered_time_and_what_runs_never_for_room() {
    let node = Node::new();
    let store = Store::open(node.opener()).unwrap();
    let id = |n: u64| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        RequestId(bytes)
    };
    let denied = || journal::Finished {
        outcome: journal::StoredOutcome::Inline(hearth_shared::link::Outcome::Done { result: "{}".into() }),
        attachments: Vec::new(),
    };
    let known = |n| journal::lookup(&store, &id(n)).unwrap().is_some();
    let fingerprint = Digest([1; 32]);
    store
        .write(|txn| {
            for n in 0..10_000 {
                assert!(journal::start(txn, &id(n), fingerprint, n)?);
                if n != 0 {
                    journal::finish(txn, &id(n), denied())?;
                }
            }
            assert!(!journal::start(txn, &id(7), fingerprint, 7)?, "known");
            Ok(())
        })
        .unwrap();
    assert!(known(0) && known(1));
    store.write(|txn| journal::start(txn, &id(10_000), fingerprint, 10_000).map(drop)).unwrap();
    assert!(known(0) && !known(1) && known(2), "room is made by the oldest finished one");
    let day = 24 * 3_600_000;
    store.write(|txn| journal::start(txn, &id(10_001), fingerprint, day + 5_000).map(drop)).unwrap();
    assert!(!known(0) && !known(4_999) && known(5_000) && known(10_001));
}

#[test]
fn powered_time_goes_on_where_it_was() {
    let node = Node::new();
    let guard = node.open();
    guard.clock.advance(5_000_000);
    guard.audit("test", json!(null)).unwrap();
    drop(guard);
    let guard = node.open();
    assert!((5_000_000..5_100_000).contains(&guard.clock.powered_ms()));
}

/// A file whose writes fail while `full` is set, as on a card without space.
#[derive(Debug)]
struct Card {
    file: redb::backends::FileBackend,
    full: Arc<std::sync::atomic::AtomicBool>,
}

impl Card {
    fn space(&self) -> std::io::Result<()> {
        if self.full.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl redb::StorageBackend for Card {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.space()?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.space()?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.space()?;
        self.file.write(offset, data)
    }
    fn close(&self) -> std::io::Result<()> {
        self.file.close()
    }
}

#[test]
fn after_a_full_card_the_guard_goes_on_by_itself() {
    let node = Node::new();
    let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (path, switch) = (node.dir.path().join("node.db"), Arc::clone(&full));
    let opener = move || {
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = redb::backends::FileBackend::new(file.unwrap()).map_err(|e| e.to_string())?;
        let card = Card { file, full: Arc::clone(&switch) };
        redb::Builder::new().create_with_backend(card).map_err(|e| e.to_string())
    };
    let config = Config::default();
    let guard =
        Guard::open(opener, Arc::clone(&node.key), BootId([0; 16]), &config, node.dir.path()).unwrap();
    guard.adopt(HUB, first_set()).unwrap();
    let head = guard.head();
    full.store(true, std::sync::atomic::Ordering::SeqCst);
    for n in 0..3 {
        assert!(matches!(guard.audit("test", json!(n)), Err(GuardError::State(_))));
        assert_eq!(guard.approvers().epoch, 1, "what is known stays known");
    }
    full.store(false, std::sync::atomic::Ordering::SeqCst);
    let after = guard.audit("test", json!("again")).unwrap();
    assert!(after.seq > head.seq);
    assert_eq!(guard.audit_verify().unwrap().head, after);
    assert_eq!((guard.hub(), guard.approvers().epoch), (Some(HUB), 1));
}

#[test]
fn the_head_of_the_hubs_log_is_kept_and_a_hub_that_was_set_back_noted() {
    let node = Node::new();
    let guard = node.open();
    guard.adopt(HUB, first_set()).unwrap();
    let head = |seq, fill| Head { seq, hash: Digest([fill; 32]) };
    guard.welcomed(head(4, 4)).unwrap();
    guard.heard(head(9, 9));
    guard.heard(head(7, 7));
    guard.audit("test", json!({})).unwrap();
    drop(guard);
    let guard = node.open();
    assert_eq!(guard.hub_head(), head(9, 9));
    let noted = |guard: &Guard| {
        guard.audit_records(0, 100).unwrap().iter().filter(|r| r.kind == "hub.log.changed").count()
    };
    guard.welcomed(head(9, 9)).unwrap();
    guard.welcomed(head(12, 1)).unwrap();
    assert_eq!(noted(&guard), 0, "a log that grows is in order");
    guard.welcomed(head(3, 3)).unwrap();
    guard.welcomed(head(3, 5)).unwrap();
    assert_eq!((noted(&guard), guard.hub_head()), (2, head(3, 5)));
    guard.forget().unwrap();
    assert_eq!(guard.hub_head(), Head::default(), "another hub has another log");
}
