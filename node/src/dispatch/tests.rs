mod grants;
mod once;
mod rig;

use super::bounds::{MAX_MESSAGE, MAX_RESULT};
use super::*;
use crate::capability::Output;
use hearth_shared::approver::{ApproverKind, ApproversChange};
use hearth_shared::limits::{DEFAULT_TIMEOUT_MS, MAX_ATTACHMENT, MAX_TIMEOUT_MS};
use rig::*;
use std::sync::atomic::Ordering;

const LET_PULSE: &str = "[[policy.rule]]\ncommand = 'gpio.pulse'\nneed = 'none'\n";

#[tokio::test]
async fn what_observes_runs_at_once_and_leaves_no_record() {
    let rig = Rig::new("");
    let before = rig.guard.head();
    let reply = rig.invoke(&invoke(1, "gpio.list", "{}")).await;
    assert_eq!(done(&reply), r#"{"run":1}"#);
    assert_eq!(rig.guard.head(), before);
    // The same request may look again.
    assert_eq!(done(&rig.invoke(&invoke(1, "gpio.list", "{}")).await), r#"{"run":2}"#);
    assert_eq!(
        failed(&rig.invoke(&invoke(2, "gpio.read", r#"{"pin":"none"}"#)).await).code,
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused_with_the_reason() {
    let rig = Rig::new("");
    for (command, params, code) in [
        ("gpio.explode", "{}", ErrorCode::UnknownCommand),
        ("sensor.list", "{}", ErrorCode::UnknownCommand),
        ("gpio.pulse", r#"{"pin":"pump","durationMs":0}"#, ErrorCode::InvalidParams),
        ("gpio.pulse", r#"{"pin":"pump","durationMs":5,"approved":true}"#, ErrorCode::InvalidParams),
        ("gpio.pulse", "\u{0}", ErrorCode::InvalidParams),
    ] {
        assert_eq!(failed(&rig.invoke(&invoke(1, command, params)).await).code, code);
        assert_eq!(rig.ask_fails(&invoke(1, command, params)).await.code, code);
    }
    assert_eq!(rig.board.runs(), 0);
}

#[tokio::test]
async fn a_rule_lets_it_run_and_both_ends_of_it_are_recorded() {
    let rig = Rig::new(LET_PULSE);
    let mut asking = pulse(1);
    asking.head = Head { seq: 77, hash: Digest([7; 32]) };
    let reply = rig.invoke(&asking).await;
    assert_eq!(done(&reply), r#"{"run":1}"#);
    assert_eq!(reply.frame.head, rig.guard.head(), "the receipt covers the record of this outcome");
    assert_eq!(rig.kinds(), ["node.started", "paired", "request.started", "request.finished"]);
    let started = &rig.guard.audit_records(2, 1).unwrap()[0];
    assert!(started.body.contains("\"seq\":77"), "the hub's head stands in it: {}", started.body);
    assert!(!started.body.contains("20000"), "parameters as a digest only: {}", started.body);
}

#[tokio::test]
async fn a_denial_names_the_rule_and_is_recorded() {
    let rig = Rig::new("[[policy.rule]]\ncommand = 'gpio.pulse'\nneed = 'deny'\n");
    let error = failed(&rig.invoke(&pulse(1)).await);
    assert_eq!(error.code, ErrorCode::Denied);
    assert!(error.message.contains("policy rule 1") && error.message.contains("only the owner"), "{error}");
    assert_eq!(rig.ask_fails(&pulse(1)).await.code, ErrorCode::Denied);
    assert_eq!(rig.audited("request.refused"), 2);
    assert_eq!(rig.board.runs(), 0);
}

#[tokio::test]
async fn the_hub_may_raise_the_need_and_the_challenge_keeps_it() {
    let rig = Rig::new(LET_PULSE);
    let mut raised = pulse(1);
    raised.raise = Need::Person;
    assert_eq!(asked(&rig.invoke(&raised).await), Need::Person);
    let (challenge, signed) = rig.ask(&raised).await;
    assert_eq!(challenge.need, Need::Person);
    let by_hub = Grant::sign(&rig.hub, signed.digest(), Decision::AllowOnce, 1);
    assert_eq!(failed(&rig.grant(request(1), by_hub).await).code, ErrorCode::GrantRefused);
    let by_person = Grant::sign(&rig.person, signed.digest(), Decision::AllowOnce, 1);
    done(&rig.grant(request(1), by_person).await);
    // It never lowers: a program still needs a person.
    let run = invoke(2, "system.run", r#"{"command":["/usr/bin/uptime"]}"#);
    assert_eq!(asked(&rig.invoke(&run).await), Need::Person);
}

#[tokio::test]
async fn where_nobody_can_say_yes_that_is_said_at_once() {
    let rig = Rig::hub_only("");
    let mut raised = pulse(1);
    raised.raise = Need::Person;
    for error in [failed(&rig.invoke(&raised).await), rig.ask_fails(&raised).await] {
        assert_eq!(error.code, ErrorCode::NobodyToAsk);
        assert!(error.message.contains("hearth-node approvers"), "{error}");
    }
    // Until a person's key is enrolled, a program needs the hub's word, and the rule says so.
    let run = invoke(2, "system.run", r#"{"command":["/usr/bin/uptime"]}"#);
    let reply = rig.invoke(&run).await;
    let Outcome::ApprovalRequired { need: Need::Hub, rule, .. } = &reply.frame.outcome else { panic!() };
    assert!(rule.contains("as hub until"), "{rule}");
}

#[tokio::test]
async fn the_first_camera_is_named_before_anybody_is_asked() {
    let rig = Rig::new("");
    let (challenge, _) = rig.ask(&invoke(1, "camera.snap", "{}")).await;
    assert_eq!(challenge.params["deviceId"], "cam0");
    assert_eq!(challenge.params["maxWidth"], 1600, "defaults are filled in");
}

#[tokio::test]
async fn two_requests_never_share_a_last_use() {
    let rig = Rig::new("[[policy.rule]]\ncommand = 'gpio.pulse'\nneed = 'none'\nuses = 1\n");
    let (a, b) = (pulse(1), pulse(2));
    let (a, b) = tokio::join!(rig.invoke(&a), rig.invoke(&b));
    let limited = [a, b]
        .into_iter()
        .filter(|r| matches!(&r.frame.outcome, Outcome::Failed(e) if e.code == ErrorCode::RateLimited));
    assert_eq!((limited.count(), rig.board.runs()), (1, 1));
    let rig = rig.restart().await;
    assert_eq!(failed(&rig.invoke(&pulse(3)).await).code, ErrorCode::RateLimited, "counted on the disk");
}

#[tokio::test]
async fn withdrawn_before_the_start_nothing_happens_and_after_it_the_board_stops() {
    let rig = Rig::new(LET_PULSE);
    rig.board.gate.forget_permits(1_000);
    let running = tokio::spawn({
        let dispatcher = rig.dispatcher.clone();
        async move { dispatcher.invoke(pulse(1)).await }
    });
    rig.board.started.acquire().await.unwrap().forget();
    rig.dispatcher.cancel(&request(1));
    let reply = running.await.unwrap();
    assert_eq!(failed(&reply).code, ErrorCode::Cancelled);
    assert_eq!(failed(&rig.invoke(&pulse(1)).await).code, ErrorCode::Cancelled, "that is its stored outcome");

    let (_, signed) = rig.ask(&invoke(2, "gpio.write", r#"{"pin":"pump","value":true}"#)).await;
    rig.dispatcher.cancel(&request(2));
    let grant = Grant::sign(&rig.person, signed.digest(), Decision::AllowOnce, 1);
    assert_eq!(failed(&rig.grant(request(2), grant).await).code, ErrorCode::GrantRefused);
    assert_eq!(rig.board.runs(), 0);

    // The link may hear of the end before the task of the beginning runs.
    rig.dispatcher.cancel(&request(3));
    assert_eq!(failed(&rig.invoke(&pulse(3)).await).code, ErrorCode::Cancelled);
    rig.dispatcher.cancel(&request(4));
    assert_eq!(rig.ask_fails(&pulse(4)).await.code, ErrorCode::Cancelled);
    assert_eq!(rig.board.runs(), 0);
    rig.dispatcher.shutdown(Duration::from_secs(10)).await;
    assert_eq!(rig.audited("challenge.withdrawn"), 1);
}

#[tokio::test]
async fn at_the_end_of_the_program_what_runs_is_stopped_and_stored() {
    let rig = Rig::new(LET_PULSE);
    rig.board.gate.forget_permits(1_000);
    let call = rig.dispatcher.invoke(pulse(1));
    tokio::select! {
        _ = call => panic!("the gate is shut"),
        permit = rig.board.started.acquire() => permit.unwrap().forget(),
    }
    let rig = rig.restart().await;
    assert_eq!(failed(&rig.invoke(&pulse(1)).await).code, ErrorCode::Cancelled);
    let after = Dispatcher::new(Arc::clone(&rig.guard), Arc::clone(&rig.board));
    after.shutdown(Duration::from_secs(1)).await;
    assert_eq!(failed(&after.invoke(pulse(2)).await).code, ErrorCode::Cancelled);
}

#[test]
fn what_does_not_fit_the_link_is_said_to_have_run() {
    let output = |result: String, size: usize| Output {
        result,
        attachments: vec![Bytes { mime: String::new(), data: vec![0; size] }],
    };
    for big in [output("x".repeat(MAX_RESULT + 1), 1), output("{}".into(), MAX_ATTACHMENT as usize + 1)] {
        let (Outcome::Failed(error), attachments) = bounded(Ok(big)) else { panic!() };
        assert_eq!((error.code, attachments.len()), (ErrorCode::TooLarge, 0));
        assert!(error.message.starts_with("it ran, but"), "{error}");
    }
    let (outcome, attachments) = bounded(Ok(output("x".repeat(MAX_RESULT), 1)));
    let key = hearth_shared::identity::SecretKey::from_seed(&[1; 32]);
    let frame = ResultFrame::sign(&key, request(1), outcome, attachments.len() as u32, Head::default());
    use hearth_shared::link::LinkFrame as _;
    hearth_shared::link::ToHub::Result(Box::new(frame)).encode().unwrap();
    let long = CommandError::new(ErrorCode::Hardware, "€".repeat(MAX_MESSAGE));
    let (Outcome::Failed(error), _) = bounded(Err(long)) else { panic!() };
    assert!(error.message.len() <= MAX_MESSAGE + 3);
    assert_eq!(time_limit(0), Duration::from_millis(DEFAULT_TIMEOUT_MS));
    assert_eq!(time_limit(u64::MAX), Duration::from_millis(MAX_TIMEOUT_MS));
}

#[tokio::test]
async fn a_changed_list_of_approvers_holds_at_once() {
    let rig = Rig::new("");
    let (_, signed) = rig.ask(&pulse(1)).await;
    let mut set = rig.guard.approvers();
    set.epoch += 1;
    set.approvers.retain(|a| a.id() != rig.other.device_id());
    let change = ApproversChange::sign(&rig.person, &rig.node.device_id(), set.clone());
    rig.guard.change_approvers(&change).unwrap();
    assert!(rig.guard.change_approvers(&change).is_err(), "a change is used once");
    let grant = Grant::sign(&rig.other, signed.digest(), Decision::AllowOnce, 1);
    assert_eq!(failed(&rig.grant(request(1), grant).await).code, ErrorCode::GrantRefused);
    assert!(rig.guard.person_in_force(), "one person less loosens nothing");

    let rig = rig.restart().await;
    assert_eq!(rig.guard.approvers(), set);
    assert_eq!(rig.guard.hub(), Some(HUB));
    // The hub can appoint nobody.
    let mut evil = set.clone();
    evil.epoch += 1;
    evil.approvers.push(approver(&rig.other, ApproverKind::Terminal, true));
    let evil = ApproversChange::sign(&rig.hub, &rig.node.device_id(), evil);
    assert!(rig.guard.change_approvers(&evil).is_err());
    assert_eq!((rig.guard.approvers(), rig.audited("approvers.refused")), (set, 2));
}
