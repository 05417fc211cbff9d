//! A hub under test.

use crate::process::{eventually, free_port};
use crate::program::Program;
use serde_json::Value;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A hub process and its home; see [`Program`] for what can be done with it.
#[derive(Debug)]
pub struct TestHub {
    program: Program,
    /// Its port on loopback.
    pub port: u16,
}

impl Deref for TestHub {
    type Target = Program;
    fn deref(&self) -> &Program {
        &self.program
    }
}
impl DerefMut for TestHub {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
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
        let port = free_port();
        let text = format!("[gateway]\nport = {port}\n{config}");
        let mut hub = Self { program: Program::new("hearth", "config.toml", &text), port };
        hub.restart();
        hub
    }

    /// Starts it (again) on the same home and port.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.program.start();
        let address = ([127, 0, 0, 1], self.port).into();
        eventually("the hub listens", Duration::from_secs(20), || {
            if let Some(status) = self.program.ended() {
                panic!("the hub ended ({status}): {}", self.log());
            }
            // It notes its address a moment after the first accepted connection, or says that it cannot.
            let told =
                self.home().join("hub.addr").exists() || self.log().contains("the address cannot be noted");
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok().filter(|_| told)
        });
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
