//! Exactly once: duplicates, crashes, callers that leave.

use super::*;
use std::sync::Mutex;

#[tokio::test]
async fn duplicates_at_the_same_time_run_once_and_all_hear_of_it() {
    let rig = Rig::new(LET_PULSE);
    rig.board.gate.forget_permits(1_000);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let dispatcher = rig.dispatcher.clone();
            tokio::spawn(async move { dispatcher.invoke(pulse(1)).await })
        })
        .collect();
    rig.board.started.acquire().await.unwrap().forget();
    let other = invoke(1, "gpio.pulse", r#"{"pin":"heater","durationMs":1}"#);
    let other = tokio::spawn({
        let dispatcher = rig.dispatcher.clone();
        async move { dispatcher.invoke(other).await }
    });
    rig.board.gate.add_permits(10);
    for call in calls {
        assert_eq!(done(&call.await.unwrap()), r#"{"run":1}"#);
    }
    assert_eq!(failed(&other.await.unwrap()).code, ErrorCode::InvalidParams);
    assert_eq!(rig.board.runs(), 1);
}

#[tokio::test]
async fn the_same_request_with_other_parameters_is_an_error() {
    let rig = Rig::new(LET_PULSE);
    done(&rig.invoke(&pulse(1)).await);
    let other = invoke(1, "gpio.pulse", r#"{"pin":"pump","durationMs":30000}"#);
    assert_eq!(failed(&rig.invoke(&other).await).code, ErrorCode::InvalidParams);
    assert_eq!(rig.ask_fails(&other).await.code, ErrorCode::InvalidParams);
    // Defaults written out are the same parameters.
    let same = invoke(1, "gpio.pulse", r#"{"durationMs":20000,"value":true,"pin":"pump"}"#);
    assert_eq!(done(&rig.invoke(&same).await), r#"{"run":1}"#);
    assert_eq!(rig.board.runs(), 1);
}

#[tokio::test]
async fn when_the_link_dies_the_picture_is_taken_and_waits() {
    let rig = Rig::new("[policy]\ncapture = 'none'\n");
    *rig.board.picture.lock().unwrap() = vec![0xd8; 300_000];
    rig.board.gate.forget_permits(1_000);
    let snap = invoke(1, "camera.snap", "{}");
    {
        let call = rig.dispatcher.invoke(snap.clone());
        tokio::select! {
            _ = call => panic!("the gate is shut"),
            permit = rig.board.started.acquire() => permit.unwrap().forget(),
        }
        // The call is dropped here, as the link's end does.
    }
    rig.board.gate.add_permits(1);
    // The hub asks again on a new link, while it still runs or after it: the same picture.
    let reply = rig.invoke(&snap).await;
    assert_eq!(done(&reply), r#"{"run":1}"#);
    assert_eq!(reply.attachments[0].data, vec![0xd8; 300_000]);
    assert_eq!(reply.attachments[0].mime, "image/jpeg");
    let rig = rig.restart().await;
    let reply = rig.invoke(&snap).await;
    assert_eq!((done(&reply), reply.attachments[0].data.len()), (r#"{"run":1}"#, 300_000));
    // When it is no longer kept, that is said, and no other picture taken in its place.
    std::fs::remove_dir_all(rig.dir.path().join("results")).unwrap();
    assert_eq!(failed(&rig.invoke(&snap).await).code, ErrorCode::NotFound);
    assert_eq!(rig.board.runs(), 1);
}

/// The files as a crash would leave them, opened by a new program.
fn crash(rig: &Rig) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(rig.dir.path().join("node.db"), dir.path().join("node.db")).unwrap();
    let guard = open(dir.path(), &rig.node, &rig.config);
    let twin = Rig::new("");
    let dispatcher = Dispatcher::new(Arc::clone(&guard), Arc::clone(&twin.board));
    Rig { dir, guard, dispatcher, ..twin }
}

#[tokio::test]
async fn what_only_started_before_a_crash_has_an_unknown_outcome() {
    let rig = Rig::new("");
    rig.board.gate.forget_permits(1_000);
    let (_, signed) = rig.ask(&pulse(1)).await;
    let grant = Grant::sign(&rig.person, signed.digest(), Decision::AllowOnce, 1);
    let call = rig.dispatcher.grant(request(1), grant.clone());
    tokio::select! {
        _ = call => panic!("the gate is shut"),
        permit = rig.board.started.acquire() => permit.unwrap().forget(),
    }
    let after = crash(&rig);
    assert_eq!(failed(&after.invoke(&pulse(1)).await).code, ErrorCode::OutcomeUnknown);
    assert_eq!(after.ask_fails(&pulse(1)).await.code, ErrorCode::OutcomeUnknown);
    assert_eq!(failed(&after.grant(request(1), grant).await).code, ErrorCode::OutcomeUnknown);
    assert_eq!(after.board.runs(), 0, "nobody repeats it on his own");
    assert_eq!(after.kinds().last().unwrap(), "node.started", "and the chain is whole");
}

#[tokio::test]
async fn the_start_is_on_the_disk_before_the_effect_and_the_end_before_the_reply() {
    let rig = Rig::new(LET_PULSE);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let image = rig.dir.path().join("node.db");
    let (copies, into) = (Arc::clone(&seen), tempfile::tempdir().unwrap());
    let target = into.path().join("node.db");
    *rig.board.probe.lock().unwrap() = Some(Probe(Box::new(move || {
        std::fs::copy(&image, &target).unwrap();
        copies.lock().unwrap().push(());
    })));
    done(&rig.invoke(&pulse(1)).await);
    assert_eq!(seen.lock().unwrap().len(), 1);
    let at_the_effect = open(into.path(), &rig.node, &rig.config);
    let recalled = at_the_effect.recall(&request(1), None).unwrap_err();
    assert_eq!(recalled.code, ErrorCode::OutcomeUnknown);
    let after = crash(&rig);
    assert_eq!(done(&after.invoke(&pulse(1)).await), r#"{"run":1}"#);
}

#[tokio::test]
async fn a_grant_sent_twice_at_once_runs_once() {
    let rig = Rig::new("");
    let (_, signed) = rig.ask(&pulse(1)).await;
    let grant = Grant::sign(&rig.person, signed.digest(), Decision::AllowOnce, 1);
    let (a, b) = tokio::join!(rig.grant(request(1), grant.clone()), rig.grant(request(1), grant));
    assert_eq!((done(&a), done(&b), rig.board.runs()), (r#"{"run":1}"#, r#"{"run":1}"#, 1));
}

#[tokio::test]
async fn a_look_that_a_person_allowed_is_stored_like_an_effect() {
    let rig = Rig::new("[policy]\nobserve = 'hub'\n");
    let look = invoke(1, "gpio.list", "{}");
    assert_eq!(asked(&rig.invoke(&look).await), Need::Hub);
    let (_, signed) = rig.ask(&look).await;
    let grant = Grant::sign(&rig.person, signed.digest(), Decision::AllowAlways, 1);
    assert_eq!(done(&rig.grant(request(1), grant.clone()).await), r#"{"run":1}"#);
    assert_eq!(done(&rig.grant(request(1), grant).await), r#"{"run":1}"#);
    assert_eq!((rig.audited("grant.accepted"), rig.audited("always.stored")), (1, 1));
    // From now on it looks without asking, and leaves no record of each look.
    let before = rig.guard.head();
    done(&rig.invoke(&invoke(2, "gpio.list", "{}")).await);
    assert_eq!(rig.guard.head(), before);
    let no = rig.decide(&invoke(3, "gpio.read", r#"{"pin":"pump"}"#), &rig.hub, Decision::Deny).await;
    assert_eq!(failed(&no).code, ErrorCode::ApprovalDenied);
    let again = rig.invoke(&invoke(3, "gpio.read", r#"{"pin":"pump"}"#)).await;
    assert_eq!(failed(&again).code, ErrorCode::ApprovalDenied);
}

#[tokio::test]
async fn a_long_result_is_stored_whole() {
    let rig = Rig::new(LET_PULSE);
    let outcome = Outcome::Done { result: format!("{:?}", "x".repeat(150_000)) };
    done(&rig.invoke(&pulse(1)).await);
    rig.guard.finish(&request(1), &outcome, &[], 1);
    assert_eq!(done(&rig.invoke(&pulse(1)).await).len(), 150_002);
}
