//! `hearth approvals`: what waits for a decision, and deciding as this machine's owner.

use super::approve;
use super::card::short;
use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::{ago, safe_line, span};
use crate::store::now_ms;
use clap::Subcommand;
use hearth_shared::grant::Decision;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List what waits
    List {
        /// Also what was decided, expired or withdrawn
        #[arg(long)]
        all: bool,
    },
    /// Show the card: what would run, exactly
    Show(Which),
    /// Allow it once, or always
    Allow {
        #[command(flatten)]
        which: Which,
        /// Store the rule that the card shows, so that this is not asked again
        #[arg(long)]
        always: bool,
    },
    /// Deny it
    Deny(Which),
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Approval id; its head is enough
    id: String,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        match &arguments.action {
            Action::List { all } => {
                let list = client.call("approval.list", json!({ "all": all })).await?;
                client.close().await;
                list_of(context, &list)
            }
            Action::Show(which) => {
                let answer = client.call("approval.get", json!({ "id": which.id })).await?;
                let card = approve::card_of(&answer)?;
                client.close().await;
                if context.json {
                    return context.out.json(&answer);
                }
                context.out.raw(card.text(now_ms()))?;
                if let Some(decision) = &card.told.decision {
                    let by = safe_line(card.told.decided_by.as_deref().unwrap_or("nobody"));
                    return context.out.line(format!("{} by {by}", safe_line(decision)));
                }
                if card.told.status != "pending" {
                    return context.out.line(safe_line(&card.told.status));
                }
                let id = short(&card.told.id);
                let command = if card.needs_person() { "approver" } else { "approvals" };
                context.out.line(format!(
                    "decide with `hearth {command} allow {id}` or `hearth {command} deny {id}`"
                ))
            }
            Action::Allow { which, always } => {
                let decision = if *always { Decision::AllowAlways } else { Decision::AllowOnce };
                decide(client, &which.id, decision, context).await
            }
            Action::Deny(which) => decide(client, &which.id, Decision::Deny, context).await,
        }
    })
}

async fn decide(mut client: Client, id: &str, decision: Decision, context: &Context) -> Result<(), Failure> {
    let card = approve::fetch(&mut client, id).await?;
    if card.needs_person() && decision != Decision::Deny {
        return Err(Failure::denied(
            "this needs a yes signed with a person's own key",
            format!("decide with `hearth approver allow {}`", short(&card.told.id)),
        ));
    }
    if decision == Decision::AllowAlways && card.signed.is_some() && !card.offers_always_by_hub() {
        return Err(Failure::usage(
            "\"always\" cannot be chosen for this",
            "allow it once: leave --always out",
        ));
    }
    let answer = approve::decide(&mut client, &card, decision).await?;
    client.close().await;
    if context.json {
        return context.out.json(&answer);
    }
    context.out.raw(card.text(now_ms()))?;
    context.out.line(match decision {
        Decision::Deny => "denied",
        Decision::AllowOnce => "allowed once",
        Decision::AllowAlways => "allowed, and the rule is stored on the node",
    })
}

fn list_of(context: &Context, list: &Value) -> Result<(), Failure> {
    if context.json {
        return context.out.json(list);
    }
    let all = list["approvals"].as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        return context.out.line("Nothing waits for a decision.");
    }
    let now = now_ms();
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|a| {
            let told = approve::told(a);
            let state = match told.status.as_str() {
                "pending" => format!("waits, {} left", span(told.expires_ms.saturating_sub(now))),
                _ => match (&told.decision, &told.decided_by) {
                    (Some(decision), Some(by)) => format!("{} by {}", safe_line(decision), safe_line(by)),
                    _ => safe_line(&told.status),
                },
            };
            vec![
                short(&told.id),
                safe_line(&told.node_name),
                safe_line(&told.sentence),
                safe_line(&told.need),
                safe_line(&told.requester),
                ago(told.created_ms, now),
                state,
            ]
        })
        .collect();
    context.out.table(&["APPROVAL", "NODE", "WHAT", "NEEDS", "ASKED BY", "SINCE", "STATE"], &rows)
}
