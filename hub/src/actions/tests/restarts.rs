//! Nodes that go away and come back, and a hub that is stopped in every state.

use super::*;

fn waiting(world: &World) -> ActionRequest {
    ActionRequest { wait_for_node: true, ..world.write() }
}

#[tokio::test]
async fn a_node_that_is_away_is_said_at_once_or_waited_for() {
    let world = World::new();
    let hub = world.start().await;
    world.node.leave();
    assert_eq!(refused(hub.actions.submit(world.write()).await).code, ErrorCode::NotConnected);
    let id = hub.actions.submit(waiting(&world)).await.unwrap();
    let look = ActionRequest { wait_for_node: true, ..world.request("gpio.read", json!({"pin": "pump"})) };
    let look = hub.actions.submit(look).await.unwrap();
    hub.until(id, ActionState::WaitingForNode).await;
    hub.until(look, ActionState::WaitingForNode).await;
    hub.stop().await;
    // Also over a restart of the hub.
    let hub = world.start().await;
    hub.until(id, ActionState::WaitingForNode).await;
    world.node.come_back(&hub.bus);
    hub.until(id, ActionState::Asking).await;
    assert_eq!(hub.ended(look).await.state, ActionState::Done);
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    hub.stop().await;
}

#[tokio::test]
async fn a_node_that_stays_away_or_is_removed_is_not_waited_for_forever() {
    let mut world = World::new();
    world.config.approvals.device_wait_s = 1;
    let hub = world.start().await;
    world.node.leave();
    let id = hub.actions.submit(waiting(&world)).await.unwrap();
    assert_eq!(hub.code(id).await, ErrorCode::NotConnected);
    hub.stop().await;
    world.config.approvals.device_wait_s = 3600;
    let hub = world.start().await;
    let id = hub.actions.submit(waiting(&world)).await.unwrap();
    hub.until(id, ActionState::WaitingForNode).await;
    *world.node.device_state.lock().unwrap() = DeviceState::Revoked;
    hub.bus.emit(Event::DeviceClosed { device: world.node.id(), code: 1008, reason: "revoked".into() });
    assert_eq!(hub.code(id).await, ErrorCode::Denied);
    hub.stop().await;
}

#[tokio::test]
async fn a_decision_is_kept_while_the_node_is_away_and_over_a_restart() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    let card = hub.actions.card(&id.to_string()).await.unwrap();
    world.node.leave();
    hub.actions.decide(&id.to_string(), Decision::AllowOnce, seen(&card)).await.unwrap();
    hub.until(id, ActionState::Granted).await;
    hub.stop().await;
    let hub = world.start().await;
    hub.until(id, ActionState::Granted).await;
    world.node.restart();
    world.node.come_back(&hub.bus);
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    assert_eq!(world.node.runs().len(), 1);
    hub.stop().await;
}

#[tokio::test]
async fn a_kept_decision_is_not_used_for_something_else() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    let which = id.to_string();
    let card = hub.actions.card(&which).await.unwrap();
    world.node.leave();
    hub.actions.decide(&which, Decision::AllowOnce, seen(&card)).await.unwrap();
    hub.stop().await;
    world.node.change_facts();
    let hub = world.start().await;
    world.node.come_back(&hub.bus);
    hub.until(id, ActionState::Asking).await;
    let approval = hub.actions.approval(&which).await.unwrap();
    assert_eq!(approval.status, ApprovalStatus::Pending);
    assert!(approval.note.unwrap().contains("no longer what was shown"));
    assert!(world.node.runs().is_empty());
    // The same for a node that wants a person by now.
    world.node.set_need("gpio.write", Need::Person);
    assert!(matches!(
        hub.owner(id, Decision::AllowOnce).await,
        Err(ActionError::NotEnough(_) | ActionError::Changed)
    ));
    let card = hub.actions.card(&which).await.unwrap();
    assert_eq!(card.approval.need, Need::Person);
    assert!(matches!(hub.owner(id, Decision::AllowOnce).await, Err(ActionError::NotEnough(_))));
    hub.actions
        .decide(&which, Decision::AllowOnce, signed(&world.person, &card, Decision::AllowOnce))
        .await
        .unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    hub.stop().await;
}

#[tokio::test]
async fn an_allowed_request_of_a_node_that_stays_away_ends_with_its_lifetime() {
    let mut world = World::new();
    world.config.approvals.lifetime_s = 2;
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    world.node.leave();
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    assert_eq!(hub.code(id).await, ErrorCode::ApprovalExpired);
    hub.stop().await;
}

#[tokio::test]
async fn a_question_survives_a_restart_and_the_time_off_does_not_count() {
    let mut world = World::new();
    world.config.approvals.lifetime_s = 4;
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    let before = hub.actions.approval(&id.to_string()).await.unwrap();
    hub.stop().await;
    // Off for longer than the lifetime. Real time must pass: the clock under test is the system's.
    std::thread::sleep(Duration::from_millis(4_200));
    let hub = world.start().await;
    let approval = hub.actions.approval(&id.to_string()).await.unwrap();
    assert_eq!(approval.status, ApprovalStatus::Pending);
    assert!(approval.expires_ms > before.expires_ms + 3_000, "{approval:?} {before:?}");
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    hub.stop().await;
}

#[tokio::test]
async fn a_lost_link_leads_to_the_stored_result_or_to_an_unknown_outcome() {
    for (die, runs, outcome) in [
        (Die::BeforeStart, 1, None),
        (Die::AfterRun, 1, None),
        (Die::AfterStart, 0, Some(ErrorCode::OutcomeUnknown)),
    ] {
        for restart_hub in [false, true] {
            let world = World::new();
            let mut hub = world.start().await;
            let id = hub.asking(world.write()).await;
            world.node.die_at(die);
            hub.owner(id, Decision::AllowOnce).await.unwrap();
            world.node.dead().await;
            hub.until(id, ActionState::Running).await;
            if restart_hub {
                hub.stop().await;
                hub = world.start().await;
                hub.until(id, ActionState::Running).await;
            }
            world.node.restart();
            world.node.come_back(&hub.bus);
            let action = hub.ended(id).await;
            assert_eq!(action.error.map(|e| e.code), outcome, "{die:?}, hub restarted: {restart_hub}");
            assert_eq!(world.node.runs().len(), runs, "{die:?}, hub restarted: {restart_hub}");
            assert!(hub.audit.verify().await.unwrap().is_sound());
            hub.stop().await;
        }
    }
}

#[tokio::test]
async fn a_persons_grant_that_was_lost_is_asked_for_again() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.request("system.run", json!({"command": ["uptime"]}))).await;
    let which = id.to_string();
    let card = hub.actions.card(&which).await.unwrap();
    world.node.die_at(Die::BeforeStart);
    hub.actions
        .decide(&which, Decision::AllowOnce, signed(&world.person, &card, Decision::AllowOnce))
        .await
        .unwrap();
    world.node.dead().await;
    hub.until(id, ActionState::Running).await;
    hub.stop().await;
    let hub = world.start().await;
    world.node.come_back(&hub.bus);
    hub.until(id, ActionState::Asking).await;
    assert!(world.node.runs().is_empty());
    let card = hub.actions.card(&which).await.unwrap();
    hub.actions
        .decide(&which, Decision::AllowOnce, signed(&world.person, &card, Decision::AllowOnce))
        .await
        .unwrap();
    assert_eq!(hub.ended(id).await.state, ActionState::Done);
    hub.stop().await;
}

#[tokio::test]
async fn what_ran_on_a_foreign_node_at_a_stop_is_reported_not_repeated() {
    let world = World::of(LinkKind::Json);
    let hub = world.start().await;
    let id = hub.asking(world.request("canvas.present", json!({}))).await;
    world.node.stall();
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    hub.until(id, ActionState::Running).await;
    hub.stop().await;
    let hub = world.start().await;
    assert_eq!(hub.code(id).await, ErrorCode::OutcomeUnknown);
    assert!(world.node.runs().is_empty());
    hub.stop().await;
}

#[tokio::test]
async fn withdrawn_after_it_was_sent_it_is_not_sent_again() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    world.node.die_at(Die::BeforeStart);
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    world.node.dead().await;
    hub.until(id, ActionState::Running).await;
    hub.actions.cancel(id, "terminal: owner").await.unwrap();
    assert_eq!(hub.code(id).await, ErrorCode::OutcomeUnknown);
    world.node.come_back(&hub.bus);
    assert!(world.node.runs().is_empty());
    hub.stop().await;
}

#[tokio::test]
async fn rules_that_changed_while_it_waited_count() {
    let mut world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    world.node.leave();
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    hub.stop().await;
    world.config.nodes.deny = vec!["gpio.write".into()];
    let hub = world.start().await;
    world.node.come_back(&hub.bus);
    assert_eq!(hub.code(id).await, ErrorCode::Denied);
    assert!(world.node.runs().is_empty());
    hub.stop().await;
}

#[tokio::test]
async fn old_actions_go_and_the_log_stays() {
    let mut world = World::new();
    world.config.retention.actions_days = 30;
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    hub.owner(id, Decision::Deny).await.unwrap();
    hub.ended(id).await;
    let open = hub.asking(world.write()).await;
    assert_eq!(hub.actions.prune().await.unwrap(), 0);
    hub.store
        .write(|t| Ok(t.execute("UPDATE actions SET finished_ms = finished_ms - 31 * 86400000", [])?))
        .await
        .unwrap();
    assert_eq!(hub.actions.prune().await.unwrap(), 1);
    assert!(hub.actions.approval(&id.to_string()).await.is_err());
    assert!(hub.actions.approval(&open.to_string()).await.is_ok());
    assert!(hub.audit.verify().await.unwrap().is_sound());
    hub.stop().await;
}

#[tokio::test]
async fn a_changed_record_is_named() {
    let world = World::new();
    let hub = world.start().await;
    let id = hub.asking(world.write()).await;
    hub.owner(id, Decision::AllowOnce).await.unwrap();
    hub.ended(id).await;
    hub.store
        .write(|t| {
            let sql =
                "UPDATE audit SET body = replace(body, 'allow-once', 'deny') WHERE kind = 'approval.decided'";
            Ok(t.execute(sql, [])?)
        })
        .await
        .unwrap();
    assert_eq!(
        hub.audit.verify().await.unwrap().fault.as_deref(),
        Some("record 3 was changed: its hash does not fit")
    );
    hub.stop().await;
}

#[tokio::test]
async fn stopped_at_any_moment_every_request_still_runs_exactly_once() {
    let world = World::new();
    let mut ids = Vec::new();
    for round in 0..20 {
        let hub = world.start().await;
        let mut events = hub.bus.subscribe();
        let params = json!({"pin": "pump", "value": round % 2 == 0});
        let request = world.request("gpio.write", params);
        ids.push(hub.actions.submit(request).await.unwrap());
        // A little further every time, in the middle of whatever is going on then.
        for _ in 0..round {
            match tokio::time::timeout(Duration::from_millis(300), events.recv()).await {
                Ok(Ok(Event::ApprovalRequested { id })) => drop(hub.owner(id, Decision::AllowOnce).await),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        hub.stop().await;
    }
    let hub = world.start().await;
    let mut events = hub.bus.subscribe();
    for id in &ids {
        loop {
            let action = hub.actions.get(*id).await.unwrap().unwrap();
            match action.state {
                ActionState::Done => break,
                ActionState::Failed => panic!("{action:?}"),
                ActionState::Asking => drop(hub.owner(*id, Decision::AllowOnce).await),
                _ => drop(tokio::time::timeout(PATIENCE, events.recv()).await.expect("it goes on")),
            }
        }
    }
    assert_eq!(world.node.runs().len(), ids.len());
    assert!(hub.audit.verify().await.unwrap().is_sound());
    hub.stop().await;
}
