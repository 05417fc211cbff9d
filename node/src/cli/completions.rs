//! `hearth-node completions`

use super::{Failure, say};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the script.
///
/// # Errors
/// [`Failure`].
pub(super) fn run(arguments: &Arguments, mut definition: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition, "hearth-node", &mut script);
    say(&String::from_utf8_lossy(&script))
}
