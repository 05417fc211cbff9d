//! The README's first command.

use hearth_tests::process::{command, finish};
use std::path::PathBuf;

fn demo(home: &std::path::Path, approve: &str) -> hearth_tests::Finished {
    finish(&mut command(
        "hearth",
        home,
        &["demo", "--say", "take a picture in the garage", "--approve", approve],
    ))
}

#[test]
fn a_picture_after_a_yes_and_a_reason_after_a_no() {
    let home = tempfile::tempdir().unwrap();
    let yes = demo(home.path(), "yes").ok();
    let path = yes
        .stdout
        .split_whitespace()
        .find(|w| w.ends_with(".jpg"))
        .unwrap_or_else(|| panic!("a path: {yes:?}"));
    let picture = std::fs::read(PathBuf::from(path)).unwrap();
    assert_eq!(picture[..3], [0xff, 0xd8, 0xff], "a JPEG");

    // The same home again: paired already, and a no is a failure with its reason.
    let no = demo(home.path(), "no");
    assert_eq!(no.code, 1, "{no:?}");
    assert!(
        format!("{}{}", no.stdout, no.stderr).to_lowercase().contains("den"),
        "says that it was denied: {no:?}"
    );
    // Without a terminal to ask at: what needs no yes is answered, what needs one ends with the reason.
    let said = |text| finish(&mut command("hearth", home.path(), &["demo", "--say", text]));
    assert!(said("how warm is the garage?").ok().stdout.contains("°C"));
    let unasked = said("turn the pump on for 2 seconds");
    assert_eq!(unasked.code, 1, "{unasked:?}");
    assert!(unasked.stderr.contains("--approve yes"), "{unasked:?}");
    assert!(home.path().join("hub.db").exists() || home.path().join("hub/hub.db").exists());
}

#[test]
fn it_prints_a_link_for_a_browser_and_ends_with_its_keyboard() {
    let home = tempfile::tempdir().unwrap();
    let ended = finish(command("hearth", home.path(), &["demo"]).stdin(std::process::Stdio::null())).ok();
    let link = ended.stdout.split_whitespace().find(|w| w.starts_with("http://127.0.0.1:"));
    let secret = link.and_then(|l| l.split_once("/#join=")).map(|(_, secret)| secret.len());
    assert_eq!(secret, Some(43), "{ended:?}");
}
