//! Nodes for eyes.

use crate::cli::card::short;
use crate::cli::context::Context;
use crate::cli::error::Failure;
use crate::cli::output::{ago, safe_line, time};
use crate::store::now_ms;
use hearth_shared::command::spec;
use serde_json::Value;

fn text(v: &Value, name: &str) -> String {
    safe_line(v[name].as_str().unwrap_or("-"))
}

fn words(v: &Value, name: &str) -> Vec<String> {
    let list = v[name].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(safe_line).collect()
}

/// `nodes list`
pub(super) fn list(context: &Context, list: &Value) -> Result<(), Failure> {
    if context.json {
        return context.out.json(list);
    }
    let nodes = list["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if nodes.is_empty() {
        return context.out.line("No nodes yet. `hearth pair` shows a setup code for one.");
    }
    let now = now_ms();
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|n| {
            let state = match (n["connected"].as_bool(), n["lastSeenAtMs"].as_u64()) {
                (Some(true), _) => "connected".into(),
                (_, Some(at)) => format!("away, seen {}", ago(at, now)),
                _ => "never seen".into(),
            };
            let waits = if n["pendingRequestId"].is_string() { "new parts wait" } else { "" };
            vec![
                short(n["nodeId"].as_str().unwrap_or_default()),
                text(n, "displayName"),
                state,
                text(n, "version"),
                words(n, "commands").len().to_string(),
                waits.into(),
            ]
        })
        .collect();
    context.out.table(&["NODE", "NAME", "STATE", "VERSION", "COMMANDS", ""], &rows)
}

/// `nodes show`
pub(super) fn one(context: &Context, node: &Value) -> Result<(), Failure> {
    if context.json {
        return context.out.json(node);
    }
    let out = context.out;
    let now = now_ms();
    out.line(format!("{}  {}", text(node, "displayName"), text(node, "nodeId")))?;
    let connected = match (node["connectedAtMs"].as_u64(), node["lastSeenAtMs"].as_u64()) {
        (Some(at), _) if node["connected"] == true => format!("connected since {}", time(at)),
        (_, Some(at)) => format!("away, last seen {}", ago(at, now)),
        _ => "never seen".into(),
    };
    out.line(format!("  {connected}, version {}, from {}", text(node, "version"), text(node, "remoteIp")))?;
    if node["checkedOnNode"] == false {
        out.line("  foreign node: approvals are checked by the hub only, NOT on the node")?;
    }
    out.line("\nCommands:")?;
    for command in words(node, "commands") {
        match spec(&command) {
            Some(spec) => {
                out.line(format!("  {command:<18} {} ({})", spec.summary.trim(), spec.class.as_str()))?;
                for parameter in parameters(&(spec.params_schema)().to_value()) {
                    out.line(format!("      {parameter}"))?;
                }
            }
            None => out.line(format!("  {command}"))?,
        }
    }
    let parts = words(node, "parts");
    if !parts.is_empty() {
        out.line(format!("\nParts: {}", parts.join(", ")))?;
    }
    let pending = words(node, "pendingDeclaredCommands");
    if !pending.is_empty() {
        let name = text(node, "displayName");
        out.line(format!("\nWaits for approval (`hearth devices approve {name}`): {}", pending.join(", ")))?;
    }
    let approvers = node["approvers"]["approvers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !approvers.is_empty() {
        out.line("\nWho may approve on it:")?;
        for a in approvers {
            let admin = if a["admin"] == true { ", may change the list" } else { "" };
            out.line(format!("  {} ({}{admin})", text(a, "name"), text(a, "kind")))?;
        }
    }
    Ok(())
}

/// One line a parameter: name, type, whether it may be left out, meaning.
fn parameters(schema: &Value) -> Vec<String> {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map(|r| r.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let line = |(name, property): (&String, &Value)| {
        let optional = if required.contains(&name.as_str()) { "" } else { "?" };
        let default = match &property["default"] {
            Value::Null => String::new(),
            value => format!(" [default: {value}]"),
        };
        let meaning = property["description"].as_str().unwrap_or_default().replace('\n', " ");
        format!("{name}{optional}: {meaning}{default}")
    };
    properties.iter().map(line).collect()
}
