//! A node under test.

use crate::hub::TestHub;
use crate::process::eventually;
use crate::program::Program;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A node process and its home; see [`Program`] for what can be done with it.
#[derive(Debug)]
pub struct TestNode {
    program: Program,
    /// Its name.
    pub name: String,
}

impl Deref for TestNode {
    type Target = Program;
    fn deref(&self) -> &Program {
        &self.program
    }
}
impl DerefMut for TestNode {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl TestNode {
    /// A simulated board that was never paired; `config` is its `node.toml` after name and `[board]`.
    #[must_use]
    pub fn new(name: &str, config: &str) -> Self {
        let text = format!("name = \"{name}\"\n[board]\nsimulate = true\n{config}");
        Self { program: Program::new("hearth-node", "node.toml", &text), name: name.into() }
    }

    /// A simulated board, paired with `hub` by a setup code and connected.
    #[must_use]
    pub fn paired(hub: &TestHub, name: &str, config: &str) -> Self {
        let mut node = Self::new(name, config);
        let _ = node.cli(&["pair", &hub.setup_code(), "--yes"]).ok();
        node.start();
        node.wait_connected(hub);
        node
    }

    /// Waits until `hub` lists it as connected.
    pub fn wait_connected(&self, hub: &TestHub) {
        self.wait(hub, true);
    }

    /// Waits until `hub` lists it as away.
    pub fn wait_away(&self, hub: &TestHub) {
        self.wait(hub, false);
    }

    fn wait(&self, hub: &TestHub, connected: bool) {
        let what = if connected { "the node is connected" } else { "the node is away" };
        eventually(what, Duration::from_secs(30), || {
            let nodes = hub.cli(&["nodes", "list", "--json"]);
            let list = serde_json::from_str::<serde_json::Value>(&nodes.stdout).ok()?;
            // One that was revoked is no longer listed.
            let found = list["nodes"].as_array()?.iter().find(|n| n["displayName"] == self.name.as_str());
            (found.is_some_and(|n| n["connected"] == true) == connected).then_some(())
        });
    }
}
