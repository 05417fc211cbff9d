//! What a person sees before he decides.

use super::*;
use crate::actions::Host;
use crate::approvals::card::tests::challenge as sample;
use crate::channels::capabilities::{Limit, Unit};
use hearth_shared::challenge::{AlwaysRule, Challenge, SignedChallenge};
use hearth_shared::identity::SecretKey;
use hearth_shared::reading::RequestId;
use serde_json::json;

const CAN: Capabilities = Capabilities {
    text: Limit { max: 4096, unit: Unit::Utf16 },
    buttons: true,
    edits: true,
    ..Capabilities::PLAIN
};

fn card(change: impl FnOnce(&mut Challenge, &mut Approval)) -> Card {
    let node = SecretKey::from_seed(&[6; 32]);
    let mut challenge = sample(&node);
    let mut approval = Approval {
        id: RequestId([2; 16]),
        node: node.device_id(),
        node_name: "harmless".into(),
        command: "gpio.pulse".into(),
        params: json!({}),
        sentence: "Read a sensor".into(),
        class: Class::Actuate,
        need: Need::Hub,
        checked_on_node: true,
        host: Host::Node,
        always: None,
        requester: "telegram: Eve".into(),
        reason: Some("because".into()),
        session_key: None,
        status: ApprovalStatus::Pending,
        created_ms: 0,
        expires_ms: now_ms() + 600_000,
        decision: None,
        decided_by: None,
        decided_ms: None,
        note: None,
    };
    change(&mut challenge, &mut approval);
    let signed = SignedChallenge::issue(&challenge, &node).unwrap();
    Card {
        approval,
        challenge: Some(signed),
        shown: Some(challenge),
        head: hearth_shared::chain::Head::default(),
    }
}

fn buttons(part: &Part) -> Vec<&str> {
    let Part::Card { buttons, .. } = part else { return Vec::new() };
    buttons.iter().map(|b| b.label.as_str()).collect()
}

const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

#[test]
fn a_card_shows_the_challenge_and_hides_nothing() {
    let card = card(|c, a| {
        c.name = "gar\u{202e}age".into();
        c.params = json!({"pin": "pump\u{200b}", "value": true, "durationMs": 1});
        a.reason = Some("**bold** <b>x</b> \u{202e}evil\n\nApproval: allowed".into());
    });
    let (part, _) = compose(&card, &CAN, TOKEN);
    let text = part.text();
    assert_eq!(text.markup, crate::channels::message::Markup::Plain, "no markup can hide a part");
    assert!(text.body.contains("gar\\u{202e}age") && text.body.contains("pump\\u{200b}"), "{}", text.body);
    assert!(!text.body.contains("harmless") && !text.body.contains("Read a sensor"), "{}", text.body);
    assert!(!text.body.chars().any(|c| c != '\n' && hearth_shared::identity::is_deceptive(c)));
    let (above, below) = text.body.split_once("What the assistant says (not checked)").unwrap();
    assert!(!above.contains("Eve") && below.contains("Eve") && below.contains("**bold** <b>x</b>"));
    assert!(!below.contains("\nApproval: allowed"), "the reason stays in its line");
    assert_eq!(buttons(&part), ["Allow once", "Deny"]);
}

#[test]
fn always_is_offered_for_pictures_with_a_rule_only() {
    let rule = |c: &Challenge| {
        Some(AlwaysRule { command: c.command.clone(), params: c.params.clone(), facts: c.facts.clone() })
    };
    let picture = card(|c, _| {
        c.class = Class::Capture;
        c.always = rule(c);
    });
    assert_eq!(buttons(&compose(&picture, &CAN, TOKEN).0), ["Allow once", "Always", "Deny"]);
    let pump = card(|c, _| c.always = rule(c));
    assert_eq!(buttons(&compose(&pump, &CAN, TOKEN).0), ["Allow once", "Deny"]);
}

#[test]
fn no_buttons_for_what_needs_a_person_or_is_too_long_to_see() {
    let person = card(|c, _| c.need = Need::Person);
    let (part, _) = compose(&person, &CAN, TOKEN);
    assert!(matches!(&part, Part::Text { text } if text.body.contains("own key")));
    let long = card(|c, _| c.facts = json!({"arguments": "x ".repeat(3_000)}));
    let (part, _) = compose(&long, &CAN, TOKEN);
    assert!(
        matches!(&part, Part::Text { text } if text.body.contains("too long") && CAN.text.fits(&text.body))
    );
}

#[test]
fn without_buttons_there_is_a_command_to_type() {
    let (part, body) = compose(&card(|_, _| {}), &Capabilities { buttons: false, ..CAN }, TOKEN);
    assert!(part.text().body.ends_with("/approve 02020202 allow-once | allow-always | deny"));
    assert!(!body.contains("/approve"));
}

#[test]
fn what_a_button_carries_is_short_and_read_back() {
    for decision in [Decision::Deny, Decision::AllowOnce, Decision::AllowAlways] {
        let data = data(decision, TOKEN);
        assert!(data.len() <= 64);
        assert_eq!(read_data(&data), Some((decision, hex::decode(TOKEN).unwrap().try_into().unwrap())));
    }
    for bad in ["", "1", "3000102030405060708090a0b0c0d0e0f", "1zz", "é", &format!("1{TOKEN}00")] {
        assert_eq!(read_data(bad), None, "{bad}");
    }
}

#[test]
fn what_the_node_has_not_signed_can_be_denied_only_and_a_foreign_node_is_labelled() {
    let mut away = card(|_, _| {});
    (away.shown, away.challenge) = (None, None);
    let (part, body) = compose(&away, &CAN, TOKEN);
    assert_eq!(buttons(&part), ["Deny"]);
    assert!(body.contains("the node is away") && body.contains("a new card will come"), "{body}");
    away.approval.checked_on_node = false;
    let (part, body) = compose(&away, &CAN, TOKEN);
    assert_eq!(buttons(&part), ["Allow once", "Deny"]);
    assert!(body.contains("NOT CHECKED ON THE NODE"), "{body}");
}
