//! A node under test.

use crate::hub::TestHub;
use crate::process::{self, Finished, eventually, kill};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A node process and its home. Dropping it kills the process and removes the home.
#[derive(Debug)]
pub struct TestNode {
    child: Option<Child>,
    home: TempDir,
    /// Its name.
    pub name: String,
}

impl TestNode {
    /// A simulated board that was never paired; `config` is its `node.toml` after name and `[board]`.
    ///
    /// # Panics
    /// When its home cannot be made.
    #[must_use]
    pub fn new(name: &str, config: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let text = format!("name = \"{name}\"\n[board]\nsimulate = true\n{config}");
        std::fs::write(home.path().join("node.toml"), text).expect("the configuration is written");
        Self { child: None, home, name: name.into() }
    }

    /// A simulated board, paired with `hub` by a setup code and connected.
    #[must_use]
    pub fn paired(hub: &TestHub, name: &str, config: &str) -> Self {
        let mut node = Self::new(name, config);
        let _ = node.cli(&["pair", &hub.setup_code(), "--yes", "--simulate"]).ok();
        node.start();
        node.wait_connected(hub);
        node
    }

    /// Its home.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("test-output.log")
    }

    /// Runs `hearth-node run`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path()).expect("a log");
        let mut command = process::command("hearth-node", self.home.path(), &["run"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(command.spawn().expect("the node starts"));
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

    /// Process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the node runs").id()
    }

    /// Kills it as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it as systemd would.
    ///
    /// # Panics
    /// When it does not end within 10 s or with a failure.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill(child.id(), "TERM");
            let status =
                eventually("the node ends", Duration::from_secs(10), || child.try_wait().ok().flatten());
            assert!(status.success(), "the node ended with {status}: {}", self.log());
        }
    }

    /// Runs `hearth-node ARGS --home …`.
    #[must_use]
    pub fn cli(&self, args: &[&str]) -> Finished {
        process::run("hearth-node", self.home.path(), args)
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- node log ({}) ---\n{}", self.name, self.log());
        }
    }
}
