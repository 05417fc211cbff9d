//! Rules in words: for verdicts and `policy check`.

use super::{Policy, Rule};
use crate::config::{Beyond, Demand, PolicyRule};
use hearth_shared::command::system::quote_argv;
use hearth_shared::command::{Class, SPECS};

const NOT_YET: &str = "(as hub until this node has two persons' approver keys, or one and a recovery key)";

/// Where a rule stands, for example `policy rule 2 (line 14 of /etc/hearth-node/node.toml)`.
pub(super) fn place(index: usize, line: usize, file: &str) -> String {
    match line {
        0 => format!("policy rule {} of {file}", index + 1),
        line => format!("policy rule {} (line {line} of {file})", index + 1),
    }
}

/// A rule in a verdict: what, where, who can change it.
pub(super) fn rule(index: usize, rule: &PolicyRule, file: &str) -> String {
    format!(
        "{}: {} → {}; only the owner of this node can change it, in that file",
        place(index, rule.line, file),
        conditions(rule),
        demand(rule.need)
    )
}

/// The default of a class in a verdict.
pub(super) fn default(class: Class, wanted: Demand, person_in_force: bool, file: &str) -> String {
    let class = class.as_str();
    let early =
        if wanted == Demand::Person && !person_in_force { format!(" {NOT_YET}") } else { String::new() };
    format!(
        "policy.{class} of {file}: {class} → {}{early}; only the owner of this node can change it, in that file",
        demand(wanted)
    )
}

fn demand(demand: Demand) -> &'static str {
    match demand {
        Demand::None => "none",
        Demand::Hub => "hub",
        Demand::Person => "person",
        Demand::Deny => "deny",
    }
}

/// The conditions and limits of a rule on one line.
fn conditions(rule: &PolicyRule) -> String {
    let mut parts = vec![rule.command.clone()];
    for (name, value) in [("pin", &rule.pin), ("camera", &rule.camera), ("sensor", &rule.sensor)] {
        parts.extend(value.as_ref().map(|value| format!("{name} {value}")));
    }
    parts.extend(rule.value.map(|on| if on { "on" } else { "off" }.to_owned()));
    parts.extend(rule.max_duration_ms.map(|ms| format!("at most {ms} ms")));
    parts.extend(rule.longer_than_ms.map(|ms| format!("longer than {ms} ms")));
    parts.extend(rule.run.as_ref().map(|run| quote_argv(run)));
    parts.extend(rule.cwd.as_ref().map(|cwd| format!("in {cwd}")));
    parts.extend(rule.between_utc.as_ref().map(|window| format!("{window} UTC")));
    parts.extend(rule.uses.map(|n| format!("{n} uses in all")));
    parts.extend(rule.uses_per_boot.map(|n| format!("{n} uses per start")));
    parts.extend(rule.uses_per_hour.map(|n| format!("{n} uses per powered hour")));
    if rule.beyond == Beyond::Ask {
        parts.push("then ask".to_owned());
    }
    parts.join(", ")
}

impl Policy {
    /// Remarks on a valid policy for `hearth-node policy check`; empty when there is nothing to say.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for (i, rule) in self.rules.iter().enumerate() {
            let here = place(i, rule.text.line, &self.file);
            if rule.text.need == Demand::Person {
                remarks.push(format!(
                    "{here} needs a person: while `hearth-node approvers` lists no person's key, it refuses"
                ));
            }
            if let Some(earlier) = self.rules[..i].iter().position(|earlier| earlier.hides(rule)) {
                remarks.push(format!("{here} never decides: rule {} fits all it fits", earlier + 1));
            }
            let executes = SPECS.iter().any(|s| s.class == Class::Execute && rule.covers(s.name));
            if executes && rule.text.need == Demand::None && rule.text.run.is_none() {
                remarks.push(format!("{here} lets the hub run any program without asking"));
            }
        }
        for class in [Class::Actuate, Class::Execute] {
            if self.default_for(class) == Demand::None {
                let class = class.as_str();
                remarks.push(format!("policy.{class} = \"none\" lets the hub {class} without asking"));
            }
        }
        remarks
    }
}

impl Rule {
    fn hides(&self, later: &Self) -> bool {
        self.has_no_conditions()
            && !self.is_limited()
            && SPECS.iter().filter(|s| later.covers(s.name)).all(|s| self.covers(s.name))
    }
}
