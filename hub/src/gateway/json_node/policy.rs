//! What a foreign JSON node may be asked at all.
//!
//! Such a node checks no grants: this hub is the only gate. So of what it declares only commands are kept
//! whose class this hub knows (everything else could do anything), and programs are run only on nodes for
//! which the owner switched that on in `nodes.foreign_execute`.

use crate::config::NodesConfig;
use hearth_shared::command::{self, Class};
use hearth_shared::identity::DeviceId;

/// Commands of the declaration that this hub could ever send, sorted and without doubles.
pub(crate) fn surface(declared: &[String], node: DeviceId, config: &NodesConfig) -> Vec<String> {
    let may_execute = config.foreign_execute.iter().any(|id| *id == node.to_string());
    let mut kept: Vec<String> = declared
        .iter()
        .filter(|name| command::spec(name).is_some_and(|spec| spec.class != Class::Execute || may_execute))
        .cloned()
        .collect();
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
        let declared: Vec<String> =
            ["system.run", "camera.snap", "fs.listDir", "browser.proxy", "system.which", "camera.snap"]
                .map(String::from)
                .to_vec();
        let config = NodesConfig::default();
        assert_eq!(surface(&declared, node, &config), ["camera.snap", "system.which"]);
        let on = NodesConfig { foreign_execute: vec![node.to_string()], ..config };
        assert_eq!(surface(&declared, node, &on), ["camera.snap", "system.run", "system.which"]);
        assert_eq!(surface(&declared, DeviceId([8; 32]), &on).len(), 2, "switched on for one node only");
    }
}
