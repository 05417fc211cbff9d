//! Telegram as others emulate it; the scenarios themselves are in `tests/chat/`, for Node's own test runner.

use hearth_tests::process::binaries;
use hearth_tests::skip;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_telegram_that_others_wrote() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("chat");
    if !folder.join("node_modules/telegram-test-api").is_dir() {
        return skip("the emulation is missing: run `npm ci --prefix tests/chat`");
    }
    let status = Command::new("node")
        .args(["--test", "--test-reporter=spec", "--test-timeout=120000"])
        .current_dir(&folder)
        .env("HEARTH_BIN", binaries())
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) => assert!(status.success(), "the scenarios failed; their report is above"),
        Err(error) => skip(&format!("`node` does not start ({error}); Node 20 or later is needed")),
    }
}
