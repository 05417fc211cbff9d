//! The command line of the hub: one file per sub-command.
//!
//! Two levels of arguments: clap's typed structs say what was written; [`context::Context`] is what it
//! means here (which home, which form of output). Every error is one line with a next step and an exit
//! code of the table in `hearth --help`.

pub mod approve;
pub mod card;
pub mod client;
pub mod context;
pub mod error;
pub mod keyboard;
pub mod output;

mod approvals;
mod approver;
mod approver_home;
mod audit;
mod backup;
mod cert;
mod channels;
mod chat;
mod completions;
mod config;
mod demo;
mod devices;
mod doctor;
mod logs;
mod man;
mod nodes;
mod notify;
mod page;
mod pair;
mod readings;
mod run;
mod status;

use clap::{CommandFactory as _, Parser, Subcommand};
use context::Context;
use error::Failure;
use hearth_shared::identity::display_safe_lines;
use hearth_shared::limits::MAX_ERROR_CHARS;
use std::path::PathBuf;
use std::process::ExitCode;

/// The table of exit codes, as `--help` shows it.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; the message says why
  2  the command line is not right
  3  the hub does not run or cannot be reached
  4  there is no such thing
  5  denied, by a person or by a rule

Every sub-command takes --home and --json. With --json, errors are one JSON object on stderr:
{\"error\":{\"exit\":3,\"message\":\"...\",\"next\":\"...\"}}";

/// A personal assistant for your own hardware: one hub, small nodes around it.
#[derive(Debug, Parser)]
#[command(name = "hearth", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every sub-command takes.
#[derive(Debug, clap::Args)]
pub struct Global {
    /// State directory [default: $HEARTH_HOME, else ~/.local/state/hearth]
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the hub in the foreground
    Run(run::Arguments),
    /// Talk with the assistant
    Chat(chat::Arguments),
    /// Try it: a hub, a node with a simulated board, and a chat
    Demo(demo::Arguments),
    /// Let a device in: a setup code, a picture of it, and who knocks
    Pair(pair::Arguments),
    /// The certificate for browsers and phones: show, hand out, renew
    Cert(cert::Arguments),
    /// Let a browser in: a link that works once, and a picture of it for a phone
    Page(page::Arguments),
    /// How a person who is not looking is told: show the ways, and try them
    Notify(notify::Arguments),
    /// Show how the hub and its nodes are, and what should be looked at
    Status(status::Arguments),
    /// Look for faults, layer by layer; works with the hub stopped too
    Doctor(doctor::Arguments),
    /// List devices, and let them in or out
    Devices(devices::Arguments),
    /// List nodes and run commands on them
    Nodes(nodes::Arguments),
    /// Show and decide what waits for a yes
    Approvals(approvals::Arguments),
    /// A person's own key for approvals, on this or another machine
    Approver(approver::Arguments),
    /// Chats such as Telegram: how they stand, and who may write
    Channels(channels::Arguments),
    /// Show or export the history of sensors
    Readings(readings::Arguments),
    /// Show and verify the audit log
    Audit(audit::Arguments),
    /// Write a consistent copy of the state into one file
    Backup(backup::Arguments),
    /// Bring a backup back
    Restore(backup::RestoreArguments),
    /// Check, show or explain the configuration
    Config(config::Arguments),
    /// Show the hub's log
    Logs(logs::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Print the manual page, or write one page per sub-command
    Man(man::Arguments),
}

/// The whole definition, for completions and manual pages.
#[must_use]
pub fn definition() -> clap::Command {
    Arguments::command()
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, for stdout. A refusal repeats the argument, whatever is in it.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            eprint!("{}", display_safe_lines(&error.render().to_string(), MAX_ERROR_CHARS));
            return ExitCode::from(error::Exit::Usage as u8);
        }
    };
    // Once for the process: TLS of the model server and of remote hubs. A second call would be no harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let context = Context::resolve(&arguments.global);
    match dispatch(arguments.command, &context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(context.json),
    }
}

fn dispatch(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => run::run(&arguments, context),
        Command::Chat(arguments) => chat::run(&arguments, context),
        Command::Demo(arguments) => demo::run(&arguments, context),
        Command::Pair(arguments) => pair::run(&arguments, context),
        Command::Cert(arguments) => cert::run(&arguments, context),
        Command::Page(arguments) => page::run(&arguments, context),
        Command::Notify(arguments) => notify::run(&arguments, context),
        Command::Status(arguments) => status::run(&arguments, context),
        Command::Doctor(arguments) => doctor::run(&arguments, context),
        Command::Devices(arguments) => devices::run(&arguments, context),
        Command::Nodes(arguments) => nodes::run(&arguments, context),
        Command::Approvals(arguments) => approvals::run(&arguments, context),
        Command::Approver(arguments) => approver::run(&arguments, context),
        Command::Channels(arguments) => channels::run(&arguments, context),
        Command::Readings(arguments) => readings::run(&arguments, context),
        Command::Audit(arguments) => audit::run(&arguments, context),
        Command::Backup(arguments) => backup::run(&arguments, context),
        Command::Restore(arguments) => backup::restore(&arguments, context),
        Command::Config(arguments) => config::run(&arguments, context),
        Command::Logs(arguments) => logs::run(&arguments, context),
        Command::Completions(arguments) => completions::run(&arguments, context),
        Command::Man(arguments) => man::run(&arguments, context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound_and_every_sub_command_takes_home_and_json() {
        definition().debug_assert();
        let mut command = definition();
        command.build();
        let mut waiting: Vec<&clap::Command> = command.get_subcommands().collect();
        while let Some(sub) = waiting.pop() {
            for name in ["home", "json"] {
                assert!(
                    sub.get_arguments().any(|a| a.get_long() == Some(name)),
                    "{} lacks --{name}",
                    sub.get_name()
                );
            }
            waiting.extend(sub.get_subcommands());
        }
    }

    #[test]
    fn a_key_may_begin_with_a_hyphen() {
        let key = "-4NL-aGM57VwKE4MRusBIBK1DDUAgpaf896ESMWgZ3uM";
        for args in [
            ["enroll", "--key", key, "--name", "Ann"].as_slice(),
            &["change", "garage", "--add", key, "--name", "Ann"],
            &["change", "garage", "--recovery", key],
        ] {
            Arguments::try_parse_from([["hearth", "approver"].as_slice(), args].concat()).unwrap();
        }
    }

    #[test]
    fn help_shows_the_exit_codes() {
        let help = definition().render_long_help().to_string();
        for exit in error::Exit::ALL {
            assert!(help.contains(&format!("\n  {}  ", exit as u8)), "{exit:?}");
        }
    }
}
