//! The node's own rules: a pure function from a command to a verdict.
//!
//! Nothing here reads a clock, a file or the network; [`Context`] brings what a rule may look at. Each
//! verdict names the rule, where it stands and who can change it.

mod matching;
mod render;

use super::uses::{Limits, Uses};
use crate::config::{Beyond, Config, Demand, PolicyConfig, PolicyRule};
use crate::guard::GuardError;
use hearth_shared::command::{Class, Invocation, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::identity::Digest;
use matching::Window;

/// Rules in one file.
const MAX_RULES: usize = 128;

/// A checked policy.
#[derive(Debug, Clone)]
pub struct Policy {
    defaults: PolicyConfig,
    rules: Vec<Rule>,
    file: String,
    digest: Digest,
}

/// A checked rule.
#[derive(Debug, Clone)]
struct Rule {
    text: PolicyRule,
    window: Option<Window>,
    /// Names the rule's counters: they survive a move within the file and end with any edit.
    key: Digest,
}

/// What a rule may look at beside the command.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Whether need `person` is in force.
    pub person_in_force: bool,
    /// Minute of the day in UTC, when the clock is set by the network.
    pub minute_utc: Option<u16>,
    /// Counted uses; none for a dry run.
    pub uses: Option<&'a Uses>,
    /// Milliseconds of powered time.
    pub powered_ms: u64,
}

/// What the policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Allow { rule: String },
    /// Somebody must say yes first.
    Ask { need: Need, rule: String },
    /// It may not run: `DENIED`, or `RATE_LIMITED` when a rule's limit is reached.
    Deny { code: ErrorCode, rule: String },
}

/// A verdict, and the rule whose limits an execution counts against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What the policy says.
    pub verdict: Verdict,
    /// Key of the limited rule.
    pub counts: Option<Digest>,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Allow { rule } => write!(f, "allow: {rule}"),
            Self::Ask { need, rule } => write!(f, "ask (need {}): {rule}", need.as_str()),
            Self::Deny { rule, .. } => write!(f, "deny: {rule}"),
        }
    }
}

impl Policy {
    /// Checks `[policy]`; the digest covers it and `[board]`.
    ///
    /// # Errors
    /// [`GuardError::Policy`]: the rule, the key in it and what is allowed.
    pub fn compile(config: &Config) -> Result<Self, GuardError> {
        let file = match &config.file {
            Some(path) => path.display().to_string(),
            None => "node.toml".to_owned(),
        };
        if config.policy.rule.len() > MAX_RULES {
            return Err(GuardError::Policy(format!(
                "{} rules in {file}, the limit is {MAX_RULES}",
                config.policy.rule.len()
            )));
        }
        let rules = config
            .policy
            .rule
            .iter()
            .enumerate()
            .map(|(i, rule)| {
                Rule::compile(rule).map_err(|why| {
                    GuardError::Policy(format!("{}: {why}", render::place(i, rule.line, &file)))
                })
            })
            .collect::<Result<_, _>>()?;
        // Typed and ordered: comments and layout of the file do not matter, every value does.
        let canonical = serde_json::to_vec(&(&config.policy, &config.board))
            .map_err(|e| GuardError::Policy(format!("{file}: {e}")))?;
        Ok(Self { defaults: config.policy.clone(), rules, file, digest: Digest::of(&canonical) })
    }

    /// Hash over the policy and the configuration of devices.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What the rules say of a command.
    #[must_use]
    pub fn evaluate(&self, invocation: &Invocation, context: &Context<'_>) -> Judgement {
        let default = self.default_for(invocation.class());
        let mut used_up = String::new();
        for (i, rule) in self.rules.iter().enumerate() {
            if !rule.fits(invocation, default, context.minute_utc) {
                continue;
            }
            let name = render::rule(i, &rule.text, &self.file);
            let limited = rule.is_limited() && invocation.class() != Class::Observe;
            if limited
                && let Some(limit) =
                    context.uses.and_then(|u| u.reached(&rule.key, rule.limits(), context.powered_ms))
            {
                match rule.text.beyond {
                    Beyond::Deny => {
                        let rule = format!("the limit of {limit} is reached: {name}");
                        let verdict = Verdict::Deny { code: ErrorCode::RateLimited, rule };
                        return Judgement { verdict, counts: None };
                    }
                    Beyond::Ask => {
                        used_up = format!("; the limit of {limit} is reached: {name}");
                        break;
                    }
                }
            }
            let verdict = match rule.text.need {
                Demand::None => Verdict::Allow { rule: name },
                Demand::Hub => Verdict::Ask { need: Need::Hub, rule: name },
                Demand::Person => Verdict::Ask { need: Need::Person, rule: name },
                Demand::Deny => Verdict::Deny { code: ErrorCode::Denied, rule: name },
            };
            return Judgement { verdict, counts: limited.then_some(rule.key) };
        }
        let asked = !used_up.is_empty();
        let rule =
            render::default(invocation.class(), default, context.person_in_force, &self.file) + &used_up;
        let verdict = match default {
            Demand::None if asked => Verdict::Ask { need: Need::Hub, rule },
            Demand::None => Verdict::Allow { rule },
            Demand::Person if context.person_in_force => Verdict::Ask { need: Need::Person, rule },
            Demand::Hub | Demand::Person => Verdict::Ask { need: Need::Hub, rule },
            Demand::Deny => Verdict::Deny { code: ErrorCode::Denied, rule },
        };
        Judgement { verdict, counts: None }
    }

    /// A dry run for `hearth-node policy test COMMAND PARAMS`.
    ///
    /// # Errors
    /// `UNKNOWN_COMMAND` or `INVALID_PARAMS`.
    pub fn test(
        &self,
        command: &str,
        params: &str,
        person_in_force: bool,
        minute_utc: Option<u16>,
    ) -> Result<Verdict, CommandError> {
        let invocation = Invocation::parse(command, params)?;
        let context = Context { person_in_force, minute_utc, uses: None, powered_ms: 0 };
        Ok(self.evaluate(&invocation, &context).verdict)
    }

    /// The least a command may need, before its parameters are known: for the declaration.
    #[must_use]
    pub fn declared_need(&self, command: &str, class: Class, person_in_force: bool) -> Need {
        let whole = |rule: &&Rule| rule.covers(command) && rule.has_no_conditions();
        let demand = self.rules.iter().find(whole).map_or_else(
            || match self.default_for(class) {
                Demand::Person if !person_in_force => Demand::Hub,
                other => other,
            },
            |rule| rule.text.need,
        );
        match demand {
            Demand::None => Need::None,
            Demand::Hub => Need::Hub,
            // A denied command is declared with the largest need; the refusal names the rule.
            Demand::Person | Demand::Deny => Need::Person,
        }
    }

    fn default_for(&self, class: Class) -> Demand {
        match class {
            Class::Observe => self.defaults.observe,
            Class::Capture => self.defaults.capture,
            Class::Actuate => self.defaults.actuate,
            Class::Execute => self.defaults.execute,
        }
    }
}

impl Rule {
    fn limits(&self) -> Limits {
        Limits { ever: self.text.uses, boot: self.text.uses_per_boot, hour: self.text.uses_per_hour }
    }

    fn is_limited(&self) -> bool {
        self.limits() != Limits::default()
    }
}

#[cfg(test)]
mod tests;
