//! `hearth-node config`

use super::{Context, Failure, say};
use crate::config::{Config, EXAMPLE};
use clap::Subcommand;
use serde_json::json;

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a commented file with every key
    Example,
    /// Check node.toml
    Check,
    /// Print the path of node.toml
    Path,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let path = context.home.config();
    match arguments.command {
        Command::Example => say(EXAMPLE),
        Command::Path => context.print(&json!({ "path": path }), |_| format!("{}\n", path.display())),
        Command::Check => {
            let config = Config::load(&path)?;
            let parts = config.board.cameras.len() + config.board.pins.len() + config.board.sensors.len();
            let value = json!({"path": path, "exists": path.exists(), "parts": parts});
            let note = if path.exists() { "good" } else { "not there, defaults are used" };
            context.print(&value, |_| format!("{}: {note}\n", path.display()))
        }
    }
}
