//! `hearth approver`: a person's own key for approvals, on this or another machine.
//!
//! The hub never holds this key. A grant it signs satisfies need `person`, which a hub that runs evil code
//! cannot forge. What it signs is shown first, made from the node's challenge alone.

mod change;
mod watch;

use super::approver_home::{ApproverHome, HubSettings};
use super::client::{Access, CAP_APPROVALS, Client};
use super::context::Context;
use super::error::Failure;
use super::output::safe_line;
use clap::Subcommand;
use hearth_shared::grant::Decision;
use hearth_shared::identity::PublicKey;
use hearth_shared::limits::MAX_NAME_CHARS;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Directory of the approver's keys [default: $HEARTH_APPROVER_HOME, else ~/.local/state/hearth-approver]
    #[arg(long, global = true, value_name = "DIR")]
    approver_home: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the keys, and say which hub they are for
    Init {
        /// Your name, as nodes show it
        #[arg(long)]
        name: Option<String>,
        /// A hub on another machine: wss://HOST:PORT
        #[arg(long, value_name = "URL", requires = "pin")]
        hub: Option<String>,
        /// The hub's TLS pin, as `hearth status` there shows it
        #[arg(long, value_name = "HEX", requires = "hub")]
        pin: Option<String>,
    },
    /// Print id and public key
    Id,
    /// Show on which nodes this approver counts
    List,
    /// Make this approver known to the hub for future setup codes, and show how a node takes it
    Enroll {
        /// Node to show the command for
        node: Option<String>,
        /// Let it change the list of approvers
        #[arg(long)]
        admin: bool,
        /// On the hub: the public key of an approver on another machine, instead of the one here
        #[arg(long, value_name = "KEY", requires = "name", allow_hyphen_values = true)]
        key: Option<String>,
        /// Name of that approver
        #[arg(long, requires = "key")]
        name: Option<String>,
    },
    /// Wait for requests, show each card, and sign the answer
    Run,
    /// Sign a yes
    Allow {
        /// Approval id; its head is enough
        id: String,
        /// Store the rule that the card shows, so that this is not asked again
        #[arg(long)]
        always: bool,
        /// Do not ask after showing the card
        #[arg(long)]
        yes: bool,
    },
    /// Sign a no
    Deny {
        /// Approval id; its head is enough
        id: String,
    },
    /// Change a node's list of approvers; signed by this approver, which must be an admin there
    Change(Change),
}

#[derive(Debug, clap::Args)]
struct Change {
    /// Node id (its head is enough) or name
    node: String,
    /// Add this public key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["remove", "recovery"], allow_hyphen_values = true)]
    add: Option<String>,
    /// Name of the added approver
    #[arg(long, requires = "add")]
    name: Option<String>,
    /// The added approver may change the list too
    #[arg(long, requires = "add")]
    admin: bool,
    /// Remove the approver with this id (its head is enough) or name
    #[arg(long, value_name = "ID", conflicts_with = "recovery")]
    remove: Option<String>,
    /// Set the recovery key, which is kept on paper
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    recovery: Option<String>,
}

/// What an approver may do on the hub: see, and decide.
const ACCESS: Access<'static> = Access {
    scopes: &["operator.read", "operator.approvals"],
    caps: &[CAP_APPROVALS],
    name: "hearth approver",
};

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let home = ApproverHome::locate(arguments.approver_home.as_deref());
    match &arguments.action {
        Action::Init { name, hub, pin } => {
            init(&home, name.as_deref(), hub.as_deref().zip(pin.as_deref()), context)
        }
        Action::Id => id(&home, context),
        Action::List => context.block_on(list(&home, context)),
        Action::Enroll { node, admin, key, name } => {
            let other = key.as_deref().zip(name.as_deref());
            context.block_on(enroll(&home, node.as_deref(), *admin, other, context))
        }
        Action::Run => context.block_on(watch::run(&home, context)),
        Action::Allow { id, always, yes } => {
            let decision = if *always { Decision::AllowAlways } else { Decision::AllowOnce };
            context.block_on(watch::one(&home, id, decision, *yes, context))
        }
        Action::Deny { id } => context.block_on(watch::one(&home, id, Decision::Deny, true, context)),
        Action::Change(change) => context.block_on(change::run(&home, change, context)),
    }
}

/// Connects and keeps the token.
async fn connect(home: &ApproverHome, context: &Context) -> Result<Client, Failure> {
    let target = home.target(context)?;
    let name = format!("approver {}", home.settings()?.name);
    let client = Client::connect(&target, Access { name: &name, ..ACCESS }).await?;
    home.keep_token(&client)?;
    Ok(client)
}

fn init(
    home: &ApproverHome,
    name: Option<&str>,
    hub: Option<(&str, &str)>,
    context: &Context,
) -> Result<(), Failure> {
    let fresh = !home.exists();
    let mut settings = if fresh { super::approver_home::Settings::default() } else { home.settings()? };
    if let Some(name) = name {
        if name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS {
            return Err(Failure::usage("--name must have 1 to 64 characters", "give your first name"));
        }
        settings.name = name.trim().to_owned();
    }
    if settings.name.is_empty() {
        settings.name =
            std::env::var("USER").ok().filter(|u| !u.is_empty()).unwrap_or_else(|| "owner".into());
    }
    if let Some((url, pin)) = hub {
        // Checks both before anything is written.
        super::client::Target::remote(
            url,
            pin,
            None,
            hearth_shared::identity::SecretKey::from_seed(&[1; 32]),
        )?;
        settings.hub = Some(HubSettings { url: url.into(), pin: pin.into() });
    }
    home.create()?;
    home.store(&settings)?;
    if context.json {
        return id(home, context);
    }
    let word = if fresh { "made" } else { "kept" };
    context.out.line(format!("approver `{}` {word} in {}", settings.name, home.root().display()))?;
    id(home, context)?;
    context.out.line("next: `hearth approver enroll`")
}

fn id(home: &ApproverHome, context: &Context) -> Result<(), Failure> {
    let key = home.approver_key()?.public();
    let settings = home.settings()?;
    if context.json {
        return context.out.json(&json!({
            "id": key.device_id(), "publicKey": key.to_base64url(), "name": settings.name,
            "hub": settings.hub.map(|h| h.url),
        }));
    }
    context.out.line(format!("id          {}", key.device_id()))?;
    context.out.line(format!("public key  {}", key.to_base64url()))
}

async fn list(home: &ApproverHome, context: &Context) -> Result<(), Failure> {
    let id = home.approver_key()?.device_id();
    let mut client = connect(home, context).await?;
    let nodes = client.call("node.list", json!({})).await?;
    let mut rows = Vec::new();
    for node in nodes["nodes"].as_array().into_iter().flatten() {
        if node["checkedOnNode"] == false {
            continue;
        }
        let name = node["displayName"].as_str().unwrap_or_default();
        let params = json!({ "nodeId": node["nodeId"] });
        let full = client.call("hearth.node.approvers.get", params).await?;
        let all = full["approvers"]["approvers"].as_array().cloned().unwrap_or_default();
        let of = |a: &serde_json::Value| {
            a["key"].as_str().and_then(|k| k.parse::<PublicKey>().or_else(|_| PublicKey::from_wire(k)).ok())
        };
        let mine = all.iter().find(|a| of(a).is_some_and(|k| k.device_id() == id));
        rows.push(json!({
            "node": name,
            "enrolled": mine.is_some(),
            "admin": mine.is_some_and(|a| a["admin"] == true),
            "approvers": all.len(),
        }));
    }
    client.close().await;
    if context.json {
        return context.out.json(&json!({ "id": id, "nodes": rows }));
    }
    if rows.is_empty() {
        return context.out.line("The hub knows no node that checks approvals itself.");
    }
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let state = match (r["enrolled"] == true, r["admin"] == true) {
                (true, true) => "yes, and may change the list",
                (true, false) => "yes",
                _ => "no: see `hearth approver enroll`",
            };
            vec![safe_line(r["node"].as_str().unwrap_or_default()), state.into(), r["approvers"].to_string()]
        })
        .collect();
    context.out.table(&["NODE", "THIS APPROVER COUNTS", "APPROVERS"], &table)
}

async fn enroll(
    home: &ApproverHome,
    node: Option<&str>,
    admin: bool,
    other: Option<(&str, &str)>,
    context: &Context,
) -> Result<(), Failure> {
    // Where the key is kept, if it is kept here.
    let settings = if other.is_none() { Some(home.settings()?) } else { None };
    let (key, name) = match (other, &settings) {
        (Some((key, name)), _) => (change::public_key(key)?, name.to_owned()),
        (None, settings) => {
            let name = settings.as_ref().map(|s| s.name.clone()).unwrap_or_default();
            (home.approver_key()?.public(), name)
        }
    };
    // Making a key known is the hub owner's to do: on the hub's machine, with its own command line.
    let known = match super::client::Target::local(&context.home) {
        Ok(target) => {
            let mut client = Client::connect(&target, Access::OWNER).await?;
            let approver = json!({ "key": key, "kind": "terminal", "admin": admin, "name": name });
            client.call("hearth.approvers.add", json!({ "approver": approver })).await?;
            client.close().await;
            true
        }
        Err(failure) if settings.as_ref().is_none_or(|s| s.hub.is_none()) => return Err(failure),
        Err(_) => false,
    };
    let flag = if admin { " --admin" } else { "" };
    let on_node = format!("hearth-node approvers add {} --name {}{flag}", key.to_base64url(), quoted(&name));
    let on_hub =
        format!("hearth approver enroll --key {} --name {}{flag}", key.to_base64url(), quoted(&name));
    if context.json {
        return context.out.json(
            &json!({ "known": known, "publicKey": key.to_base64url(), "onNode": on_node, "onHub": on_hub }),
        );
    }
    if known {
        context.out.line("The hub knows this approver now: setup codes made from now on carry it.")?;
    } else {
        context.out.line(format!(
            "The hub is on another machine. So that setup codes carry this key, run there:\n  {on_hub}"
        ))?;
    }
    let which = node
        .map_or_else(|| "each node that is paired already".into(), |n| format!("the node {}", safe_line(n)));
    context.out.line(format!("On {which}, its owner adds it with:\n  {on_node}"))?;
    context.out.line(
        "or an approver that is an admin there does: `hearth approver change NODE --add KEY --name NAME`",
    )
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_a_shell() {
        assert_eq!(quoted("ann"), "ann");
        assert_eq!(quoted("Ann's key; rm"), r"'Ann'\''s key; rm'");
    }
}
