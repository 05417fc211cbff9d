//! `hearth-node policy`

use super::approvers::person_in_force;
use super::{Context, Failure};
use crate::config::{Config, EXAMPLE};
use crate::guard::policy::{Policy, Verdict};
use clap::Subcommand;
use serde_json::json;

/// Arguments of `policy`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the rules in force for a node started now
    Show,
    /// Check the file
    Check,
    /// Say what would become of a request; nothing runs
    Test {
        /// For example `gpio.pulse`
        command: String,
        /// Parameters as JSON
        #[arg(default_value = "{}")]
        params: String,
        /// As if need `person` were in force, also while the node has too few approvers for it
        #[arg(long)]
        person: bool,
        /// As if it were this time of day in UTC, for rules with `between_utc`
        #[arg(long, value_name = "HH:MM", value_parser = minute)]
        at: Option<u16>,
    },
}

fn minute(text: &str) -> Result<u16, String> {
    let (hour, minute) = text.split_once(':').ok_or("a time is HH:MM")?;
    match (hour.parse::<u16>(), minute.parse::<u16>()) {
        (Ok(hour @ 0..=23), Ok(minute @ 0..=59)) => Ok(hour * 60 + minute),
        _ => Err("a time is 00:00 to 23:59".into()),
    }
}

/// Rules come from the file; whether need `person` is in force comes from the node's list of approvers.
///
/// # Errors
/// [`Failure`].
pub(super) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let path = context.home.config();
    let config = Config::load(&path)?;
    let policy = Policy::compile(&config)?;
    match arguments.command {
        Command::Check => {
            let remarks = policy.check();
            let value = json!({
                "file": path,
                "rules": config.policy.rule.len(),
                "policy": policy.digest(),
                "remarks": remarks,
            });
            context.print(&value, |_| {
                let notes: String = remarks.iter().map(|r| format!("note: {r}\n")).collect();
                format!("{}: {} rules, in order\n{notes}", path.display(), config.policy.rule.len())
            })
        }
        Command::Show => {
            let person = person_in_force(context).await?;
            let value = json!({
                "file": path, "policy": config.policy, "hash": policy.digest(), "personInForce": person,
            });
            context.print(&value, |_| show(&config, &path, &policy, person))
        }
        Command::Test { command, params, person, at } => {
            let person = person || person_in_force(context).await?;
            let verdict = policy.test(&command, &params, person, at)?;
            let (word, need, rule) = match &verdict {
                Verdict::Allow { rule } => ("allow", None, rule),
                Verdict::Ask { need, rule } => ("ask", Some(need.as_str()), rule),
                Verdict::Deny { rule, .. } => ("deny", None, rule),
            };
            context.print(&json!({"verdict": word, "need": need, "rule": rule}), |_| format!("{verdict}\n"))
        }
    }
}

fn show(config: &Config, path: &std::path::Path, policy: &Policy, person: bool) -> String {
    let body = toml::to_string(&config.policy).unwrap_or_default();
    let note = if path.exists() {
        String::new()
    } else {
        format!(" (there is no such file; {} keys with their defaults: `hearth-node config example`)", {
            EXAMPLE.lines().filter(|l| l.starts_with("#:") && l.contains('=')).count()
        })
    };
    let force = if person {
        "is in force"
    } else {
        "counts as `hub` until this node has two persons' approver keys, or one and a recovery key"
    };
    format!(
        "# {}{note}\n# hash {}\n# need `person` {force}\n[policy]\n{}",
        path.display(),
        policy.digest(),
        body.replace("[[rule]]", "[[policy.rule]]")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_checked() {
        assert_eq!(minute("06:30"), Ok(390));
        assert!(minute("24:00").is_err() && minute("6").is_err() && minute("a:b").is_err());
    }

    #[test]
    fn what_show_prints_can_be_put_back() {
        let text =
            "[policy]\ncapture = \"deny\"\n[[policy.rule]]\ncommand = \"camera.snap\"\nneed = \"none\"\n";
        let path = std::path::Path::new("node.toml");
        let config = Config::parse(text, path).unwrap();
        let policy = Policy::compile(&config).unwrap();
        let again = Config::parse(&show(&config, path, &policy, false), path).unwrap();
        assert_eq!(again.policy.capture, config.policy.capture);
        assert_eq!(again.policy.rule.len(), 1);
    }
}
