//! `hearth-node approvers`: the node's own list, changed by its owner, on the node.

use super::open::hold;
use super::{Context, Failure, confirm};
use crate::control::{Answer, ApproverChange, Request, ask, change_approvers};
use clap::{Subcommand, ValueEnum};
use hearth_shared::approver::{Approver, ApproverKind};
use hearth_shared::identity::{DeviceId, PublicKey, display_safe};
use hearth_shared::limits::MAX_NAME_CHARS;
use serde_json::Value;
use std::fmt::Write as _;

/// Arguments of `approvers`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the list
    List,
    /// Add a person's key (`hearth approver` shows it)
    Add {
        /// The public key: base64url (which may begin with `-`) or 64 hex digits
        #[arg(allow_hyphen_values = true)]
        key: String,
        /// Name for people
        #[arg(long)]
        name: String,
        /// Where the key lives
        #[arg(long, default_value = "terminal")]
        kind: Kind,
        /// It may change this list
        #[arg(long)]
        admin: bool,
    },
    /// Remove an approver
    Remove {
        /// Its id or the beginning of it, at least 6 digits
        id: String,
    },
    /// Take off every person and the recovery key, when all are lost
    Reset {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Make a new recovery key, to be kept on paper
    Recovery,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Terminal,
    Page,
}

/// Lists or changes.
///
/// # Errors
/// [`Failure`].
pub(super) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let change = match arguments.command.unwrap_or(Command::List) {
        Command::List => ApproverChange::List,
        Command::Add { key, name, kind, admin } => {
            let key = key.parse::<PublicKey>().or_else(|_| PublicKey::from_wire(&key));
            let key = key.map_err(|e| Failure::new(2, e.to_string()))?;
            let kind = match kind {
                Kind::Terminal => ApproverKind::Terminal,
                Kind::Page => ApproverKind::Page,
            };
            ApproverChange::Add(Approver { key, kind, admin, name })
        }
        Command::Remove { id } => ApproverChange::Remove(find(context, &id).await?),
        Command::Reset { yes } => {
            let question = "Take off every person, the recovery key and all always-rules?";
            if !yes && !confirm(question).await? {
                return Err(Failure::new(1, "nothing was changed"));
            }
            ApproverChange::Reset
        }
        Command::Recovery => ApproverChange::Recovery,
    };
    let value = apply(context, change).await?;
    context.print(&value, human)
}

/// Whether need `person` is in force on this node; a home that was never used has no approvers.
///
/// # Errors
/// [`Failure`] when the list cannot be read.
pub(super) async fn person_in_force(context: &Context) -> Result<bool, Failure> {
    if !context.home.database().exists() {
        return Ok(false);
    }
    Ok(apply(context, ApproverChange::List).await?["personInForce"] == true)
}

/// In the running node if there is one, else here.
async fn apply(context: &Context, change: ApproverChange) -> Result<Value, Failure> {
    match ask(&context.home, &Request::Approvers { change: change.clone() }).await {
        Ok(Some(Answer::Ok(value))) => Ok(value),
        Ok(Some(Answer::Error(error))) => Err(Failure::new(1, error)),
        Ok(None) => Ok(change_approvers(&hold(context, false)?.guard, change)?),
        Err(error) => {
            Err(Failure::new(1, format!("the running node does not answer: {error}; stop it first")))
        }
    }
}

async fn find(context: &Context, prefix: &str) -> Result<DeviceId, Failure> {
    if let Ok(id) = prefix.parse() {
        return Ok(id);
    }
    if prefix.len() < 6 {
        return Err(Failure::new(2, "give at least 6 digits of the id; see `hearth-node approvers list`"));
    }
    let value = apply(context, ApproverChange::List).await?;
    let ids = value["approvers"].as_array().into_iter().flatten().filter_map(|a| a["id"].as_str());
    let mut fitting = ids.filter(|id| id.starts_with(prefix));
    match (fitting.next(), fitting.next()) {
        (Some(id), None) => id.parse().map_err(|e| Failure::new(1, format!("{e}"))),
        (None, _) => Err(Failure::new(1, "no approver has this id; see `hearth-node approvers list`")),
        _ => Err(Failure::new(1, "several approvers begin so; give more digits")),
    }
}

fn human(value: &Value) -> String {
    let mut out = String::new();
    let short = |v: &Value| v.as_str().unwrap_or_default().chars().take(12).collect::<String>();
    for approver in value["approvers"].as_array().into_iter().flatten() {
        let admin = if approver["admin"] == true { ", may change this list" } else { "" };
        let name = display_safe(approver["name"].as_str().unwrap_or_default(), MAX_NAME_CHARS);
        let kind = approver["kind"].as_str().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}  {kind:<8}  {name}{admin}", short(&approver["id"]));
    }
    if out.is_empty() {
        out.push_str("No approver: nothing that needs one can run. Pair with `hearth-node pair CODE`.\n");
    }
    let recovery = &value["recovery"];
    let _ = match recovery {
        Value::Null => writeln!(out, "Recovery key: none (`hearth-node approvers recovery` makes one)"),
        id => writeln!(out, "Recovery key: {}", short(id)),
    };
    let force = if value["personInForce"] == true {
        "in force"
    } else {
        "not in force: it takes two persons' keys, or one and a recovery key"
    };
    let _ = writeln!(out, "Need `person`: {force}");
    if let Some(phrase) = value["phrase"].as_str() {
        let _ = writeln!(
            out,
            "\nWrite these 24 words on paper. They are shown once and stored nowhere:\n\n  {phrase}\n"
        );
    }
    out
}
