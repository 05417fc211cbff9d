//! Answers on stdout: text for people, JSON for programs.

use super::error::Failure;
pub use crate::approvals::card::{safe_line, safe_text};
use serde::Serialize;
use std::io::Write as _;

/// Where answers go.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
}

impl Output {
    /// Text, or JSON.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether answers are JSON.
    #[must_use]
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Writes a line of text.
    ///
    /// # Errors
    /// See [`Failure::output`].
    pub fn line(self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.raw(format!("{}\n", text.as_ref()))
    }

    /// Writes text as it is, and makes it visible at once.
    ///
    /// # Errors
    /// See [`Failure::output`].
    pub fn raw(self, text: impl AsRef<str>) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_ref().as_bytes()).and_then(|()| out.flush()).map_err(|e| Failure::output(&e))
    }

    /// Writes one JSON value: indented for a single answer.
    ///
    /// # Errors
    /// See [`Failure::output`].
    pub fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| Failure::failed(format!("cannot write JSON: {e}"), "report this fault"))?;
        self.line(text)
    }

    /// Writes one JSON value on one line, for streams of them.
    ///
    /// # Errors
    /// See [`Failure::output`].
    pub fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|e| Failure::failed(format!("cannot write JSON: {e}"), "report this fault"))?;
        self.line(text)
    }

    /// Writes a table with aligned columns; the last column is not padded.
    ///
    /// # Errors
    /// See [`Failure::output`].
    pub fn table(self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        self.raw(table(head, rows))
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    let width = |i: usize| {
        std::iter::once(&head).chain(rows).filter_map(|r| r.get(i)).map(|c| columns(c)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(columns(cell)) + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Columns a text takes in a terminal: East Asian wide characters take two.
fn columns(text: &str) -> usize {
    let wide = |c: char| {
        matches!(c as u32, 0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
            | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd)
    };
    text.chars().map(|c| if wide(c) { 2 } else { 1 }).sum()
}

/// A time for people, in this machine's zone.
#[must_use]
pub fn time(unix_ms: u64) -> String {
    let Ok(at) = jiff::Timestamp::from_millisecond(i64::try_from(unix_ms).unwrap_or(i64::MAX)) else {
        return "?".into();
    };
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// How long ago, roughly.
#[must_use]
pub fn ago(unix_ms: u64, now_ms: u64) -> String {
    format!("{} ago", span(now_ms.saturating_sub(unix_ms)))
}

/// A length of time, roughly.
#[must_use]
pub fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", (seconds + 30) / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Bytes for people.
#[must_use]
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_shared::identity::is_deceptive;

    #[test]
    fn columns_line_up_with_wide_characters_too() {
        let text = table(
            &["NAME", "STATE"],
            &[vec!["温室".into(), "on".into()], vec!["garage".into(), "off".into()]],
        );
        assert_eq!(text, "NAME    STATE\n温室    on\ngarage  off\n");
    }

    #[test]
    fn terminal_tricks_are_shown_not_obeyed() {
        let evil = "ok\u{1b}[2Jgone\u{202e}txt.exe\u{200b}\rover";
        let safe = safe_text(evil);
        assert!(safe.chars().all(|c| !is_deceptive(c)), "{safe:?}");
        assert!(safe.contains("\\u{1b}") && safe.contains("\\u{202e}"));
        assert_eq!(safe_text("two\nlines\t温"), "two\nlines\t温");
        assert_eq!(safe_line("two\nlines"), "two lines");
    }

    #[test]
    fn lengths_and_sizes() {
        assert_eq!(span(119_000), "119 s");
        assert_eq!(span(120_000), "2 min");
        assert_eq!(span(3 * 86_400_000), "3 days");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000), "1.5 MB");
    }
}
