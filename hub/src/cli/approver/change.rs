//! `approver change`: a node's list of approvers, changed by a signature of an admin on it.

use super::Change;
use crate::cli::approver_home::ApproverHome;
use crate::cli::context::Context;
use crate::cli::devices::pick;
use crate::cli::error::Failure;
use crate::cli::output::safe_line;
use hearth_shared::approver::{Approver, ApproverKind, ApproverSet, ApproversChange};
use hearth_shared::identity::{DeviceId, PublicKey};
use serde_json::json;

pub(super) async fn run(home: &ApproverHome, arguments: &Change, context: &Context) -> Result<(), Failure> {
    let key = home.approver_key()?;
    let mut client = super::connect(home, context).await?;
    let nodes = client.call("node.list", json!({})).await?;
    let all = nodes["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let node = pick(all, &arguments.node, &["nodeId", "displayName"], "node")?;
    let id: DeviceId = node["nodeId"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|_| Failure::failed("the hub gave a node without an id", "see `hearth nodes list`"))?;
    let answer = client.call("hearth.node.approvers.get", json!({ "nodeId": id })).await?;
    let set: ApproverSet = serde_json::from_value(answer["approvers"].clone()).map_err(|e| {
        Failure::failed(format!("the hub gave no list of approvers: {e}"), "see `hearth nodes show NODE`")
    })?;
    let next = changed(set.clone(), arguments)?;
    let change = ApproversChange::sign(&key, &id, next);
    // The node checks the same; saying it here costs no round trip and is clearer.
    set.apply(&id, &change).map_err(|e| {
        Failure::denied(
            e.to_string(),
            "on the node itself: `hearth-node approvers`; an admin may do it from elsewhere",
        )
    })?;
    let answer =
        client.call("hearth.node.approvers.change", json!({ "nodeId": id, "change": change })).await?;
    client.close().await;
    if context.json {
        context.out.json(&answer)
    } else {
        context.out.line("changed; the node has the new list")
    }
}

pub(super) fn public_key(text: &str) -> Result<PublicKey, Failure> {
    text.parse::<PublicKey>()
        .or_else(|_| PublicKey::from_wire(text))
        .map_err(|e| Failure::usage(e.to_string(), "give the public key that `hearth approver id` prints"))
}

/// The list as it shall be.
fn changed(mut set: ApproverSet, arguments: &Change) -> Result<ApproverSet, Failure> {
    set.epoch += 1;
    if let Some(key) = &arguments.add {
        let name = arguments.name.clone().ok_or_else(|| {
            Failure::usage("--add needs --name", "give the name that the node shows for it")
        })?;
        set.approvers.push(Approver {
            key: public_key(key)?,
            kind: ApproverKind::Terminal,
            admin: arguments.admin,
            name,
        });
    } else if let Some(which) = &arguments.remove {
        let fits = |a: &Approver| {
            a.name == *which || (which.len() >= 6 && a.id().to_string().starts_with(which.as_str()))
        };
        match set.approvers.iter().filter(|a| fits(a)).count() {
            1 => set.approvers.retain(|a| !fits(a)),
            0 => {
                return Err(Failure::not_found(
                    format!("no approver `{}` on this node", safe_line(which)),
                    "see `hearth nodes show NODE`",
                ));
            }
            _ => return Err(Failure::usage("more than one approver fits", "give more of the id")),
        }
    } else if let Some(key) = &arguments.recovery {
        set.recovery = Some(public_key(key)?);
    } else {
        return Err(Failure::usage("nothing to change", "give --add KEY, --remove ID or --recovery KEY"));
    }
    set.check().map_err(|e| Failure::usage(e.to_string(), "see `hearth nodes show NODE`"))?;
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_shared::identity::SecretKey;

    fn arguments() -> Change {
        Change { node: "n".into(), add: None, name: None, admin: false, remove: None, recovery: None }
    }

    fn set() -> ApproverSet {
        let key = SecretKey::from_seed(&[2; 32]).public();
        let admin = Approver { key, kind: ApproverKind::Terminal, admin: true, name: "ann".into() };
        ApproverSet { epoch: 3, approvers: vec![admin], recovery: None }
    }

    #[test]
    fn a_change_counts_the_epoch_and_is_checked() {
        let key = SecretKey::from_seed(&[5; 32]).public().to_base64url();
        let add = Change { add: Some(key.clone()), name: Some("bob".into()), ..arguments() };
        let next = changed(set(), &add).unwrap();
        assert_eq!((next.epoch, next.approvers.len()), (4, 2));
        let recovery = Change { recovery: Some(key), ..arguments() };
        assert!(changed(set(), &recovery).unwrap().recovery.is_some());
        assert_eq!(changed(set(), &arguments()).unwrap_err().code(), 2);
        let gone = Change { remove: Some("carl".into()), ..arguments() };
        assert_eq!(changed(set(), &gone).unwrap_err().code(), 4);
        let twice = Change {
            add: Some(SecretKey::from_seed(&[2; 32]).public().to_base64url()),
            name: Some("x".into()),
            ..arguments()
        };
        assert_eq!(changed(set(), &twice).unwrap_err().code(), 2);
    }
}
