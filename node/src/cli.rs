//! The command line of the node: one file per sub-command.
//!
//! Every error is one line with a next step, and an exit code of the table in `hearth-node --help`.

mod approvers;
mod config;
mod ledger;
mod open;
mod pair;
mod policy;
mod reset;
mod run;
mod status;

use crate::config::load::ConfigError;
use crate::guard::GuardError;
use crate::link::state::End;
use crate::logging::{self, LogFormat};
use crate::outbox::store::OutboxError;
use crate::state::{Home, StateError};
use clap::{Parser, Subcommand};
use hearth_shared::error::CommandError;
use hearth_shared::identity::display_safe_lines;
use hearth_shared::limits::MAX_ERROR_CHARS;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::Level;
use tracing_subscriber::filter::Targets;

/// The table of exit codes, as `--help` shows it.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; the message says why
  2  the command line is not right
  3  the node is not paired; run `hearth-node pair`
  4  the hub refused

Files are in --home: node.toml (see `hearth-node config example`), node.key, hub.json, node.db, outbox.db.";

/// A Hearth node: cameras, pins and sensors of this board for a hub at home.
#[derive(Debug, Parser)]
#[command(name = "hearth-node", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every sub-command takes.
#[derive(Debug, clap::Args)]
struct Global {
    /// State directory [default: ~/.local/state/hearth-node, as a service /var/lib/hearth-node]
    #[arg(long, global = true, value_name = "DIR", env = "HEARTH_NODE_HOME", hide_env_values = true)]
    home: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    json: bool,
    /// How much to log to stderr: a level, or levels by module [default: info for `run`, warn otherwise]
    #[arg(long, global = true, value_name = "FILTER", env = "HEARTH_LOG", hide_env_values = true,
        value_parser = logging::filter)]
    log: Option<Targets>,
    /// Form of log lines
    #[arg(long, global = true, value_name = "FORM", env = "HEARTH_LOG_FORMAT", default_value = "human")]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pair with a hub, by the code that `hearth pair` shows or by comparing words
    Pair(pair::Arguments),
    /// Run the node in the foreground
    Run(run::Arguments),
    /// Show hub, connection, outbox, approvers and health
    Status,
    /// Show, check or try the rules of this node
    Policy(policy::Arguments),
    /// Show or change who may approve on this node
    Approvers(approvers::Arguments),
    /// Show or remove what somebody allowed for good
    Always(ledger::AlwaysArguments),
    /// Show or verify the audit log of this node
    Audit(ledger::AuditArguments),
    /// Check the configuration, or print an example with every key
    Config(config::Arguments),
    /// Forget the hub, the approvers, the rules and the identity
    Reset(reset::Arguments),
}

/// What a sub-command works with.
#[derive(Debug)]
struct Context {
    home: Home,
    json: bool,
}

impl Context {
    /// Prints a value: as JSON when asked for, else as `human` writes it. A closed pipe is no error.
    fn print(
        &self,
        value: &serde_json::Value,
        human: impl FnOnce(&serde_json::Value) -> String,
    ) -> Result<(), Failure> {
        let text = if self.json { format!("{value:#}\n") } else { human(value) };
        say(&text)
    }
}

/// Writes to stdout. A closed pipe is no error.
fn say(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(1, format!("stdout: {e}"))),
        _ => Ok(()),
    }
}

/// How a sub-command failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Failure {
    exit: u8,
    message: String,
}

impl Failure {
    fn new(exit: u8, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
    fn not_paired() -> Self {
        Self::new(
            3,
            "this node is not paired; run `hearth pair` on the hub, then `hearth-node pair CODE` here",
        )
    }
}

macro_rules! failures {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(1, error.to_string())
            }
        })+
    };
}
failures!(StateError, ConfigError, GuardError, OutboxError, CommandError, std::io::Error);

impl From<End> for Failure {
    fn from(end: End) -> Self {
        let exit = if matches!(end, End::Refused(_)) { 4 } else { 1 };
        Self::new(exit, end.to_string())
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, for stdout; a closed pipe leaves nobody to tell.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            // A refusal repeats the argument, whatever is in it.
            eprint!("{}", display_safe_lines(&error.render().to_string(), MAX_ERROR_CHARS));
            return ExitCode::from(2);
        }
    };
    let running = matches!(arguments.command, Command::Run(_));
    let level = if running { Level::INFO } else { Level::WARN };
    let filter = arguments.global.log.clone().unwrap_or_else(|| Targets::new().with_default(level));
    logging::start(filter, arguments.global.log_format);
    // Before the first file is made or a key is in memory.
    crate::capability::system::confine_process();
    let json = arguments.global.json;
    match dispatch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // It may repeat an argument, a file name or what the hub said.
            let message = display_safe_lines(&failure.message, MAX_ERROR_CHARS);
            if json {
                eprintln!("{}", serde_json::json!({"error": {"exit": failure.exit, "message": message}}));
            } else {
                eprintln!("hearth-node: {message}");
            }
            ExitCode::from(failure.exit)
        }
    }
}

fn dispatch(arguments: Arguments) -> Result<(), Failure> {
    let context = Context { home: Home::locate(arguments.global.home), json: arguments.global.json };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Made when needed. A sensor that hangs or a program that runs holds one; the rest must go on.
        .max_blocking_threads(64)
        .thread_stack_size(512 * 1024)
        .build()?;
    let result = match arguments.command {
        Command::Pair(arguments) => runtime.block_on(pair::run(&context, arguments)),
        Command::Run(arguments) => runtime.block_on(run::run(&context, arguments)),
        Command::Status => runtime.block_on(status::run(&context)),
        Command::Policy(arguments) => runtime.block_on(policy::run(&context, arguments)),
        Command::Approvers(arguments) => runtime.block_on(approvers::run(&context, arguments)),
        Command::Always(arguments) => runtime.block_on(ledger::always(&context, arguments)),
        Command::Audit(arguments) => runtime.block_on(ledger::audit(&context, arguments)),
        Command::Config(arguments) => config::run(&context, &arguments),
        Command::Reset(arguments) => runtime.block_on(reset::run(&context, &arguments)),
    };
    // A question on the terminal that nobody answered must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Asks a question on the terminal; only `y` and `yes` are a yes.
async fn confirm(question: &str) -> Result<bool, Failure> {
    let prompt = format!("{question} [y/N] ");
    let line = tokio::task::spawn_blocking(move || {
        eprint!("{prompt}");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|n| (n > 0).then_some(line))
    })
    .await
    .map_err(|e| Failure::new(1, e.to_string()))??;
    match line {
        Some(line) => Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes")),
        None => Err(Failure::new(1, "there is nobody to ask (stdin is closed); pass --yes to confirm")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        super::Arguments::command().debug_assert();
    }

    #[test]
    fn a_key_may_begin_with_a_hyphen() {
        use clap::Parser as _;
        let key = "-4NL-aGM57VwKE4MRusBIBK1DDUAgpaf896ESMWgZ3uM";
        for args in [["add", key, "--name", "Ann"], ["add", "--name", "Ann", key]] {
            let args = [["hearth-node", "approvers"].as_slice(), &args].concat();
            super::Arguments::try_parse_from(args).unwrap();
        }
    }
}
