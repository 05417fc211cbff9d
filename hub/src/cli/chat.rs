//! `hearth chat`: talk with the assistant, and decide what it asks for.

mod reply;
mod seen;
mod talk;

pub(super) use reply::Outcome;
pub(super) use talk::{Talk, TalkOptions};

use super::approve::Policy;
use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::keyboard::Keyboard;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Say this, wait for the answer, and end
    text: Option<String>,
    /// Which conversation
    #[arg(long, value_name = "NAME", default_value = "main")]
    session: String,
    /// What to do when the request needs a yes [default: ask in a terminal, else leave it to others]
    #[arg(long, value_enum)]
    approve: Option<Policy>,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    if context.json && arguments.text.is_none() {
        return Err(Failure::usage("--json needs TEXT", "give the message: `hearth chat --json TEXT`"));
    }
    let policy = arguments.approve.or(context.interactive.then_some(Policy::Ask));
    if policy == Some(Policy::Ask) && !context.interactive {
        return Err(Failure::usage(
            "--approve ask needs a terminal",
            "use --approve yes or no, or decide elsewhere with `hearth approvals`",
        ));
    }
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let access = if policy.is_some() { Access::ASKABLE } else { Access::OWNER };
        let client = Client::connect(&target, access).await?;
        let keyboard = if arguments.text.is_none() || policy == Some(Policy::Ask) {
            Some(Keyboard::open()?)
        } else {
            None
        };
        let options = TalkOptions {
            session: arguments.session.clone(),
            policy,
            once: arguments.text.clone(),
            quiet: context.json,
        };
        let outcome = Talk::new(client, &target, access, context, keyboard, options).run().await?;
        match outcome {
            Some(outcome) => finish(&outcome, context),
            None => Ok(()),
        }
    })
}

/// Prints the end of a single request and gives its exit code.
fn finish(outcome: &Outcome, context: &Context) -> Result<(), Failure> {
    if context.json {
        context.out.json(&json!({
            "runId": outcome.run_id,
            "ok": outcome.failure.is_none(),
            "reply": outcome.text,
            "media": outcome.media,
            "error": outcome.failure.as_ref().map(Failure::message),
        }))?;
    }
    match &outcome.failure {
        None => Ok(()),
        Some(failure) => Err(failure.clone()),
    }
}
