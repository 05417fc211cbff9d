//! How far this terminal has read a conversation, so that replies which came meanwhile are shown once.

use crate::home::{Home, write_private};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn path(home: &Home) -> PathBuf {
    home.root().join("cli.seen")
}

fn all(home: &Home) -> BTreeMap<String, u64> {
    std::fs::read(path(home)).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
}

/// Time of the last message that was shown, Unix milliseconds; `None` when this terminal never read it.
pub(super) fn last(home: &Home, session: &str) -> Option<u64> {
    all(home).get(session).copied()
}

/// Notes it. Losing the note shows a reply twice, which is better than not at all.
pub(super) fn note(home: &Home, session: &str, at_ms: u64) {
    let mut marks = all(home);
    let mark = marks.entry(session.to_owned()).or_default();
    if at_ms > *mark {
        *mark = at_ms;
        if let Ok(bytes) = serde_json::to_vec(&marks) {
            let _ = write_private(&path(home), &bytes);
        }
    }
}
