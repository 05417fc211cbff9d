//! A hub under test.

use crate::process::{self, Finished, eventually, free_port, kill};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A hub process and its home. Dropping it kills the process and removes the home.
#[derive(Debug)]
pub struct TestHub {
    child: Option<Child>,
    home: TempDir,
    /// Its port on loopback.
    pub port: u16,
}

impl TestHub {
    /// A fresh hub, listening.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// A fresh hub with further configuration (TOML after the `[gateway]` section).
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_with(config: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let text = format!("[gateway]\nport = {port}\n{config}");
        std::fs::write(home.path().join("config.toml"), text).expect("the configuration is written");
        let mut hub = Self { child: None, home, port };
        hub.restart();
        hub
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

    /// Starts it (again) on the same home and port.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path()).expect("a log");
        let mut command = process::command("hearth", self.home.path(), &["run"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(command.spawn().expect("the hub starts"));
        let address = ([127, 0, 0, 1], self.port).into();
        eventually("the hub listens", Duration::from_secs(20), || {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten()) {
                panic!("the hub ended ({status}): {}", self.log());
            }
            // Its address file comes a moment after the first accepted connection.
            let told = self.home.path().join("hub.addr").exists();
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok().filter(|_| told)
        });
    }

    /// Process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the hub runs").id()
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
                eventually("the hub ends", Duration::from_secs(10), || child.try_wait().ok().flatten());
            assert!(status.success(), "the hub ended with {status}: {}", self.log());
        }
    }

    /// Runs `hearth ARGS --home …`.
    #[must_use]
    pub fn cli(&self, args: &[&str]) -> Finished {
        process::run("hearth", self.home.path(), args)
    }

    /// Runs `hearth ARGS --json`, which must succeed.
    #[must_use]
    pub fn json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.push("--json");
        self.cli(&args).ok().json()
    }

    /// Opens the pairing window and gives the setup code.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn setup_code(&self) -> String {
        self.json(&["pair", "--no-wait"])["window"]["code"].as_str().expect("a code").to_owned()
    }
}

impl Drop for TestHub {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- hub log ---\n{}", self.log());
        }
    }
}
