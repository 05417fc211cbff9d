//! `hearth nodes`: what is there, what it can do, and running a command on it.

mod invoke;
mod show;

use super::approve::Policy;
use super::client::{Access, Client, Target};
use super::context::Context;
use super::devices::pick;
use super::error::Failure;
use clap::Subcommand;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List nodes
    List,
    /// Show a node: its commands with parameters, parts, approvers, health
    Show(Which),
    /// Run a command on a node; waits for the approval if it needs one
    Invoke(Invoke),
    /// Give a node another name
    Rename {
        /// Node id (its head is enough) or name
        node: String,
        /// The new name
        name: String,
    },
    /// Forget a node; it must pair again
    Remove(Which),
    /// Approve what a node declares beyond what was approved
    Approve(Which),
    /// Refuse what a node declares beyond what was approved
    Reject(Which),
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Node id (its head is enough) or name
    node: String,
}

#[derive(Debug, clap::Args)]
struct Invoke {
    /// Node id (its head is enough) or name
    node: String,
    /// Command, for example camera.snap
    command: String,
    /// Parameters as a JSON object, for example '{"pin":"pump","durationMs":20000}'
    params: Option<String>,
    /// Write the attachment (a picture) to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Seconds for everything, an approval included [default: 30 s for the command, and for an approval as long as
    /// requests wait for one]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1800))]
    timeout: Option<u64>,
    /// Why: at most 200 characters, shown below the card
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Wait for a node that is away
    #[arg(long)]
    wait: bool,
    /// What to do when the command needs a yes [default: ask in a terminal, else leave it to others]
    #[arg(long, value_enum)]
    approve: Option<Policy>,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let access = match &arguments.action {
            Action::Invoke(i) if invoke::policy(i, context)?.is_some() => Access::ASKABLE,
            _ => Access::OWNER,
        };
        let mut client = Client::connect(&target, access).await?;
        let list = client.call("node.list", json!({})).await?;
        let find = |which: &str| {
            let all = list["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
            pick(all, which, &["nodeId", "displayName"], "node").cloned()
        };
        let id = |node: &Value| node["nodeId"].as_str().unwrap_or_default().to_owned();
        let (result, done) = match &arguments.action {
            Action::List => return show::list(context, &list),
            Action::Show(a) => {
                let node = find(&a.node)?;
                let full = client.call("node.describe", json!({ "nodeId": id(&node) })).await?;
                return show::one(context, &full);
            }
            Action::Invoke(a) => {
                let node = find(&a.node)?;
                return invoke::run(client, &id(&node), a, context).await;
            }
            Action::Rename { node, name } => {
                let params = json!({ "nodeId": id(&find(node)?), "displayName": name });
                (client.call("node.rename", params).await?, "renamed")
            }
            Action::Remove(a) => {
                let params = json!({ "deviceId": id(&find(&a.node)?) });
                (client.call("device.pair.remove", params).await?, "forgotten; it must pair again")
            }
            Action::Approve(a) => {
                let params = json!({ "requestId": pending(&find(&a.node)?)? });
                (client.call("node.pair.approve", params).await?, "approved; the new parts may be used now")
            }
            Action::Reject(a) => {
                let params = json!({ "requestId": pending(&find(&a.node)?)? });
                (client.call("node.pair.reject", params).await?, "refused; what was approved before works on")
            }
        };
        client.close().await;
        if context.json { context.out.json(&result) } else { context.out.line(done) }
    })
}

/// The request id of what waits of a node.
fn pending(node: &Value) -> Result<String, Failure> {
    node["pendingRequestId"].as_str().map(str::to_owned).ok_or_else(|| {
        Failure::not_found("nothing of this node waits for approval", "see `hearth nodes show NODE`")
    })
}
