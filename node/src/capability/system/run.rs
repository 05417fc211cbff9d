//! `system.run`: exactly the program that was hashed, watched from start to end.

use super::process::{self, Launch};
use super::{output, program};
use crate::capability::{Call, Output, answer};
use hearth_shared::command::system::{RunParams, RunResult};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::limits::{MAX_LINK_FRAME, MAX_RUN_OUTPUT};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Room in a link frame for what is not the result.
const FRAME_RESERVE: usize = 16 * 1024;

/// Runs what [`program::plan`] planned.
///
/// # Errors
/// `DENIED` when the program is no longer what was planned, and those of [`process::run`].
pub(super) async fn run(params: &RunParams, call: Call) -> Result<Output, CommandError> {
    let Call { facts, executable, timeout, cancel } = call;
    let executable = executable.ok_or_else(|| {
        CommandError::new(ErrorCode::Internal, "the program was not opened before it was to run")
    })?;
    let fact = |name: &str| facts.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
    let (path, sha256) = (fact("path"), fact("sha256"));
    let is_script = facts.get("script").and_then(Value::as_bool).unwrap_or(true);
    let executable = {
        let path = path.clone();
        crate::capability::blocking(move || check_unchanged(executable, &path, &sha256, is_script)).await?
    };
    let mut env = process::environment();
    env.extend(params.env.clone());
    let launch = Launch {
        // A script's interpreter opens it by name, after the descriptor is closed.
        program: if is_script { PathBuf::from(&path) } else { program::descriptor_path(&executable) },
        name: params.command.first().cloned().unwrap_or_default(),
        args: params.command.iter().skip(1).cloned().collect(),
        cwd: fact("cwd").into(),
        env,
        input: None,
    };
    let limit = Duration::from_millis(params.timeout_ms).min(timeout);
    let ended = process::run(launch, limit, &cancel).await?;
    drop(executable);
    let mut result = RunResult {
        exit_code: ended.status.code(),
        signal: ended.status.signal(),
        timed_out: ended.timed_out,
        success: ended.status.success() && !ended.timed_out,
        duration_ms: u64::try_from(ended.ran.as_millis()).unwrap_or(u64::MAX),
        ..RunResult::default()
    };
    // Text with many control characters is several times as long in JSON; the frame is the limit.
    let mut limit = MAX_RUN_OUTPUT;
    loop {
        (result.stdout, result.stderr, result.dropped_bytes) = output::both(&ended.out, &ended.err, limit);
        let output = answer(&result)?;
        if output.result.len() + FRAME_RESERVE <= MAX_LINK_FRAME || limit < 1024 {
            return Ok(output);
        }
        limit = limit / 4 * 3;
    }
}

/// Hashes again, so that a file written into after it was approved does not run. For a script also
/// checks that its name still leads to it; between here and the interpreter's own open remains a gap,
/// which is why nobody can always-allow a script.
fn check_unchanged(
    executable: File,
    path: &str,
    sha256: &str,
    is_script: bool,
) -> Result<File, CommandError> {
    let io = |e: std::io::Error| CommandError::new(ErrorCode::Hardware, format!("program {path:?}: {e}"));
    let same_file = |name: &Path| -> std::io::Result<bool> {
        let (open, named) = (executable.metadata()?, std::fs::symlink_metadata(name)?);
        Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
    };
    let unchanged = program::hash(&executable).map_err(io)?.0 == sha256
        && (!is_script || same_file(Path::new(path)).unwrap_or(false));
    if unchanged {
        return Ok(executable);
    }
    Err(CommandError::new(
        ErrorCode::Denied,
        format!(
            "program {path:?} was changed after it was approved, so it was not run; ask again to approve the new one"
        ),
    ))
}
