//! `hearth logs`: reads the file, so it works with the hub stopped too.

use super::context::Context;
use super::error::Failure;
use super::output::safe_text;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// Bytes read at most to find the last lines.
const TAIL: u64 = 4 * 1024 * 1024;
/// How often a followed file is looked at.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Go on with new lines as they come
    #[arg(short, long)]
    follow: bool,
    /// Lines to begin with
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    lines: usize,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let path = context.home.log();
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::not_found(
            format!("there is no log at {}", path.display()),
            "start the hub with `hearth run`, or name its directory with --home",
        ),
        _ => Failure::failed(format!("{}: {e}", path.display()), "check that the file belongs to you"),
    };
    let mut file = File::open(&path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let start = size.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let older = crate::logging::rotated(&path);
    show(context, &last_lines(&older, &text, arguments.lines))?;
    if !arguments.follow {
        return Ok(());
    }
    context.block_on(follow(&path, file, context))
}

/// The last lines, taken from the rotated file when the current one has too few.
fn last_lines(older: &Path, text: &str, count: usize) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.len() < count
        && let Ok(old) = std::fs::read(older)
    {
        let missing = count - lines.len();
        let old: Vec<String> = String::from_utf8_lossy(&old).lines().map(str::to_owned).collect();
        lines.splice(0..0, old.into_iter().rev().take(missing).rev());
    }
    lines.split_off(lines.len().saturating_sub(count))
}

fn show(context: &Context, lines: &[String]) -> Result<(), Failure> {
    for line in lines {
        if context.json {
            // A line that is JSON already stays as it is; others become one.
            match serde_json::from_str::<serde_json::Value>(line) {
                Ok(value) if value.is_object() => context.out.json_line(&value)?,
                _ => context.out.json_line(&serde_json::json!({ "line": line }))?,
            }
        } else {
            context.out.line(safe_text(line))?;
        }
    }
    Ok(())
}

async fn follow(path: &Path, mut file: File, context: &Context) -> Result<(), Failure> {
    let lost = |e: std::io::Error| {
        Failure::failed(format!("{}: {e}", path.display()), "start `hearth logs -f` again")
    };
    let mut partial = String::new();
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
        let mut fresh = Vec::new();
        file.read_to_end(&mut fresh).map_err(lost)?;
        partial.push_str(&String::from_utf8_lossy(&fresh));
        if let Some(end) = partial.rfind('\n') {
            let whole: Vec<String> = partial[..end].lines().map(str::to_owned).collect();
            partial.drain(..=end);
            show(context, &whole)?;
        }
        // Rotated: the name belongs to another file now.
        let inode = |m: std::fs::Metadata| m.ino();
        if let Ok(now) = std::fs::metadata(path).map(inode)
            && now != file.metadata().map(inode).map_err(lost)?
        {
            file = File::open(path).map_err(lost)?;
        }
    }
}
