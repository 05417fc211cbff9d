//! `hearth devices`: who is known, who waits.

use super::card::short;
use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::{ago, safe_line, time};
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
    /// List known devices, those that wait, and nodes that declare something new
    List,
    /// Let a waiting device in, or approve what a node declares anew
    Approve(Waiting),
    /// Turn a waiting device away, or refuse what a node declares anew
    Reject(Waiting),
    /// Give a device a new token; its connections close
    Rotate(Known),
    /// Void a device's tokens; it may not come back until it is removed
    Revoke(Known),
    /// Forget a device; it may knock again
    Remove(Known),
}

#[derive(Debug, clap::Args)]
struct Waiting {
    /// Request id (its head is enough), device id or name; may be left out when only one waits
    which: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Known {
    /// Device id (its head is enough) or name
    which: String,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let mut list = client.call("device.pair.list", json!({})).await?;
        let mut parts = client.call("node.pair.list", json!({})).await?;
        list["pendingParts"] = parts["pending"].take();
        let result = match &arguments.action {
            Action::List => return show(context, &list),
            Action::Approve(a) => {
                let (family, request) = match (waiting(&list, a.which.as_deref()), a.which.as_deref()) {
                    (Ok(found), _) => found,
                    // What was refused of a node is taken in after all by naming the node.
                    (Err(nothing), Some(which)) => match known(&list, which) {
                        Ok((id, role)) if role == "node" => ("node.pair", id),
                        _ => return Err(nothing),
                    },
                    (Err(nothing), None) => return Err(nothing),
                };
                client.call(&format!("{family}.approve"), json!({ "requestId": request })).await?
            }
            Action::Reject(a) => {
                let (family, request) = waiting(&list, a.which.as_deref())?;
                client.call(&format!("{family}.reject"), json!({ "requestId": request })).await?
            }
            Action::Rotate(a) => {
                let (id, role) = known(&list, &a.which)?;
                client.call("device.token.rotate", json!({ "deviceId": id, "role": role })).await?
            }
            Action::Revoke(a) => {
                let (id, _) = known(&list, &a.which)?;
                client.call("hearth.device.revoke", json!({ "deviceId": id })).await?
            }
            Action::Remove(a) => {
                let (id, _) = known(&list, &a.which)?;
                client.call("device.pair.remove", json!({ "deviceId": id })).await?
            }
        };
        client.close().await;
        if context.json {
            return context.out.json(&result);
        }
        context.out.line(match &arguments.action {
            Action::List => "",
            Action::Approve(_) if result["node"].is_object() => "approved; what it declares can be used now",
            Action::Approve(_) => "approved; the device may connect now",
            Action::Reject(_) if result["nodeId"].is_string() => {
                "rejected; the node works on with what was approved before. `hearth devices approve NAME` takes it in after all"
            }
            Action::Reject(_) => "rejected; it cannot knock again until `hearth devices remove`",
            Action::Rotate(_) => "its old token is void and its connections are closed",
            Action::Revoke(_) => "revoked; it cannot connect until `hearth devices remove` and a new pairing",
            Action::Remove(_) => "forgotten; it may knock again",
        })
    })
}

fn show(context: &Context, list: &Value) -> Result<(), Failure> {
    if context.json {
        return context.out.json(list);
    }
    let now = now_ms();
    let text = |v: &Value, name: &str| safe_line(v[name].as_str().unwrap_or("-"));
    let pending = list["pending"].as_array().cloned().unwrap_or_default();
    if !pending.is_empty() {
        let rows: Vec<Vec<String>> = pending
            .iter()
            .map(|p| {
                vec![
                    short(p["requestId"].as_str().unwrap_or_default()),
                    text(p, "displayName"),
                    text(p, "role"),
                    text(p, "remoteIp"),
                    text(p, "words"),
                    ago(p["ts"].as_u64().unwrap_or(now), now),
                ]
            })
            .collect();
        context.out.line("Waiting (`hearth devices approve REQUEST` or reject):")?;
        context.out.table(&["REQUEST", "NAME", "ROLE", "FROM", "WORDS", "SINCE"], &rows)?;
        context.out.line("")?;
    }
    let parts = list["pendingParts"].as_array().cloned().unwrap_or_default();
    if !parts.is_empty() {
        let names = |p: &Value, field: &str| -> Vec<String> {
            p[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(safe_line).collect()
        };
        let rows: Vec<Vec<String>> = parts
            .iter()
            .map(|p| {
                let new = [names(p, "commands"), names(p, "parts")].concat();
                vec![text(p, "displayName"), new.join(", ")]
            })
            .collect();
        context.out.line("Declared anew (`hearth devices approve NAME` or reject):")?;
        context.out.table(&["NAME", "NEW"], &rows)?;
        context.out.line("")?;
    }
    let paired = list["paired"].as_array().cloned().unwrap_or_default();
    if paired.is_empty() {
        return context.out.line("No devices yet; `hearth pair` lets one in.");
    }
    let rows: Vec<Vec<String>> = paired
        .iter()
        .map(|d| {
            let seen = match (d["connected"].as_bool(), d["lastSeenAtMs"].as_u64()) {
                (Some(true), _) => "connected".into(),
                (_, Some(at)) => ago(at, now),
                _ => "never".into(),
            };
            vec![
                short(d["deviceId"].as_str().unwrap_or_default()),
                text(d, "displayName"),
                text(d, "role"),
                text(d, "state"),
                text(d, "approvedVia"),
                time(d["approvedAtMs"].as_u64().unwrap_or_default()),
                seen,
            ]
        })
        .collect();
    context.out.table(&["DEVICE", "NAME", "ROLE", "STATE", "VIA", "APPROVED", "SEEN"], &rows)
}

/// The family of methods and the id of the request that is meant: of a device that knocks, or of what a node
/// declares anew. One approval settles both when a device comes for the first time.
fn waiting(list: &Value, which: Option<&str>) -> Result<(&'static str, String), Failure> {
    let of = |name: &str| list[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (devices, parts) = (of("pending"), of("pendingParts"));
    let all: Vec<Value> = devices.iter().chain(parts).cloned().collect();
    let found = match which {
        Some(which) => {
            pick(&all, which, &["requestId", "deviceId", "nodeId", "displayName"], "waiting device")?
        }
        None => match all.as_slice() {
            [only] => only,
            [] => {
                return Err(Failure::not_found(
                    "no device waits",
                    "open the door with `hearth pair`, then let the device knock",
                ));
            }
            _ => {
                return Err(Failure::usage(
                    format!("{} devices wait", all.len()),
                    "name one: `hearth devices list` shows them",
                ));
            }
        },
    };
    let family = if found["nodeId"].is_string() { "node.pair" } else { "device.pair" };
    Ok((family, found["requestId"].as_str().unwrap_or_default().to_owned()))
}

/// The device that is meant, and its role.
fn known(list: &Value, which: &str) -> Result<(String, String), Failure> {
    let paired = list["paired"].as_array().map(Vec::as_slice).unwrap_or_default();
    let device = pick(paired, which, &["deviceId", "displayName"], "device")?;
    let text = |name: &str| device[name].as_str().unwrap_or_default().to_owned();
    Ok((text("deviceId"), text("role")))
}

/// The one entry that `which` names: a field equal to it (case ignored), else the head of an id.
pub(super) fn pick<'a>(
    all: &'a [Value],
    which: &str,
    fields: &[&str],
    what: &str,
) -> Result<&'a Value, Failure> {
    let hint = format!("see `hearth {}`", if what == "node" { "nodes list" } else { "devices list" });
    let field = |v: &Value, name: &str| v[name].as_str().unwrap_or_default().to_lowercase();
    let wanted = which.to_lowercase();
    let exact: Vec<&Value> = all.iter().filter(|v| fields.iter().any(|f| field(v, f) == wanted)).collect();
    let found = if exact.is_empty() && !wanted.is_empty() {
        let ids = fields.iter().filter(|f| f.ends_with("Id"));
        all.iter().filter(|v| ids.clone().any(|f| field(v, f).starts_with(&wanted))).collect()
    } else {
        exact
    };
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::not_found(format!("no {what} `{}`", safe_line(which)), hint)),
        _ => Err(Failure::usage(
            format!("`{}` fits more than one {what}", safe_line(which)),
            format!("give more of the id; {hint}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_heads_of_ids_pick_one_or_say_why_not() {
        let all = [
            json!({"deviceId": "abc1", "displayName": "Garage"}),
            json!({"deviceId": "abd2", "displayName": "attic"}),
        ];
        let pick = |which: &str| {
            pick(&all, which, &["deviceId", "displayName"], "device").map(|v| v["deviceId"].clone())
        };
        assert_eq!(pick("garage").unwrap(), "abc1");
        assert_eq!(pick("ABD").unwrap(), "abd2");
        assert_eq!(pick("ab").unwrap_err().code(), 2);
        assert_eq!(pick("gar").unwrap_err().code(), 4, "names are given whole");
        assert_eq!(pick("").unwrap_err().code(), 4);
    }

    #[test]
    fn approve_without_a_name_takes_the_only_one() {
        let one = json!({"pending": [{"requestId": "r1"}]});
        assert_eq!(waiting(&one, None).unwrap(), ("device.pair", "r1".into()));
        assert_eq!(waiting(&json!({"pending": []}), None).unwrap_err().code(), 4);
        let two = json!({"pending": [{"requestId": "r1"}, {"requestId": "r2"}]});
        assert_eq!(waiting(&two, None).unwrap_err().code(), 2);
        let parts = json!({"pending": [], "pendingParts": [{"requestId": "p1", "nodeId": "n1", "displayName": "garage"}]});
        assert_eq!(waiting(&parts, Some("garage")).unwrap(), ("node.pair", "p1".into()));
        assert_eq!(waiting(&parts, None).unwrap().1, "p1");
    }
}
