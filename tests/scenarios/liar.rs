//! A paired node that lies: it harms itself at most. The hub stays small and goes on, other nodes notice
//! nothing, and the owner hears of it.

use hearth_shared::identity::Digest;
use hearth_shared::limits::CHUNK_SIZE;
use hearth_shared::link::{Attachment, Knock, LinkFrame as _, PartDecl, RefusedCode, ToHub};
use hearth_shared::reading::{Body, BootId, Item, RequestId};
use hearth_tests::process::{command, eventually};
use hearth_tests::{Liar, LiarLink, TestHub, TestNode};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Asks the liar for something, in a process of its own.
fn ask(hub: &TestHub) -> Child {
    command("hearth", hub.home(), &["nodes", "invoke", "liar", "gpio.list", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn violations(hub: &TestHub) -> usize {
    let audit = hub.json(&["audit", "show"]);
    let records = audit["records"].as_array().expect("records");
    records.iter().filter(|r| r["kind"] == "node.violation").count()
}

/// The honest node answers, and the hub is no larger than it should be.
fn unharmed(hub: &TestHub, honest: &TestNode, resident_kb: u64) {
    let read = hub.cli(&["nodes", "invoke", &honest.name, "gpio.list", "--json"]);
    assert_eq!(read.code, 0, "{read:?}");
    assert_eq!(hub.cli(&["status"]).code, 0);
    let now = hub.resident_kb();
    assert!(now < resident_kb, "the hub has {now} kB");
}

fn item(seq: u64, body: Body) -> Item {
    Item { seq, boot: BootId([9; 16]), mono_ms: seq, wall_ms: None, body }
}

fn reading(seq: u64, value: f64) -> Item {
    item(seq, Body::Reading { sensor: "temp".into(), value })
}

fn event(seq: u64, json: String) -> Item {
    item(seq, Body::Event { kind: "gpio.edge".into(), json })
}

#[test]
fn answers_that_nobody_asked_for_and_receipts_that_are_false_end_the_link_and_alarm_the_owner() {
    let hub = TestHub::start();
    let honest = TestNode::paired(&hub, "honest", "");
    let (liar, mut link) = Liar::paired(&hub, "liar");
    let other = RequestId([5; 16]);
    type Lie = fn(&Liar, RequestId) -> Vec<ToHub>;
    let lies: [(&str, Lie, RefusedCode); 6] = [
        (
            "a result of no request",
            |liar, _| vec![ToHub::Result(Box::new(liar.result(RequestId([5; 16]), "{}")))],
            RefusedCode::Signature,
        ),
        (
            "the receipt of another request",
            |liar, asked| {
                let mut frame = liar.result(RequestId([5; 16]), "{}");
                frame.request = asked;
                vec![ToHub::Result(Box::new(frame))]
            },
            RefusedCode::Signature,
        ),
        (
            "another result than was signed",
            |liar, asked| {
                let mut frame = liar.result(asked, "{}");
                frame.outcome = liar.result(asked, "{\"pins\":[]}").outcome;
                vec![ToHub::Result(Box::new(frame))]
            },
            RefusedCode::Signature,
        ),
        (
            "an attachment of another request",
            |_, _| vec![ToHub::Attachment(attachment(RequestId([5; 16]), 3))],
            RefusedCode::Protocol,
        ),
        (
            "more bytes than announced",
            |_, asked| {
                let chunk = || ToHub::Chunk { transfer: 1, bytes: vec![0; CHUNK_SIZE] };
                vec![ToHub::Attachment(attachment(asked, 20_000)), chunk(), chunk(), chunk()]
            },
            RefusedCode::Protocol,
        ),
        ("a frame of the handshake", |_, _| vec![ToHub::WordsConfirmed], RefusedCode::Protocol),
    ];
    for (what, lie, code) in lies {
        let asking = ask(&hub);
        let asked = link.invoke().request;
        assert_ne!(asked, other);
        for frame in lie(&liar, asked) {
            link.send(&frame);
        }
        assert_eq!(link.ended().map(|r| r.code), Some(code), "{what}");
        let answer = asking.wait_with_output().unwrap();
        assert!(!answer.status.success(), "{what}: {answer:?}");
        link = liar.connect(Knock::Paired).expect("it may come again, and is watched");
    }
    // Once: a node gone mad does not fill the log.
    assert_eq!(violations(&hub), 1);
    unharmed(&hub, &honest, 80_000);
    assert_eq!(hub.cli(&["audit", "verify"]).code, 0);
}

fn attachment(request: RequestId, size: u64) -> Attachment {
    Attachment { transfer: 1, request, mime: "image/jpeg".into(), size, sha256: Digest([0; 32]) }
}

#[test]
fn numbers_out_of_all_bounds_are_refused_or_stored_and_never_stop_the_hub() {
    let hub = TestHub::start();
    let honest = TestNode::paired(&hub, "honest", "");
    let (mut liar, mut link) = Liar::paired(&hub, "liar");
    let max = u64::MAX;
    let timed = |seq, mono_ms, wall_ms, value| Item { mono_ms, wall_ms, ..reading(seq, value) };
    let batches: Vec<(&str, Vec<Item>)> = vec![
        ("no numbers", vec![reading(1, f64::NAN), reading(2, f64::INFINITY), reading(3, f64::NEG_INFINITY)]),
        (
            "the largest",
            vec![reading(1, f64::MAX), reading(2, f64::MAX), reading(3, -f64::MAX), reading(4, -f64::MAX)],
        ),
        (
            "times",
            vec![
                timed(1, max, None, 1.0),
                timed(2, 0, Some(max), 1.0),
                timed(3, max, Some(max), 1.0),
                timed(4, 0, Some(0), 1.0),
            ],
        ),
        ("the last number of all", vec![reading(max, 1.0)]),
        ("the last numbers of all", vec![reading(max - 1, 1.0), reading(max, 1.0)]),
        ("beyond the database's numbers", vec![reading(1 << 63, 1.0)]),
        ("the first number is none", vec![reading(0, 1.0), reading(1, 1.0)]),
        ("losses", vec![item(1, Body::Dropped { readings: max }), item(2, Body::Dropped { readings: max })]),
        (
            "losses and a gap",
            vec![
                item(1 << 62, Body::Dropped { readings: 1 << 62 }),
                item((1 << 62) + 1, Body::Dropped { readings: 1 << 62 }),
            ],
        ),
        (
            "names",
            vec![
                item(1, Body::Reading { sensor: "\u{202e}\0evil".into(), value: 1.0 }),
                item(2, Body::Reading { sensor: "x".repeat(400_000), value: 1.0 }),
            ],
        ),
        ("events", vec![event(1, "{".into()), event(2, "[".repeat(4_000)), event(3, "x".repeat(300_000))]),
    ];
    for (at, (what, items)) in batches.into_iter().enumerate() {
        // A new epoch each time, as after a new card.
        liar.epoch.0 = [at as u8 + 10; 16];
        let (epoch, last) = (liar.epoch, items.last().unwrap().seq);
        link.send(&ToHub::Outbox { epoch, items });
        assert_eq!(link.acknowledged(), Some(last), "{what}");
        for question in
            [&["status", "--json"][..], &["nodes", "show", "liar", "--json"], &["nodes", "list", "--json"]]
        {
            let said = hub.cli(question);
            assert_eq!(said.code, 0, "after {what}: {question:?} {said:?}");
        }
        drop(link);
        link = eventually("it is let in again", Duration::from_secs(10), || liar.connect(Knock::Paired).ok());
        assert!(!hub.log().contains("panicked"), "after {what}: {}", hub.log());
    }
    let stats = hub.json(&["readings", "show", "liar", "temp"])["stats"].clone();
    assert_eq!((&stats["min"], &stats["mean"], &stats["max"]), (&1.0.into(), &1.0.into(), &1.0.into()));
    unharmed(&hub, &honest, 80_000);
}

#[test]
fn frames_that_are_none_and_declarations_over_every_limit_are_refused() {
    let hub = TestHub::start();
    let honest = TestNode::paired(&hub, "honest", "");
    let (mut liar, mut link) = Liar::paired(&hub, "liar");
    let good = liar.declaration.clone();

    let mut named = ToHub::Outbox { epoch: liar.epoch, items: vec![reading(1, 1.0)] }.encode().unwrap();
    let at = named.windows(4).position(|w| w == b"temp").unwrap();
    named[at] = 0xff;
    for bytes in [named, vec![0xff; 100], Vec::new(), vec![0; 600_000]] {
        link.send_bytes(bytes);
        link.ended();
        link = liar.connect(Knock::Paired).unwrap();
    }

    // Nothing said after a goodbye counts.
    link.send(&ToHub::Goodbye { reason: "\u{202e}bye".into() });
    let items = vec![reading(1, 1.0)];
    link.send(&ToHub::Outbox { epoch: liar.epoch, items });
    link.ended();

    let part = |n: usize| PartDecl { id: format!("p{n}"), name: "x".into(), detail: String::new() };
    liar.declaration.pins = (0..300).map(part).collect();
    assert_eq!(liar.connect(Knock::Paired).unwrap_err().code, RefusedCode::BadDeclaration);
    for huge in ["x".repeat(60_000), "\u{202e}\u{1b}[31m\0evil".to_owned()] {
        for field in 0..5 {
            liar.declaration = good.clone();
            let it = &mut liar.declaration;
            let field_of = [&mut it.name, &mut it.version, &mut it.platform, &mut it.arch, &mut it.model];
            *field_of.into_iter().nth(field).unwrap() = huge.clone();
            match liar.connect(Knock::Paired) {
                Ok(mut link) => {
                    let shown = hub.cli(&["nodes", "list", "--json"]).stdout
                        + &hub.cli(&["nodes", "show", "liar"]).stdout;
                    assert!(shown.len() < 20_000, "field {field} is shown in {} bytes", shown.len());
                    assert!(
                        !shown.contains('\u{202e}') && !shown.contains('\u{1b}'),
                        "field {field}: {shown}"
                    );
                    link.send(&ToHub::Goodbye { reason: "bye".into() });
                    link.ended();
                }
                Err(refused) => assert_eq!(refused.code, RefusedCode::BadDeclaration, "{refused:?}"),
            }
        }
    }
    unharmed(&hub, &honest, 80_000);
}

#[test]
fn a_second_connection_with_the_same_key_is_refused_and_alarms_the_owner() {
    let hub = TestHub::start();
    let (liar, mut link) = Liar::paired(&hub, "liar");
    let twin = std::thread::scope(|scope| {
        let twin = scope.spawn(|| liar.connect(Knock::Paired).map(drop));
        // The first is alive and answers the hub's question whether it is.
        let asking = ask(&hub);
        let asked = link.invoke().request;
        let answer = liar.result(asked, "{\"pins\":[]}");
        while !twin.is_finished() {
            link.answer_pings(Duration::from_millis(200));
        }
        link.send(&ToHub::Result(Box::new(answer)));
        assert!(asking.wait_with_output().unwrap().status.success());
        twin.join().unwrap()
    });
    assert_eq!(twin.unwrap_err().code, RefusedCode::Duplicate);
    let audit = hub.json(&["audit", "show"]).to_string();
    assert!(audit.contains("duplicate"), "{audit}");
}

#[test]
fn floods_are_slowed_down_and_the_hub_stays_small() {
    let hub = TestHub::start();
    let honest = TestNode::paired(&hub, "honest", "");
    let (liar, mut link) = Liar::paired(&hub, "liar");
    let before = hub.resident_kb();
    let text = format!("{{\"x\":\"{}\"}}", "y".repeat(900));
    let mut seq = 1;
    // 100 MB of events, and not a single acknowledgement is read.
    for _ in 0..200 {
        let items: Vec<Item> = (seq..seq + 500).map(|n| event(n, text.clone())).collect();
        seq += 500;
        if !link.send(&ToHub::Outbox { epoch: liar.epoch, items }) {
            link = reconnect(&liar);
        }
    }
    unharmed(&hub, &honest, before + 40_000);
    drop(link);

    // Pongs, declarations, credit: whatever is small and many.
    let mut link = reconnect(&liar);
    for n in 0..200_000u64 {
        if !link.send(&ToHub::Pong { id: n, mono_ms: n, wall_ms: Some(n) }) {
            break;
        }
    }
    drop(link);
    let mut link = reconnect(&liar);
    let mut declaration = liar.declaration.clone();
    for n in 0..1_000 {
        declaration.model = format!("model {n}");
        if !link.send(&ToHub::Declare { declaration: declaration.encode() }) {
            break;
        }
    }
    unharmed(&hub, &honest, before + 40_000);
}

fn reconnect(liar: &Liar) -> LiarLink {
    eventually("it is let in again", Duration::from_secs(20), || liar.connect(Knock::Paired).ok())
}
