//! `hearth audit`: the log of who asked, who decided and what ran, and whether it is whole.

use super::approver_home::ApproverHome;
use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::{safe_line, time};
use clap::Subcommand;
use serde_json::{Value, json};

/// Records fetched at once.
const PAGE: u64 = 500;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the last records, oldest first
    Show {
        /// How many
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
        lines: u64,
        /// Begin after this record number instead
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
    },
    /// Walk the whole chain, and compare it with what nodes and this person's approver hold
    Verify {
        /// Approver whose notes are compared [default: ~/.local/state/hearth-approver, if there is one]
        #[arg(long, value_name = "DIR")]
        approver_home: Option<std::path::PathBuf>,
    },
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        match &arguments.action {
            Action::Show { lines, after } => show(&mut client, *lines, *after, context).await,
            Action::Verify { approver_home } => {
                let home = ApproverHome::locate(approver_home.as_deref());
                verify(&mut client, &home, context).await
            }
        }
    })
}

async fn show(client: &mut Client, lines: u64, after: Option<u64>, context: &Context) -> Result<(), Failure> {
    let mut from = match after {
        Some(after) => after,
        None => {
            let head = client.call("hearth.audit.list", json!({ "limit": 1 })).await?;
            head["head"]["seq"].as_u64().unwrap_or_default().saturating_sub(lines)
        }
    };
    let mut left = lines;
    let mut all = Vec::new();
    while left > 0 {
        let params = json!({ "after": from, "limit": left.min(PAGE) });
        let page = client.call("hearth.audit.list", params).await?;
        let records = page["records"].as_array().cloned().unwrap_or_default();
        let Some(last) = records.last() else { break };
        from = last["seq"].as_u64().unwrap_or(u64::MAX);
        left = left.saturating_sub(records.len() as u64);
        if context.json {
            all.extend(records);
            continue;
        }
        for record in &records {
            context.out.line(format!(
                "{:>6}  {}  {:<22} {}",
                record["seq"].as_u64().unwrap_or_default(),
                time(record["atMs"].as_u64().unwrap_or_default()),
                safe_line(record["kind"].as_str().unwrap_or_default()),
                safe_line(record["body"].as_str().unwrap_or_default()),
            ))?;
        }
    }
    if context.json { context.out.json(&json!({ "records": all })) } else { Ok(()) }
}

/// Puts names where the log knows ids only.
async fn name_nodes(client: &mut Client, report: &mut Value) -> Result<(), Failure> {
    let list = client.call("node.list", json!({})).await?;
    let nodes = list["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    for entry in report["nodes"].as_array_mut().into_iter().flatten() {
        let found = nodes.iter().find(|n| n["nodeId"] == entry["node"]);
        entry["name"] = found.map(|n| n["displayName"].clone()).unwrap_or_default();
    }
    Ok(())
}

/// Name of a node in a report, else its id.
fn node_name(node: &Value) -> String {
    safe_line(node["name"].as_str().or(node["node"].as_str()).unwrap_or("a node"))
}

async fn verify(client: &mut Client, home: &ApproverHome, context: &Context) -> Result<(), Failure> {
    // A long chain takes a while.
    let limit = std::time::Duration::from_secs(300);
    let mut report = client.call_within(limit, "hearth.audit.verify", json!({})).await?;
    name_nodes(client, &mut report).await?;
    let notes = home.check_notes(client, &report).await?;
    if home.exists() {
        // What this person saw today is what a cut of tomorrow shows against.
        let status = client.call("status", json!({})).await?;
        home.note_report(status["hubId"].as_str().unwrap_or_default(), &report)?;
    }
    let mut faults: Vec<String> = Vec::new();
    faults.extend(report["fault"].as_str().map(safe_line));
    for node in report["nodes"].as_array().into_iter().flatten() {
        if let Some(fault) = node["fault"].as_str() {
            faults.push(format!("{}: {}", node_name(node), safe_line(fault)));
        }
    }
    for note in &notes {
        faults.extend(note["fault"].as_str().map(safe_line));
    }
    if context.json {
        context.out.json(&json!({ "report": report, "approverNotes": notes, "faults": faults }))?;
    } else {
        let number = |v: &Value| v.as_u64().unwrap_or_default();
        context.out.line(format!(
            "{} records, head {} {}",
            number(&report["records"]),
            number(&report["head"]["seq"]),
            safe_line(report["head"]["hash"].as_str().unwrap_or_default()),
        ))?;
        for node in report["nodes"].as_array().into_iter().flatten() {
            let state = if node["fault"].is_string() { "does NOT agree" } else { "agrees" };
            context.out.line(format!(
                "{}: its log has {} records, {state}",
                node_name(node),
                number(&node["head"]["seq"]),
            ))?;
        }
        context.out.line(format!("{} notes of this person's approver compared", notes.len()))?;
        context.out.line(format!(
            "{} records at the end are not yet held by any node or approver",
            number(&report["unanchored"])
        ))?;
    }
    if faults.is_empty() {
        return if context.json { Ok(()) } else { context.out.line("The log is whole.") };
    }
    Err(Failure::failed(
        format!("the audit log does not hold: {}", faults.join("; ")),
        "do not trust this hub's records since then; compare with a backup, and with `hearth-node status` on the nodes",
    ))
}
