//! Running binaries.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest that any single command of a test may take; a hang is a failure, not a stuck suite.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// The folder with `hearth` and `hearth-node`, built with the profile of the running test.
///
/// # Panics
/// When the build fails.
pub fn binaries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--workspace", "--bins"]);
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let status = build.status().expect("cargo starts");
        assert!(status.success(), "the binaries must build");
        // target/<profile>/deps/scenarios-<hash>
        let test = std::env::current_exe().expect("the test has a path");
        test.parent().and_then(Path::parent).expect("a target folder").to_path_buf()
    })
}

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; -1 for a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Standard output as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// Asserts exit code 0.
    ///
    /// # Panics
    /// When it is another.
    #[must_use]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// Runs a binary to its end.
///
/// # Panics
/// When it cannot be started or does not end within [`COMMAND_LIMIT`].
pub fn run(binary: &str, home: &Path, args: &[&str]) -> Finished {
    finish(command(binary, home, args).stdin(Stdio::null()))
}

/// A binary with its home and a clean environment.
pub fn command(binary: &str, home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binaries().join(binary));
    command.args(args).arg("--home").arg(home);
    for name in ["HEARTH_HOME", "HEARTH_NODE_HOME", "HEARTH_PORT", "HEARTH_LOG", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1");
    command
}

/// The same command in a network namespace.
#[must_use]
pub fn within(namespace: &str, command: &Command) -> Command {
    let mut wrapped = Command::new("ip");
    wrapped.args(["netns", "exec", namespace]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}

/// Runs a prepared command to its end.
///
/// # Panics
/// When it cannot be started or does not end within [`COMMAND_LIMIT`].
pub fn finish(command: &mut Command) -> Finished {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let id = child.id();
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(COMMAND_LIMIT).is_err() {
            kill(id, "KILL");
            return true;
        }
        false
    });
    drop(child.stdin.take());
    let Output { status, stdout, stderr } = child.wait_with_output().expect("its output can be read");
    let _ = done.send(());
    let finished = Finished {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    };
    assert!(!watchdog.join().unwrap_or(false), "{command:?} hung: {finished:?}");
    finished
}

/// Sends a signal by name.
pub fn kill(pid: u32, signal: &str) {
    let _ =
        Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).stderr(Stdio::null()).status();
}

/// Waits until `check` gives a value.
///
/// # Panics
/// When it does not within `limit`.
pub fn eventually<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(start.elapsed() < limit, "still not after {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Says why a test cannot run here. In CI that is a failure: a skipped test proves nothing.
///
/// # Panics
/// With `CI=true`.
pub fn skip(why: &str) {
    println!("SKIPPED: {why}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "a test was skipped in CI: {why}");
}

/// A free TCP port on loopback.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    socket.local_addr().expect("it has an address").port()
}
