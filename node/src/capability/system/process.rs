//! A child process in a group of its own, which never outlives the call.

use super::TRUSTED_PATH;
use super::output::Capture;
use hearth_shared::error::{CommandError, ErrorCode};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long output is drained after the group is dead. Only what left the group can still hold the pipe.
const DRAIN: Duration = Duration::from_millis(500);
/// A killed process that the kernel does not let go (a broken card or network file system).
const REAP: Duration = Duration::from_secs(5);

/// What to start. Nothing is inherited: no environment, no input, no open files.
#[derive(Debug)]
pub(super) struct Launch {
    /// What is executed; may be a path to an open descriptor of this process.
    pub(super) program: PathBuf,
    /// What the program sees as its own name.
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) cwd: PathBuf,
    pub(super) env: BTreeMap<String, String>,
    pub(super) input: Option<Vec<u8>>,
}

impl Launch {
    /// One of the system's own tools.
    pub(super) fn tool(program: PathBuf, args: Vec<String>) -> Self {
        Self {
            name: program.to_string_lossy().into_owned(),
            program,
            args,
            cwd: "/".into(),
            env: environment(),
            input: None,
        }
    }
}

/// The scrubbed environment every program starts with.
pub(super) fn environment() -> BTreeMap<String, String> {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/')).unwrap_or_else(|| "/".into());
    [("PATH", TRUSTED_PATH), ("LANG", "C.UTF-8"), ("TERM", "dumb"), ("HOME", &home)]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into()
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) timed_out: bool,
    pub(super) ran: Duration,
    pub(super) out: Capture,
    pub(super) err: Capture,
}

/// Kills the group when dropped, so that nothing is left when the caller goes away in the middle.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0
            && let Err(error) = kill_process_group(pid, signal)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(%error, "a process group cannot be signalled");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

enum Why {
    Exited,
    TimedOut,
    Cancelled,
}

/// Runs it to its end, or until `limit` or `cancel`: then its whole group gets SIGTERM, and SIGKILL
/// after a grace time. What the program leaves behind in its group is killed when it ends.
///
/// # Errors
/// `HARDWARE` when it cannot be started, `CANCELLED`, `OUTCOME_UNKNOWN` when it cannot be killed.
pub(super) async fn run(
    launch: Launch,
    limit: Duration,
    cancel: &CancellationToken,
) -> Result<Ended, CommandError> {
    let name = launch.name.clone();
    let fault = |code, what: String| CommandError::new(code, format!("program {name:?}: {what}"));
    let started = Instant::now();
    let (mut child, input) =
        spawn(launch).map_err(|e| fault(ErrorCode::Hardware, format!("cannot be started: {e}")))?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut group = Group(pid);
    let (mut out, mut err) = (Capture::default(), Capture::default());
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let why = {
        let streams = async {
            let feed = async {
                if let Some(mut stdin) = stdin {
                    // A program that does not read its input is its own business.
                    let _ = stdin.write_all(&input).await;
                }
            };
            tokio::join!(feed, out.read(stdout), err.read(stderr));
        };
        tokio::pin!(streams);
        let mut streams_done = false;
        // Watched without reaping: as long as the leader is not reaped, its number cannot become that
        // of another group, and the whole group can be killed safely.
        let exit = exited(pid);
        tokio::pin!(exit);
        let mut stop_at = started + limit;
        let mut why = Why::Exited;
        loop {
            tokio::select! {
                () = &mut exit => break,
                () = &mut streams, if !streams_done => streams_done = true,
                () = cancel.cancelled(), if matches!(why, Why::Exited) => {
                    why = Why::Cancelled;
                    group.signal(Signal::TERM);
                    stop_at = Instant::now() + GRACE;
                }
                () = tokio::time::sleep_until(stop_at) => {
                    if !matches!(why, Why::Exited) {
                        break;
                    }
                    why = Why::TimedOut;
                    group.signal(Signal::TERM);
                    stop_at = Instant::now() + GRACE;
                }
            }
        }
        group.signal(Signal::KILL);
        if !streams_done {
            let _ = timeout_at(Instant::now() + DRAIN, streams).await;
        }
        why
    };
    let status = timeout(REAP, child.wait()).await;
    group.0 = None;
    let status = match status {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => return Err(fault(ErrorCode::OutcomeUnknown, error.to_string())),
        Err(_) => {
            let what =
                "does not end when killed: it runs as another user, or waits for a hung card or network disk";
            return Err(fault(ErrorCode::OutcomeUnknown, what.into()));
        }
    };
    let ran = started.elapsed();
    if matches!(why, Why::Cancelled) {
        let ms = ran.as_millis();
        let what = format!("stopped by the caller after {ms} ms; what it did until then stays");
        return Err(fault(ErrorCode::Cancelled, what));
    }
    Ok(Ended { status, timed_out: matches!(why, Why::TimedOut), ran, out, err })
}

fn spawn(launch: Launch) -> std::io::Result<(Child, Vec<u8>)> {
    let mut command = tokio::process::Command::new(&launch.program);
    command
        .arg0(&launch.name)
        .args(&launch.args)
        .current_dir(&launch.cwd)
        .env_clear()
        .envs(&launch.env)
        .process_group(0)
        .stdin(if launch.input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Ok((command.spawn()?, launch.input.unwrap_or_default()))
}

/// Returns when the process has ended, and leaves it to be reaped.
async fn exited(pid: Option<Pid>) {
    let wait = tokio::task::spawn_blocking(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Some(pid) = pid
            && matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR))
        {}
    });
    // Fails only when the runtime ends, and this call with it.
    let _ = wait.await;
}
