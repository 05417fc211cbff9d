//! The binary `hearth-node`; everything is in the library.

fn main() -> std::process::ExitCode {
    hearth_node::cli::main()
}
