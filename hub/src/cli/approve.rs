//! Fetching a card and deciding it: what chat, `approvals` and `nodes invoke` have in common.

use super::card::{Card, Told};
use super::client::Client;
use super::error::Failure;
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::PublicKey;
use serde_json::{Value, json};

/// Next step of a decision over a card that is no longer what would run.
pub(super) const CHANGED: &str = "look at it again with `hearth approvals show ID`";

/// What to do when something asks for a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Allow once what this request asks for
    Yes,
    /// Deny
    No,
    /// Show the card and ask
    Ask,
}

/// Opens the card of an approval: the hub fetches a fresh challenge from the node.
///
/// # Errors
/// Exit code 4 when there is no such approval, 5 when the challenge does not hold.
pub async fn fetch(client: &mut Client, id: &str) -> Result<Card, Failure> {
    let answer = client.call("approval.get", json!({ "id": id })).await?;
    card_of(&answer)
}

/// A card from what `approval.get` gives.
///
/// # Errors
/// Exit code 5 when the challenge does not hold.
pub fn card_of(answer: &Value) -> Result<Card, Failure> {
    let approval = &answer["approval"];
    let told = told(approval);
    let card = &answer["card"];
    let signed: Option<SignedChallenge> = serde_json::from_value(card["challenge"].clone()).ok();
    let key: Option<PublicKey> = serde_json::from_value(card["nodeKey"].clone()).ok();
    Card::new(told, signed, key.as_ref())
}

/// What the hub tells of an approval.
#[must_use]
pub fn told(approval: &Value) -> Told {
    let text = |name: &str| approval[name].as_str().unwrap_or_default().to_owned();
    let maybe = |name: &str| approval[name].as_str().map(str::to_owned);
    Told {
        id: text("id"),
        status: text("status"),
        host: text("host"),
        node: text("nodeId"),
        node_name: text("nodeName"),
        command: text("command"),
        params: approval["params"].clone(),
        sentence: text("sentence"),
        need: text("need"),
        checked_on_node: approval["checkedOnNode"].as_bool().unwrap_or(false),
        requester: text("requester"),
        reason: maybe("reason"),
        session_key: maybe("sessionKey"),
        created_ms: approval["createdAtMs"].as_u64().unwrap_or_default(),
        expires_ms: approval["expiresAtMs"].as_u64().unwrap_or_default(),
        decision: maybe("decision"),
        decided_by: maybe("decidedBy"),
    }
}

/// Decides as the owner of this machine: the hub signs. The digest of the card that was seen goes along,
/// so that the hub refuses when something else would run.
///
/// # Errors
/// Exit code 5 when only a person's own key is enough; 1 when somebody was faster or the request changed.
pub async fn decide(client: &mut Client, card: &Card, decision: Decision) -> Result<Value, Failure> {
    let mut params = json!({ "id": card.told.id, "kind": "exec", "decision": decision.as_str() });
    if let Some((signed, _)) = &card.signed {
        params["seen"] = json!(signed.digest());
    }
    client.call("approval.resolve", params).await
}

/// Delivers a decision that a person's own key signed.
///
/// # Errors
/// As [`decide`].
pub async fn deliver(client: &mut Client, card: &Card, grant: &Grant) -> Result<Value, Failure> {
    let params =
        json!({ "id": card.told.id, "kind": "exec", "decision": grant.decision.as_str(), "grant": grant });
    client.call("approval.resolve", params).await
}

/// Whether a decision was refused because something else would run by now.
#[must_use]
pub fn is_changed(failure: &Failure) -> bool {
    failure.next() == CHANGED
}

/// Reads an answer at the prompt; `None` when it is none.
#[must_use]
pub fn parse_answer(text: &str, always: bool) -> Option<Decision> {
    match text.trim().to_lowercase().as_str() {
        "y" | "yes" | "o" | "once" | "allow" | "是" | "好" => Some(Decision::AllowOnce),
        "a" | "always" if always => Some(Decision::AllowAlways),
        "n" | "no" | "d" | "deny" | "否" | "不" => Some(Decision::Deny),
        _ => None,
    }
}

/// The prompt below a card.
#[must_use]
pub fn question(always: bool) -> &'static str {
    if always { "allow [o]nce, [a]lways, or [d]eny? " } else { "allow [o]nce or [d]eny? " }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_words_decide() {
        assert_eq!(parse_answer(" o ", false), Some(Decision::AllowOnce));
        assert_eq!(parse_answer("DENY", false), Some(Decision::Deny));
        assert_eq!(parse_answer("always", true), Some(Decision::AllowAlways));
        assert_eq!(parse_answer("always", false), None, "not where it is not offered");
        for unclear in ["", "maybe", "yo", "1", "ja"] {
            assert_eq!(parse_answer(unclear, true), None);
        }
    }
}
