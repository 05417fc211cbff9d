//! What the arguments mean here: the second level.

use super::Global;
use super::error::Failure;
use super::output::Output;
use crate::config::{self, Config};
use crate::home::Home;
use std::io::IsTerminal as _;
use std::path::PathBuf;

/// Resolved once, used by every sub-command.
#[derive(Debug)]
pub struct Context {
    /// The state directory.
    pub home: Home,
    /// It, when somebody named it, by `--home` or `$HEARTH_HOME`.
    pub explicit_home: Option<PathBuf>,
    /// JSON instead of text.
    pub json: bool,
    /// A person sits at both ends of it.
    pub interactive: bool,
    /// Where answers go.
    pub out: Output,
}

impl Context {
    /// Looks at arguments, environment and terminal.
    #[must_use]
    pub fn resolve(global: &Global) -> Self {
        let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let var = || std::env::var_os("HEARTH_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
        Self {
            home: Home::locate(global.home.as_deref()),
            explicit_home: global.home.clone().or_else(var),
            json: global.json,
            interactive: interactive && !global.json,
            out: Output::new(global.json),
        }
    }

    /// The configuration of the home.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn config(&self) -> Result<Config, Failure> {
        Ok(config::load::load(&self.home.config())?)
    }

    /// Runs a client's work on a small runtime of its own.
    ///
    /// # Errors
    /// What the work returns.
    pub fn block_on<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
            Failure::failed(format!("cannot start: {e}"), "check the limits on open files and memory")
        })?;
        let result = runtime.block_on(work);
        // A thread that waits for the keyboard must not keep the program.
        runtime.shutdown_background();
        result
    }
}
