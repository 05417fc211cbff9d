//! Who is let in and who is not, state by state.

use super::tester::{EXPORTER, Hub, Node, SOON, alarm, event};
use crate::bus::Event;
use crate::devices::{DeviceState, LinkKind, PendingDevice};
use hearth_shared::connect::Role;
use hearth_shared::identity::{Digest, Nonce, PublicKey};
use hearth_shared::link::{Knock, RefusedCode, ToHub, ToNode, Welcome};
use hearth_shared::pairing::{CodeSecret, WordsInput, commit};
use std::time::Duration;

#[tokio::test]
async fn a_code_pairs_once_and_the_node_comes_back_by_its_key() {
    let hub = Hub::start().await;
    let mut events = hub.bus.subscribe();
    let node = Node::new(1, "garage");
    let (mut socket, welcome) = hub.paired(&node).await;
    assert!(welcome.newly_paired);
    assert_eq!(welcome.approved, node.declaration.surface(), "the surface is settled in the same step");
    event(&mut events, |e| matches!(e, Event::NodeConnected { .. }).then_some(())).await;
    let view = hub.nodes.find("GARAGE").await.unwrap();
    assert!(view.connected && view.pending.is_empty());
    assert_eq!(view.commands(), ["camera.snap", "gpio.list"]);
    socket.socket.close(None).await.unwrap();
    event(&mut events, |e| matches!(e, Event::NodeDisconnected { .. }).then_some(())).await;
    let (_, welcome) = hub.connect(&node, Knock::Paired).await.unwrap();
    assert!(!welcome.newly_paired);
    let kinds = hub.audit_kinds().await;
    for kind in ["pairing.code.made", "pairing.code.used", "device.accepted", "node.declared"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind} is missing in {kinds:?}");
    }
}

#[tokio::test]
async fn the_hub_proves_itself_over_the_same_connection() {
    let hub = Hub::start().await;
    let mut node = Node::new(1, "garage");
    let secret = hub.code().await;
    let mut socket = hub.dial(EXPORTER).await;
    let hello = socket.hub_hello().await;
    socket.send(&node.hello(&hello, Knock::Code { secret }, EXPORTER)).await;
    let Some(ToNode::Welcome(welcome)) = socket.next().await else { panic!("no welcome") };
    let verify = |w: &Welcome, exporter| {
        node.transcript(&hello, Nonce([9; 32]), exporter).verify_hub(&hello.hub, &w.signature)
    };
    assert_eq!(verify(&welcome, EXPORTER), Ok(()));
    assert!(verify(&welcome, [8; 32]).is_err());
    node.next = 2;
}

#[tokio::test]
async fn a_signature_of_another_connection_key_or_declaration_is_refused() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    drop(hub.paired(&node).await);
    let changes: [fn(&mut ToHub); 4] = [
        |f| {
            if let ToHub::Hello(h) = f {
                h.signature.0[5] ^= 1
            }
        },
        |f| {
            if let ToHub::Hello(h) = f {
                h.key = PublicKey([3; 32])
            }
        },
        |f| {
            if let ToHub::Hello(h) = f {
                h.declaration[0] ^= 1
            }
        },
        |f| {
            if let ToHub::Hello(h) = f {
                h.boot.0[0] ^= 1
            }
        },
    ];
    for change in changes {
        let mut socket = hub.dial(EXPORTER).await;
        let hello = socket.hub_hello().await;
        let mut frame = node.hello(&hello, Knock::Paired, EXPORTER);
        change(&mut frame);
        socket.send(&frame).await;
        assert_eq!(socket.ended().await, Some(RefusedCode::Signature));
    }
    // A relay in the middle has another TLS connection to each side.
    let mut socket = hub.dial([8; 32]).await;
    let hello = socket.hub_hello().await;
    socket.send(&node.hello(&hello, Knock::Paired, EXPORTER)).await;
    assert_eq!(socket.ended().await, Some(RefusedCode::Signature));
}

#[tokio::test]
async fn versions_declarations_and_first_frames_are_checked() {
    let hub = Hub::start().await;
    let mut node = Node::new(1, "garage");
    node.version = 9;
    assert_eq!(hub.refused(&node, Knock::Paired).await, RefusedCode::Version);
    node.version = 1;
    node.declaration.name = String::new();
    assert_eq!(hub.refused(&node, Knock::Paired).await, RefusedCode::BadDeclaration);
    let mut socket = hub.dial(EXPORTER).await;
    socket.hub_hello().await;
    socket.send(&ToHub::WordsConfirmed).await;
    assert_eq!(socket.ended().await, Some(RefusedCode::Protocol));
    let mut socket = hub.dial(EXPORTER).await;
    socket.hub_hello().await;
    socket.send(&ToHub::Chunk { transfer: 1, bytes: vec![0; 70_000] }).await;
    assert_eq!(socket.ended().await, Some(RefusedCode::Protocol), "over the limit before authentication");
}

#[tokio::test]
async fn strangers_rejected_revoked_and_foreign_devices_stay_out() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    assert_eq!(hub.refused(&node, Knock::Paired).await, RefusedCode::NotPaired);
    assert_eq!(
        hub.refused(&node, Knock::Code { secret: CodeSecret([1; 32]) }).await,
        RefusedCode::BadCode,
        "no window"
    );
    drop(hub.paired(&node).await);
    hub.devices.revoke("garage", "test").await.unwrap();
    assert_eq!(hub.refused(&node, Knock::Paired).await, RefusedCode::Revoked);
    let secret = hub.code().await;
    assert_eq!(hub.refused(&node, Knock::Code { secret: secret.clone() }).await, RefusedCode::Revoked);
    let other = Node::new(2, "shed");
    assert!(hub.connect(&other, Knock::Code { secret }).await.is_ok(), "the refusal did not use the code up");

    let foreign = Node::new(3, "phone");
    let asks = PendingDevice {
        request_id: String::new(),
        key: foreign.public(),
        device_id: foreign.public().device_id(),
        name: "phone".into(),
        role: Role::Node,
        kind: LinkKind::Json,
        platform: "linux".into(),
        device_family: String::new(),
        client_id: "node-host".into(),
        client_mode: "node".into(),
        scopes: Vec::new(),
        surface: Vec::new(),
        words: None,
        remote_ip: "127.0.0.1".into(),
        created_ms: 0,
    };
    hub.devices.admit(asks, "silent").await.unwrap();
    assert_eq!(hub.refused(&foreign, Knock::Paired).await, RefusedCode::WrongKind);
}

#[tokio::test]
async fn a_code_that_is_used_twice_raises_an_alarm() {
    let hub = Hub::start().await;
    let mut events = hub.bus.subscribe();
    let secret = hub.code().await;
    let node = Node::new(1, "garage");
    drop(hub.connect(&node, Knock::Code { secret: secret.clone() }).await.unwrap());
    event(&mut events, |e| matches!(e, Event::NodeDisconnected { .. }).then_some(())).await;
    // The same node again: its welcome was lost on the way.
    let (_, welcome) = hub.connect(&node, Knock::Code { secret: secret.clone() }).await.unwrap();
    assert!(welcome.newly_paired);
    let thief = Node::new(2, "thief");
    assert_eq!(hub.refused(&thief, Knock::Code { secret }).await, RefusedCode::BadCode);
    let message = event(&mut events, alarm).await;
    assert!(message.contains("thief"), "{message}");
    assert!(hub.audit_kinds().await.contains(&"pairing.code.reused".to_string()));
    assert_eq!(hub.state(&thief).await, None);
}

#[tokio::test]
async fn a_code_ends_with_its_window() {
    let hub = Hub::start().await;
    let secret = hub.code().await;
    hub.devices.close_window().await;
    let node = Node::new(1, "garage");
    assert_eq!(hub.refused(&node, Knock::Code { secret: secret.clone() }).await, RefusedCode::BadCode);
    hub.code().await;
    assert_eq!(hub.refused(&node, Knock::Code { secret }).await, RefusedCode::BadCode, "another window");
}

struct Knocking {
    socket: super::tester::Socket,
    words: String,
    node: Node,
}

async fn knock_by_words(hub: &Hub, node: Node) -> Result<Knocking, RefusedCode> {
    let nonce_n = Nonce([seed(&node); 32]);
    let mut socket = hub.dial(EXPORTER).await;
    let hello = socket.hub_hello().await;
    socket.send(&node.hello(&hello, Knock::Words { commitment: commit(&nonce_n) }, EXPORTER)).await;
    let nonce_h = match socket.next().await {
        Some(ToNode::WordsNonce { nonce }) => nonce,
        Some(ToNode::Refused(refused)) => return Err(refused.code),
        other => panic!("{other:?}"),
    };
    socket.send(&ToHub::WordsReveal { nonce: nonce_n }).await;
    let words = WordsInput {
        hub_id: hello.hub.device_id(),
        spki: hub.keys.spki,
        node_id: node.key.device_id(),
        nonce_h,
        nonce_n,
    };
    Ok(Knocking { socket, words: words.words(), node })
}

fn seed(node: &Node) -> u8 {
    node.boot.0[0]
}

#[tokio::test]
async fn words_need_both_persons_in_either_order() {
    for hub_first in [true, false] {
        let hub = Hub::start().await;
        hub.code().await;
        let mut events = hub.bus.subscribe();
        let mut k = knock_by_words(&hub, Node::new(1, "ga\u{202e}rage")).await.ok().unwrap();
        let pending = event(&mut events, |e| match e {
            Event::DevicePairRequested(p) => Some(p),
            _ => None,
        })
        .await;
        assert_eq!(pending.words.as_deref(), Some(k.words.as_str()), "both ends show the same words");
        assert_eq!(pending.name, "ga\\u{202e}rage");
        assert_eq!(pending.surface, k.node.declaration.surface());
        if hub_first {
            let device = hub.devices.approve(&pending.request_id, "test").await.unwrap();
            assert_eq!(device.state, DeviceState::Preauthorised);
            assert_eq!(hub.state(&k.node).await, None, "not before the node's person confirmed");
            k.socket.send(&ToHub::WordsConfirmed).await;
        } else {
            k.socket.send(&ToHub::WordsConfirmed).await;
            let device = tokio::time::timeout(SOON, async {
                loop {
                    // The confirmation is on its way; an approval that overtakes it is the other case.
                    tokio::task::yield_now().await;
                    if hub.devices.is_confirmed(&pending.request_id) {
                        return hub.devices.approve("ga\\u{202e}rage", "test").await.unwrap();
                    }
                }
            })
            .await
            .unwrap();
            assert_eq!(device.state, DeviceState::Accepted);
        }
        let Some(ToNode::Welcome(welcome)) = k.socket.next().await else { panic!("no welcome") };
        assert!(welcome.newly_paired);
        assert_eq!(hub.state(&k.node).await, Some(DeviceState::Accepted));
        assert_eq!(hub.devices.list().await.unwrap().0.len(), 0);
    }
}

#[tokio::test]
async fn words_are_refused_by_the_window_the_limit_a_person_and_a_broken_commitment() {
    let hub = Hub::start().await;
    let closed = knock_by_words(&hub, Node::new(1, "a")).await.err();
    assert_eq!(closed, Some(RefusedCode::PairingClosed));
    assert_eq!(hub.devices.window().knocks_while_closed, 1);
    hub.code().await;
    let mut events = hub.bus.subscribe();
    let mut waiting = Vec::new();
    for n in 1..=3 {
        waiting.push(knock_by_words(&hub, Node::new(n, &format!("node{n}"))).await.ok().unwrap());
        event(&mut events, |e| matches!(e, Event::DevicePairRequested(_)).then_some(())).await;
    }
    let mut fourth = knock_by_words(&hub, Node::new(4, "node4")).await.ok().unwrap();
    assert_eq!(fourth.socket.ended().await, Some(RefusedCode::TooManyPending));
    hub.devices.reject("node2", "test").await.unwrap();
    assert_eq!(waiting[1].socket.ended().await, Some(RefusedCode::Rejected));
    assert_eq!(hub.state(&waiting[1].node).await, Some(DeviceState::Rejected));
    // A node that goes away is off the list: its words are void.
    drop(waiting.remove(0));
    event(&mut events, |e| {
        matches!(e, Event::DevicePairResolved { decision: "withdrawn", .. }).then_some(())
    })
    .await;
    hub.devices.close_window().await;
    assert_eq!(waiting[1].socket.ended().await, Some(RefusedCode::PairingClosed));

    hub.code().await;
    let node = Node::new(9, "liar");
    let mut socket = hub.dial(EXPORTER).await;
    let hello = socket.hub_hello().await;
    socket.send(&node.hello(&hello, Knock::Words { commitment: Digest([1; 32]) }, EXPORTER)).await;
    assert!(matches!(socket.next().await, Some(ToNode::WordsNonce { .. })));
    socket.send(&ToHub::WordsReveal { nonce: Nonce([2; 32]) }).await;
    assert_eq!(socket.ended().await, Some(RefusedCode::Protocol));
}

#[tokio::test]
async fn a_second_session_is_refused_and_a_dead_one_replaced() {
    let hub = Hub::start().await;
    let mut events = hub.bus.subscribe();
    let node = Node::new(1, "garage");
    let (mut first, _) = hub.paired(&node).await;
    // The first answers pings while the second comes.
    let alive = tokio::spawn(async move {
        let frame = first.frame().await;
        (first, frame)
    });
    assert_eq!(hub.refused(&node, Knock::Paired).await, RefusedCode::Duplicate);
    assert!(event(&mut events, alarm).await.contains("garage"));
    assert!(hub.nodes.find("garage").await.unwrap().connected);
    // Now it is there and silent, as after a power cut.
    alive.abort();
    let (silent, _) = match alive.await {
        Ok((socket, _)) => (Some(socket), ()),
        Err(_) => (None, ()),
    };
    let (second, _) = hub.connect(&node, Knock::Paired).await.unwrap();
    assert!(hub.nodes.find("garage").await.unwrap().connected);
    drop((silent, second));
}

#[tokio::test]
async fn revoking_and_removing_close_a_live_link_at_once() {
    let hub = Hub::start().await;
    for (seed, revoke) in [(1, true), (2, false)] {
        let node = Node::new(seed, "garage");
        let (mut socket, _) = hub.paired(&node).await;
        let connection = hub.connection(&node);
        if revoke {
            hub.devices.revoke("garage", "test").await.unwrap();
        } else {
            hub.devices.remove("garage", "test").await.unwrap();
        }
        let ended = tokio::time::timeout(Duration::from_secs(2), socket.ended()).await;
        assert_eq!(ended.expect("at once"), Some(RefusedCode::Revoked));
        assert!(connection.invoke(super::tester::invoke(1, "gpio.list", 100)).await.is_err());
        if revoke {
            hub.devices.remove("garage", "test").await.unwrap();
        }
    }
}
