//! `hearth notify`: how a person who is not looking is told.

use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::safe_line;
use clap::Subcommand;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the ways that are set up
    Show,
    /// Send a test over every way, and tell which did not work
    Test,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let method = match arguments.action {
        Action::Show => "hearth.notify.status",
        Action::Test => "hearth.notify.test",
    };
    let answer = context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let answer = client.call(method, json!({})).await?;
        client.close().await;
        Ok(answer)
    })?;
    if context.json {
        context.out.json(&answer)?;
    }
    match arguments.action {
        Action::Show if context.json => Ok(()),
        Action::Show => show(&answer, context),
        Action::Test => tested(&answer, context),
    }
}

fn show(status: &Value, context: &Context) -> Result<(), Failure> {
    let out = context.out;
    let text = |v: &Value| v.as_str().map_or_else(|| "-".into(), safe_line);
    out.line(format!("command   {}", text(&status["command"])))?;
    out.line(format!("ntfy      {}", text(&status["ntfy"])))?;
    out.line(format!("browsers  {}", status["browsers"]))?;
    let details = if status["details"] == true { "what waits" } else { "only that something waits" };
    out.line(format!("they tell {details} (`notify.details`)"))
}

fn tested(answer: &Value, context: &Context) -> Result<(), Failure> {
    let sent = answer["sent"].as_array().map(Vec::as_slice).unwrap_or_default();
    if sent.is_empty() {
        return Err(Failure::failed(
            "no way is set up",
            "set `notify.command` or `[notify.ntfy]` in config.toml, or allow notifications in the page",
        ));
    }
    let mut failed = 0;
    for way in sent {
        let text = |name: &str| safe_line(way[name].as_str().unwrap_or_default());
        let outcome = if way["ok"] == true { "sent".to_owned() } else { text("error") };
        failed += usize::from(way["ok"] != true);
        if !context.json {
            context.out.line(format!("{:<8} {} {outcome}", text("way"), text("device")))?;
        }
    }
    if failed == 0 {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{failed} of {} ways did not work", sent.len()),
        "correct `[notify]`, then try again",
    ))
}
