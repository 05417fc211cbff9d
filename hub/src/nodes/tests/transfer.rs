//! Attachments: whole ones, endless ones, and false ones.

use super::tester::{Hub, Node, Socket, event, invoke, request};
use crate::nodes::NodeReply;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::identity::Digest;
use hearth_shared::limits::{CHUNK_SIZE, MAX_ATTACHMENT, TRANSFER_WINDOW};
use hearth_shared::link::flow::Sender;
use hearth_shared::link::{Attachment, Outcome, RefusedCode, ToHub, ToNode};
use std::time::Duration;
use tokio::task::JoinHandle;

fn announce(transfer: u32, n: u8, bytes: &[u8]) -> ToHub {
    ToHub::Attachment(Attachment {
        transfer,
        request: request(n),
        mime: "image/jpeg".into(),
        size: bytes.len() as u64,
        sha256: Digest::of(bytes),
    })
}

fn call(hub: &Hub, node: &Node, n: u8) -> JoinHandle<Result<NodeReply, CommandError>> {
    let connection = hub.connection(node);
    tokio::spawn(async move { connection.invoke(invoke(n, "camera.snap", 20_000)).await })
}

/// Sends the bytes as the node does: while credit lasts. Gives the pings that were answered meanwhile.
async fn send_all(socket: &mut Socket, transfer: u32, bytes: &[u8]) -> usize {
    let (mut sender, mut pings) = (Sender::new(bytes.len() as u64), 0);
    while !sender.is_done() {
        while let Some(range) = sender.next_chunk() {
            socket.send(&ToHub::Chunk { transfer, bytes: bytes[range].to_vec() }).await;
        }
        if sender.is_done() {
            break;
        }
        match socket.next().await {
            Some(ToNode::Credit { transfer: t, bytes }) if t == transfer => sender.credit(bytes),
            Some(ToNode::Ping { id, .. }) => {
                pings += 1;
                socket.send(&ToHub::Pong { id, mono_ms: 1, wall_ms: None }).await;
            }
            other => panic!("{other:?}"),
        }
    }
    pings
}

#[tokio::test]
async fn a_megabyte_arrives_whole_while_pings_go_on() {
    let hub = Hub::with_tick(Duration::from_millis(300)).await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let call = call(&hub, &node, 1);
    socket.invoke().await;
    let bytes: Vec<u8> = (0..1_048_576u32).map(|i| (i % 251) as u8).collect();
    socket.send(&announce(1, 1, &bytes)).await;
    let mut sender = Sender::new(bytes.len() as u64);
    let mut pings = 0;
    // A slow camera: the transfer lasts for several ticks.
    while !sender.is_done() {
        if let Some(range) = sender.next_chunk() {
            socket.send(&ToHub::Chunk { transfer: 1, bytes: bytes[range].to_vec() }).await;
            tokio::time::sleep(Duration::from_millis(15)).await;
            continue;
        }
        match socket.next().await {
            Some(ToNode::Credit { bytes, .. }) => sender.credit(bytes),
            Some(ToNode::Ping { id, .. }) => {
                pings += 1;
                socket.send(&ToHub::Pong { id, mono_ms: 1, wall_ms: None }).await;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(pings >= 2, "{pings} pings during the transfer");
    socket.send(&node.result(request(1), Outcome::Done { result: "{}".into() }, 1)).await;
    let reply = call.await.unwrap().unwrap();
    let media = &reply.media[0];
    assert_eq!((media.size, media.mime.as_str()), (bytes.len() as u64, "image/jpeg"));
    assert_eq!(std::fs::read(&media.path).unwrap(), bytes);
    assert_eq!(hub.nodes.media().get(&media.id).await.unwrap().unwrap().media, *media);
    assert_eq!(hub.nodes.media().recent(node.key.device_id(), 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn two_attachments_and_an_empty_one_in_one_result() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let call = call(&hub, &node, 1);
    socket.invoke().await;
    let (a, b) = (vec![1u8; 300_000], vec![2u8; 5]);
    for (transfer, bytes) in [(1, &a[..]), (2, &b[..]), (3, &[])] {
        socket.send(&announce(transfer, 1, bytes)).await;
        send_all(&mut socket, transfer, bytes).await;
    }
    socket.send(&node.result(request(1), Outcome::Done { result: "{}".into() }, 3)).await;
    let sizes: Vec<_> = call.await.unwrap().unwrap().media.iter().map(|m| m.size).collect();
    assert_eq!(sizes, [300_000, 5, 0]);
}

#[tokio::test]
async fn a_wrong_hash_fails_the_request_and_leaves_no_file() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let call = call(&hub, &node, 1);
    socket.invoke().await;
    socket.send(&announce(1, 1, b"abc")).await;
    socket.send(&ToHub::Chunk { transfer: 1, bytes: b"abd".to_vec() }).await;
    socket.send(&node.result(request(1), Outcome::Done { result: "{}".into() }, 1)).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(error.message.contains("hash"), "{error}");
    assert_eq!(std::fs::read_dir(hub.nodes.media().dir()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_aborted_attachment_leaves_the_nodes_own_reason() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let call = call(&hub, &node, 1);
    socket.invoke().await;
    socket.send(&announce(1, 1, &[0; 100])).await;
    socket.send(&ToHub::Chunk { transfer: 1, bytes: vec![0; 10] }).await;
    socket.send(&ToHub::AbortTransfer { transfer: 1 }).await;
    let error = CommandError::new(ErrorCode::Hardware, "the camera was unplugged");
    socket.send(&node.result(request(1), Outcome::Failed(error.clone()), 0)).await;
    assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Failed(error));
    // The file goes when the writer has seen the end.
    tokio::time::timeout(super::tester::SOON, async {
        while std::fs::read_dir(hub.nodes.media().dir()).unwrap().count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn rules_of_the_transfer_are_kept_by_the_hub() {
    let big = ToHub::Attachment(Attachment {
        transfer: 1,
        request: request(1),
        mime: "image/jpeg".into(),
        size: 3,
        sha256: Digest([0; 32]),
    });
    let stranger = ToHub::Attachment(Attachment {
        transfer: 1,
        request: request(77),
        mime: "image/jpeg".into(),
        size: 3,
        sha256: Digest([0; 32]),
    });
    let cases: Vec<(&str, Vec<ToHub>)> = vec![
        ("more than announced", vec![big, ToHub::Chunk { transfer: 1, bytes: vec![0; 4] }]),
        ("never announced", vec![ToHub::Chunk { transfer: 5, bytes: vec![0; 4] }]),
        ("for nobody's request", vec![stranger]),
        ("announced twice", vec![announce(1, 1, &[0; 9]), announce(1, 1, &[0; 9])]),
        ("endless", (1..40).map(|t| announce(t, 1, &[0; 9])).collect()),
    ];
    for (what, frames) in cases {
        let hub = Hub::start().await;
        let mut events = hub.bus.subscribe();
        let node = Node::new(1, "garage");
        let (mut socket, _) = hub.paired(&node).await;
        let call = call(&hub, &node, 1);
        socket.invoke().await;
        for frame in frames {
            socket.send(&frame).await;
        }
        assert_eq!(socket.ended().await, Some(RefusedCode::Protocol), "{what}");
        event(&mut events, super::tester::alarm).await;
        assert!(call.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn an_attachment_over_the_limit_fails_its_request_alone() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let big = call(&hub, &node, 1);
    socket.invoke().await;
    socket
        .send(&ToHub::Attachment(Attachment {
            transfer: 1,
            request: request(1),
            mime: "video/mp4".into(),
            size: MAX_ATTACHMENT + 1,
            sha256: Digest([0; 32]),
        }))
        .await;
    for _ in 0..TRANSFER_WINDOW as usize / CHUNK_SIZE {
        socket.send(&ToHub::Chunk { transfer: 1, bytes: vec![0; CHUNK_SIZE] }).await;
    }
    assert_eq!(big.await.unwrap().unwrap_err().code, ErrorCode::TooLarge);
    assert_eq!(socket.frame().await, Some(ToNode::Cancel { request: request(1) }));
    socket.send(&ToHub::AbortTransfer { transfer: 1 }).await;
    let small = call(&hub, &node, 2);
    socket.invoke().await;
    socket.send(&node.done(request(2), "{}")).await;
    assert!(small.await.unwrap().is_ok());
}

#[tokio::test]
async fn bytes_without_credit_end_the_link() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let call = call(&hub, &node, 1);
    socket.invoke().await;
    // An announcement that is refused gets no credit: beyond the first window nothing may come.
    let attachment = Attachment {
        transfer: 1,
        request: request(1),
        mime: "video/mp4".into(),
        size: MAX_ATTACHMENT + 1,
        sha256: Digest([0; 32]),
    };
    socket.send(&ToHub::Attachment(attachment)).await;
    for _ in 0..=TRANSFER_WINDOW as usize / CHUNK_SIZE {
        socket.send(&ToHub::Chunk { transfer: 1, bytes: vec![0; CHUNK_SIZE] }).await;
    }
    assert_eq!(socket.ended().await, Some(RefusedCode::Protocol));
    assert!(call.await.unwrap().is_err());
}
