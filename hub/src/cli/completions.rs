//! `hearth completions`

use super::context::Context;
use super::error::Failure;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::definition(), "hearth", &mut script);
    context.out.raw(String::from_utf8_lossy(&script))
}
