use super::*;
use hearth_shared::reading::BootId;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

const BOUNDS: Bounds = Bounds { items: 1_000, bytes: 1 << 20 };

fn home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::locate(Some(dir.path().join("home")));
    home.prepare().unwrap();
    (dir, home)
}

fn open(home: &Home) -> Outbox {
    Outbox::open(home, BOUNDS, Clock::start(true).unwrap()).unwrap()
}

async fn until(outbox: &Outbox, check: impl FnMut(&Progress) -> bool) -> Progress {
    let mut watch = outbox.watch();
    let progress = tokio::time::timeout(Duration::from_secs(20), watch.wait_for(check)).await;
    progress.unwrap().unwrap().clone()
}

#[tokio::test]
async fn an_event_is_on_disk_at_once_and_readings_within_the_group() {
    let (_dir, home) = home();
    let outbox = open(&home);
    outbox.reading("t", f64::NAN);
    outbox.reading("t", 1.0);
    let begin = Instant::now();
    outbox.event("gpio.edge", "{}".into());
    until(&outbox, |p| p.counts.waiting == 2).await;
    assert!(begin.elapsed() < Duration::from_millis(OUTBOX_GROUP_MS), "the event did not wait for the group");
    let begin = Instant::now();
    outbox.reading("t", 2.0);
    outbox.reading("t", 3.0);
    let progress = until(&outbox, |p| p.counts.waiting > 2).await;
    assert_eq!(progress.counts.waiting, 4, "one group");
    assert!(begin.elapsed() >= Duration::from_millis(OUTBOX_GROUP_MS / 2));
    outbox.close();
}

#[tokio::test]
async fn a_new_start_finds_everything_and_sends_it_once() {
    let (_dir, home) = home();
    let outbox = open(&home);
    for n in 0..5 {
        outbox.reading("t", f64::from(n));
    }
    outbox.close();
    let outbox = open(&home);
    let counts = outbox.settle(None).await.unwrap();
    assert_eq!((counts.first, counts.next), (1, 6));
    let items = outbox.batch(1).unwrap();
    assert_eq!(items.len(), 5);
    outbox.ack(Mark { epoch: counts.epoch, seq: 3 });
    outbox.ack(Mark { epoch: Epoch([1; 16]), seq: 5 });
    outbox.ack(Mark { epoch: counts.epoch, seq: 99 });
    outbox.event("x", "{}".into());
    let progress = until(&outbox, |p| p.counts.next == 7).await;
    assert_eq!(progress.counts.first, 4, "an acknowledgement rides on the next commit");
    outbox.close();
    let outbox = open(&home);
    let counts = outbox.settle(Some(Mark { epoch: counts.epoch, seq: 5 })).await.unwrap();
    assert_eq!((counts.first, counts.next), (6, 7));
    outbox.close();
}

#[tokio::test]
async fn a_damaged_file_is_put_aside() {
    let (_dir, home) = home();
    std::fs::write(home.outbox(), vec![0x55; 8_192]).unwrap();
    let outbox = open(&home);
    outbox.event("x", "{}".into());
    until(&outbox, |p| p.counts.waiting == 1).await;
    assert!(home.dir().join("outbox.db.damaged").exists());
    outbox.close();
}

/// Memory that can be told to be full, like a card.
#[derive(Debug)]
struct Card {
    memory: Arc<InMemoryBackend>,
    full: Arc<AtomicBool>,
}

impl Card {
    fn check(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Card {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.memory.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.memory.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.memory.write(offset, data)
    }
}

#[tokio::test]
async fn a_full_card_loses_nothing_that_memory_holds_and_counts_the_rest() {
    let (memory, full) = (Arc::new(InMemoryBackend::new()), Arc::new(AtomicBool::new(false)));
    let mut opener: Opener = {
        let (memory, full) = (memory.clone(), full.clone());
        Box::new(move || {
            let card = Card { memory: memory.clone(), full: full.clone() };
            Ok(redb::Builder::new().create_with_backend(card)?)
        })
    };
    let bounds = Bounds { items: 50_000, bytes: 16 << 20 };
    let store = Store::open(opener().unwrap(), bounds).unwrap();
    let outbox = Outbox::start(store, opener, bounds, Clock::start(true).unwrap()).unwrap();
    outbox.event("before", "{}".into());
    until(&outbox, |p| p.counts.waiting == 1).await;
    full.store(true, Ordering::SeqCst);
    outbox.event("during", "{}".into());
    until(&outbox, |p| p.fault.is_some()).await;
    let surplus = 100;
    for n in 0..2 * MEMORY_ITEMS + surplus {
        outbox.reading("t", n as f64);
    }
    full.store(false, Ordering::SeqCst);
    until(&outbox, |p| p.fault.is_none()).await;
    outbox.flush().await;
    outbox.flush().await;
    outbox.flush().await;
    let counts = outbox.settle(None).await.unwrap();
    let total = counts.waiting + (counts.next - counts.first);
    let first = outbox.batch(1).unwrap().remove(0);
    let Body::Dropped { readings } = first.body else { panic!("the loss is not reported") };
    assert_eq!(total - 1 + readings, 2 + (2 * MEMORY_ITEMS + surplus) as u64, "nothing is lost silently");
    outbox.close();
}

#[test]
fn a_boot_id_belongs_to_the_clock() {
    assert_ne!(Clock::start(false).unwrap().boot(), BootId([0; 16]));
}
