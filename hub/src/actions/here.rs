//! Requests for a command on the hub's own machine. The hub asks a person and tells the decision; whoever
//! asked runs the command, or does not. Nothing is sent anywhere.

use super::plan::Plan;
use hearth_shared::command::{Class, Invocation, Need};
use hearth_shared::error::CommandError;
use serde_json::Value;

/// How this machine is called on cards.
pub(super) const THIS_MACHINE: &str = "this hub's machine";

/// The plan of a `system.run` here: the same parameters as on a node, with the same limits.
pub(super) fn plan(params: &Value) -> Result<Plan, CommandError> {
    let invocation = Invocation::parse("system.run", &params.to_string())?;
    Ok(Plan {
        node_name: THIS_MACHINE.into(),
        checked_on_node: false,
        params: invocation.params_json(),
        class: Class::Execute,
        raise: Need::Hub,
    })
}
