use super::*;
use crate::hub::Tasks;
use serde_json::json;

const NODE: DeviceId = DeviceId([7; 32]);

async fn log(records: usize) -> (tempfile::TempDir, Store, Audit) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("hub.db")).unwrap();
    let audit = Audit::open(store.clone()).await.unwrap();
    for i in 0..records {
        audit.append("test", json!({"i": i})).await.unwrap();
    }
    (dir, store, audit)
}

async fn sql(store: &Store, sql: &'static str) {
    store.write(move |t| Ok(t.execute_batch(sql)?)).await.unwrap();
}

fn head(seq: u64, fill: u8) -> Head {
    Head { seq, hash: Digest([fill; 32]) }
}

#[tokio::test]
async fn whole_log_verifies_and_goes_on_after_a_restart() {
    let (dir, store, audit) = log(3).await;
    drop((store, audit));
    let store = Store::open(&dir.path().join("hub.db")).unwrap();
    let audit = Audit::open(store).await.unwrap();
    assert_eq!(audit.append("test", json!({})).await.unwrap().seq, 4);
    let report = audit.verify().await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.records, report.head.seq, report.unanchored), (4, 4, 4));
    assert_eq!(audit.records(2, 1).await.unwrap()[0].seq, 3);
}

#[tokio::test]
async fn a_changed_removed_or_inserted_record_is_named() {
    for (change, names) in [
        ("UPDATE audit SET body = '{\"i\":9}' WHERE seq = 600", "record 600 was changed"),
        ("UPDATE audit SET at_ms = at_ms + 1 WHERE seq = 600", "record 600 was changed"),
        ("DELETE FROM audit WHERE seq = 600", "record 600 is missing"),
        ("UPDATE audit SET hash = zeroblob(32) WHERE seq = 600", "record 600 was changed"),
        ("UPDATE audit SET hash = zeroblob(31) WHERE seq = 600", "a record after 500 cannot be read"),
        ("UPDATE audit SET prev = zeroblob(32) WHERE seq = 600", "record 600 does not follow"),
    ] {
        let (_dir, store, audit) = log(0).await;
        store
            .write(|t| (0..610).try_for_each(|i| Audit::append_in(t, "test", &json!({"i": i})).map(drop)))
            .await
            .unwrap();
        assert!(audit.verify().await.unwrap().is_sound());
        sql(&store, change).await;
        let fault = audit.verify().await.unwrap().fault.unwrap();
        assert!(fault.contains(names), "{change}: {fault}");
    }
}

#[tokio::test]
async fn a_cut_tail_shows_against_the_head_an_approver_holds() {
    let (_dir, store, audit) = log(5).await;
    let shown = audit.head().await.unwrap();
    audit.note_held("approver:terminal: owner".into(), shown).await.unwrap();
    audit.append("test", json!({})).await.unwrap();
    let report = audit.verify().await.unwrap();
    assert!(report.is_sound());
    assert_eq!(report.unanchored, 1);
    sql(&store, "DELETE FROM audit WHERE seq >= 5").await;
    let report = audit.verify().await.unwrap();
    assert_eq!(report.fault, None, "the chain alone cannot tell");
    let fault = report.holders[0].fault.as_deref().unwrap();
    assert!(fault.contains("record 5 is held but missing"), "{fault}");
    assert_eq!(audit.compare(shown).await.unwrap().as_deref(), Some(fault));
    // Grown again to the same length: another hash at the same number.
    audit.append("test", json!({"forged": true})).await.unwrap();
    let report = audit.verify().await.unwrap();
    assert!(report.holders[0].fault.as_deref().unwrap().contains("rewritten"));
}

#[tokio::test]
async fn a_log_that_was_set_back_shows_against_the_head_a_node_holds() {
    let (_dir, store, audit) = log(5).await;
    let held = audit.head().await.unwrap();
    assert_eq!(audit.note_held_by_node(NODE, held).await.unwrap(), None);
    sql(&store, "DELETE FROM audit WHERE seq > 2").await;
    sql(&store, "DELETE FROM approver_heads").await;
    assert!(audit.verify().await.unwrap().is_sound(), "an older copy looks whole by itself");
    for _ in 0..3 {
        let fault = audit.note_held_by_node(NODE, held).await.unwrap().unwrap();
        assert!(fault.contains("record 5"), "{fault}");
    }
    let told = audit.records(2, 10).await.unwrap();
    assert_eq!(told.len(), 1, "it is recorded once: {told:?}");
    assert_eq!(told[0].kind, "hub.log.fault");
    assert!(!audit.verify().await.unwrap().is_sound());
    assert_eq!(audit.note_held_by_node(NODE, Head::default()).await.unwrap(), None, "a node that holds none");
}

#[tokio::test]
async fn a_nodes_log_may_not_go_back_nor_change() {
    let (_dir, store, audit) = log(0).await;
    assert_eq!(audit.note_node_head(NODE, head(3, 3)).await.unwrap(), None);
    assert_eq!(audit.note_node_head(NODE, head(3, 3)).await.unwrap(), None, "nothing new is no fault");
    // Receipts may overtake each other.
    for seq in [6, 5, 4] {
        let fault =
            store.write(move |t| Audit::note_receipt_in(t, &NODE, head(seq, seq as u8))).await.unwrap();
        assert_eq!(fault, None);
    }
    assert!(audit.verify().await.unwrap().is_sound());
    let back = audit.note_node_head(NODE, head(2, 2)).await.unwrap().unwrap();
    assert!(back.contains("ends at record 2 and had 6"), "{back}");
    let report = audit.verify().await.unwrap();
    assert_eq!(report.nodes[0].head, head(6, 6));
    assert_eq!(report.nodes[0].fault.as_deref(), Some(back.as_str()));
    assert_eq!(audit.records(0, 10).await.unwrap()[0].kind, "node.log.fault");

    let other = DeviceId([8; 32]);
    audit.note_node_head(other, head(3, 3)).await.unwrap();
    let changed = audit.note_node_head(other, head(3, 4)).await.unwrap().unwrap();
    assert!(changed.contains("another hash at record 3"), "{changed}");
    store.write(move |t| Audit::forget_node_in(t, &other)).await.unwrap();
    assert_eq!(audit.note_node_head(other, head(1, 9)).await.unwrap(), None);
}

#[tokio::test]
async fn batched_records_are_written_at_the_stop_at_the_latest() {
    let (_dir, store, audit) = log(1).await;
    let tasks = Tasks::default();
    let batch = batch::Batch::start(store, &tasks);
    let sent = audit.head().await.unwrap();
    for _ in 0..40 {
        let heads = Some((NODE, sent, Some(head(9, 9))));
        batch.add(batch::Seen { kind: "observed", body: json!({}), heads }).await;
    }
    tasks.stop.cancel();
    tasks.tracker.close();
    tasks.tracker.wait().await;
    let report = audit.verify().await.unwrap();
    assert!(report.is_sound());
    assert_eq!((report.records, report.unanchored), (41, 40));
    assert_eq!(report.nodes[0].head.seq, 9);
}

#[test]
fn secrets_stand_in_records_as_digests() {
    let params = json!({"command": ["ls"], "env": {"LANG": "C"}, "apiToken": "abc", "pin": "pump"});
    let hidden = redacted(&params);
    assert_eq!(hidden["pin"], "pump");
    assert_eq!(hidden["command"][0], "ls");
    assert_eq!(hidden["apiToken"], digest("abc"));
    assert_eq!(hidden["env"]["LANG"], digest("C"));
}
