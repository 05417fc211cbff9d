//! The words of a card, for every place that shows one: made from the challenge alone; what the hub adds
//! stands apart. Characters that could deceive are shown escaped.

use super::Approval;
use crate::actions::Host;
use hearth_shared::challenge::Challenge;
use hearth_shared::command::{Invocation, Need};
use hearth_shared::identity::is_deceptive;
use hearth_shared::limits::MAX_REASON_CHARS;
use serde_json::Value;

/// A card in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// Who wants to do what, in one line.
    pub title: String,
    /// What would run: name and text, which may have several lines.
    pub facts: Vec<(&'static str, String)>,
    /// Who asked and why: the hub's word, never the node's.
    pub said: Vec<(&'static str, String)>,
}

/// What the hub says of a request.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// Who asks.
    pub requester: &'a str,
    /// Why.
    pub reason: Option<&'a str>,
}

/// Who looks at a request again before it runs, when no challenge of a node tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checker {
    /// The node, once it is back.
    Node,
    /// Nobody: a foreign node obeys the hub alone.
    HubAlone,
    /// Nobody: whoever asked runs it, on the hub's machine.
    Asker,
}

impl Checker {
    /// By the host of a request and whether its node checks grants.
    #[must_use]
    pub fn of(hub_machine: bool, checked_on_node: bool) -> Self {
        match (hub_machine, checked_on_node) {
            (true, _) => Self::Asker,
            (false, true) => Self::Node,
            (false, false) => Self::HubAlone,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Node => "the node is away: this is the hub's word, the node asks again when it is back",
            Self::HubAlone => "NOT CHECKED ON THE NODE: this node obeys the hub alone",
            Self::Asker => "RUNS ON THE HUB'S MACHINE, by whoever asked: the hub only tells your answer",
        }
    }
}

impl Words {
    /// From what the node signed.
    #[must_use]
    pub fn of_challenge(c: &Challenge, said: Said<'_>) -> Self {
        let mut facts = vec![
            ("node", format!("{} ({})", safe_line(&c.name), c.node.short())),
            (
                "command",
                format!("{}   class {}, needs {}", safe_line(&c.command), c.class.as_str(), who(c.need)),
            ),
            ("with", pretty(&c.params)),
            ("means", pretty(&c.facts)),
        ];
        facts.push(match &c.always {
            Some(rule) => (
                "always",
                format!(
                    "would let {} run again with exactly these parameters, while the facts are these:\n{}",
                    safe_line(&rule.command),
                    pretty(&rule.facts)
                ),
            ),
            None => ("always", "cannot be chosen for this".into()),
        });
        let title =
            format!("{} asks to: {}", safe_line(&c.name), safe_line(&sentence(&c.command, &c.params)));
        Self { title, facts, said: said.lines() }
    }

    /// From what the hub knows, when the node signed nothing: `node` is its name and the head of its id.
    #[must_use]
    pub fn of_hub(
        node: (&str, &str),
        (command, params, sentence): (&str, &Value, &str),
        checker: Checker,
        said: Said<'_>,
    ) -> Self {
        Self {
            title: format!("{}: {}", safe_line(node.0), safe_line(sentence)),
            facts: vec![
                ("node", format!("{} ({})", safe_line(node.0), safe_line(node.1))),
                ("command", safe_line(command)),
                ("with", pretty(params)),
                ("checked", checker.words().into()),
            ],
            said: said.lines(),
        }
    }

    /// From an approval, and the challenge if there is one.
    #[must_use]
    pub fn of_approval(approval: &Approval, shown: Option<&Challenge>) -> Self {
        let said = Said { requester: &approval.requester, reason: approval.reason.as_deref() };
        match shown {
            Some(challenge) => Self::of_challenge(challenge, said),
            None => Self::of_hub(
                (&approval.node_name, &approval.node.short()),
                (&approval.command, &approval.params, &approval.sentence),
                Checker::of(approval.host == Host::Gateway, approval.checked_on_node),
                said,
            ),
        }
    }
}

impl Said<'_> {
    fn lines(self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("asked by", safe_line(self.requester))];
        if let Some(reason) = self.reason.filter(|r| !r.is_empty()) {
            let short: String = reason.chars().take(MAX_REASON_CHARS).collect();
            lines.push(("because", safe_line(&short)));
        }
        lines
    }
}

fn who(need: Need) -> &'static str {
    match need {
        Need::None => "nobody's yes",
        Need::Hub => "your yes",
        Need::Person => "a yes signed with a person's own key",
    }
}

/// Made here from command and parameters, never taken from the hub.
fn sentence(command: &str, params: &Value) -> String {
    Invocation::parse(command, &params.to_string()).map_or_else(|_| command.to_owned(), |i| i.sentence())
}

/// JSON as short lines, one key each.
fn pretty(value: &Value) -> String {
    match value {
        Value::Object(map) if map.is_empty() => "nothing".into(),
        Value::Object(map) => {
            let lines =
                map.iter().map(|(key, value)| format!("{}: {}", safe_line(key), safe_line(&plain(value))));
            lines.collect::<Vec<_>>().join("\n")
        }
        Value::Null => "nothing".into(),
        other => safe_text(&plain(other)),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Text from elsewhere, safe to look at: characters that move the cursor or hide what stands there
/// are shown as `\u{...}`; line ends and tabs stay.
#[must_use]
pub fn safe_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') || !is_deceptive(c) {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    out
}

/// As [`safe_text`], in one line.
#[must_use]
pub fn safe_line(text: &str) -> String {
    safe_text(&text.replace(['\n', '\r', '\t'], " "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hearth_shared::challenge::VERSION;
    use hearth_shared::command::Class;
    use hearth_shared::identity::{DeviceId, Digest, Nonce, SecretKey};
    use hearth_shared::reading::{BootId, RequestId};
    use serde_json::json;

    /// A pulse of a pump, with a name and a note that try to deceive.
    pub(crate) fn challenge(node: &SecretKey) -> Challenge {
        Challenge {
            v: VERSION,
            hub: DeviceId([1; 32]),
            node: node.device_id(),
            name: "gar\u{202e}age".into(),
            request: RequestId([2; 16]),
            boot: BootId([3; 16]),
            nonce: Nonce([4; 32]),
            policy: Digest([5; 32]),
            class: Class::Actuate,
            need: Need::Hub,
            command: "gpio.pulse".into(),
            params: json!({"pin": "pump", "value": true, "durationMs": 20_000}),
            facts: json!({"line": "simulated:4", "note": "a\u{1b}[2Jb"}),
            always: None,
            valid_ms: 60_000,
        }
    }
}
