//! A program of the owner's, run for each notice.

use super::SendError;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Longer than this it is stopped.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs it. In its arguments `{text}`, `{kind}` and `{id}` are replaced; the same stand in `HEARTH_TEXT`,
/// `HEARTH_KIND` and `HEARTH_ID`. No shell is involved.
pub(super) async fn run(argv: &[String], text: &str, kind: &str, id: &str) -> Result<(), SendError> {
    let Some((program, arguments)) = argv.split_first() else { return Ok(()) };
    let filled = arguments.iter().map(|a| match a.as_str() {
        // Whole arguments only: what others wrote never becomes part of another word.
        "{text}" => text,
        "{kind}" => kind,
        "{id}" => id,
        own => own,
    });
    let failed = |why: String| SendError::Refused(format!("`{program}`: {why}"));
    let mut child = Command::new(program)
        .args(filled)
        .env("HEARTH_TEXT", text)
        .env("HEARTH_KIND", kind)
        .env("HEARTH_ID", id)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    match tokio::time::timeout(LIMIT, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("it ended with {status}"))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("it did not end within {} s and was stopped", LIMIT.as_secs()))),
    }
}
