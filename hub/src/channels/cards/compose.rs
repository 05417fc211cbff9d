//! The words and buttons of a card, and what stands under it in the end.

use crate::approvals::card::{Words, safe_line};
use crate::approvals::{Approval, ApprovalStatus, Card};
use crate::channels::capabilities::{Capabilities, typed_decision};
use crate::channels::message::{Button, Part, Text};
use crate::store::now_ms;
use hearth_shared::command::{Class, Need};
use hearth_shared::grant::Decision;

/// Kept free in a message for what is written under the card once it is decided.
const ROOM_FOR_OUTCOME: usize = 300;
/// Longest line that is shown to whoever pressed; Telegram shows 200 characters.
const MAX_ANSWER: usize = 190;
pub(super) fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_ANSWER).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// One line about how it ended.
pub(super) fn outcome(approval: Option<&Approval>) -> String {
    let Some(approval) = approval else { return "This request is over.".into() };
    let by = approval.decided_by.as_deref().map(|by| format!(" by {}", safe_line(by))).unwrap_or_default();
    match (approval.status, approval.decision) {
        (ApprovalStatus::Allowed, Some(Decision::AllowAlways)) => format!("✅ Always allowed{by}."),
        (ApprovalStatus::Allowed, _) => format!("✅ Allowed once{by}."),
        (ApprovalStatus::Denied, _) => format!("⛔ Denied{by}."),
        (ApprovalStatus::Expired, _) => "⌛ Expired: nobody decided in time.".into(),
        (ApprovalStatus::Cancelled, _) => format!("✖ Withdrawn{by}."),
        (ApprovalStatus::Pending, _) => "↻ Asked again; the new card counts.".into(),
    }
}

/// What a button carries: the decision's number and the token.
fn data(decision: Decision, token: &str) -> String {
    let number = match decision {
        Decision::Deny => '0',
        Decision::AllowOnce => '1',
        Decision::AllowAlways => '2',
    };
    format!("{number}{token}")
}

pub(super) fn read_data(data: &str) -> Option<(Decision, [u8; 16])> {
    let decision = match data.as_bytes().first()? {
        b'0' => Decision::Deny,
        b'1' => Decision::AllowOnce,
        b'2' => Decision::AllowAlways,
        _ => return None,
    };
    let token = hex::decode(data.get(1..)?).ok()?.try_into().ok()?;
    Some((decision, token))
}

/// The message of a card, and the words that stay once it is decided.
pub(super) fn compose(card: &Card, can: &Capabilities, token: &str) -> (Part, String) {
    let approval = &card.approval;
    let words = Words::of_approval(approval, card.shown.as_ref());
    let short = &approval.id.to_string()[..8];
    let mut body = words.title.clone();
    body.push('\n');
    for (name, text) in &words.facts {
        if text.contains('\n') {
            body.push_str(&format!("\n{name}:"));
            body.extend(text.lines().map(|line| format!("\n   {line}")));
        } else {
            body.push_str(&format!("\n{name}: {text}"));
        }
    }
    body.push_str("\n\nWhat the assistant says (not checked):");
    body.extend(words.said.iter().map(|(name, text)| format!("\n{name} {text}")));
    if let Some(note) = &approval.note {
        body.push_str(&format!("\n\nAsked again: {}", safe_line(note)));
    }
    let minutes = approval.expires_ms.saturating_sub(now_ms()).div_ceil(60_000);
    body.push_str(&format!("\n\nApproval {short}, {minutes} min to decide."));

    let need = card.shown.as_ref().map_or(approval.need, |c| c.need);
    if need == Need::Person {
        body.push_str("\nIt needs a person's own key: decide on the page or with `hearth approver`.");
    }
    if can.text.measure(&body) + ROOM_FOR_OUTCOME > can.text.max {
        // Nobody decides about what he cannot see whole.
        let body = format!(
            "{}\n\nApproval {short} is too long to be shown here; decide on the page or with `hearth approvals show {short}`.",
            words.title.chars().take(200).collect::<String>()
        );
        return (Part::Text { text: Text::plain(body.clone()) }, body);
    }
    if need == Need::Person {
        return (Part::Text { text: Text::plain(body.clone()) }, body);
    }
    if card.shown.is_none() && approval.checked_on_node {
        // Nobody allows what the node has not said yet; a new card follows when it is back.
        body.push_str("\nYou can allow it when the node is back; a new card will come.");
    }
    if !can.buttons {
        let text = format!("{body}\n{}", typed_decision(&approval.id.to_string()));
        return (Part::Text { text: Text::plain(text) }, body);
    }
    let button = |label: &str, decision| Button { label: label.into(), data: data(decision, token) };
    let mut buttons = Vec::new();
    if card.shown.is_some() || !approval.checked_on_node {
        buttons.push(button("Allow once", Decision::AllowOnce));
    }
    // The hub signs "always" for pictures only, and only where the node would store a rule.
    if card.shown.as_ref().is_some_and(|c| c.always.is_some() && c.class == Class::Capture) {
        buttons.push(button("Always", Decision::AllowAlways));
    }
    buttons.push(button("Deny", Decision::Deny));
    (Part::Card { text: Text::plain(body.clone()), buttons }, body)
}

#[cfg(test)]
mod tests;
