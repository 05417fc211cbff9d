//! `hearth config`

use super::context::Context;
use super::error::Failure;
use crate::config::{ConfigError, example, load};
use clap::Subcommand;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Tell whether the file can be used, and what is wrong if not
    Check,
    /// Print the configuration in force, defaults included; secrets are redacted
    Show,
    /// Print where the file is
    Path,
    /// Print a commented example with every key and its default
    Example,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let path = context.home.config();
    match arguments.action {
        Action::Check => check(context),
        Action::Show => {
            let config = context.config()?;
            if context.json {
                return context.out.json(&config);
            }
            let text = toml::to_string(&config).map_err(|e| {
                Failure::failed(format!("cannot write TOML: {e}"), "use `hearth config show --json`")
            })?;
            context.out.raw(text)
        }
        Action::Path if context.json => context.out.json(&json!({ "path": path, "exists": path.exists() })),
        Action::Path => context.out.line(path.display().to_string()),
        Action::Example => context.out.raw(example::text()),
    }
}

fn check(context: &Context) -> Result<(), Failure> {
    let path = context.home.config();
    let exists = path.exists();
    match load::load(&path) {
        Ok(_) if context.json => {
            context.out.json(&json!({ "path": path, "exists": exists, "ok": true, "problems": [] }))
        }
        Ok(_) if exists => context.out.line(format!("{} is right", path.display())),
        Ok(_) => context.out.line(format!("there is no {}; the defaults are in force", path.display())),
        Err(ConfigError::Invalid { problems, .. }) if context.json => {
            context
                .out
                .json(&json!({ "path": path, "exists": exists, "ok": false, "problems": problems }))?;
            let count = problems.len();
            Err(Failure::failed(
                format!("{count} problems in {}", path.display()),
                "correct them and check again",
            ))
        }
        Err(error) => Err(error.into()),
    }
}
