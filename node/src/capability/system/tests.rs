//! Programs, really run.

use super::*;
use hearth_shared::command::system::RunResult;
use hearth_shared::limits::{MAX_LINK_FRAME, MAX_RUN_OUTPUT};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

fn system() -> System {
    System::open(&BoardConfig::default(), Path::new("/"), Path::new("/"))
}

fn params(command: &[&str]) -> RunParams {
    RunParams {
        command: command.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: BTreeMap::new(),
        timeout_ms: 20_000,
    }
}

fn call(plan: Ready, cancel: &CancellationToken) -> Call {
    let timeout = Duration::from_secs(60);
    Call { facts: plan.facts, executable: plan.executable, timeout, cancel: cancel.clone() }
}

async fn start(
    system: &System,
    params: &RunParams,
    cancel: &CancellationToken,
) -> Result<RunResult, CommandError> {
    let plan = system.plan_run(params).await?;
    let output = system.run(params, call(plan, cancel)).await?;
    assert!(output.result.len() <= MAX_LINK_FRAME);
    Ok(serde_json::from_str(&output.result).unwrap())
}

async fn run(command: &[&str]) -> RunResult {
    start(&system(), &params(command), &CancellationToken::new()).await.unwrap()
}

/// Whether a process is there and not only waits to be reaped by whoever adopted it.
fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < deadline, "it did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Copied by another process: a descriptor for writing in this one could be inherited by a program
/// that another test starts at that moment, and the copy would be busy.
fn copy(program: &str, to: &Path) {
    let done = std::process::Command::new("cp").args(["-L", program]).arg(to).status().unwrap();
    assert!(done.success());
}

fn write_script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_program_gets_its_arguments_and_nothing_of_ours() {
    let mut params = params(&["env"]);
    params.env.insert("COLOR".into(), "blue green".into());
    let result = start(&system(), &params, &CancellationToken::new()).await.unwrap();
    assert!(result.success && result.exit_code == Some(0), "{result:?}");
    let mut names: Vec<&str> = result.stdout.lines().filter_map(|l| l.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["COLOR", "HOME", "LANG", "PATH", "TERM"]);
    assert!(result.stdout.contains("COLOR=blue green"));
    assert!(result.stdout.contains(&format!("PATH={TRUSTED_PATH}")));

    let echoed = run(&["echo", "a  b", "$HOME", "; ls"]).await;
    assert_eq!(echoed.stdout, "a  b $HOME ; ls\n", "there was a shell");
    assert_eq!(run(&["pwd"]).await.stdout, "/\n");
    assert_eq!(run(&["cat"]).await.stdout, "", "standard input is not empty");
}

#[tokio::test]
async fn ends_are_told_apart() {
    let failed = run(&["sh", "-c", "echo no >&2; exit 3"]).await;
    assert_eq!((failed.exit_code, failed.signal, failed.success), (Some(3), None, false));
    assert_eq!(failed.stderr, "no\n");
    let killed = run(&["sh", "-c", "kill -9 $$"]).await;
    assert_eq!((killed.exit_code, killed.signal, killed.timed_out), (None, Some(9), false));
}

#[tokio::test]
async fn the_time_limit_ends_grandchildren_too() {
    let mut params = params(&["sh", "-c", "sleep 1000 & echo $!; echo $$; wait"]);
    params.timeout_ms = 300;
    let result = start(&system(), &params, &CancellationToken::new()).await.unwrap();
    assert!(result.timed_out && !result.success, "{result:?}");
    assert_eq!(result.signal, Some(15));
    for pid in result.stdout.lines() {
        until(|| !alive(pid)).await;
    }
}

#[tokio::test]
async fn who_ignores_the_polite_signal_is_killed() {
    let mut params = params(&["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done"]);
    params.timeout_ms = 300;
    let result = start(&system(), &params, &CancellationToken::new()).await.unwrap();
    assert_eq!((result.timed_out, result.signal), (true, Some(9)));
    assert!(!alive(result.stdout.trim()));
}

#[tokio::test]
async fn a_background_process_neither_hangs_the_result_nor_survives() {
    let started = Instant::now();
    let result = run(&["sh", "-c", "sleep 1000 & echo $!"]).await;
    assert!(result.success && started.elapsed() < Duration::from_secs(15), "{result:?}");
    until(|| !alive(result.stdout.trim())).await;
}

#[tokio::test]
async fn one_that_left_the_group_does_not_hang_the_result() {
    if program::find("setsid").is_none() {
        assert!(std::env::var_os("CI").is_none(), "no setsid");
        println!("SKIPPED: this machine has no setsid");
        return;
    }
    let started = Instant::now();
    let result = run(&["sh", "-c", "setsid sleep 18 & echo started"]).await;
    assert_eq!(result.stdout, "started\n");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn cancelling_stops_it_and_so_does_going_away() {
    let folder = tempfile::tempdir().unwrap();
    let pid_of = |file: &Path| std::fs::read_to_string(file).unwrap_or_default().trim().to_string();
    for by_token in [true, false] {
        let file = folder.path().join(format!("pid-{by_token}"));
        let script = format!("echo $$ > {0}.new; mv {0}.new {0}; sleep 1000", file.display());
        let cancel = CancellationToken::new();
        let call = tokio::spawn({
            let (params, cancel) = (params(&["sh", "-c", &script]), cancel.clone());
            async move { start(&system(), &params, &cancel).await }
        });
        until(|| file.exists()).await;
        assert!(alive(&pid_of(&file)));
        if by_token {
            cancel.cancel();
            assert_eq!(call.await.unwrap().unwrap_err().code, ErrorCode::Cancelled);
        } else {
            call.abort();
        }
        until(|| !alive(&pid_of(&file))).await;
    }
}

#[tokio::test]
async fn output_is_read_while_it_comes_and_kept_within_limits() {
    let both = "for i in 1 2 3; do head -c 200000 /dev/zero | tr '\\0' a; head -c 200000 /dev/zero | tr '\\0' b >&2; done; echo end";
    let result = run(&["sh", "-c", both]).await;
    assert!(result.success && result.stdout.ends_with("end\n"));
    assert!(result.stdout.len() + result.stderr.len() < MAX_RUN_OUTPUT + 200);
    assert_eq!(result.dropped_bytes, 1_200_004 - MAX_RUN_OUTPUT as u64);
    // Each zero byte is six characters of JSON.
    let zeros = run(&["head", "-c", "200000", "/dev/zero"]).await;
    assert!(zeros.success && zeros.dropped_bytes > 100_000);
}

#[tokio::test]
async fn only_so_many_run_at_once() {
    let (system, cancel) = (Arc::new(system()), CancellationToken::new());
    let folder = tempfile::tempdir().unwrap();
    let mut calls = Vec::new();
    for n in 0..MAX_PROGRAMS {
        let script = format!("touch {}/{n}; sleep 1000", folder.path().display());
        let (system, cancel) = (system.clone(), cancel.clone());
        calls.push(tokio::spawn(
            async move { start(&system, &params(&["sh", "-c", &script]), &cancel).await },
        ));
    }
    until(|| std::fs::read_dir(folder.path()).unwrap().count() == MAX_PROGRAMS).await;
    let busy = start(&system, &params(&["true"]), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(busy.code, ErrorCode::Busy);
    cancel.cancel();
    for call in calls {
        call.await.unwrap().unwrap_err();
    }
    start(&system, &params(&["true"]), &CancellationToken::new()).await.unwrap();
}

#[tokio::test]
async fn the_hashed_program_runs_whatever_its_name_leads_to_later() {
    let folder = tempfile::tempdir().unwrap();
    // Under its own name: where all such tools are one program, the name says which it is.
    let tool = folder.path().join("echo");
    copy("/bin/echo", &tool);
    let params = params(&[tool.to_str().unwrap(), "approved"]);
    let plan = system().plan_run(&params).await.unwrap();
    let other = folder.path().join("other");
    copy("/bin/false", &other);
    std::fs::rename(&other, &tool).unwrap();
    let output = system().run(&params, call(plan, &CancellationToken::new())).await.unwrap();
    let result: RunResult = serde_json::from_str(&output.result).unwrap();
    assert_eq!((result.stdout.as_str(), result.exit_code), ("approved\n", Some(0)));
}

#[tokio::test]
async fn what_was_written_into_after_it_was_hashed_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let (tool, script) = (folder.path().join("tool"), folder.path().join("script"));
    copy("/bin/echo", &tool);
    write_script(&script, "#!/bin/sh\necho approved\n");
    for (path, swap) in [(&tool, false), (&script, false), (&script, true)] {
        let params = params(&[path.to_str().unwrap()]);
        let plan = system().plan_run(&params).await.unwrap();
        if swap {
            let other = folder.path().join("other");
            write_script(&other, "#!/bin/sh\necho evil\n");
            std::fs::rename(&other, path).unwrap();
        } else {
            // Shorter and in place: the same file, other bytes.
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(12).unwrap();
        }
        let error = system().run(&params, call(plan, &CancellationToken::new())).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Denied, "{path:?}");
        assert!(error.message.contains("changed"), "{error}");
    }
}

#[tokio::test]
async fn facts_show_the_program_down_to_its_bytes() {
    let plan = system().plan_run(&params(&["ls", "-l"])).await.unwrap();
    let path = std::fs::canonicalize(program::find("ls").unwrap()).unwrap();
    assert_eq!(plan.facts["path"], path.to_str().unwrap());
    assert_eq!(plan.facts["argv"], json!(["ls", "-l"]));
    assert_eq!((&plan.facts["script"], &plan.facts["cwd"]), (&json!(false), &json!("/")));
    assert_eq!(plan.facts["env"]["PATH"], TRUSTED_PATH);
    let sum = std::process::Command::new("sha256sum").arg(&path).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert!(sum.contains(plan.facts["sha256"].as_str().unwrap()), "{sum}");
    assert_eq!(system().plan_run(&params(&["ls", "-l"])).await.unwrap().facts, plan.facts);
}

#[tokio::test]
async fn nothing_that_the_node_could_change_is_allowed_for_always() {
    let folder = tempfile::tempdir().unwrap();
    let (tool, script) = (folder.path().join("tool"), folder.path().join("script"));
    copy("/bin/ls", &tool);
    write_script(&script, "#!/bin/sh\necho hello\n");
    let (tool, script) = (tool.to_str().unwrap(), script.to_str().unwrap());
    let always = async |params: RunParams| system().plan_run(&params).await.unwrap();

    let plan = always(params(&["ls", "-l", "/dev/null"])).await;
    assert!(plan.always_possible, "{}", plan.facts);
    assert_eq!(plan.facts["writableByNode"], false);

    let plan = always(params(&[tool])).await;
    assert!(!plan.always_possible && plan.facts["writableByNode"] == true);
    let plan = always(params(&[script])).await;
    assert!(!plan.always_possible && plan.facts["script"] == true);
    assert_eq!(plan.facts["interpreter"], "/bin/sh");
    // The interpreter is the system's, the script is not.
    assert!(!always(params(&["sh", script])).await.always_possible);
    assert!(!always(params(&["ls", &format!("--ignore={script}")])).await.always_possible);
    // Not there yet, but the node could put it there.
    let later = folder.path().join("later");
    let later = later.to_str().unwrap();
    assert!(!always(params(&["sh", later])).await.always_possible);
    assert!(!always(params(&["sh", &format!("-x{later}")])).await.always_possible);
    // Leads to a file of the system, but could be made to lead elsewhere.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/bin/ls", &link).unwrap();
    assert!(!always(params(&["sh", link.to_str().unwrap()])).await.always_possible);
    assert!(always(params(&["sh", "/bin/ls"])).await.always_possible);
    let mut variable = params(&["sh", "-c", "$STEP"]);
    variable.env.insert("STEP".into(), later.into());
    assert!(!always(variable).await.always_possible);
    let mut inside = params(&["ls"]);
    inside.cwd = Some(folder.path().to_str().unwrap().into());
    assert!(!always(inside).await.always_possible);
    assert_eq!(run(&[script]).await.stdout, "hello\n", "a script may run once");
}

#[tokio::test]
async fn what_is_no_program_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    write_script(&path("text"), "just text");
    std::fs::write(path("closed"), "#!/bin/sh\n").unwrap();
    for (name, code, word) in [
        ("missing", ErrorCode::NotFound, "does not exist"),
        (".", ErrorCode::InvalidParams, "not a file"),
        ("text", ErrorCode::InvalidParams, "neither"),
        ("closed", ErrorCode::Denied, "executable"),
    ] {
        let error = system().plan_run(&params(&[path(name).to_str().unwrap()])).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(word), "{error}");
    }
    let error = system().plan_run(&params(&["no-such-tool"])).await.unwrap_err();
    assert!(error.code == ErrorCode::NotFound && error.message.contains("/usr/bin"), "{error}");
    let mut lost = params(&["ls"]);
    lost.cwd = Some("/no/such/folder".into());
    assert_eq!(system().plan_run(&lost).await.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn which_looks_on_the_trusted_path_only() {
    let bins = ["sh", "no-such-tool"].map(String::from).to_vec();
    let output = system().which(&WhichParams { bins }).await.unwrap();
    let found: WhichResult = serde_json::from_str(&output.result).unwrap();
    assert_eq!(found.bins.len(), 1);
    let sh = found.bins.get("sh").unwrap();
    assert!(TRUSTED_PATH.split(':').any(|folder| Path::new(sh).starts_with(folder)), "{sh}");
}
