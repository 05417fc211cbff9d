//! The two processes. Each has a process group of its own, so that Ctrl-C in the terminal reaches the chat
//! only; both are ended when the demo ends, also when it panics.

use super::place::Place;
use crate::cli::error::Failure;
use crate::cli::output::safe_text;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// How long a child may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(7);
/// Program of the node.
const NODE_PROGRAM: &str = "hearth-node";

/// What runs.
#[derive(Debug, Default)]
pub(super) struct Children {
    hub: Option<Child>,
    /// Held open, so that the hub never writes into a closed pipe.
    hub_output: Option<BufReader<ChildStdout>>,
    node: Option<Child>,
}

impl Children {
    /// Starts the hub on a free loopback port and waits until it listens.
    pub(super) async fn start_hub(&mut self, place: &Place) -> Result<(), Failure> {
        let program = std::env::current_exe().map_err(|e| {
            Failure::failed(format!("cannot find this program: {e}"), "start it by its full path")
        })?;
        let mut command = Command::new(program);
        command.args(["run", "--bind", "127.0.0.1", "--quiet", "--json", "--port"]);
        command.arg(place.port().to_string()).arg("--home").arg(place.hub());
        let log = append(&place.hub().join("demo-hub.log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = spawn(command, "hub")?;
        let output = child.stdout.take();
        self.hub = Some(child);
        let failed = || {
            let said = std::fs::read_to_string(place.hub().join("demo-hub.log")).unwrap_or_default();
            let last = said.lines().next_back().unwrap_or("it said nothing");
            // It speaks JSON to programs.
            let error = serde_json::from_str::<serde_json::Value>(last).unwrap_or_default();
            let last = error["error"]["message"].as_str().unwrap_or(last);
            Failure::failed(
                format!("the hub did not start: {}", safe_text(last)),
                "run `hearth doctor` with the same --home",
            )
        };
        let mut output = BufReader::new(output.ok_or_else(failed)?);
        let mut line = String::new();
        output.read_line(&mut line).await.map_err(|_| failed())?;
        let said: serde_json::Value = serde_json::from_str(&line).map_err(|_| failed())?;
        place.keep_port(said["addresses"][0].as_str().ok_or_else(failed)?)?;
        self.hub_output = Some(output);
        Ok(())
    }

    /// Lets the node pair with a setup code, which goes over stdin: arguments are visible to everybody on
    /// the machine.
    pub(super) async fn pair_node(&mut self, place: &Place, code: &str, name: &str) -> Result<(), Failure> {
        let mut command = node_command(place)?;
        command.args(["pair", "-", "--yes", "--simulate", "--name", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command, "node")?;
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(code.as_bytes()).await;
        }
        let output = child
            .wait_with_output()
            .await
            .map_err(|e| Failure::failed(format!("the node did not pair: {e}"), "start the demo again"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
        Err(Failure::failed(format!("the node did not pair: {}", safe_text(last)), "start the demo again"))
    }

    /// Starts the node.
    pub(super) fn start_node(&mut self, place: &Place) -> Result<(), Failure> {
        let mut command = node_command(place)?;
        command.args(["run", "--simulate"]);
        let log = append(&place.node_log())?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.node = Some(spawn(command, "node")?);
        Ok(())
    }

    /// Whether the node still runs.
    pub(super) fn check_node(&mut self, place: &Place) -> Result<(), Failure> {
        match self.node.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => Err(Failure::failed(
                format!("the node ended ({status})"),
                format!("look at {}", place.node_log().display()),
            )),
            _ => Ok(()),
        }
    }

    /// Ends both: first the node, so that its pins go to their safe states while the hub listens.
    pub(super) async fn end(&mut self) {
        for child in [self.node.take(), self.hub.take()].into_iter().flatten() {
            end(child).await;
        }
    }
}

async fn end(mut child: Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(PATIENCE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn spawn(mut command: Command, what: &str) -> Result<Child, Failure> {
    command.kill_on_drop(true).process_group(0);
    command.spawn().map_err(|e| {
        Failure::failed(
            format!("the {what} cannot be started: {e}"),
            "build both programs: `cargo build --release`",
        )
    })
}

fn node_command(place: &Place) -> Result<Command, Failure> {
    let mut command = Command::new(node_program()?);
    // The hub's log filter is no level of the node's.
    command.env_remove("HEARTH_LOG").arg("--home").arg(place.node());
    Ok(command)
}

/// Beside this program, else on the PATH.
fn node_program() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().and_then(|p| p.parent().map(|d| d.join(NODE_PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|d| d.join(NODE_PROGRAM));
    beside.into_iter().chain(on_path).find(|p| p.is_file()).ok_or_else(|| {
        Failure::failed(
            format!("there is no `{NODE_PROGRAM}` beside this program or on the PATH"),
            "build it too: `cargo build --release` makes both",
        )
    })
}

fn append(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(|e| {
        Failure::failed(
            format!("{}: {e}", path.display()),
            "name a directory that you may write to with --home",
        )
    })
}
