use super::*;
use proptest::prelude::*;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

const BOOT: BootId = BootId([7; 16]);
const WIDE: Bounds = Bounds { items: 50_000, bytes: 16 << 20 };

fn memory(bounds: Bounds) -> Store {
    Store::open(redb::Builder::new().create_with_backend(InMemoryBackend::new()).unwrap(), bounds).unwrap()
}

fn reading(n: u64) -> Item {
    let body = Body::Reading { sensor: "t".into(), value: n as f64 };
    Item { seq: 0, boot: BOOT, mono_ms: n, wall_ms: None, body }
}

fn event(n: u64) -> Item {
    let body = Body::Event { kind: "gpio.edge".into(), json: format!("{{\"n\":{n}}}") };
    Item { seq: 0, boot: BOOT, mono_ms: n, wall_ms: None, body }
}

fn add(store: &mut Store, items: &[Item]) -> Counts {
    store.apply(&Change { new: items, ..Change::default() }).unwrap()
}

fn ack(store: &mut Store, seq: u64) -> Counts {
    store.apply(&Change { acked: Some(seq), number: true, ..Change::default() }).unwrap()
}

/// Sends and acknowledges everything, as a hub would; checks that numbers have no gaps.
fn drain(store: &mut Store) -> Vec<Item> {
    let mut all = Vec::new();
    let mut counts = store.settle(None).unwrap();
    loop {
        let items = batch(&store.database(), counts.first).unwrap();
        let Some(last) = items.last().map(|i| i.seq) else { return all };
        for (item, seq) in items.iter().zip(counts.first..) {
            assert_eq!(item.seq, seq);
        }
        all.extend(items);
        counts = ack(store, last);
    }
}

#[test]
fn items_come_in_order_with_numbers_from_one_and_leave_when_acknowledged() {
    let mut store = memory(WIDE);
    let items: Vec<Item> = (0..1_200).map(|n| if n % 7 == 0 { event(n) } else { reading(n) }).collect();
    let counts = add(&mut store, &items);
    assert_eq!((counts.first, counts.next, counts.waiting), (1, 1, 1_200), "no numbers while offline");
    let sent = drain(&mut store);
    assert_eq!(sent.iter().map(|i| i.mono_ms).collect::<Vec<_>>(), (0..1_200).collect::<Vec<_>>());
    assert_eq!(store.counts().bytes, 0);
    assert_eq!(store.counts().next, 1_201);
}

#[test]
fn when_full_the_oldest_readings_go_and_are_reported_and_events_stay() {
    let mut store = memory(Bounds { items: 10, bytes: 16 << 20 });
    add(&mut store, &[event(0)]);
    add(&mut store, &(1..=20).map(reading).collect::<Vec<_>>());
    add(&mut store, &[event(21)]);
    let sent = drain(&mut store);
    assert_eq!(sent[0].body, Body::Dropped { readings: 12 });
    assert_eq!(sent[0].mono_ms, 12, "dated by the last one dropped");
    let kept: Vec<u64> = sent[1..].iter().map(|i| i.mono_ms).collect();
    assert_eq!(kept, [0, 13, 14, 15, 16, 17, 18, 19, 20, 21]);
    add(&mut store, &(0..30).map(event).collect::<Vec<_>>());
    let counts = store.counts();
    assert_eq!((counts.waiting, counts.dropped), (10, 20));
    store.apply(&Change { number: true, ..Change::default() }).unwrap();
    let first = batch(&store.database(), store.counts().first).unwrap().remove(0);
    assert_eq!(first.body, Body::Event { kind: "outbox.dropped".into(), json: "{\"events\":20}".into() });
}

#[test]
fn the_byte_limit_holds_too() {
    let mut store = memory(Bounds { items: 1_000_000, bytes: 2_000 });
    for n in 0..50 {
        let counts = add(&mut store, &(n * 10..n * 10 + 10).map(reading).collect::<Vec<_>>());
        assert!(counts.bytes <= 2_000);
    }
    let Body::Dropped { readings } = drain(&mut store)[0].body else { panic!("no report") };
    assert!(readings > 400);
}

#[test]
fn batches_are_small_enough_for_a_heartbeat_behind_them() {
    let mut store = memory(WIDE);
    let big = |n| Item {
        body: Body::Event { kind: "x".into(), json: format!("\"{}\"", "y".repeat(4_000)) },
        ..reading(n)
    };
    add(&mut store, &(0..40).map(big).collect::<Vec<_>>());
    let counts = store.settle(None).unwrap();
    let first = batch(&store.database(), counts.first).unwrap();
    assert!(first.len() < 9, "{}", first.len());
    assert_eq!(drain(&mut store).len(), 40);
}

#[test]
fn a_lost_acknowledgement_is_made_good_by_the_mark() {
    let mut store = memory(WIDE);
    add(&mut store, &(1..=5).map(reading).collect::<Vec<_>>());
    let epoch = store.settle(None).unwrap().epoch;
    let counts = store.settle(Some(Mark { epoch, seq: 3 })).unwrap();
    assert_eq!((counts.epoch, counts.first, counts.next), (epoch, 4, 6));
}

#[test]
fn a_hub_that_knows_more_than_we_gave_makes_a_new_epoch_without_doubling() {
    let mut store = memory(WIDE);
    add(&mut store, &(1..=5).map(reading).collect::<Vec<_>>());
    let epoch = store.settle(None).unwrap().epoch;
    // The power cut took the memory of 6..=8; since then two were recorded.
    add(&mut store, &[reading(9), reading(10)]);
    let counts = store.settle(Some(Mark { epoch, seq: 8 })).unwrap();
    assert_ne!(counts.epoch, epoch);
    let sent = batch(&store.database(), 1).unwrap();
    assert_eq!(sent.iter().map(|i| (i.seq, i.mono_ms)).collect::<Vec<_>>(), [(1, 9), (2, 10)]);
}

#[test]
fn a_hub_that_lost_its_database_gets_a_new_epoch_with_what_is_left() {
    for mark in [None, Some(Mark { epoch: Epoch([9; 16]), seq: 77 })] {
        let mut store = memory(WIDE);
        add(&mut store, &(1..=5).map(reading).collect::<Vec<_>>());
        let epoch = store.settle(None).unwrap().epoch;
        ack(&mut store, 3);
        let counts = store.settle(mark).unwrap();
        assert_ne!(counts.epoch, epoch);
        let sent = batch(&store.database(), 1).unwrap();
        assert_eq!(sent.iter().map(|i| (i.seq, i.mono_ms)).collect::<Vec<_>>(), [(1, 4), (2, 5)]);
    }
    let mut store = memory(WIDE);
    add(&mut store, &(1..=5).map(reading).collect::<Vec<_>>());
    let epoch = store.settle(None).unwrap().epoch;
    ack(&mut store, 3);
    assert_ne!(store.settle(Some(Mark { epoch, seq: 1 })).unwrap().epoch, epoch, "restored from a backup");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever order of recording, sending, lost acknowledgements and reconnects: a hub that follows
    /// the rules stores every item once, and what is missing was reported as dropped.
    #[test]
    fn every_item_arrives_once_or_is_reported(steps in proptest::collection::vec((0u8..5, 1usize..40), 1..40)) {
        let mut store = memory(Bounds { items: 60, bytes: 16 << 20 });
        let (mut hub, mut stored) = (None::<Mark>, BTreeMap::new());
        let (mut recorded, mut online) = (0u64, false);
        for (kind, n) in steps {
            match kind {
                0 | 1 => {
                    let new: Vec<Item> = (0..n as u64)
                        .map(|i| if (recorded + i).is_multiple_of(9) { event(recorded + i) } else { reading(recorded + i) })
                        .collect();
                    recorded += n as u64;
                    store.apply(&Change { new: &new, number: online, ..Change::default() }).unwrap();
                }
                2 => { store.settle(hub).unwrap(); online = true; }
                3 if online => receive(&mut store, &mut hub, &mut stored, n % 2 == 0),
                _ => online = false,
            }
        }
        store.settle(hub).unwrap();
        while store.counts().first < store.counts().next {
            receive(&mut store, &mut hub, &mut stored, true);
        }
        let dropped: u64 = stored.values().map(|item: &Item| match &item.body {
            Body::Dropped { readings } => *readings,
            Body::Event { kind, json } if kind == "outbox.dropped" =>
                serde_json::from_str::<serde_json::Value>(json).unwrap()["events"].as_u64().unwrap(),
            _ => 0,
        }).sum();
        let real = stored.values().filter(|i| !matches!(&i.body, Body::Dropped { .. })
            && !matches!(&i.body, Body::Event { kind, .. } if kind == "outbox.dropped"));
        let mut seen: Vec<u64> = real.map(|i| i.mono_ms).collect();
        let total = seen.len() as u64;
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len() as u64, total, "an item twice");
        prop_assert_eq!(total + dropped, recorded);
    }
}

/// The hub's side: stores what its mark does not cover; the acknowledgement may get lost.
fn receive(
    store: &mut Store,
    hub: &mut Option<Mark>,
    stored: &mut BTreeMap<(Epoch, u64), Item>,
    acknowledge: bool,
) {
    let counts = store.counts();
    for item in batch(&store.database(), counts.first).unwrap() {
        let at = hub.filter(|m| m.epoch == counts.epoch).map_or(0, |m| m.seq);
        if item.seq <= at {
            continue;
        }
        assert_eq!(item.seq, at + 1, "a gap");
        *hub = Some(Mark { epoch: counts.epoch, seq: item.seq });
        stored.insert((counts.epoch, item.seq), item);
    }
    if let Some(mark) = hub.filter(|m| acknowledge && m.epoch == counts.epoch) {
        ack(store, mark.seq);
    }
}

/// A disk that remembers every write, so that a power cut can be played at any of them.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<(Vec<u8>, Vec<Op>)>>);

#[derive(Debug, Clone)]
enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
    /// A change returned success: it must be readable from now on.
    Committed,
}

fn play(data: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(at, bytes) => {
            let end = *at as usize + bytes.len();
            if data.len() < end {
                data.resize(end, 0);
            }
            data[*at as usize..end].copy_from_slice(bytes);
        }
        Op::SetLen(len) => data.resize(*len as usize, 0),
        Op::Sync | Op::Committed => {}
    }
}

impl Disk {
    fn log(&self, op: Op) {
        let mut disk = self.0.lock().unwrap();
        play(&mut disk.0, &op);
        disk.1.push(op);
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().unwrap().0.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let disk = self.0.lock().unwrap();
        let from = offset as usize;
        let bytes = disk.0.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.log(Op::SetLen(len));
        Ok(())
    }
    fn sync_data(&self) -> Result<(), io::Error> {
        self.log(Op::Sync);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.log(Op::Write(offset, data.to_vec()));
        Ok(())
    }
}

fn on_disk(disk: &Disk) -> Store {
    let database = redb::Builder::new().set_cache_size(1 << 20).create_with_backend(disk.clone()).unwrap();
    Store::open(database, WIDE).unwrap()
}

fn dump(store: &Store) -> Vec<Item> {
    let txn = store.database.begin_read().unwrap();
    let mut all = Vec::new();
    for table in [WINDOW, READINGS, EVENTS] {
        for entry in txn.open_table(table).unwrap().range(0..).unwrap() {
            all.push(decode::<Item>(entry.unwrap().1.value()).unwrap());
        }
    }
    all
}

/// Cuts the power at every few writes, and loses an arbitrary part of what was not flushed. What was
/// committed is there; the change in flight is there whole or not at all.
#[test]
fn a_power_cut_at_any_write_keeps_what_was_committed() {
    let disk = Disk::default();
    let mut store = on_disk(&disk);
    let mut history = vec![Vec::new()];
    let mut record = |store: &Store| {
        let now = dump(store);
        disk.log(Op::Committed);
        history.push(now);
    };
    record(&store);
    store.settle(None).unwrap();
    record(&store);
    for round in 0..30u64 {
        let items: Vec<Item> =
            (round * 10..round * 10 + 8).map(|n| if n % 5 == 0 { event(n) } else { reading(n) }).collect();
        let acked = (round % 3 == 2).then(|| store.counts().next.saturating_sub(4));
        store.apply(&Change { new: &items, acked, number: round % 4 != 0, ..Change::default() }).unwrap();
        record(&store);
    }
    drop(store);
    let log = disk.0.lock().unwrap().1.clone();
    let begin = log.iter().position(|op| matches!(op, Op::Committed)).unwrap();
    let mut random = 12_345u64;
    let step = (log.len() / 400).max(1);
    for cut in (begin..log.len()).step_by(step) {
        let flushed = log[..cut].iter().rposition(|op| matches!(op, Op::Sync)).unwrap_or(0);
        let mut data = Vec::new();
        for (at, op) in log[..cut].iter().enumerate() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // A length change is journalled by the file system; plain writes after the last flush may be lost.
            if at <= flushed || matches!(op, Op::SetLen(_)) || random >> 63 == 0 {
                play(&mut data, op);
            }
        }
        let committed = log[..=cut].iter().filter(|op| matches!(op, Op::Committed)).count();
        let after = Disk(Arc::new(Mutex::new((data, Vec::new()))));
        let found = dump(&on_disk(&after));
        let whole = history[committed..].iter().take(2).any(|h| *h == found);
        assert!(whole, "cut at {cut} of {}, after commit {committed}", log.len());
    }
}
