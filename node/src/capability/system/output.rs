//! What a program writes, kept within a limit: its head and its tail.

use hearth_shared::command::system::RUN_OUTPUT_HEAD;
use hearth_shared::limits::MAX_RUN_OUTPUT;
use std::collections::VecDeque;
use tokio::io::{AsyncRead, AsyncReadExt};

/// One stream. Holds at most [`MAX_RUN_OUTPUT`] bytes, however much comes.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    /// Reads to the end. Cancellation safe: what was read is kept.
    pub(super) async fn read(&mut self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else { return };
        let mut buffer = vec![0; 8 * 1024];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(n) => self.push(buffer.get(..n).unwrap_or_default()),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = RUN_OUTPUT_HEAD.saturating_sub(self.head.len()).min(bytes.len());
        let (to_head, to_tail) = bytes.split_at(room);
        self.head.extend_from_slice(to_head);
        self.tail.extend(to_tail);
        let surplus = self.tail.len().saturating_sub(MAX_RUN_OUTPUT - RUN_OUTPUT_HEAD);
        self.tail.drain(..surplus);
    }

    /// Bytes it holds.
    fn held(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// All that is held.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.head.iter().chain(&self.tail).copied().collect()
    }

    /// The text within `limit` bytes, and how many bytes are not in it. A quarter is the head: errors
    /// stand at the end more often.
    fn text(&self, limit: usize) -> (String, u64) {
        let tail = self.tail.len().min(limit - limit / 4);
        let head = self.head.len().min(limit - tail);
        let dropped = self.total - (head + tail) as u64;
        if dropped == 0 {
            return (String::from_utf8_lossy(&self.bytes()).into_owned(), 0);
        }
        // What did not reach the tail is all in the head, whose end is then the end.
        let (start, end) = if self.tail.is_empty() {
            let cut = limit / 4;
            let end = self.head.len().saturating_sub(limit - cut);
            (
                self.head.get(..cut).unwrap_or_default().to_vec(),
                self.head.get(end..).unwrap_or_default().to_vec(),
            )
        } else {
            let kept = self.tail.iter().skip(self.tail.len() - tail).copied().collect();
            (self.head.get(..head).unwrap_or_default().to_vec(), kept)
        };
        let (start, end) = (String::from_utf8_lossy(&start), String::from_utf8_lossy(&end));
        (format!("{start}\n[... {dropped} bytes left out ...]\n{end}"), dropped)
    }
}

/// Both streams as text of at most `limit` bytes together, and the bytes that were dropped. A short
/// stream leaves its share to the other.
pub(super) fn both(out: &Capture, err: &Capture, limit: usize) -> (String, String, u64) {
    let half = limit / 2;
    let for_out = half.max(limit.saturating_sub(err.held()));
    let for_err = half.max(limit.saturating_sub(out.held()));
    let ((stdout, a), (stderr, b)) = (out.text(for_out), err.text(for_err));
    (stdout, stderr, a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(bytes: &[u8]) -> Capture {
        let mut capture = Capture::default();
        bytes.chunks(777).for_each(|chunk| capture.push(chunk));
        capture
    }

    #[test]
    fn short_output_is_whole() {
        let (out, err, dropped) = both(&capture(b"hello\xff"), &capture(b"oh"), MAX_RUN_OUTPUT);
        assert_eq!((out.as_str(), err.as_str(), dropped), ("hello\u{fffd}", "oh", 0));
    }

    #[test]
    fn a_flood_keeps_head_and_tail_and_says_how_much_is_missing() {
        let mut flood = vec![b'.'; 3_000_000];
        flood[..5].copy_from_slice(b"first");
        flood.extend_from_slice(b"last");
        let flood = capture(&flood);
        assert!(flood.held() <= MAX_RUN_OUTPUT);
        let (out, err, dropped) = both(&flood, &capture(b"e"), MAX_RUN_OUTPUT);
        assert!(out.starts_with("first") && out.ends_with("last"));
        assert_eq!(dropped, 3_000_004 - (MAX_RUN_OUTPUT as u64 - 1));
        assert!(out.contains(&format!("[... {dropped} bytes left out ...]")));
        assert_eq!(err, "e");
    }

    #[test]
    fn two_floods_share_the_limit() {
        let flood = capture(&[b'x'; 500_000]);
        let (out, err, dropped) = both(&flood, &flood, MAX_RUN_OUTPUT);
        assert!(out.len() + err.len() < MAX_RUN_OUTPUT + 200);
        assert_eq!(dropped, 800_000);
    }

    #[test]
    fn a_small_limit_cuts_what_fits_into_the_head() {
        let (out, _, dropped) = both(&capture(&[b'x'; 1_000]), &capture(b""), 100);
        assert_eq!(dropped, 900);
        assert_eq!(out.matches('x').count(), 100);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
        #[test]
        fn kept_and_dropped_are_the_whole(a in 0_usize..400_000, b in 0_usize..400_000, limit in 8_usize..200_000) {
            let (out, err, dropped) = both(&capture(&vec![b'x'; a]), &capture(&vec![b'x'; b]), limit);
            let kept = out.matches('x').count() + err.matches('x').count();
            proptest::prop_assert!(kept <= limit);
            proptest::prop_assert_eq!(kept as u64 + dropped, (a + b) as u64);
        }
    }
}
