//! What is declared later waits; what was approved works on.

use super::tester::{Hub, Node, event, invoke, request};
use crate::bus::Event;
use crate::nodes::NodeError;
use hearth_shared::command::{Class, Need};
use hearth_shared::error::ErrorCode;
use hearth_shared::limits::MAX_NODE_CHANGES_AN_HOUR;
use hearth_shared::link::{CommandDecl, Knock, RefusedCode, ToHub, ToNode};

fn add_command(node: &mut Node, name: &str) {
    node.declaration.commands.push(CommandDecl { name: name.into(), class: Class::Actuate, need: Need::Hub });
    node.declaration.commands.sort_by(|a, b| a.name.cmp(&b.name));
}

fn requested(event: Event) -> Option<String> {
    match event {
        Event::SurfaceRequested { request_id, .. } => Some(request_id),
        _ => None,
    }
}

#[tokio::test]
async fn additions_wait_for_a_person_and_then_work_at_once() {
    let hub = Hub::start().await;
    let mut events = hub.bus.subscribe();
    let mut node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    add_command(&mut node, "gpio.write");
    socket.send(&ToHub::Declare { declaration: node.declaration.encode() }).await;
    let request_id = event(&mut events, requested).await;
    let view = hub.nodes.find("garage").await.unwrap();
    assert_eq!(view.pending, ["gpio.write"]);
    assert_eq!(view.pending_request.as_deref(), Some(request_id.as_str()));
    let connection = hub.connection(&node);
    let error = connection.invoke(invoke(1, "gpio.write", 1_000)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotApproved);
    let works = tokio::spawn(async move { connection.invoke(invoke(2, "gpio.list", 5_000)).await });
    socket.invoke().await;
    socket.send(&node.done(request(2), "1")).await;
    assert!(works.await.unwrap().is_ok(), "the approved part works on");

    // The same addition declared again is the same request.
    drop(socket);
    event(&mut events, |e| matches!(e, Event::NodeDisconnected { .. }).then_some(())).await;
    let (mut socket, welcome) = hub.connect(&node, Knock::Paired).await.unwrap();
    assert!(!welcome.approved.contains(&"gpio.write".to_string()));
    assert_eq!(hub.nodes.find("garage").await.unwrap().pending_request, Some(request_id.clone()));
    let view = hub.nodes.approve_surface(&request_id, "test").await.unwrap();
    assert!(view.pending.is_empty() && view.commands().contains(&"gpio.write"));
    match socket.frame().await {
        Some(ToNode::Surface { approved }) => assert!(approved.contains(&"gpio.write".to_string())),
        other => panic!("{other:?}"),
    }
    let connection = hub.connection(&node);
    let works = tokio::spawn(async move { connection.invoke(invoke(3, "gpio.write", 5_000)).await });
    assert_eq!(socket.invoke().await.command, "gpio.write");
    socket.send(&node.done(request(3), "1")).await;
    assert!(works.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_refused_addition_is_not_asked_again_and_can_be_taken_in_later() {
    let hub = Hub::start().await;
    let mut events = hub.bus.subscribe();
    let mut node = Node::new(1, "garage");
    drop(hub.paired(&node).await);
    add_command(&mut node, "gpio.write");
    event(&mut events, |e| matches!(e, Event::NodeDisconnected { .. }).then_some(())).await;
    let (socket, _) = hub.connect(&node, Knock::Paired).await.unwrap();
    event(&mut events, requested).await;
    hub.nodes.reject_surface("garage", "test").await.unwrap();
    drop(socket);
    event(&mut events, |e| matches!(e, Event::NodeDisconnected { .. }).then_some(())).await;
    let _socket = hub.connect(&node, Knock::Paired).await.unwrap();
    let view = hub.nodes.find("garage").await.unwrap();
    assert!(view.pending.is_empty() && view.pending_request.is_none());
    assert_eq!(view.refused, ["gpio.write"]);
    let view = hub.nodes.approve_surface("garage", "test").await.unwrap();
    assert!(view.refused.is_empty() && view.commands().contains(&"gpio.write"));
    assert!(matches!(hub.nodes.approve_surface("garage", "test").await, Err(NodeError::NothingPending(_))));
}

#[tokio::test]
async fn nodes_are_found_by_name_prefix_and_id() {
    let hub = Hub::start().await;
    let (a, b) = (Node::new(1, "Gewächshaus"), Node::new(2, "温室"));
    let _a = hub.paired(&a).await;
    let _b = hub.paired(&b).await;
    let id = a.key.device_id().to_string();
    for which in ["GEWÄCHSHAUS", &id[..8], &id] {
        assert_eq!(hub.nodes.find(which).await.unwrap().device.id, a.key.device_id(), "{which}");
    }
    assert_eq!(hub.nodes.find("温室").await.unwrap().device.id, b.key.device_id());
    assert!(matches!(hub.nodes.find("nowhere").await, Err(NodeError::Unknown(_))));
    hub.devices.rename("温室", "gewächshaus").await.unwrap();
    assert!(matches!(hub.nodes.find("Gewächshaus").await, Err(NodeError::Ambiguous(_))));
}

#[tokio::test]
async fn a_node_that_declares_without_end_is_shut_out_and_fills_no_log() {
    let hub = Hub::start().await;
    let mut node = Node::new(1, "garage");
    let (mut socket, _) = hub.paired(&node).await;
    let mut events = hub.bus.subscribe();
    let plain = node.declaration.clone();
    add_command(&mut node, "gpio.write");
    let (more, plain) = (node.declaration.encode(), plain.encode());
    // Paired with one; each of these is stored before the next is sent, so that none is too fast.
    for n in 0..=MAX_NODE_CHANGES_AN_HOUR {
        let declaration = if n % 2 == 0 { more.clone() } else { plain.clone() };
        socket.send(&ToHub::Declare { declaration }).await;
        if n + 1 < MAX_NODE_CHANGES_AN_HOUR {
            event(&mut events, |e| matches!(e, Event::PresenceChanged).then_some(())).await;
        }
    }
    let refused = loop {
        match socket.frame().await {
            Some(ToNode::Refused(refused)) => break refused,
            Some(_) => {}
            None => panic!("it is shut out with a word"),
        }
    };
    assert!(refused.message.contains("within an hour"), "{refused:?}");
    let declared = hub.audit_kinds().await.into_iter().filter(|k| k == "node.declared").count();
    assert!(declared <= MAX_NODE_CHANGES_AN_HOUR, "{declared}");

    // With what is stored it may come back; with anything else not.
    event(&mut events, |e| matches!(e, Event::NodeDisconnected { .. }).then_some(())).await;
    add_command(&mut node, "gpio.pulse");
    assert_eq!(hub.refused(&node, Knock::Paired).await, RefusedCode::RateLimited);
}
