use super::*;
use crate::error::ErrorCode;
use crate::reading::Body;
use proptest::prelude::*;

fn declaration() -> Declaration {
    Declaration {
        name: "garage".into(),
        version: "0.1.0".into(),
        platform: "linux".into(),
        arch: "x86_64".into(),
        model: String::new(),
        simulated: true,
        commands: vec![CommandDecl { name: "camera.snap".into(), class: Class::Capture, need: Need::Hub }],
        cameras: vec![PartDecl { id: "cam0".into(), name: "camera".into(), detail: "simulated".into() }],
        pins: vec![PartDecl { id: "pump".into(), name: "pump".into(), detail: "output".into() }],
        sensors: vec![],
        policy: Digest([5; 32]),
        person_ready: false,
    }
}

fn to_node() -> Vec<ToNode> {
    let invoke = Invoke {
        request: RequestId([1; 16]),
        command: "gpio.read".into(),
        params: r#"{"pin":"pump"}"#.into(),
        timeout_ms: 30_000,
        raise: Need::Hub,
        correlation: Correlation([2; 16]),
        head: Head::default(),
    };
    vec![
        ToNode::Invoke(invoke),
        ToNode::Cancel { request: RequestId([1; 16]) },
        ToNode::Credit { transfer: 7, bytes: 16_384 },
        ToNode::OutboxAck(Mark { epoch: Epoch([3; 16]), seq: 300 }),
        ToNode::Ping { id: 1, hub_time_ms: 1_700_000_000_000 },
    ]
}

fn to_hub() -> Vec<ToHub> {
    let key = SecretKey::from_seed(&[6; 32]);
    let failed = Outcome::Failed(CommandError::new(ErrorCode::Denied, "no"));
    let body = Body::Reading { sensor: "t".into(), value: 21.5 };
    let item = Item { seq: 1, boot: BootId([4; 16]), mono_ms: 10, wall_ms: None, body };
    vec![
        ToHub::Result(Box::new(ResultFrame::sign(&key, RequestId([1; 16]), failed, 0, Head::default()))),
        ToHub::Chunk { transfer: 7, bytes: vec![1, 2, 3] },
        ToHub::Outbox { epoch: Epoch([3; 16]), items: vec![item] },
        ToHub::Pong { id: 1, mono_ms: 5, wall_ms: Some(6) },
    ]
}

/// The bytes of version 1. A change here is a change of the format: it needs a new version.
#[test]
fn golden_bytes() {
    let golden = include_str!("golden.txt");
    let mut lines = Vec::new();
    for frame in to_node() {
        let bytes = frame.encode().unwrap();
        assert_eq!(ToNode::decode(&bytes).unwrap(), frame);
        lines.push(hex::encode(bytes));
    }
    for frame in to_hub() {
        let bytes = frame.encode().unwrap();
        assert_eq!(ToHub::decode(&bytes).unwrap(), frame);
        lines.push(hex::encode(bytes));
    }
    lines.push(hex::encode(declaration().encode()));
    assert_eq!(lines.join("\n"), golden.trim());
}

#[test]
fn versions_meet_at_the_newest_both_know() {
    assert_eq!(negotiate(&(1..=3), &(2..=5)), Some(3));
    assert_eq!(negotiate(&(1..=1), &(1..=9)), Some(1));
    assert_eq!(negotiate(&(4..=5), &(1..=3)), None);
}

#[test]
fn receipts_bind_request_outcome_and_head() {
    let key = SecretKey::from_seed(&[6; 32]);
    let outcome = Outcome::Done { result: "{}".into() };
    let good = ResultFrame::sign(&key, RequestId([1; 16]), outcome, 0, Head::default());
    assert_eq!(good.verify(&key.public()), Ok(()));
    let changes: [fn(&mut ResultFrame); 3] =
        [|r| r.request.0[0] ^= 1, |r| r.outcome = Outcome::Done { result: "[]".into() }, |r| r.head.seq += 1];
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(bad.verify(&key.public()).is_err());
    }
}

#[test]
fn texts_of_a_declaration_are_safe_to_show_and_stay_so() {
    let mut lie = declaration();
    lie.model = "\u{202e}evil\u{1b}[31m".into();
    lie.version = "x".repeat(60_000);
    lie.cameras[0].detail = "\n".into();
    let it = Declaration::decode(&lie.encode()).unwrap();
    assert_eq!((it.model.as_str(), it.cameras[0].detail.as_str()), ("\u{fffd}evil\u{fffd}[31m", "\u{fffd}"));
    assert_eq!(it.version, "x".repeat(64));
    assert_eq!(Declaration::decode(&it.encode()), Ok(it));
}

#[test]
fn a_lying_declaration_is_refused() {
    let bad: [fn(&mut Declaration); 5] = [
        |d| d.pins.push(d.pins[0].clone()),
        |d| d.pins[0].id = "a b".into(),
        |d| d.name = String::new(),
        |d| d.name = "x".repeat(65),
        |d| d.cameras = vec![d.cameras[0].clone(); 257],
    ];
    assert_eq!(Declaration::decode(&declaration().encode()), Ok(declaration()));
    for change in bad {
        let mut lie = declaration();
        change(&mut lie);
        assert!(matches!(Declaration::decode(&lie.encode()), Err(LinkError::BadDeclaration(_))));
    }
}

#[test]
fn too_long_frames_are_refused_before_decoding() {
    let frame = ToHub::Chunk { transfer: 1, bytes: vec![0; MAX_LINK_FRAME] };
    assert!(matches!(frame.encode(), Err(LinkError::TooLong(_))));
    assert!(matches!(ToHub::decode(&vec![0; MAX_LINK_FRAME + 1]), Err(LinkError::TooLong(_))));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_what_decodes_encodes_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(frame) = ToHub::decode(&bytes) {
            // Compared as bytes: a reading may hold a NaN, which equals nothing.
            let once = frame.encode().unwrap();
            prop_assert_eq!(ToHub::decode(&once).unwrap().encode().unwrap(), once);
        }
        if let Ok(frame) = ToNode::decode(&bytes) {
            prop_assert_eq!(ToNode::decode(&frame.encode().unwrap()).unwrap(), frame);
        }
        let _ = Declaration::decode(&bytes);
    }

    #[test]
    fn a_cut_frame_is_malformed(cut in 0usize..60) {
        let bytes = to_node()[0].encode().unwrap();
        prop_assert_eq!(ToNode::decode(&bytes[..cut.min(bytes.len() - 1)]), Err(LinkError::Malformed));
    }
}
