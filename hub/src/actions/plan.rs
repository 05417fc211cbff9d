//! From what was asked to the plan that is stored, shown and sent: the hub's own checks, in their order.
//!
//! The hub can only narrow: a node of ours has its own rules behind these. A foreign JSON node has none
//! that we know of, so for it the hub is the only gate, and what the hub does not know it asks about.

use super::record::Record;
use super::{ActionRequest, Host, NodeDirectory, here};
use crate::config::NodesConfig;
use crate::devices::DeviceState;
use crate::nodes::{NodeError, NodeView};
use hearth_shared::command::{Class, Invocation, Need, spec};
use hearth_shared::connect::Role;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::identity::display_safe;
use hearth_shared::limits::MAX_PARAMS;
use serde_json::Value;

/// A sentence in a list, in characters.
const MAX_SENTENCE: usize = 500;

/// A request that passed the checks.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) node_name: String,
    /// Whether the node itself asks for a grant.
    pub(super) checked_on_node: bool,
    /// Complete parameters.
    pub(super) params: Value,
    pub(super) class: Class,
    /// What the hub's rules want at least.
    pub(super) raise: Need,
}

/// One sentence for lists.
pub(super) fn sentence(record: &Record) -> String {
    let action = &record.action;
    if record.checked_on_node
        && let Ok(invocation) = Invocation::parse(&action.command, &action.params.to_string())
    {
        return display_safe(&invocation.sentence(), MAX_SENTENCE);
    }
    foreign_sentence(&action.command, &action.params)
}

/// The stored plan of a foreign command that the hub asked about, with the words by which its node host
/// learns that somebody said yes.
pub(super) fn approved_params(record: &Record) -> Value {
    let mut params = record.action.params.clone();
    if record.action.command == "system.run" {
        params["approved"] = Value::Bool(true);
        params["approvalDecision"] = Value::from("allow-once");
        params["runId"] = Value::from(record.action.id.to_string());
    }
    params
}

pub(super) async fn make(
    directory: &dyn NodeDirectory,
    rules: &NodesConfig,
    request: &ActionRequest,
) -> Result<Plan, CommandError> {
    if request.host == Host::Gateway {
        return here::plan(&request.params);
    }
    let view = directory.view(request.node).await.map_err(|error| match error {
        NodeError::Store(e) => CommandError::new(ErrorCode::Internal, e.to_string()),
        other => CommandError::new(ErrorCode::NotFound, other.to_string()),
    })?;
    check(view, rules, &request.command, &request.params)
}

/// The checks on a known node.
pub(super) fn check(
    view: NodeView,
    rules: &NodesConfig,
    command: &str,
    params: &Value,
) -> Result<Plan, CommandError> {
    let name = view.device.name.clone();
    if !view.device.roles.contains(&Role::Node) {
        return Err(CommandError::new(ErrorCode::NotFound, format!("`{name}` is no node")));
    }
    if view.device.state != DeviceState::Accepted {
        let message = format!("`{name}` was {}; remove it and pair it again", state_word(view.device.state));
        return Err(CommandError::new(ErrorCode::Denied, message));
    }
    if let Some(rule) = matching(&rules.deny, command) {
        let message = format!(
            "`{}` is denied by the hub: rule `{rule}` in `nodes.deny` of config.toml; the hub's owner can change it",
            display_safe(command, 64)
        );
        return Err(CommandError::new(ErrorCode::Denied, message));
    }
    check_command(&view, command)?;
    if !params.is_object() && !params.is_null() {
        let message = format!("{command}: parameters must be a JSON object");
        return Err(CommandError::new(ErrorCode::InvalidParams, message));
    }
    let asked_by_rule = if matching(&rules.ask, command).is_some() { Need::Hub } else { Need::None };
    if view.checks_grants() {
        let (params, class) = own(&view, command, params)?;
        Ok(Plan { node_name: name, checked_on_node: true, params, class, raise: asked_by_rule })
    } else {
        let (params, class) = foreign(&view, rules, command, params)?;
        let raise = if class == Class::Observe { asked_by_rule } else { Need::Hub };
        Ok(Plan { node_name: name, checked_on_node: false, params, class, raise })
    }
}

/// `exact.name` or a family as `gpio.*`; the rule that fits.
fn matching<'a>(rules: &'a [String], command: &str) -> Option<&'a str> {
    rules.iter().map(String::as_str).find(|rule| match rule.strip_suffix('*') {
        Some(family) => command.starts_with(family),
        None => *rule == command,
    })
}

fn state_word(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Accepted => "accepted",
        DeviceState::Rejected => "rejected",
        DeviceState::Preauthorised => "let in ahead, but has not come yet",
        DeviceState::Revoked => "revoked",
    }
}

fn check_command(view: &NodeView, command: &str) -> Result<(), CommandError> {
    let offered = view.commands();
    if offered.contains(&command) {
        return Ok(());
    }
    let name = &view.device.name;
    let declared = view.declared.iter().any(|d| d == command) && !command.contains(':');
    if declared {
        return Err(not_approved(view, command));
    }
    let shown = display_safe(command, 64);
    let nearest = nearest(command, offered.iter().copied());
    let hint = match nearest {
        Some(near) => format!("did you mean `{near}`?"),
        None if offered.is_empty() => "it has no approved commands".into(),
        None => format!("it has: {}", offered.join(", ")),
    };
    Err(CommandError::new(ErrorCode::UnknownCommand, format!("`{name}` has no command `{shown}`; {hint}")))
}

fn not_approved(view: &NodeView, what: &str) -> CommandError {
    let name = &view.device.name;
    CommandError::new(
        ErrorCode::NotApproved,
        format!(
            "`{what}` of `{name}` is declared but not approved yet; see `hearth devices list`, then `hearth devices approve {name}`"
        ),
    )
}

fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|k| (strsim::jaro_winkler(word, k), k))
        .filter(|(score, _)| *score > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}

/// Commands of our own nodes are typed.
fn own(view: &NodeView, command: &str, params: &Value) -> Result<(Value, Class), CommandError> {
    let text = if params.is_null() { String::new() } else { params.to_string() };
    let mut invocation = Invocation::parse(command, &text)?;
    // "The node's first camera" may be one that nobody approved: the hub names the one it means.
    if let Invocation::CameraSnap(snap) = &mut invocation
        && snap.device_id.is_none()
    {
        let cameras = view.declaration.iter().flat_map(|d| &d.cameras);
        snap.device_id =
            cameras.map(|c| c.id.clone()).find(|id| view.approved.contains(&format!("camera:{id}")));
        if snap.device_id.is_none() {
            let first = view.declared.iter().find(|d| d.starts_with("camera:"));
            return Err(match first {
                Some(camera) => not_approved(view, camera),
                None => {
                    CommandError::new(ErrorCode::NotFound, format!("`{}` has no camera", view.device.name))
                }
            });
        }
    }
    if let Some(target) = invocation.target() {
        let part = target.to_string();
        let declared = view.declared.contains(&part);
        if declared && !view.approved.contains(&part) {
            return Err(not_approved(view, &part));
        }
        if !declared {
            return Err(unknown_part(view, target.kind, target.id));
        }
    }
    Ok((invocation.params_json(), invocation.class()))
}

fn unknown_part(view: &NodeView, kind: &str, id: &str) -> CommandError {
    let prefix = format!("{kind}:");
    let known: Vec<&str> = view.declared.iter().filter_map(|d| d.strip_prefix(&prefix)).collect();
    let hint = match nearest(id, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("it has no {kind}"),
        None => format!("it has: {}", known.join(", ")),
    };
    let shown = display_safe(id, 64);
    CommandError::new(ErrorCode::NotFound, format!("`{}` has no {kind} `{shown}`; {hint}", view.device.name))
}

/// Commands of foreign nodes pass through as they are, once a person approved them; their class decides
/// whether they ask.
fn foreign(
    view: &NodeView,
    rules: &NodesConfig,
    command: &str,
    params: &Value,
) -> Result<(Value, Class), CommandError> {
    let denied = |why: String| CommandError::new(ErrorCode::Denied, why);
    let size = params.to_string().len();
    if size > MAX_PARAMS {
        let message = format!("{command}: parameters of {size} bytes, the limit is {MAX_PARAMS}");
        return Err(CommandError::new(ErrorCode::InvalidParams, message));
    }
    if command.starts_with("system.execApprovals.") {
        return Err(denied(format!(
            "`{command}` is not passed on: a node's own rules are edited on the node"
        )));
    }
    let forged = ["approved", "approvalDecision"].into_iter().find(|key| params.get(key).is_some());
    if let Some(key) = forged {
        return Err(denied(format!(
            "{command}: `{key}` is not the caller's to set; the hub asks a person and says so itself"
        )));
    }
    let class = foreign_class(command);
    if class == Class::Execute {
        let id = view.device.id.to_string();
        if !rules.foreign_execute.contains(&id) {
            return Err(denied(format!(
                "`{command}` is off for `{}`, which does not check approvals itself; to allow asking, add \"{id}\" to `nodes.foreign_execute` in config.toml",
                view.device.name
            )));
        }
    }
    let params = if params.is_null() { Value::Object(serde_json::Map::new()) } else { params.clone() };
    Ok((params, class))
}

/// What a foreign command does to the world. What is not known here counts as moving something: it asks.
fn foreign_class(command: &str) -> Class {
    const OBSERVE: &[&str] = &["device.info", "device.status", "system.run.prepare", "camera.ptz.status"];
    const CAPTURE: &[&str] = &["camera.", "screen.", "location.", "audio."];
    const EXECUTE: &[&str] = &[
        "system.run",
        "agent.",
        "mcp.",
        "terminal.",
        "browser.",
        "computer.",
        "desktop.",
        "file.",
        "dir.",
        "fs.",
        "shell.",
    ];
    if OBSERVE.contains(&command) {
        return Class::Observe;
    }
    if let Some(known) = spec(command) {
        return known.class;
    }
    let starts = |list: &[&str]| list.iter().any(|prefix| command.starts_with(prefix));
    if starts(EXECUTE) {
        Class::Execute
    } else if starts(CAPTURE) {
        Class::Capture
    } else {
        Class::Actuate
    }
}

fn foreign_sentence(command: &str, params: &Value) -> String {
    let argv: Option<Vec<String>> = params
        .get("command")
        .and_then(Value::as_array)
        .map(|list| list.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect());
    // A plan or a raw line beside the arguments may say something else: then everything is shown.
    let same_plan = params.get("systemRunPlan").is_none_or(|plan| {
        plan.get("argv") == params.get("command")
            && plan.get("cwd") == Some(params.get("cwd").unwrap_or(&Value::Null))
    });
    let plain = same_plan && params.get("rawCommand").is_none();
    match argv {
        Some(argv) if command == "system.run" && plain => {
            display_safe(&format!("Run {}", hearth_shared::command::system::quote_argv(&argv)), MAX_SENTENCE)
        }
        _ => display_safe(&format!("{command} {params}"), MAX_SENTENCE),
    }
}

#[cfg(test)]
mod tests;
