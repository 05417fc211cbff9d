//! `hearth-node status`

use super::open::hold;
use super::{Context, Failure};
use crate::control::{Answer, Request, ask};
use crate::guard::Guard;
use crate::identity::HubRecord;
use crate::link::{LinkStatus, Node};
use crate::outbox::{Outbox, Progress};
use crate::state::Home;
use hearth_shared::command::Invocation;
use hearth_shared::error::CommandError;
use hearth_shared::identity::display_safe;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest look at the board's health.
const HEALTH_DEADLINE: Duration = Duration::from_secs(5);

/// Shows the state of a running node, or what is stored when none runs.
///
/// # Errors
/// [`Failure`]; 3 when the node is not paired.
pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    if !context.home.dir().exists() {
        return Err(Failure::not_paired());
    }
    let value = match ask(&context.home, &Request::Status).await? {
        Some(Answer::Ok(value)) => value,
        Some(Answer::Error(error)) => return Err(Failure::new(1, error)),
        None => stored(context)?,
    };
    context.print(&value, human)?;
    if value["hub"].is_null() { Err(Failure::not_paired()) } else { Ok(()) }
}

/// What a running node answers.
pub(super) async fn running(
    home: &Home,
    node: &Node,
    outbox: &Outbox,
    hub: &HubRecord,
    link: &LinkStatus,
) -> Value {
    let progress = outbox.watch().borrow().clone();
    let mut value = common(home, &node.guard, Some(hub));
    value["running"] = json!(true);
    value["process"] = json!(std::process::id());
    value["link"] = json!(link);
    value["outbox"] = outbox_json(&progress);
    value["health"] = match health(node).await {
        Ok(health) => health,
        Err(error) => json!({ "error": error.to_string() }),
    };
    let declaration = node.guard.declaration(node.board.inventory());
    value["simulated"] = json!(declaration.simulated);
    value["declared"] = json!(declaration.surface().len());
    value
}

async fn health(node: &Node) -> Result<Value, CommandError> {
    let work = async {
        let prepared = node.board.prepare(Invocation::parse("system.info", "{}")?).await?;
        node.board.run(prepared, HEALTH_DEADLINE, CancellationToken::new()).await
    };
    let output = tokio::time::timeout(HEALTH_DEADLINE, work).await.unwrap_or_else(|_| {
        let code = hearth_shared::error::ErrorCode::Timeout;
        Err(CommandError::new(code, "the board did not answer in 5 s"))
    })?;
    Ok(serde_json::from_str(&output.result).unwrap_or_default())
}

fn stored(context: &Context) -> Result<Value, Failure> {
    let hub = HubRecord::load(&context.home)?;
    let held = hold(context, false)?;
    let mut value = common(&context.home, &held.guard, hub.as_ref());
    value["running"] = json!(false);
    if context.home.outbox().exists() {
        let bounds = crate::outbox::store::Bounds { items: u64::MAX, bytes: u64::MAX };
        let outbox = Outbox::open(&context.home, bounds, held.clock)?;
        value["outbox"] = outbox_json(&outbox.watch().borrow());
        outbox.close();
    }
    Ok(value)
}

fn common(home: &Home, guard: &Guard, hub: Option<&HubRecord>) -> Value {
    let declaration = guard.declaration(crate::capability::Inventory::default());
    let approvers = guard.approvers();
    let persons = approvers.approvers.iter().filter(|a| a.is_person()).count();
    json!({
        "home": home.dir(),
        "version": hearth_shared::VERSION,
        "name": declaration.name,
        "hub": hub.map(|h| json!({"id": h.id(), "name": h.name, "addresses": h.addresses})),
        "approvers": {
            "epoch": approvers.epoch,
            "total": approvers.approvers.len(),
            "persons": persons,
            "recovery": approvers.recovery.is_some(),
            "personInForce": guard.person_in_force(),
        },
        "policy": declaration.policy,
        "audit": guard.head(),
    })
}

fn outbox_json(progress: &Progress) -> Value {
    let counts = progress.counts;
    json!({
        "waiting": counts.waiting,
        "sending": counts.next - counts.first,
        "bytes": counts.bytes,
        "dropped": counts.dropped,
        "unwritten": progress.unwritten,
        "epoch": counts.epoch,
        "next": counts.next,
        "fault": progress.fault,
    })
}

/// Text for people.
fn human(value: &Value) -> String {
    let text = |path: &str| match value.pointer(path) {
        Some(Value::String(s)) => display_safe(s, 200),
        Some(Value::Null) | None => "-".into(),
        Some(other) => other.to_string(),
    };
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<10} {text}");
    };
    line("Node", format!("{} (version {})", text("/name"), text("/version")));
    match value.pointer("/hub/name") {
        Some(_) => line("Hub", format!("{} ({})", text("/hub/name"), &text("/hub/id"))),
        None => line("Hub", "not paired; run `hearth-node pair CODE`".into()),
    }
    if value["running"] == true {
        let seconds = value.pointer("/link/forMs").and_then(Value::as_u64).unwrap_or(0) / 1000;
        let error = match value.pointer("/link/lastError") {
            Some(Value::String(e)) => format!("; {}", display_safe(e, 300)),
            _ => String::new(),
        };
        line("Link", format!("{} for {seconds} s, {}{error}", text("/link/state"), text("/link/address")));
    } else {
        line("Link", "the node does not run; start it with `hearth-node run`".into());
    }
    if value.get("outbox").is_some() {
        let mut outbox =
            format!("{} waiting, {} being sent", text("/outbox/waiting"), text("/outbox/sending"));
        if value["outbox"]["dropped"] != 0 {
            let _ = write!(outbox, ", {} dropped because it was full", text("/outbox/dropped"));
        }
        if let Some(Value::String(fault)) = value.pointer("/outbox/fault") {
            let _ = write!(outbox, "; FAULT: {}", display_safe(fault, 200));
        }
        line("Outbox", outbox);
    }
    line(
        "Approvers",
        format!(
            "{} (of them persons: {}), need `person` is {}",
            text("/approvers/total"),
            text("/approvers/persons"),
            if value["approvers"]["personInForce"] == true { "in force" } else { "not in force" }
        ),
    );
    line("Policy", text("/policy"));
    if let Some(Value::Object(health)) = value.get("health") {
        let facts: Vec<String> = health
            .iter()
            .filter(|(_, v)| !v.is_null() && !v.is_object() && !v.is_array())
            .map(|(k, v)| format!("{k} {v}"))
            .collect();
        line("Health", facts.join(", "));
    }
    out
}
