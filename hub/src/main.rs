//! The binary `hearth`: the hub, and its operator's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    hearth_hub::cli::main()
}
