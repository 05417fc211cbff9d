//! `hearth channels`: how chats stand, who may write, and letting people in.

use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::{ago, safe_line};
use crate::store::now_ms;
use clap::Subcommand;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List channels and how they stand
    List,
    /// Show one channel: its state, who may write, who waits
    Status(Which),
    /// Ask the platform who the hub is there, and send a test message if you name a person
    Test(Test),
    /// Let the person in who was given this code
    Allow(Allow),
    /// Forget a person who was let in with a code
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Which {
    /// For example `telegram`
    channel: String,
}

#[derive(Debug, clap::Args)]
struct Test {
    /// For example `telegram`
    channel: String,
    /// The platform's id of the person who gets a test message; for `webchat` and `terminal` a session
    #[arg(long, value_name = "ID")]
    to: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Allow {
    /// For example `telegram`
    channel: String,
    /// The code of 8 characters
    code: String,
    /// He may also decide approvals there
    #[arg(long)]
    approver: bool,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// For example `telegram`
    channel: String,
    /// The platform's id, as `hearth channels status` shows it
    person: String,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let result = match &arguments.action {
            Action::List | Action::Status(_) => client.call("hearth.channels.list", json!({})).await?,
            Action::Test(a) => {
                let params = json!({ "channel": a.channel, "person": a.to });
                client.call("hearth.channels.test", params).await?
            }
            Action::Allow(a) => {
                let params = json!({ "channel": a.channel, "code": a.code, "mayDecide": a.approver });
                client.call("hearth.channels.allow", params).await?
            }
            Action::Remove(a) => {
                let params = json!({ "channel": a.channel, "person": a.person });
                client.call("hearth.channels.remove", params).await?
            }
        };
        client.close().await;
        match &arguments.action {
            Action::List if !context.json => show(context, &result),
            Action::Status(which) => status(context, &result, &which.channel),
            _ if context.json => context.out.json(&result),
            Action::List => Ok(()),
            Action::Test(a) => {
                let sent = if a.to.is_some() { "; the test message was sent" } else { "" };
                context.out.line(format!(
                    "{} works: the hub is {}{sent}",
                    a.channel,
                    text(&result, "account")
                ))
            }
            Action::Allow(_) => {
                let may = if result["mayDecide"] == true { "write and decide approvals" } else { "write" };
                context.out.line(format!("{} ({}) may {may} now", text(&result, "name"), text(&result, "id")))
            }
            Action::Remove(a) => {
                context.out.line(format!("{} is forgotten on {}", safe_line(&a.person), a.channel))
            }
        }
    })
}

fn text(value: &Value, name: &str) -> String {
    safe_line(value[name].as_str().unwrap_or_default())
}

fn entries<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn show(context: &Context, list: &Value) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = entries(list, "channels")
        .iter()
        .map(|c| {
            vec![
                text(c, "name"),
                text(c, "state"),
                c["waiting"].to_string(),
                entries(c, "knocks").len().to_string(),
                text(c, "error"),
            ]
        })
        .collect();
    context.out.table(&["CHANNEL", "STATE", "UNSENT", "KNOCKS", "LAST ERROR"], &rows)
}

fn status(context: &Context, list: &Value, name: &str) -> Result<(), Failure> {
    let found = entries(list, "channels").iter().find(|c| c["name"] == name);
    let Some(channel) = found else {
        return Err(Failure::not_found(
            format!("no channel `{}` is configured", safe_line(name)),
            "see `hearth channels list`; `hearth config example` shows how one is configured",
        ));
    };
    if context.json {
        return context.out.json(channel);
    }
    let now = now_ms();
    let since = |key: &str| channel[key].as_u64().map_or_else(|| "never".into(), |at| ago(at, now));
    let strings = |key: &str| {
        let all: Vec<String> =
            entries(channel, key).iter().map(|v| safe_line(v.as_str().unwrap_or_default())).collect();
        if all.is_empty() { "nobody".to_owned() } else { all.join(", ") }
    };
    let mut lines = vec![
        format!("{}: {}, since {}", text(channel, "name"), text(channel, "state"), since("sinceMs")),
        format!("  can:       {}", strings("capabilities").replace("nobody", "words")),
        format!("  received:  {}", since("lastReceivedMs")),
        format!(
            "  sent:      {}; {} wait, {} failed",
            since("lastSentMs"),
            channel["waiting"],
            channel["failed"]
        ),
    ];
    if !channel["error"].is_null() {
        lines.push(format!("  error:     {}", text(channel, "error")));
    }
    lines.push(format!("  approvers: {} (by the configuration)", strings("approvers")));
    lines.push(format!("  allowed:   {} (by the configuration)", strings("allow")));
    for person in entries(channel, "people") {
        let may = if person["mayDecide"] == true { "writes and decides" } else { "writes" };
        lines.push(format!(
            "  let in:    {} ({}), {may}, by {}",
            text(person, "name"),
            text(person, "id"),
            text(person, "addedBy")
        ));
    }
    for knock in entries(channel, "knocks") {
        let at = knock["createdAtMs"].as_u64().unwrap_or_default();
        lines.push(format!(
            "  waits:     {} ({}), {}; ask for the code, then `hearth channels allow {} CODE`",
            text(knock, "name"),
            text(knock, "id"),
            ago(at, now),
            text(channel, "name")
        ));
    }
    context.out.line(lines.join("\n"))
}
