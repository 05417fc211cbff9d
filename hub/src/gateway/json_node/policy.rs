//! What a foreign JSON node may be asked at all.
//!
//! Such a node checks no grants: this hub is the only gate. So of what it declares only commands are kept
//! whose class this hub knows (everything else could do anything), and programs are run only on nodes for
//! which the owner switched that on in `nodes.foreign_execute`.

use crate::config::NodesConfig;
use hearth_shared::command::{self, Class};
use hearth_shared::identity::DeviceId;

/// Commands of phones and desktops that our own nodes do not have: harmless, or such that a person is asked.
const FOREIGN: [&str; 4] = ["camera.clip", "device.info", "device.status", "location.get"];
/// What a foreign host wants asked before it runs a program.
const PREPARE: &str = "system.run.prepare";

/// Whether a command runs programs of the caller's choice.
pub(crate) fn executes(name: &str) -> bool {
    name == PREPARE || command::spec(name).is_some_and(|spec| spec.class == Class::Execute)
}

/// Commands of the declaration that this hub could ever send, sorted and without doubles.
pub(crate) fn surface(declared: &[String], node: DeviceId, config: &NodesConfig) -> Vec<String> {
    let may_execute = config.foreign_execute.iter().any(|id| *id == node.to_string());
    let known = |name: &str| command::spec(name).is_some() || FOREIGN.contains(&name) || name == PREPARE;
    let mut kept: Vec<String> =
        declared.iter().filter(|name| known(name) && (may_execute || !executes(name))).cloned().collect();
    kept.sort();
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_and_programs_are_left_out() {
        let node = DeviceId([7; 32]);
        let declared: Vec<String> = [
            "system.run",
            "camera.snap",
            "fs.listDir",
            "browser.proxy",
            "system.which",
            "camera.snap",
            "location.get",
            PREPARE,
        ]
        .map(String::from)
        .to_vec();
        let config = NodesConfig::default();
        assert_eq!(surface(&declared, node, &config), ["camera.snap", "location.get", "system.which"]);
        let on = NodesConfig { foreign_execute: vec![node.to_string()], ..config };
        let all = ["camera.snap", "location.get", "system.run", PREPARE, "system.which"];
        assert_eq!(surface(&declared, node, &on), all);
        assert_eq!(surface(&declared, DeviceId([8; 32]), &on).len(), 3, "switched on for one node only");
    }
}
