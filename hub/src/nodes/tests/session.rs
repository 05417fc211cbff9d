//! Requests, time limits, and nodes that lie.

use super::tester::{Hub, Node, SOON, alarm, event, invoke, request};
use crate::bus::Event;
use hearth_shared::error::ErrorCode;
use hearth_shared::link::{Outcome, RefusedCode, ToHub, ToNode};
use std::time::Duration;

#[tokio::test]
async fn many_requests_at_once_are_told_apart() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let connection = hub.connection(&node);
    let calls: Vec<_> = (1..=40u8)
        .map(|n| {
            let connection = connection.clone();
            tokio::spawn(async move { connection.invoke(invoke(n, "gpio.list", 5_000)).await })
        })
        .collect();
    let mut requests = Vec::new();
    for _ in 0..40 {
        requests.push(socket.invoke().await.request);
    }
    for request in requests.iter().rev() {
        socket.send(&node.done(*request, &format!("{}", request.0[0]))).await;
    }
    for (i, call) in calls.into_iter().enumerate() {
        let reply = call.await.unwrap().unwrap();
        assert_eq!(reply.outcome, Outcome::Done { result: format!("{}", i + 1) });
    }
}

#[tokio::test]
async fn undeclared_and_doubled_requests_never_leave_the_hub() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let connection = hub.connection(&node);
    let error = connection.invoke(invoke(1, "system.run", 1_000)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::UnknownCommand);
    let first = {
        let connection = connection.clone();
        tokio::spawn(async move { connection.invoke(invoke(2, "gpio.list", 5_000)).await })
    };
    assert_eq!(socket.invoke().await.request, request(2));
    let error = connection.invoke(invoke(2, "gpio.list", 5_000)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Busy);
    socket.send(&node.done(request(2), "1")).await;
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_silent_request_times_out_and_is_withdrawn() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let connection = hub.connection(&node);
    let call = tokio::spawn(async move { connection.invoke(invoke(1, "gpio.list", 1)).await });
    assert_eq!(socket.invoke().await.request, request(1));
    assert_eq!(socket.frame().await, Some(ToNode::Cancel { request: request(1) }));
    assert_eq!(call.await.unwrap().unwrap_err().code, ErrorCode::Timeout);
    // Its late answer is no lie, and the link goes on.
    socket.send(&node.done(request(1), "1")).await;
    let connection = hub.connection(&node);
    let call = tokio::spawn(async move { connection.invoke(invoke(2, "gpio.list", 1)).await });
    socket.invoke().await;
    socket.send(&node.done(request(2), "2")).await;
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn cancel_reaches_the_node_and_its_result_the_caller() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let connection = hub.connection(&node);
    let caller = connection.clone();
    let call = tokio::spawn(async move { caller.invoke(invoke(1, "gpio.list", 10_000)).await });
    socket.invoke().await;
    connection.cancel(request(1));
    assert_eq!(socket.frame().await, Some(ToNode::Cancel { request: request(1) }));
    let error = hearth_shared::error::CommandError::new(ErrorCode::Cancelled, "withdrawn");
    socket.send(&node.result(request(1), Outcome::Failed(error.clone()), 0)).await;
    assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Failed(error));
}

#[tokio::test]
async fn who_waits_hears_when_the_link_ends() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let connection = hub.connection(&node);
    let call = tokio::spawn(async move { connection.invoke(invoke(1, "gpio.list", 60_000)).await });
    socket.invoke().await;
    drop(socket);
    let error = tokio::time::timeout(SOON, call).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::NotConnected);
}

#[tokio::test]
async fn a_bad_receipt_and_an_invented_result_end_the_link_with_an_alarm() {
    for invented in [false, true] {
        let hub = Hub::start().await;
        let mut events = hub.bus.subscribe();
        let node = Node::new(1, "garage");
        let (mut socket, _) = hub.paired(&node).await;
        let connection = hub.connection(&node);
        let call = tokio::spawn(async move { connection.invoke(invoke(1, "gpio.list", 60_000)).await });
        socket.invoke().await;
        let mut frame = node.done(request(if invented { 9 } else { 1 }), "1");
        if let (false, ToHub::Result(result)) = (invented, &mut frame) {
            result.receipt.0[3] ^= 1;
        }
        socket.send(&frame).await;
        let error = call.await.unwrap().unwrap_err();
        let expected = if invented { ErrorCode::NotConnected } else { ErrorCode::OutcomeUnknown };
        assert_eq!(error.code, expected);
        assert!(event(&mut events, alarm).await.contains("garage"));
        assert_eq!(socket.ended().await, Some(RefusedCode::Signature));
        assert!(hub.audit_kinds().await.contains(&"node.violation".to_string()));
    }
}

#[tokio::test]
async fn a_silent_node_is_dropped_after_two_ticks_and_a_talking_one_is_not() {
    let tick = Duration::from_millis(200);
    let hub = Hub::with_tick(tick).await;
    let mut events = hub.bus.subscribe();
    let node = Node::new(1, "garage");
    let (mut socket, welcome) = hub.paired(&node).await;
    assert_eq!(welcome.tick_ms, 200);
    let until = tokio::time::Instant::now() + 6 * tick;
    let mut pings = 0;
    while tokio::time::Instant::now() < until {
        if let Some(ToNode::Ping { id, .. }) = socket.next().await {
            pings += 1;
            socket.send(&ToHub::Pong { id, mono_ms: 1, wall_ms: None }).await;
        }
    }
    assert!(pings >= 4, "{pings} pings");
    assert!(hub.nodes.find("garage").await.unwrap().connected);
    let reason = event(&mut events, |e| match e {
        Event::NodeDisconnected { reason, .. } => Some(reason),
        _ => None,
    })
    .await;
    assert_eq!(reason, "heartbeat_timeout");
}

#[tokio::test]
async fn a_stopping_hub_says_goodbye() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    hub.tasks.stop.cancel();
    assert!(matches!(socket.frame().await, Some(ToNode::Goodbye { .. })));
    assert_eq!(socket.next().await, None);
    hub.tasks.tracker.close();
    tokio::time::timeout(SOON, hub.tasks.tracker.wait()).await.expect("every task ends");
}

#[tokio::test]
async fn frames_out_of_place_end_the_link() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    drop(hub.paired(&node).await);
    for frame in [ToHub::WordsConfirmed, ToHub::Declare { declaration: vec![1, 2, 3] }] {
        let (mut socket, _) = hub.connect_when_free(&node).await;
        socket.send(&frame).await;
        assert_eq!(socket.ended().await, Some(RefusedCode::Protocol), "{frame:?}");
    }
}
