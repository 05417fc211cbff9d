//! Handshake and session.

use super::hub::request;
use super::*;
use crate::recorder::Recorder as _;
use hearth_shared::approver::{Approver, ApproverKind, ApproversChange};
use hearth_shared::error::ErrorCode;
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::Digest;
use hearth_shared::limits::{CHUNK_SIZE, TRANSFER_WINDOW};
use hearth_shared::link::flow::Receiver;
use hearth_shared::link::{Outcome, Refused, RefusedCode, ToHub, ToNode};
use hearth_shared::reading::{Body, Mark};
use std::collections::{BTreeMap, HashSet};

#[tokio::test]
async fn an_honest_hub_is_served() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, hello) = rig.hub.admit(|_| {}).await;
        assert_eq!(hello.knock, Knock::Paired);
        assert_eq!((hello.version, hello.outbox_next), (1, 1), "the newest both know");
        assert_eq!(Declaration::decode(&hello.declaration).unwrap().name, "garage");
        peer.send(ToNode::Invoke(request(1, "echo", "{\"a\":1}"))).await;
        let result = peer.result().await;
        result.verify(&hello.key).unwrap();
        assert_eq!(result.outcome, Outcome::Done { result: "{\"a\":1}".into() });
        peer.ping(7).await;
        let pong = peer.receive().await;
        assert!(matches!(pong, Some(ToHub::Pong { id: 7, wall_ms: Some(_), .. })), "{pong:?}");
        assert_eq!(rig.status.borrow().state, "online");
        peer.send(ToNode::Surface { approved: vec!["a".into(), "b".into()] }).await;
        let mut status = rig.status.subscribe();
        status.wait_for(|s| s.approved.len() == 2).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_hub_that_cannot_prove_its_identity_is_left() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|w| w.signature.0[5] ^= 1).await;
        peer.send(ToNode::Invoke(request(1, "echo", "{}"))).await;
        assert!(rig.refusal().await.contains("could not prove its identity"));
        assert_eq!(*rig.local.started.borrow(), 0, "nothing ran");
        assert_eq!(peer.receive().await, None);
    })
    .await;
}

#[tokio::test]
async fn a_welcome_from_another_connection_is_worthless() {
    let rig = Rig::new().await;
    let old = rig
        .run(async {
            let mut stolen = None;
            let _peer = rig.hub.admit(|w| stolen = Some(w.signature)).await;
            stolen.unwrap()
        })
        .await;
    rig.run(async {
        // The same hub key, the same node: only nonces and TLS exporter differ.
        let (_peer, _) = rig.hub.admit(|w| w.signature = old).await;
        assert!(rig.refusal().await.contains("could not prove"));
    })
    .await;
}

#[tokio::test]
async fn a_node_proof_is_bound_to_its_connection() {
    let rig = Rig::new().await;
    rig.run(async {
        let mut peer = rig.hub.accept().await;
        let hello = peer.hello(&rig.hub).await;
        let mut transcript = peer.transcript(&rig.hub, &hello);
        transcript.verify_node(&hello.key, &hello.signature).unwrap();
        transcript.tls_exporter[0] ^= 1;
        assert!(transcript.verify_node(&hello.key, &hello.signature).is_err(), "relayed over other TLS");
    })
    .await;
}

#[tokio::test]
async fn another_tls_key_gets_nothing_but_a_failed_handshake() {
    let rig = Rig::new().await;
    let record = HubRecord { spki: Digest([1; 32]), ..rig.record() };
    rig.run_with(record, async {
        assert!(rig.hub.accept_tls().await.is_none());
        assert!(rig.refusal().await.contains("another TLS key"));
    })
    .await;
}

#[tokio::test]
async fn another_identity_behind_the_same_tls_key_is_told_nothing() {
    let rig = Rig::new().await;
    let record = HubRecord { key: SecretKey::generate().unwrap().public(), ..rig.record() };
    rig.run_with(record, async {
        let mut peer = rig.hub.accept().await;
        peer.send_hello(&rig.hub).await;
        assert_eq!(peer.receive().await, None, "no hello");
        assert!(rig.refusal().await.contains("another identity"));
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_kept_for_the_owner() {
    let rig = Rig::new().await;
    rig.run(async {
        let mut peer = rig.hub.accept().await;
        peer.hello(&rig.hub).await;
        let message = "revoked on 2026-01-01; pair again".to_owned();
        peer.send(ToNode::Refused(Refused { code: RefusedCode::Revoked, message, retry_after_ms: 0 })).await;
        assert_eq!(rig.refusal().await, "refused by the hub: revoked on 2026-01-01; pair again");
        let mut status = rig.status.subscribe();
        status.wait_for(|s| s.state == "waiting").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_second_address_is_used_when_the_first_does_not_answer() {
    let rig = Rig::new().await;
    let mut record = rig.record();
    record.addresses.insert(0, "127.0.0.1:1".into());
    rig.run_with(record, async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        peer.ping(1).await;
        assert!(peer.receive().await.is_some());
    })
    .await;
}

#[tokio::test]
async fn many_requests_run_at_once_and_the_limit_answers_busy() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        for n in 0..MAX_IN_FLIGHT as u16 {
            peer.send(ToNode::Invoke(request(n, "hang", "{}"))).await;
        }
        rig.local.started.subscribe().wait_for(|n| *n == MAX_IN_FLIGHT).await.unwrap();
        peer.send(ToNode::Invoke(request(9_999, "echo", "{}"))).await;
        let busy = peer.result().await;
        assert!(matches!(&busy.outcome, Outcome::Failed(e) if e.code == ErrorCode::Busy));
        peer.ping(1).await;
        assert!(matches!(peer.receive().await, Some(ToHub::Pong { .. })));
        rig.local.release.cancel();
        let mut seen = HashSet::new();
        for _ in 0..MAX_IN_FLIGHT {
            seen.insert(peer.result().await.request);
        }
        assert_eq!(seen.len(), MAX_IN_FLIGHT);
        peer.send(ToNode::Invoke(request(10_000, "echo", "{}"))).await;
        assert!(matches!(peer.result().await.outcome, Outcome::Done { .. }), "there is room again");
    })
    .await;
}

#[tokio::test]
async fn a_stalled_picture_does_not_hold_up_heartbeats_or_results() {
    let rig = Rig::new().await;
    let size = 1_000_000;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        peer.send(ToNode::Invoke(request(1, "picture", &size.to_string()))).await;
        let Some(ToHub::Attachment(attachment)) = peer.receive().await else { panic!("no announcement") };
        assert_eq!((attachment.size, attachment.mime.as_str()), (size as u64, "image/jpeg"));
        let mut receiver = Receiver::new(attachment.transfer, attachment.size, attachment.sha256).unwrap();
        let mut window = 0;
        while window < TRANSFER_WINDOW as usize {
            let Some(ToHub::Chunk { bytes, .. }) = peer.receive().await else { panic!("no chunk") };
            receiver.chunk(&bytes).unwrap();
            window += bytes.len();
        }
        // The window is used up and no credit comes: everything else goes on.
        for n in 0..3 {
            peer.ping(n).await;
            assert!(matches!(peer.receive().await, Some(ToHub::Pong { id, .. }) if id == n));
        }
        peer.send(ToNode::Invoke(request(2, "echo", "{}"))).await;
        assert_eq!(peer.result().await.request, request(2, "", "").request);
        peer.send(ToNode::Credit { transfer: attachment.transfer, bytes: receiver.consumed(window) }).await;
        while !receiver.is_complete() {
            let Some(ToHub::Chunk { bytes, transfer }) = peer.receive().await else { panic!("no chunk") };
            assert!(bytes.len() <= CHUNK_SIZE);
            receiver.chunk(&bytes).unwrap();
            peer.send(ToNode::Credit { transfer, bytes: receiver.consumed(bytes.len()) }).await;
        }
        receiver.finish().unwrap();
        let result = peer.result().await;
        assert_eq!((result.request, result.attachments), (request(1, "", "").request, 1));
    })
    .await;
}

#[tokio::test]
async fn cancel_stops_a_running_request_and_a_transfer() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, hello) = rig.hub.admit(|_| {}).await;
        peer.send(ToNode::Invoke(request(1, "hang", "{}"))).await;
        rig.local.started.subscribe().wait_for(|n| *n == 1).await.unwrap();
        peer.send(ToNode::Cancel { request: request(1, "", "").request }).await;
        let result = peer.result().await;
        assert!(matches!(&result.outcome, Outcome::Failed(e) if e.code == ErrorCode::Cancelled));

        peer.send(ToNode::Invoke(request(2, "picture", "1000000"))).await;
        assert!(matches!(peer.receive().await, Some(ToHub::Attachment(_))));
        peer.send(ToNode::Cancel { request: request(2, "", "").request }).await;
        let aborted = loop {
            match peer.receive().await {
                Some(ToHub::Chunk { .. }) => {}
                Some(ToHub::AbortTransfer { transfer }) => break transfer,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(aborted, 1);
        let result = peer.result().await;
        result.verify(&hello.key).unwrap();
        assert!(matches!(&result.outcome, Outcome::Failed(e) if e.code == ErrorCode::Cancelled));
    })
    .await;
}

#[tokio::test]
async fn challenges_and_grants_pass_through() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        peer.send(ToNode::AskChallenge(request(1, "gpio.pulse", "text"))).await;
        let Some(ToHub::Challenge { challenge, .. }) = peer.receive().await else { panic!("no challenge") };
        assert_eq!(challenge.text, "text");
        let grant = Grant::sign(&rig.hub.key, challenge.digest(), Decision::AllowOnce, 1);
        peer.send(ToNode::Grant { request: request(1, "", "").request, grant }).await;
        assert_eq!(peer.result().await.outcome, Outcome::Done { result: "\"allow-once\"".into() });
        peer.send(ToNode::AskChallenge(request(2, "unknown", ""))).await;
        assert!(matches!(peer.result().await.outcome, Outcome::Failed(_)));
    })
    .await;
}

#[tokio::test]
async fn changed_approvers_and_declarations_are_told() {
    let rig = Rig::new().await;
    let admin = SecretKey::generate().unwrap();
    let entry =
        Approver { key: admin.public(), kind: ApproverKind::Terminal, admin: true, name: "anna".into() };
    rig.local.approvers.lock().unwrap().approvers.push(entry);
    rig.run(async {
        let (mut peer, hello) = rig.hub.admit(|_| {}).await;
        let mut set = hello.approvers.clone();
        set.epoch += 1;
        set.approvers[0].name = "Anna".into();
        let change = ApproversChange::sign(&admin, &hello.key.device_id(), set.clone());
        peer.send(ToNode::ChangeApprovers(change.clone())).await;
        assert_eq!(peer.receive().await, Some(ToHub::Approvers(set)));
        peer.send(ToNode::ChangeApprovers(change)).await;
        assert!(matches!(peer.receive().await, Some(ToHub::ApproversRefused { .. })), "used twice");

        // Changed on the node, by its owner: the hub hears of it on this connection.
        let mut local = rig.local.approvers();
        local.epoch += 1;
        local.approvers[0].name = "Anne".into();
        rig.local.approvers.lock().unwrap().clone_from(&local);
        rig.context.changed.notify_one();
        assert_eq!(peer.receive().await, Some(ToHub::Approvers(local)));

        rig.local.declaration.lock().unwrap().person_ready = true;
        rig.context.changed.notify_one();
        let Some(ToHub::Declare { declaration }) = peer.receive().await else { panic!("no declaration") };
        assert!(Declaration::decode(&declaration).unwrap().person_ready);
        rig.context.changed.notify_one();
        peer.ping(1).await;
        assert!(matches!(peer.receive().await, Some(ToHub::Pong { .. })), "told once");
        rig.local.declaration.lock().unwrap().model = "Pi".into();
        peer.ping(2).await;
        let frames = [peer.receive().await, peer.receive().await];
        assert!(frames.iter().any(|f| matches!(f, Some(ToHub::Declare { .. }))), "noticed at a heartbeat");
    })
    .await;
}

#[tokio::test]
async fn a_silent_hub_is_left_after_two_heartbeats_and_frames_out_of_place_too() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|w| w.tick_ms = 50).await;
        assert!(rig.refusal().await.contains("silent for 100 ms"));
        assert_eq!(peer.receive().await, None);
    })
    .await;
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        peer.send(ToNode::WordsNonce { nonce: peer.nonce }).await;
        assert!(rig.refusal().await.contains("after the handshake"));
    })
    .await;
}

#[tokio::test]
async fn readings_survive_lost_connections_and_arrive_once() {
    let rig = Rig::new().await;
    let outbox = &rig.context.outbox;
    rig.run(async {
        let mut stored = BTreeMap::new();
        let mut mark: Option<Mark> = None;
        let mut recorded = 0;
        for round in 0..5u64 {
            for _ in 0..300 {
                outbox.reading("t", f64::from(recorded));
                recorded += 1;
            }
            outbox.event("gpio.edge", format!("{{\"round\":{round}}}"));
            let (mut peer, hello) = rig.hub.admit(|w| w.mark = mark).await;
            if let Some(mark) = mark {
                assert_eq!(hello.outbox_epoch, mark.epoch);
            }
            // Every connection dies with a batch that was stored and not acknowledged.
            loop {
                let Some(ToHub::Outbox { epoch, items }) = peer.receive().await else { panic!("no items") };
                assert!(items.len() <= 500);
                for item in items {
                    let next = mark.filter(|m| m.epoch == epoch).map_or(1, |m| m.seq + 1);
                    assert!(item.seq <= next, "a gap before {}", item.seq);
                    if item.seq == next {
                        mark = Some(Mark { epoch, seq: item.seq });
                        assert!(stored.insert(item.seq, item.body).is_none());
                    }
                }
                if stored.len() >= 301 * (round as usize + 1) {
                    break;
                }
                peer.send(ToNode::OutboxAck(mark.unwrap())).await;
            }
        }
        let readings = stored.values().filter_map(|b| match b {
            Body::Reading { value, .. } => Some(*value as u32),
            _ => None,
        });
        let readings: HashSet<u32> = readings.collect();
        assert_eq!(readings.len() as i32, recorded);
    })
    .await;
}

#[tokio::test]
async fn live_items_are_sent_as_they_are_committed() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        for n in 1..=3u64 {
            rig.context.outbox.event("edge", format!("{n}"));
            let Some(ToHub::Outbox { epoch, items }) = peer.receive().await else { panic!("no items") };
            assert_eq!((items.len(), items[0].seq, items[0].boot), (1, n, rig.context.clock.boot()));
            peer.send(ToNode::OutboxAck(Mark { epoch, seq: n })).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_outlives_its_connection() {
    let rig = Rig::new().await;
    rig.run(async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        peer.send(ToNode::Invoke(request(1, "hang", "{}"))).await;
        rig.local.started.subscribe().wait_for(|n| *n == 1).await.unwrap();
        drop(peer);
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        rig.local.release.cancel();
        rig.local.finished.subscribe().wait_for(|n| *n == 1).await.unwrap();
        peer.send(ToNode::Invoke(request(1, "echo", "{}"))).await;
        assert!(matches!(peer.result().await.outcome, Outcome::Done { .. }), "asked for again by id");
    })
    .await;
}

#[tokio::test]
async fn a_stop_reports_what_ran_and_says_goodbye() {
    let rig = Rig::new().await;
    let record = rig.record();
    let node = keep(&rig.context, &record, &rig.status);
    let script = async {
        let (mut peer, _) = rig.hub.admit(|_| {}).await;
        peer.send(ToNode::Invoke(request(1, "hang", "{}"))).await;
        rig.local.started.subscribe().wait_for(|n| *n == 1).await.unwrap();
        rig.context.stop.cancel();
        assert!(matches!(peer.result().await.outcome, Outcome::Failed(_)));
        assert!(matches!(peer.receive().await, Some(ToHub::Goodbye { .. })));
        assert_eq!(peer.receive().await, None);
    };
    tokio::time::timeout(SCRIPT_DEADLINE, async { tokio::join!(node, script) }).await.unwrap();
    assert_eq!(rig.status.borrow().state, "stopped");
}

#[tokio::test]
async fn a_stop_while_waiting_or_connecting_is_immediate() {
    let rig = Rig::new().await;
    let record = rig.record();
    let node = keep(&rig.context, &record, &rig.status);
    let script = async {
        let _peer = rig.hub.accept().await;
        rig.context.stop.cancel();
    };
    tokio::time::timeout(Duration::from_secs(5), async { tokio::join!(node, script) }).await.unwrap();
}
