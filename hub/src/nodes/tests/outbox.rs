//! Exactly once, and when it was.

use super::tester::{Hub, Node, Socket, event, invoke, request};
use crate::bus::Event;
use crate::store::now_ms;
use hearth_shared::link::{Knock, RefusedCode, ToHub, ToNode};
use hearth_shared::reading::{Body, BootId, Epoch, Item, Mark};

const DAY: u64 = 24 * 3_600_000;

fn reading(node: &Node, seq: u64, mono_ms: u64, value: f64) -> Item {
    let body = Body::Reading { sensor: "temp".into(), value };
    Item { seq, boot: node.boot, mono_ms, wall_ms: None, body }
}

async fn acked(socket: &mut Socket) -> Mark {
    match socket.frame().await {
        Some(ToNode::OutboxAck(mark)) => mark,
        other => panic!("no acknowledgement: {other:?}"),
    }
}

async fn count(hub: &Hub) -> u64 {
    let stats = hub.nodes.readings().stats(
        hub.nodes.find("garage").await.unwrap().device.id,
        "temp",
        0,
        now_ms() + DAY,
    );
    stats.await.unwrap().map_or(0, |s| s.count)
}

#[tokio::test]
async fn every_item_is_stored_once_over_duplicates_and_reconnects() {
    let hub = Hub::start().await;
    let mut events = hub.bus.subscribe();
    let node = Node::new(1, "garage");
    let (mut socket, welcome) = hub.paired(&node).await;
    assert_eq!(welcome.mark, None);
    let items: Vec<_> = (1..=10).map(|n| reading(&node, n, 100 * n, n as f64)).collect();
    let batch =
        |range: std::ops::Range<usize>| ToHub::Outbox { epoch: node.epoch, items: items[range].to_vec() };
    socket.send(&batch(0..4)).await;
    assert_eq!(acked(&mut socket).await.seq, 4);
    socket.send(&batch(0..4)).await;
    assert_eq!(acked(&mut socket).await.seq, 4, "the acknowledgement was lost: the same again");
    socket.send(&batch(2..8)).await;
    assert_eq!(acked(&mut socket).await.seq, 8, "overlap");
    drop(socket);
    event(&mut events, |e| matches!(e, Event::NodeDisconnected { .. }).then_some(())).await;
    let (mut socket, welcome) = hub.connect(&node, Knock::Paired).await.unwrap();
    assert_eq!(welcome.mark, Some(Mark { epoch: node.epoch, seq: 8 }));
    socket.send(&batch(6..10)).await;
    assert_eq!(acked(&mut socket).await.seq, 10);
    assert_eq!(count(&hub).await, 10);
    // A new epoch begins at one again.
    let epoch = Epoch([99; 16]);
    socket.send(&ToHub::Outbox { epoch, items: items[..2].to_vec() }).await;
    assert_eq!(acked(&mut socket).await, Mark { epoch, seq: 2 });
    assert_eq!(count(&hub).await, 12);
}

#[tokio::test]
async fn a_gap_is_refused_and_a_loss_before_the_connection_is_counted() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let id = node.key.device_id();
    let batch = |seq: u64| ToHub::Outbox { epoch: node.epoch, items: vec![reading(&node, seq, seq, 1.0)] };
    socket.send(&batch(5)).await;
    assert_eq!(acked(&mut socket).await.seq, 5, "the node dropped its oldest before it came");
    assert_eq!(hub.nodes.losses(id).await.unwrap(), (4, 0));
    socket.send(&batch(9)).await;
    assert_eq!(socket.frame().await, None, "a gap on a running link: begin anew");
    assert_eq!(count(&hub).await, 1);
}

#[tokio::test]
async fn events_go_on_the_bus_once_and_nonsense_is_counted_not_stored() {
    let hub = Hub::start().await;
    let mut events = hub.bus.subscribe();
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let mut items = vec![
        reading(&node, 1, 1, f64::NAN),
        reading(&node, 2, 2, 1.0),
        reading(&node, 3, 3, 1.0),
        reading(&node, 4, 4, 1.0),
        reading(&node, 5, 5, 1.0),
    ];
    items[1].body = Body::Event { kind: "gpio.edge".into(), json: "{\"pin\":\"button\"}".into() };
    items[2].body = Body::Event { kind: "gpio edge\n".into(), json: "{}".into() };
    items[3].body = Body::Event { kind: "x".into(), json: "{".into() };
    items[4].body = Body::Dropped { readings: 7 };
    let batch = ToHub::Outbox { epoch: node.epoch, items };
    socket.send(&batch).await;
    acked(&mut socket).await;
    socket.send(&batch).await;
    acked(&mut socket).await;
    let mut kinds = Vec::new();
    while let Ok(e) = events.try_recv() {
        if let Event::NodeEvent { kind, at_ms, .. } = e {
            assert!(at_ms.is_some(), "the hub's clock dates it");
            kinds.push(kind);
        }
    }
    assert_eq!(kinds, ["gpio.edge", "outbox.dropped"]);
    assert_eq!(hub.nodes.losses(node.key.device_id()).await.unwrap(), (7, 3));
}

#[tokio::test]
async fn the_hubs_clock_dates_until_the_node_has_a_better_one() {
    let hub = Hub::start().await;
    let mut node = Node::new(1, "garage");
    node.mono_ms = 60_000;
    let (id, before) = (node.key.device_id(), now_ms());
    let (mut socket, _) = hub.paired(&node).await;
    let after = now_ms();
    let send = |items| ToHub::Outbox { epoch: node.epoch, items };
    socket.send(&send(vec![reading(&node, 1, 50_000, 1.0), reading(&node, 2, 51_000, 5.0)])).await;
    acked(&mut socket).await;
    let readings = hub.nodes.readings();
    let points = readings.series(id, "temp", 0, u64::MAX, 10).await.unwrap();
    assert!((before - 10_000..=after - 10_000).contains(&points[0].at), "ten seconds before the hello");
    // The network has set the node's clock, and it shows that the hub's was a day ahead.
    let wall = before - DAY;
    let known = Item { wall_ms: Some(wall), ..reading(&node, 3, 52_000, 3.0) };
    socket.send(&send(vec![known])).await;
    acked(&mut socket).await;
    let points = readings.series(id, "temp", 0, u64::MAX, 10).await.unwrap();
    assert_eq!(points.iter().map(|p| p.at).collect::<Vec<_>>(), [wall - 2_000, wall - 1_000, wall]);
    let stats = readings.stats(id, "temp", 0, now_ms() + DAY).await.unwrap().unwrap();
    assert_eq!((stats.count, stats.min, stats.max, stats.mean), (3, 1.0, 5.0, 3.0), "summaries moved along");
    assert_eq!(readings.stats(id, "temp", before - 3_600_000, now_ms() + DAY).await.unwrap(), None);
    assert_eq!(readings.sensors().await.unwrap(), [(id, "temp".to_string(), 3.0, wall)]);
}

#[tokio::test]
async fn starts_the_hub_never_saw_are_dated_by_the_next_one() {
    let hub = Hub::start().await;
    let mut node = Node::new(1, "garage");
    node.mono_ms = 10_000;
    node.next = 4;
    let now = now_ms();
    let (mut socket, _) = hub.paired(&node).await;
    let began = now - 10_000;
    let mut items =
        vec![reading(&node, 1, 1_000, 1.0), reading(&node, 2, 61_000, 2.0), reading(&node, 3, 500, 3.0)];
    items[0].boot = BootId([50; 16]);
    items[1].boot = BootId([50; 16]);
    socket.send(&ToHub::Outbox { epoch: node.epoch, items }).await;
    acked(&mut socket).await;
    let points = hub.nodes.readings().series(node.key.device_id(), "temp", 0, u64::MAX, 10).await.unwrap();
    let at: Vec<_> = points.iter().map(|p| p.at).collect();
    assert_eq!(points.len(), 3);
    assert!(at[1].abs_diff(began) < 3_000, "the old start ended at the latest when the new one began");
    assert_eq!(at[1] - at[0], 60_000, "distances within a start are exact");
    assert!(at[2].abs_diff(began + 500) < 3_000);
}

#[tokio::test]
async fn a_clock_that_is_learnt_later_dates_what_waited_and_corrects_estimates() {
    let hub = Hub::start().await;
    let mut node = Node::new(1, "garage");
    node.next = 10;
    let (mut socket, _) = hub.paired(&node).await;
    let old = BootId([50; 16]);
    let item =
        |seq, mono_ms, wall_ms| Item { boot: old, wall_ms, ..reading(&node, seq, mono_ms, seq as f64) };
    // Nothing is known of this start yet: its readings wait.
    let batch = ToHub::Outbox { epoch: node.epoch, items: vec![item(1, 1_000, None), item(2, 2_000, None)] };
    socket.send(&batch).await;
    acked(&mut socket).await;
    assert_eq!(count(&hub).await, 0);
    assert_eq!(hub.nodes.usage().await.unwrap().readings_undated, 2);
    // Then its clock was set by the network, two days ago.
    let wall = now_ms() - 2 * DAY;
    socket.send(&ToHub::Outbox { epoch: node.epoch, items: vec![item(3, 3_000, Some(wall))] }).await;
    acked(&mut socket).await;
    let points = hub.nodes.readings().series(node.key.device_id(), "temp", 0, u64::MAX, 10).await.unwrap();
    assert_eq!(points.iter().map(|p| p.at).collect::<Vec<_>>(), [wall - 2_000, wall - 1_000, wall]);
}

#[tokio::test]
async fn a_full_card_makes_readings_wait_and_nothing_else() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    drop(hub.paired(&node).await);
    hub.fill_database().await;
    let (mut socket, _) = hub.connect_when_free(&node).await;
    let batch = |seq: u64| {
        let event = |n| Item {
            body: Body::Event { kind: "test".into(), json: format!("\"{}\"", "x".repeat(4_000)) },
            ..reading(&node, n, n, 1.0)
        };
        ToHub::Outbox { epoch: node.epoch, items: (seq..seq + 20).map(event).collect() }
    };
    socket.send(&batch(1)).await;
    // Requests are answered while the batch waits.
    let connection = hub.connection(&node);
    let call = tokio::spawn(async move { connection.invoke(invoke(1, "gpio.list", 5_000)).await });
    socket.invoke().await;
    socket.send(&node.done(request(1), "1")).await;
    assert!(call.await.unwrap().is_ok());
    assert!(hub.nodes.find("garage").await.unwrap().connected);
    assert_eq!(hub.nodes.outbox_mark(node.key.device_id(), node.epoch).await.unwrap(), None, "not stored");
    hub.free_database().await;
    assert_eq!(acked(&mut socket).await.seq, 20, "and goes on by itself");
}

#[tokio::test]
async fn a_node_that_begins_its_outbox_anew_without_end_is_shut_out() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let batch = |n: u16| {
        let mut epoch = Epoch([0; 16]);
        epoch.0[..2].copy_from_slice(&n.to_be_bytes());
        ToHub::Outbox { epoch, items: vec![reading(&node, 1, 100, 1.0)] }
    };
    for n in 0..256 {
        socket.send(&batch(n)).await;
        assert_eq!(acked(&mut socket).await.seq, 1);
    }
    socket.send(&batch(256)).await;
    assert_eq!(socket.ended().await, Some(RefusedCode::Protocol));
}
