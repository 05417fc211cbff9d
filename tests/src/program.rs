//! A long-running program under test: its home, its process, its output.

use crate::process::{self, Finished, eventually, kill};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// One of the two binaries with a home of its own. Dropping it kills the process and removes the home;
/// in a failing test its output is printed first.
#[derive(Debug)]
pub struct Program {
    binary: &'static str,
    child: Option<Child>,
    home: TempDir,
    namespace: Option<String>,
}

impl Program {
    /// A fresh home that holds one file, the configuration.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(binary: &'static str, config_file: &str, config: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(home.path().join(config_file), config).expect("the configuration is written");
        Self { binary, child: None, home, namespace: None }
    }

    /// From now on it and its command line run in this network namespace.
    pub fn move_into(&mut self, namespace: &str) {
        self.namespace = Some(namespace.to_owned());
    }

    fn command(&self, args: &[&str]) -> Command {
        let command = process::command(self.binary, self.home.path(), args);
        match &self.namespace {
            Some(namespace) => process::within(namespace, &command),
            None => command,
        }
    }

    /// Its home.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// What it printed, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("test-output.log")).unwrap_or_default()
    }

    /// Starts it (again) with `run`.
    ///
    /// # Panics
    /// When it runs already or cannot be started.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let path = self.home.path().join("test-output.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log");
        let mut command = self.command(&["run"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(command.spawn().expect("it starts"));
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Its resident memory in kB.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
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
            let status = eventually("it ends", Duration::from_secs(10), || child.try_wait().ok().flatten());
            assert!(status.success(), "{} ended with {status}: {}", self.binary, self.log());
        }
    }

    /// Runs the same binary with other arguments on this home, to its end.
    #[must_use]
    pub fn cli(&self, args: &[&str]) -> Finished {
        process::finish(self.command(args).stdin(Stdio::null()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- output of {} in {} ---\n{}", self.binary, self.home.path().display(), self.log());
        }
    }
}
