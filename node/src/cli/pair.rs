//! `hearth-node pair`

use super::open::{Opened, open};
use super::{Context, Failure, confirm, say};
use crate::config::load::with_name;
use crate::identity::HubRecord;
use crate::link::pairing::{Paired, Person, with_code, with_words};
use crate::link::state::End;
use crate::link::{self, Pending};
use crate::state::write_atomically;
use hearth_shared::approver::{Approver, ApproverKind};
use hearth_shared::identity::{DeviceId, display_safe};
use hearth_shared::limits::{DEFAULT_PORT, MAX_NAME_CHARS};
use hearth_shared::pairing::{CODE_PREFIX, MAX_CODE_CHARS, SetupCode};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;

/// Arguments of `pair`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The code that `hearth pair` shows, `-` to read it from stdin, or HOST[:PORT] to compare words
    #[arg(value_name = "CODE|HOST:PORT")]
    target: String,
    /// Do not ask: the hub and the approvers in the code are right
    #[arg(long)]
    yes: bool,
    /// The node's name; written into node.toml
    #[arg(long)]
    name: Option<String>,
    /// Pair as a simulated board
    #[arg(long)]
    simulate: bool,
}

/// Pairs and stores what was agreed.
///
/// # Errors
/// [`Failure`]; 4 when the hub refuses.
pub(super) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let target = if arguments.target == "-" { read_stdin()? } else { arguments.target.clone() };
    if target.trim().is_empty() {
        let why = "nothing to pair with; give the code that `hearth pair` shows on the hub, or HOST:PORT";
        return Err(Failure::new(2, why));
    }
    let code = target.trim().starts_with(CODE_PREFIX);
    let code = if code {
        Some(SetupCode::decode(&target).map_err(|e| Failure::new(2, e.to_string()))?)
    } else {
        None
    };
    let plain = |c: char| c.is_alphanumeric() || ".-_:[]%".contains(c);
    if code.is_none() && !target.trim().chars().all(plain) {
        let why = "this is neither a setup code (it begins with `hearth1-`) nor HOST:PORT; copy it again from `hearth pair`";
        return Err(Failure::new(2, why));
    }
    context.home.prepare()?;
    if let Some(name) = &arguments.name {
        store_name(context, name)?;
    }
    let opened = open(context, arguments.simulate)?;
    let paired = agree(context, &opened, &target, code.as_ref(), arguments.yes).await;
    let outbox = opened.outbox.clone();
    tokio::task::spawn_blocking(move || outbox.close()).await.map_err(|e| Failure::new(1, e.to_string()))?;
    let paired = paired?;
    let guard = &opened.held.guard;
    // Approvers first: a hub whose approvers were not stored must not be obeyed. If power goes between
    // the two, the same `pair` again finds its approvers here and writes the rest.
    if guard.hub() != Some(paired.hub.id()) {
        guard.adopt(paired.hub.id(), paired.approvers.clone())?;
    }
    paired.hub.store(&context.home)?;
    let value = json!({
        "hub": {"id": paired.hub.id(), "name": paired.hub.name, "addresses": paired.hub.addresses},
        "node": {"id": opened.held.key.device_id(), "name": opened.held.config.name},
        "approvers": guard.approvers().approvers.len(),
        "approved": paired.approved,
    });
    let name = paired.hub.name;
    context.print(&value, |_| format!("Paired with {name}. Start the node with `hearth-node run`.\n"))
}

async fn agree(
    context: &Context,
    opened: &Opened,
    target: &str,
    code: Option<&SetupCode>,
    yes: bool,
) -> Result<Paired, Failure> {
    let link = link::Context::new(
        opened.held.key.clone(),
        opened.held.clock,
        Arc::new(opened.node.clone()),
        opened.outbox.clone(),
    );
    let console = Console { yes, quiet: context.json };
    // Pairing again with the same hub (it had removed or revoked this node, or power went in the middle of
    // a pairing) keeps identity, approvers and rules. Another hub must not inherit them.
    let known = opened.held.guard.hub();
    if known.is_some_and(|hub| code.is_some_and(|c| c.hub.device_id() != hub)) {
        return Err(Failure::new(
            1,
            "this node is paired with another hub and keeps that one's approvers; run `hearth-node reset` first",
        ));
    }
    let Some(code) = code else {
        return match with_words(&link, &with_port(target), known, &console).await {
            Err(End::Stopped) => Err(Failure::new(
                1,
                "not paired: the words were not confirmed. If they differed, somebody may be between this node and \
                 the hub; use a setup code",
            )),
            other => Ok(other?),
        };
    };
    let mut card = String::new();
    for address in code.addresses.iter().take(1) {
        // Writing to a String cannot fail.
        let _ = writeln!(card, "Hub {} at {}", code.hub.device_id().short(), display_safe(address, 100));
    }
    if known.is_some() {
        card.push_str("This node keeps its own list. ");
        card.push_str(&approver_list(&opened.held.guard.approvers().approvers));
    } else {
        card.push_str(&approver_list(&code.approvers));
    }
    if !console.quiet {
        say(&card)?;
    }
    if !yes && !confirm("Pair with this hub and let these approve?").await? {
        return Err(Failure::new(1, "not paired: you did not confirm"));
    }
    Ok(with_code(&link, code, &console).await?)
}

fn approver_list(approvers: &[Approver]) -> String {
    let mut out = String::from("May approve on this node:\n");
    for approver in approvers {
        let kind = match approver.kind {
            ApproverKind::Hub => "hub",
            ApproverKind::Page => "page",
            ApproverKind::Terminal => "terminal",
        };
        let admin = if approver.admin { ", may change this list" } else { "" };
        let name = display_safe(&approver.name, MAX_NAME_CHARS);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {} {kind:<8} {name}{admin}", approver.id().short());
    }
    out
}

fn with_port(target: &str) -> String {
    let target = target.trim();
    let has_port = match target.rsplit_once(':') {
        // `::1` has colons and no port; `[::1]:5` has one.
        Some((host, port)) => port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    match (has_port, target.contains(':') && !target.starts_with('[')) {
        (true, _) => target.to_owned(),
        (false, true) => format!("[{target}]:{DEFAULT_PORT}"),
        (false, false) => format!("{target}:{DEFAULT_PORT}"),
    }
}

fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().take(2 * MAX_CODE_CHARS as u64).read_to_string(&mut text)?;
    Ok(text)
}

fn store_name(context: &Context, name: &str) -> Result<(), Failure> {
    let path = context.home.config();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(crate::state::StateError::io("read", &path)(e).into()),
    };
    let changed = with_name(&text, name);
    crate::config::Config::parse(&changed, &path)?;
    if changed != text {
        write_atomically(&path, changed.as_bytes()).map_err(crate::state::StateError::io("write", &path))?;
    }
    Ok(())
}

/// The person at this terminal.
struct Console {
    yes: bool,
    quiet: bool,
}

impl Person for Console {
    fn same_words(&self, hub: &HubRecord, words: &str, approvers: &[Approver]) -> Pending<'_, bool> {
        let id: DeviceId = hub.id();
        let card = format!(
            "Hub {} ({}) at {}\n{}\nWords:  {words}\n\nCompare them with the words the hub shows.\n",
            hub.name,
            id.short(),
            hub.addresses.first().map(|a| display_safe(a, 100)).unwrap_or_default(),
            approver_list(approvers)
        );
        Box::pin(async move {
            // On stderr with --json, where stdout is for programs; the words must be seen either way.
            if self.quiet {
                eprint!("{card}");
            } else if let Err(error) = say(&card) {
                tracing::warn!(%error, "the words cannot be shown");
                return false;
            }
            if self.yes {
                return true;
            }
            confirm("Does the hub show the same words?").await.unwrap_or_else(|error| {
                tracing::warn!(%error, "not confirmed");
                false
            })
        })
    }

    fn waiting(&self, hub: &str) {
        eprintln!("Waiting for the approval at {hub} (`hearth devices list`, up to 10 minutes) …");
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn the_port_may_be_left_out() {
        for (given, full) in [
            ("hub.local", "hub.local:18789"),
            ("192.168.1.2:5", "192.168.1.2:5"),
            ("::1", "[::1]:18789"),
            ("[::1]", "[::1]:18789"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(with_port(given), full);
        }
    }
}
