//! `hearth man`

use super::context::Context;
use super::error::Failure;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Write one page per sub-command into this directory instead of printing the main page
    dir: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    if let Some(dir) = &arguments.dir {
        let failed = |e: std::io::Error| {
            Failure::failed(format!("{}: {e}", dir.display()), "name a directory that you may write to")
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        clap_mangen::generate_to(super::definition(), dir).map_err(failed)?;
        return context.out.line(format!("manual pages are in {}", dir.display()));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(super::definition()).render(&mut page).map_err(|e| Failure::output(&e))?;
    context.out.raw(String::from_utf8_lossy(&page))
}
