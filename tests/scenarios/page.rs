//! The page in a real browser; the scenarios themselves are in `tests/page/`, for Node's own test runner.

#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

use hearth_tests::process::binaries;
use hearth_tests::skip;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a program answers to `--version`.
fn there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|s| s.success())
}

#[test]
fn a_person_in_front_of_a_real_browser() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".into());
    if !there("node") {
        return skip("there is no `node` (Node 20 or later)");
    }
    if !there(&chromium) {
        return skip("there is no Chromium: install Debian's `chromium`, or name one in $CHROMIUM");
    }
    if !folder.join("node_modules/playwright-core").is_dir() {
        return skip("the browser driver is missing: run `npm ci --prefix tests/page`");
    }
    let status = Command::new("node")
        .args(["--test", "--test-concurrency=2", "--test-reporter=spec", "--test-timeout=120000"])
        .current_dir(&folder)
        .env("HEARTH_BIN", binaries())
        .env("CHROMIUM", chromium)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "the page's scenarios failed; their report is above");
}
