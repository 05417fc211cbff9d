//! `hearth status`: how the hub and its nodes are, and what should be looked at.

use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::{bytes, safe_line, span};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {}

pub(super) fn run(_: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let status = client.call("status", json!({})).await?;
        let usage = client.call("hearth.retention.usage", json!({})).await?;
        let nodes = client.call("node.list", json!({})).await?;
        client.close().await;
        let warnings = warnings(&status, &nodes, &usage);
        if context.json {
            let nodes = &nodes["nodes"];
            return context.out.json(&json!({
                "hub": status, "nodes": nodes, "retention": usage, "warnings": warnings,
            }));
        }
        show(context, &status, &nodes, &usage)?;
        for warning in warnings {
            let (what, next) = (warning["what"].as_str(), warning["next"].as_str());
            context.out.line(format!(
                "! {}\n  next: {}",
                what.unwrap_or_default(),
                next.unwrap_or_default()
            ))?;
        }
        Ok(())
    })
}

fn show(context: &Context, status: &Value, nodes: &Value, usage: &Value) -> Result<(), Failure> {
    let out = context.out;
    let text = |v: &Value| safe_line(v.as_str().unwrap_or("-"));
    let number = |v: &Value| v.as_u64().unwrap_or_default();
    let addresses: Vec<&str> = status["addresses"]
        .as_array()
        .map(|a| a.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    out.line(format!(
        "hub       {} {}, up {}, {} resident",
        text(&status["hubId"]).chars().take(8).collect::<String>(),
        text(&status["runtimeVersion"]),
        span(number(&status["uptimeMs"])),
        status["processMemory"]["rssBytes"].as_u64().map_or_else(|| "?".into(), bytes),
    ))?;
    out.line(format!("listens   {}", addresses.join(", ")))?;
    out.line(format!("TLS pin   {}", text(&status["tlsPin"])))?;
    out.line(format!(
        "model     {}",
        status["model"].as_str().map_or_else(|| "none: the built-in grammar answers".into(), safe_line)
    ))?;
    out.line(format!(
        "clients   {} connected; {} ways to somebody who can decide approvals",
        number(&status["connections"]["clients"]),
        number(&status["approvals"]["approvers"]),
    ))?;
    for channel in status["channelSummary"].as_array().into_iter().flatten() {
        out.line(format!("channel   {}", text(channel)))?;
    }
    let pairing = &status["pairing"];
    let window = if pairing["open"] == true { "open" } else { "closed" };
    out.line(format!("pairing   {window}, {} waiting", number(&pairing["pending"])))?;
    out.line(format!("approvals {} waiting", number(&status["approvals"]["pending"])))?;
    let all = nodes["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.line(format!("nodes     {}", if all.is_empty() { "none" } else { "" }).trim_end())?;
    for node in all {
        let state = if node["connected"] == true { "connected" } else { "away" };
        out.line(format!("          {} {state}", text(&node["displayName"])))?;
    }
    for line in retention(usage) {
        out.line(line)?;
    }
    Ok(())
}

/// What is kept, in lines.
fn retention(usage: &Value) -> Vec<String> {
    let number = |name: &str| usage[name].as_u64().unwrap_or_default();
    let limit = |name: &str| usage["limits"][name].as_u64().unwrap_or_default();
    vec![
        format!(
            "kept      {} readings ({} days at most), {} summaries ({} days), {} events ({} days)",
            number("readings"),
            limit("readings_days"),
            number("summaries"),
            limit("summaries_days"),
            number("events"),
            limit("events_days"),
        ),
        format!(
            "          {} pictures, {} of {}",
            number("media"),
            bytes(number("mediaBytes")),
            bytes(limit("media_mb") * 1_048_576),
        ),
        format!(
            "card      database {}, {} free",
            bytes(number("databaseBytes")),
            usage["freeBytes"].as_u64().map_or_else(|| "?".into(), bytes)
        ),
    ]
}

/// What a person should look at.
fn warnings(status: &Value, nodes: &Value, usage: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    let mut warn = |what: String, next: &str| found.push(json!({ "what": what, "next": next }));
    let number = |v: &Value| v.as_u64().unwrap_or_default();
    match number(&status["approvals"]["pending"]) {
        0 => {}
        n => warn(format!("{n} requests wait for a yes or no"), "hearth approvals list"),
    }
    match number(&status["pairing"]["pending"]) {
        0 => {}
        n => warn(format!("{n} devices wait to be let in"), "hearth devices list"),
    }
    match number(&status["pairing"]["knocksWhileClosed"]) {
        0 => {}
        n => warn(
            format!("{n} knocks of unknown devices while pairing was closed"),
            "if one of them is yours, open the door with `hearth pair`",
        ),
    }
    for node in nodes["nodes"].as_array().into_iter().flatten() {
        let name = safe_line(node["displayName"].as_str().unwrap_or("a node"));
        if node["connected"] != true {
            warn(
                format!("{name} is away"),
                "look at the board's power and network, then `hearth-node status` there",
            );
        }
        if node["pendingRequestId"].is_string() {
            warn(
                format!("{name} declares new parts that nobody approved"),
                "see `hearth devices list`, then `hearth devices approve NAME`",
            );
        }
    }
    if usage["cardFull"] == true {
        warn(
            "the card is full: pictures are refused and the oldest ones go".into(),
            "free some space, or lower `retention.media_mb`",
        );
    } else if usage["freeBytes"].as_u64().is_some_and(|free| free < 200_000_000) {
        warn("the card is nearly full".into(), "free some space, or lower `retention.media_mb`");
    }
    match number(&usage["lost"]) {
        0 => {}
        n => warn(
            format!("{n} readings or events were lost: an outbox on a node was full"),
            "`hearth-node status` on the nodes tells for how long each was away",
        ),
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_what_and_next() {
        let quiet = warnings(&json!({}), &json!({"nodes": []}), &json!({"freeBytes": 5_000_000_000u64}));
        assert!(quiet.is_empty());
        let status = json!({"approvals": {"pending": 1}, "pairing": {"pending": 2, "knocksWhileClosed": 3}});
        let nodes =
            json!({"nodes": [{"displayName": "garage", "connected": false, "pendingRequestId": "r"}]});
        let all = warnings(&status, &nodes, &json!({"freeBytes": 5}));
        assert_eq!(all.len(), 6);
        assert!(all.iter().all(|w| !w["next"].as_str().unwrap().is_empty()));
    }
}
