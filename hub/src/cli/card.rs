//! The card a person looks at before deciding.
//!
//! It is made from the challenge alone, whose signature is checked first: the node's id is the digest of
//! its key, so a key that fits the id is the node's. What the hub adds (who asks, and why) stands below a
//! line, marked as the assistant's words. Characters that could deceive are shown escaped.

use super::error::Failure;
use super::output::{safe_line, span};
use crate::approvals::card::{Checker, Said, Words};
use hearth_shared::challenge::{Challenge, SignedChallenge};
use hearth_shared::command::{Class, Need};
use hearth_shared::identity::PublicKey;
use serde_json::Value;

/// What the hub tells of an approval, read from its JSON.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Id.
    pub id: String,
    /// `pending`, `allowed`, `denied`, `expired`, `cancelled`.
    pub status: String,
    /// `node`, or `gateway` for the hub's machine.
    pub host: String,
    /// Node id.
    pub node: String,
    /// Node name.
    pub node_name: String,
    /// Command.
    pub command: String,
    /// Parameters.
    pub params: Value,
    /// The hub's sentence.
    pub sentence: String,
    /// `none`, `hub`, `person`.
    pub need: String,
    /// False for foreign nodes.
    pub checked_on_node: bool,
    /// Who asks.
    pub requester: String,
    /// Why.
    pub reason: Option<String>,
    /// Where it came from.
    pub session_key: Option<String>,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// Unix milliseconds.
    pub expires_ms: u64,
    /// Decision, if there is one.
    pub decision: Option<String>,
    /// Who decided.
    pub decided_by: Option<String>,
}

/// A card that may be shown and decided.
#[derive(Debug, Clone)]
pub struct Card {
    /// What the hub tells.
    pub told: Told,
    /// What the node signed; `None` for nodes that do not check grants, and while the node is away.
    pub signed: Option<(SignedChallenge, Challenge)>,
}

impl Card {
    /// Puts a card together; a challenge that its node did not sign is refused.
    ///
    /// # Errors
    /// Exit code 5 when the challenge does not hold.
    pub fn new(
        told: Told,
        signed: Option<SignedChallenge>,
        key: Option<&PublicKey>,
    ) -> Result<Self, Failure> {
        let Some(signed) = signed else { return Ok(Self { told, signed: None }) };
        let refuse = |why: String| {
            Failure::denied(
                format!("the challenge of approval {} does not hold: {why}", told.id),
                "do not approve it; see `hearth audit verify`",
            )
        };
        let key = key.ok_or_else(|| refuse("the hub did not give the node's key".into()))?;
        let challenge = signed.open(key).map_err(|e| refuse(e.to_string()))?;
        if challenge.request.to_string() != told.id || challenge.node.to_string() != told.node {
            return Err(refuse("it is about another request".into()));
        }
        Ok(Self { told, signed: Some((signed, challenge)) })
    }

    /// Whether a person's own key can say "always": there is a rule to store.
    #[must_use]
    pub fn offers_always(&self) -> bool {
        self.signed.as_ref().is_some_and(|(_, c)| c.always.is_some())
    }

    /// Whether the hub's key, by a word in a chat or on the command line, can say "always": for pictures only.
    #[must_use]
    pub fn offers_always_by_hub(&self) -> bool {
        self.offers_always() && self.signed.as_ref().is_some_and(|(_, c)| c.class == Class::Capture)
    }

    /// Whether only a person's own key is enough.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        match &self.signed {
            Some((_, challenge)) => challenge.need == Need::Person,
            None => self.told.need == "person",
        }
    }

    /// The card as text.
    #[must_use]
    pub fn text(&self, now_ms: u64) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            let mut parts = text.lines();
            out.push_str(&format!("│ {name:<9} {}\n", parts.next().unwrap_or_default()));
            for more in parts {
                out.push_str(&format!("│           {more}\n"));
            }
        };
        let told = &self.told;
        let said = Said { requester: &told.requester, reason: told.reason.as_deref() };
        let words = match &self.signed {
            Some((_, challenge)) => Words::of_challenge(challenge, said),
            None => Words::of_hub(
                (&told.node_name, &short(&told.node)),
                (&told.command, &told.params, &told.sentence),
                Checker::of(told.host == "gateway", told.checked_on_node),
                said,
            ),
        };
        for (name, text) in words.facts {
            line(name, text);
        }
        let title = words.title;
        let left = if told.expires_ms > now_ms { span(told.expires_ms - now_ms) } else { "no time".into() };
        let said: String = words.said.iter().map(|(name, text)| format!("│ {name:<9} {text}\n")).collect();
        format!(
            "╭ {title}\n{out}├ what the assistant says (not checked)\n{said}╰ approval {}, {left} left\n",
            short(&told.id)
        )
    }
}

/// The head of an id, enough to name it.
#[must_use]
pub fn short(id: &str) -> String {
    safe_line(&id.chars().take(8).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approvals::card::tests::challenge;
    use hearth_shared::challenge::AlwaysRule;
    use hearth_shared::identity::SecretKey;
    use hearth_shared::reading::RequestId;

    fn told(node: &SecretKey) -> Told {
        Told {
            id: RequestId([2; 16]).to_string(),
            node: node.device_id().to_string(),
            node_name: "harmless".into(),
            sentence: "Read a sensor".into(),
            requester: "terminal: owner".into(),
            reason: Some("x".repeat(500)),
            expires_ms: 600_000,
            ..Told::default()
        }
    }

    #[test]
    fn the_card_shows_the_challenge_not_the_hubs_words() {
        let node = SecretKey::from_seed(&[6; 32]);
        let signed = SignedChallenge::issue(&challenge(&node), &node).unwrap();
        let card = Card::new(told(&node), Some(signed), Some(&node.public())).unwrap();
        let text = card.text(0);
        assert!(text.contains("pump") && text.contains("20"), "{text}");
        assert!(!text.contains("Read a sensor") && !text.contains("harmless"), "{text}");
        assert!(text.contains("gar\\u{202e}age") && text.contains("\\u{1b}"), "{text}");
        assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
        assert!(!text.contains(&"x".repeat(201)), "the reason is cut at 200 characters");
        let (above, below) = text.split_once("├ what the assistant says").unwrap();
        assert!(!above.contains("terminal: owner") && below.contains("terminal: owner"));
        assert!(!card.offers_always());
    }

    #[test]
    fn a_challenge_of_another_key_or_request_is_refused() {
        let node = SecretKey::from_seed(&[6; 32]);
        let other = SecretKey::from_seed(&[7; 32]);
        let signed = SignedChallenge::issue(&challenge(&node), &node).unwrap();
        assert_eq!(
            Card::new(told(&node), Some(signed.clone()), Some(&other.public())).unwrap_err().code(),
            5
        );
        assert_eq!(Card::new(told(&node), Some(signed.clone()), None).unwrap_err().code(), 5);
        let mut elsewhere = told(&node);
        elsewhere.id = RequestId([9; 16]).to_string();
        assert_eq!(Card::new(elsewhere, Some(signed), Some(&node.public())).unwrap_err().code(), 5);
        let stolen = SignedChallenge::issue(&challenge(&node), &other).unwrap();
        assert_eq!(Card::new(told(&node), Some(stolen), Some(&other.public())).unwrap_err().code(), 5);
    }

    #[test]
    fn always_shows_the_rule_that_would_be_stored() {
        let node = SecretKey::from_seed(&[6; 32]);
        let mut c = challenge(&node);
        c.always =
            Some(AlwaysRule { command: c.command.clone(), params: c.params.clone(), facts: c.facts.clone() });
        let signed = SignedChallenge::issue(&c, &node).unwrap();
        let card = Card::new(told(&node), Some(signed), Some(&node.public())).unwrap();
        assert!(card.offers_always() && !card.offers_always_by_hub(), "class actuate takes a person's key");
        assert!(card.text(0).contains("exactly these parameters"));
    }

    #[test]
    fn a_foreign_node_is_labelled() {
        let node = SecretKey::from_seed(&[6; 32]);
        let card = Card::new(told(&node), None, None).unwrap();
        assert!(card.text(0).contains("NOT CHECKED ON THE NODE"));
    }
}
