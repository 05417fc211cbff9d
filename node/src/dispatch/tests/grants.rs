//! Challenges and grants: everything that must void one.

use super::*;
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::identity::SecretKey;
use proptest::prelude::*;
use serde_json::{Value, json};

async fn refused(rig: &Rig, request: RequestId, grant: Grant) -> String {
    let error = failed(&rig.grant(request, grant).await);
    assert_eq!(error.code, ErrorCode::GrantRefused, "{error}");
    error.message
}

fn sign(key: &SecretKey, signed: &SignedChallenge, decision: Decision) -> Grant {
    Grant::sign(key, signed.digest(), decision, 1)
}

#[tokio::test]
async fn a_granted_request_runs_once_from_the_command_that_was_kept() {
    let rig = Rig::new("");
    assert_eq!(asked(&rig.invoke(&pulse(1)).await), Need::Hub);
    let (challenge, signed) = rig.ask(&pulse(1)).await;
    assert_eq!((challenge.command.as_str(), challenge.hub), ("gpio.pulse", HUB));
    assert_eq!(challenge.params, json!({"pin": "pump", "value": true, "durationMs": 20_000}));
    assert_eq!(challenge.facts, json!({"line": "simulated:4", "safe": false}));
    assert_eq!(challenge.policy, rig.guard.policy().digest());
    let grant = sign(&rig.hub, &signed, Decision::AllowOnce);
    let reply = rig.grant(request(1), grant.clone()).await;
    assert_eq!(done(&reply), r#"{"run":1}"#);
    assert_eq!(rig.board.last.lock().unwrap().as_ref().unwrap().params_json(), challenge.params);
    // Replayed, it gives the stored result and moves nothing.
    assert_eq!(done(&rig.grant(request(1), grant.clone()).await), r#"{"run":1}"#);
    assert_eq!(done(&rig.invoke(&pulse(1)).await), r#"{"run":1}"#);
    // For another request it is nothing.
    rig.ask(&pulse(2)).await;
    refused(&rig, request(2), grant.clone()).await;
    refused(&rig, request(3), grant).await;
    assert_eq!(rig.board.runs(), 1);
    let kinds = rig.kinds();
    assert_eq!(
        kinds[2..8],
        [
            "request.asked",
            "challenge.issued",
            "grant.accepted",
            "request.started",
            "request.finished",
            "challenge.issued"
        ]
    );
    assert_eq!(rig.audited("grant.refused"), 2);
}

#[tokio::test]
async fn every_field_of_the_challenge_changed_in_turn_voids_the_grant() {
    let rig = Rig::new("");
    let (_, signed) = rig.ask(&pulse(1)).await;
    let whole: Value = serde_json::from_str(&signed.text).unwrap();
    let fields: Vec<String> = whole.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields.len(), 15, "a field that is added must be tried too");
    for field in fields {
        let mut changed = whole.clone();
        changed[&field] = match &whole[&field] {
            Value::Number(n) => json!(n.as_u64().unwrap() + 1),
            Value::String(s) => json!(format!("{}0", &s[..s.len() - 1])),
            _ => json!({"pin": "heater"}),
        };
        if changed == whole {
            changed[&field] = json!("else");
        }
        let text = changed.to_string();
        let grant = Grant::sign(&rig.person, Digest::of(text.as_bytes()), Decision::AllowOnce, 1);
        refused(&rig, request(1), grant).await;
    }
    let reordered = Digest::of(whole.to_string().as_bytes());
    if reordered != signed.digest() {
        refused(&rig, request(1), Grant::sign(&rig.person, reordered, Decision::AllowOnce, 1)).await;
    }
    assert_eq!(rig.board.runs(), 0);
    done(&rig.grant(request(1), sign(&rig.person, &signed, Decision::AllowOnce)).await);
}

#[tokio::test]
async fn grants_of_another_node_boot_decision_or_signer_are_refused() {
    let rig = Rig::new("");
    // Another node, same approvers, same request.
    let elsewhere = Rig::new("");
    let (_, foreign) = elsewhere.ask(&pulse(1)).await;
    let (_, signed) = rig.ask(&pulse(1)).await;
    refused(&rig, request(1), sign(&rig.person, &foreign, Decision::AllowOnce)).await;
    // A stranger, and a stranger who claims to be the person.
    let stranger = SecretKey::from_seed(&[99; 32]);
    refused(&rig, request(1), sign(&stranger, &signed, Decision::AllowOnce)).await;
    let mut posing = sign(&stranger, &signed, Decision::AllowOnce);
    posing.signer = rig.person.device_id();
    refused(&rig, request(1), posing).await;
    // "No" turned into "yes".
    let mut turned = sign(&rig.person, &signed, Decision::Deny);
    turned.decision = Decision::AllowOnce;
    refused(&rig, request(1), turned).await;
    // Another start of the node: the challenge is gone, and its text names the other boot.
    let grant = sign(&rig.person, &signed, Decision::AllowOnce);
    let rig = rig.restart().await;
    refused(&rig, request(1), grant.clone()).await;
    let (fresh, _) = rig.ask(&pulse(1)).await;
    assert_ne!(fresh.boot, signed.open(&rig.node.public()).unwrap().boot);
    refused(&rig, request(1), grant).await;
    assert_eq!(rig.board.runs(), 0);
}

#[tokio::test]
async fn too_late_or_after_a_change_of_policy_it_is_void() {
    let rig = Rig::new("");
    let (_, signed) = rig.ask(&pulse(1)).await;
    rig.guard.advance_clock(59_000);
    let (_, second) = rig.ask(&pulse(2)).await;
    rig.guard.advance_clock(1_001);
    let why = refused(&rig, request(1), sign(&rig.hub, &signed, Decision::AllowOnce)).await;
    assert!(why.contains("expired"), "{why}");
    // The second one is in time, but the owner edits the file.
    rig.guard.reload(&config("[policy]\nobserve = 'hub'\n")).unwrap();
    let why = refused(&rig, request(2), sign(&rig.hub, &second, Decision::AllowOnce)).await;
    assert!(why.contains("policy"), "{why}");
    assert_eq!(rig.audited("policy.changed"), 1);
    rig.guard.reload(&rig.config).unwrap();
    refused(&rig, request(2), sign(&rig.hub, &second, Decision::AllowOnce)).await;
    assert_eq!(rig.board.runs(), 0);
}

#[tokio::test]
async fn when_the_facts_changed_it_is_void() {
    let rig = Rig::new("");
    for (seed, facts) in [
        (1, json!({"line": "simulated:4", "safe": true})),
        (2, json!({"path": "/usr/bin/uptime", "sha256": "another file"})),
    ] {
        let (_, signed) = rig.ask(&pulse(seed)).await;
        let before = std::mem::replace(&mut *rig.board.facts.lock().unwrap(), facts);
        let grant = sign(&rig.person, &signed, Decision::AllowOnce);
        let why = refused(&rig, request(seed), grant.clone()).await;
        assert!(why.contains("changed since"), "{why}");
        *rig.board.facts.lock().unwrap() = before;
        refused(&rig, request(seed), grant).await;
    }
    // A program that became writable may be run once as shown, but not remembered.
    let (_, signed) = rig.ask(&pulse(3)).await;
    rig.board.always.store(false, Ordering::SeqCst);
    refused(&rig, request(3), sign(&rig.person, &signed, Decision::AllowAlways)).await;
    assert_eq!(rig.board.runs(), 0);
}

#[tokio::test]
async fn eight_are_open_at_once_and_one_a_request() {
    let rig = Rig::new("");
    let (_, first) = rig.ask(&pulse(1)).await;
    for seed in 2..=8 {
        rig.ask(&pulse(seed)).await;
    }
    assert_eq!(rig.ask_fails(&pulse(9)).await.code, ErrorCode::Busy);
    // A new one for the same request replaces the first.
    let (_, again) = rig.ask(&pulse(1)).await;
    refused(&rig, request(1), sign(&rig.hub, &first, Decision::AllowOnce)).await;
    done(&rig.grant(request(1), sign(&rig.hub, &again, Decision::AllowOnce)).await);
    // That made room for one; then only time does.
    rig.ask(&pulse(9)).await;
    assert_eq!(rig.ask_fails(&pulse(10)).await.code, ErrorCode::Busy);
    rig.guard.advance_clock(60_001);
    rig.ask(&pulse(10)).await;
}

#[tokio::test]
async fn a_program_needs_a_person_and_anyone_may_say_no() {
    let rig = Rig::new("");
    let run = |seed| invoke(seed, "system.run", r#"{"command":["/usr/bin/uptime"]}"#);
    let (_, signed) = rig.ask(&run(1)).await;
    let why = refused(&rig, request(1), sign(&rig.hub, &signed, Decision::AllowOnce)).await;
    assert!(why.contains("needs `person`"), "{why}");
    done(&rig.grant(request(1), sign(&rig.person, &signed, Decision::AllowOnce)).await);

    let denied = rig.decide(&run(2), &rig.hub, Decision::Deny).await;
    assert_eq!(failed(&denied).code, ErrorCode::ApprovalDenied);
    assert_eq!(denied.frame.head, rig.guard.head());
    // The "no" stands: asked again, it is still no.
    assert_eq!(failed(&rig.invoke(&run(2)).await).code, ErrorCode::ApprovalDenied);
    assert_eq!(rig.ask_fails(&run(2)).await.code, ErrorCode::ApprovalDenied);
    assert_eq!((rig.board.runs(), rig.audited("grant.denied")), (1, 1));
}

#[tokio::test]
async fn always_holds_exactly_what_was_shown() {
    let rig = Rig::new("");
    let (challenge, signed) = rig.ask(&pulse(1)).await;
    let rule = challenge.always.unwrap();
    assert_eq!((rule.params.clone(), rule.facts.clone()), (challenge.params, challenge.facts));
    let why = refused(&rig, request(1), sign(&rig.hub, &signed, Decision::AllowAlways)).await;
    assert!(why.contains("only for pictures"), "{why}");
    done(&rig.grant(request(1), sign(&rig.other, &signed, Decision::AllowAlways)).await);
    let rig = rig.restart().await;
    let stored = rig.guard.always_rules().unwrap();
    assert_eq!((stored.len(), &stored[0].rule, stored[0].need), (1, &rule, Need::Hub));

    done(&rig.invoke(&pulse(2)).await);
    let longer = invoke(3, "gpio.pulse", r#"{"pin":"pump","durationMs":20001}"#);
    assert_eq!(asked(&rig.invoke(&longer).await), Need::Hub);
    let mut raised = pulse(4);
    raised.raise = Need::Person;
    assert_eq!(asked(&rig.invoke(&raised).await), Need::Person, "it was given for a smaller need");
    let facts = std::mem::replace(&mut *rig.board.facts.lock().unwrap(), json!({"line": "simulated:5"}));
    assert_eq!(asked(&rig.invoke(&pulse(5)).await), Need::Hub);
    *rig.board.facts.lock().unwrap() = facts;
    // A denial in the file comes first.
    rig.guard.reload(&config("[[policy.rule]]\ncommand = 'gpio.pulse'\nneed = 'deny'")).unwrap();
    assert_eq!(failed(&rig.invoke(&pulse(6)).await).code, ErrorCode::Denied);
    rig.guard.reload(&rig.config).unwrap();
    done(&rig.invoke(&pulse(7)).await);
    // It ends with the approver who gave it.
    rig.guard.remove_approver(&rig.other.device_id()).unwrap();
    assert_eq!(rig.guard.always_rules().unwrap(), []);
    assert_eq!(asked(&rig.invoke(&pulse(8)).await), Need::Hub);
    assert_eq!(rig.board.runs(), 3);
}

#[tokio::test]
async fn always_is_not_offered_where_it_cannot_be_kept() {
    let rig = Rig::hub_only("");
    assert_eq!(rig.ask(&pulse(1)).await.0.always, None, "the hub's key alone cannot say it");
    let snap = invoke(2, "camera.snap", "{}");
    assert!(rig.ask(&snap).await.0.always.is_some());
    done(&rig.decide(&snap, &rig.hub, Decision::AllowAlways).await);
    done(&rig.invoke(&invoke(3, "camera.snap", r#"{"deviceId":"cam0"}"#)).await);
    rig.board.always.store(false, Ordering::SeqCst);
    let (challenge, signed) = rig.ask(&invoke(4, "camera.snap", r#"{"quality":0.5}"#)).await;
    assert_eq!(challenge.always, None);
    let why = refused(&rig, request(4), sign(&rig.hub, &signed, Decision::AllowAlways)).await;
    assert!(why.contains("not possible"), "{why}");
    assert!(rig.guard.remove_always(1).unwrap());
    assert!(!rig.guard.remove_always(1).unwrap());
}

#[tokio::test]
async fn what_is_too_long_to_be_read_is_not_asked() {
    let rig = Rig::new("");
    *rig.board.facts.lock().unwrap() = json!("x".repeat(17 * 1024));
    assert_eq!(rig.ask_fails(&pulse(1)).await.code, ErrorCode::TooLarge);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// One changed bit anywhere in a grant, and nothing moves.
    #[test]
    fn any_changed_bit_of_a_grant_voids_it(bit in 0usize..8, byte in 0usize..64, what in 0u8..5) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new("");
            let (_, signed) = rig.ask(&pulse(1)).await;
            let mut grant = sign(&rig.person, &signed, Decision::AllowOnce);
            match what {
                0 => grant.signature.0[byte] ^= 1 << bit,
                1 => grant.signer.0[byte % 32] ^= 1 << bit,
                2 => grant.challenge.0[byte % 32] ^= 1 << bit,
                3 => grant.signed_at_ms ^= 1 << byte,
                _ => grant.decision = Decision::AllowAlways,
            }
            refused(&rig, request(1), grant).await;
            assert_eq!(rig.board.runs(), 0);
        });
    }
}
