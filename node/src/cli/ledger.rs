//! `hearth-node audit` and `hearth-node always`

use super::open::hold;
use super::{Context, Failure};
use crate::control::ledger::{PAGE, Query, consult};
use crate::control::{Answer, Request, ask};
use clap::Subcommand;
use hearth_shared::command::system::quote_argv;
use hearth_shared::identity::display_safe;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Widest details of a record on a terminal.
const MAX_DETAILS: usize = 400;

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub(super) struct AuditArguments {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Show the last records
    Show {
        /// How many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        last: u64,
    },
    /// Walk the whole log and check every link of its chain
    Verify,
}

/// Arguments of `always`.
#[derive(Debug, clap::Args)]
pub(super) struct AlwaysArguments {
    #[command(subcommand)]
    command: AlwaysCommand,
}

#[derive(Debug, Subcommand)]
enum AlwaysCommand {
    /// Show what runs without asking because somebody said "always"
    List,
    /// Remove a rule: what it allowed is asked for again
    Remove {
        /// Its number
        number: u64,
    },
}

/// # Errors
/// [`Failure`]; 1 when the log does not verify.
pub(super) async fn audit(context: &Context, arguments: AuditArguments) -> Result<(), Failure> {
    match arguments.command {
        AuditCommand::Verify => {
            let value = put(context, Query::Verify).await?;
            context.print(&value, |v| {
                if v["head"]["seq"] == 0 {
                    return "The audit log is empty.\n".into();
                }
                format!(
                    "The audit log is whole: records {} to {}, head {}.\n",
                    v["anchor"]["seq"].as_u64().unwrap_or(0) + 1,
                    v["head"]["seq"],
                    v["head"]["hash"].as_str().unwrap_or_default()
                )
            })
        }
        AuditCommand::Show { last } => {
            let value = put(context, Query::Records { after: u64::MAX - 1 }).await?;
            let head = value["head"]["seq"].as_u64().unwrap_or(0);
            let mut after = head.saturating_sub(last);
            let mut records = Vec::new();
            loop {
                let page = put(context, Query::Records { after }).await?;
                let page = page["records"].as_array().cloned().unwrap_or_default();
                let full = page.len() == PAGE;
                after = page.last().and_then(|r| r["seq"].as_u64()).unwrap_or(after);
                records.extend(page);
                if !full || after >= head {
                    break;
                }
            }
            context.print(&json!({"head": value["head"], "records": records}), human_records)
        }
    }
}

/// # Errors
/// [`Failure`].
pub(super) async fn always(context: &Context, arguments: AlwaysArguments) -> Result<(), Failure> {
    match arguments.command {
        AlwaysCommand::List => {
            let value = put(context, Query::Always).await?;
            context.print(&value, human_rules)
        }
        AlwaysCommand::Remove { number } => {
            let value = put(context, Query::RemoveAlways { number }).await?;
            context.print(&value, |_| format!("Removed always-rule {number}.\n"))
        }
    }
}

/// In the running node if there is one, else here.
async fn put(context: &Context, query: Query) -> Result<Value, Failure> {
    match ask(&context.home, &Request::Ledger { query: query.clone() }).await {
        Ok(Some(Answer::Ok(value))) => Ok(value),
        Ok(Some(Answer::Error(error))) => Err(Failure::new(1, error)),
        Ok(None) => consult(&hold(context, false)?.guard, &query).map_err(|e| Failure::new(1, e)),
        Err(error) => {
            Err(Failure::new(1, format!("the running node does not answer: {error}; stop it first")))
        }
    }
}

fn human_records(value: &Value) -> String {
    let mut out = String::new();
    for record in value["records"].as_array().into_iter().flatten() {
        let kind = display_safe(record["kind"].as_str().unwrap_or_default(), 40);
        let body = display_safe(record["body"].as_str().unwrap_or_default(), MAX_DETAILS);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:>6}  {:>14}  {kind:<20}  {body}", record["seq"], record["atMs"]);
    }
    if out.is_empty() { "The audit log is empty.\n".into() } else { out }
}

fn human_rules(value: &Value) -> String {
    let mut out = String::new();
    for stored in value["rules"].as_array().into_iter().flatten() {
        let rule = &stored["rule"];
        let argv: Option<Vec<String>> = serde_json::from_value(rule["params"]["command"].clone()).ok();
        let what = match argv {
            Some(argv) => quote_argv(&argv),
            None => rule["params"].to_string(),
        };
        let _ = writeln!(
            out,
            "{:>4}  {}  {}\n      needs {}, given by {}, while: {}",
            stored["number"],
            rule["command"].as_str().unwrap_or_default(),
            display_safe(&what, MAX_DETAILS),
            stored["need"].as_str().unwrap_or_default(),
            stored["signer"].as_str().unwrap_or_default().chars().take(12).collect::<String>(),
            display_safe(&rule["facts"].to_string(), MAX_DETAILS),
        );
    }
    if out.is_empty() { "No always-rule: everything that needs a yes is asked for.\n".into() } else { out }
}
