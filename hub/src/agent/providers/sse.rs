//! Lines of a `text/event-stream`, out of chunks that are cut anywhere.
//!
//! Chat completions use one field of the format, `data`, always on one line; the rest (comments, ids,
//! retry) is passed over. That is too little for a library.

/// Longest line; a server that sends more is broken.
const MAX_LINE: usize = 1024 * 1024;

/// Collects bytes until a line is whole.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    /// Adds a chunk.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), &'static str> {
        if self.buffer.len() + chunk.len() > MAX_LINE {
            return Err("a line is longer than 1 MiB");
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// The next whole `data` line.
    pub(super) fn next_data(&mut self) -> Option<String> {
        loop {
            let at = self.buffer.iter().position(|b| *b == b'\n')?;
            let line: Vec<u8> = self.buffer.drain(..=at).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(data) = line.trim_end().strip_prefix("data:") {
                return Some(data.trim_start().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cuts_do_not_matter(texts in prop::collection::vec("[^\r\n]{0,40}", 0..8), cuts in prop::collection::vec(1usize..9, 1..40)) {
            let whole: String = texts.iter().map(|t| format!(": comment\r\ndata: x{t}x\r\n\r\n")).collect();
            let (mut lines, mut got, mut rest, mut i) = (Lines::default(), Vec::new(), whole.as_bytes(), 0);
            while !rest.is_empty() {
                let n = cuts[i % cuts.len()].min(rest.len());
                lines.push(&rest[..n]).unwrap();
                (rest, i) = (&rest[n..], i + 1);
                while let Some(data) = lines.next_data() {
                    got.push(data);
                }
            }
            let wanted: Vec<String> = texts.iter().map(|t| format!("x{t}x")).collect();
            prop_assert_eq!(got, wanted);
        }
    }

    #[test]
    fn endless_lines_are_refused() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 64 * 1024];
        assert!((0..32).any(|_| lines.push(&chunk).is_err()));
    }
}
