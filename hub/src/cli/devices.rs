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
    /// List known devices and those that wait
    List,
    /// Let a waiting device in
    Approve(Waiting),
    /// Turn a waiting device away
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
        let list = client.call("device.pair.list", json!({})).await?;
        let result = match &arguments.action {
            Action::List => return show(context, &list),
            Action::Approve(a) => {
                let request = waiting(&list, a.which.as_deref())?;
                client.call("device.pair.approve", json!({ "requestId": request })).await?
            }
            Action::Reject(a) => {
                let request = waiting(&list, a.which.as_deref())?;
                client.call("device.pair.reject", json!({ "requestId": request })).await?
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
            Action::Approve(_) => "approved; the device may connect now",
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

/// The request id that is meant.
fn waiting(list: &Value, which: Option<&str>) -> Result<String, Failure> {
    let pending = list["pending"].as_array().map(Vec::as_slice).unwrap_or_default();
    let id = |p: &Value| p["requestId"].as_str().unwrap_or_default().to_owned();
    match which {
        None => match pending {
            [only] => Ok(id(only)),
            [] => Err(Failure::not_found(
                "no device waits",
                "open the door with `hearth pair`, then let the device knock",
            )),
            _ => Err(Failure::usage(
                format!("{} devices wait", pending.len()),
                "name one: `hearth devices list` shows them",
            )),
        },
        Some(which) => {
            pick(pending, which, &["requestId", "deviceId", "displayName"], "waiting device").map(id)
        }
    }
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
        assert_eq!(waiting(&one, None).unwrap(), "r1");
        assert_eq!(waiting(&json!({"pending": []}), None).unwrap_err().code(), 4);
        let two = json!({"pending": [{"requestId": "r1"}, {"requestId": "r2"}]});
        assert_eq!(waiting(&two, None).unwrap_err().code(), 2);
    }
}
