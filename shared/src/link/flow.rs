//! Flow control of one attachment, pure on both sides.
//!
//! The sender starts with a window of [`TRANSFER_WINDOW`] bytes and may send more only as `Credit` comes;
//! the receiver grants credit as it has written the bytes away. So a receiver never holds more than a
//! window per transfer, and a slow disk or line slows that transfer alone.

use super::LinkError;
use crate::identity::Digest;
use crate::limits::{CHUNK_SIZE, MAX_ATTACHMENT, TRANSFER_WINDOW};
use sha2::{Digest as _, Sha256};

/// The sending side.
#[derive(Debug, Clone)]
pub struct Sender {
    size: u64,
    sent: u64,
    credit: u64,
}

impl Sender {
    /// For an attachment of `size` bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, sent: 0, credit: u64::from(TRANSFER_WINDOW) }
    }

    /// More credit came. Credit beyond the whole size is harmless.
    pub fn credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(u64::from(bytes)).min(MAX_ATTACHMENT);
    }

    /// The range of the next chunk, if credit allows one now; empty attachments have none.
    pub fn next_chunk(&mut self) -> Option<std::ops::Range<usize>> {
        let len = (self.size - self.sent).min(self.credit).min(CHUNK_SIZE as u64);
        if len == 0 {
            return None;
        }
        let start = self.sent;
        self.sent += len;
        self.credit -= len;
        Some(start as usize..(start + len) as usize)
    }

    /// Everything was handed out.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.sent == self.size
    }
}

/// The receiving side: counts, limits and hashes; where the bytes go is the caller's.
#[derive(Debug, Clone)]
pub struct Receiver {
    transfer: u32,
    size: u64,
    received: u64,
    window: u64,
    expected: Digest,
    hash: Sha256,
}

impl Receiver {
    /// For an announced attachment.
    ///
    /// # Errors
    /// When it is larger than the limit.
    pub fn new(transfer: u32, size: u64, sha256: Digest) -> Result<Self, LinkError> {
        if size > MAX_ATTACHMENT {
            return Err(LinkError::Transfer { transfer, why: "larger than 32 MiB" });
        }
        let window = u64::from(TRANSFER_WINDOW);
        Ok(Self { transfer, size, received: 0, window, expected: sha256, hash: Sha256::new() })
    }

    /// Takes a chunk.
    ///
    /// # Errors
    /// An empty chunk, one over 16 KiB, over the credit or over the announced size.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let len = bytes.len() as u64;
        let why = if len == 0 || bytes.len() > CHUNK_SIZE {
            "chunk size out of range"
        } else if len > self.window {
            "more bytes than credit"
        } else if self.received + len > self.size {
            "more bytes than announced"
        } else {
            self.received += len;
            self.window -= len;
            self.hash.update(bytes);
            return Ok(());
        };
        Err(LinkError::Transfer { transfer: self.transfer, why })
    }

    /// The caller has put `bytes` away: the credit to send to the other side, which this also books.
    pub fn consumed(&mut self, bytes: usize) -> u32 {
        self.window += bytes as u64;
        bytes as u32
    }

    /// All bytes are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.received == self.size
    }

    /// Whether the bytes are the announced ones.
    ///
    /// # Errors
    /// When bytes are missing or the hash differs.
    pub fn finish(self) -> Result<(), LinkError> {
        let fault = |why| LinkError::Transfer { transfer: self.transfer, why };
        if self.received != self.size {
            return Err(fault("bytes are missing"));
        }
        if Digest(self.hash.finalize().into()) != self.expected {
            return Err(fault("the hash differs from the announced one"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_credit_pattern_delivers_every_byte_once(size in 0usize..400_000, step in 1usize..70_000) {
            let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            let mut sender = Sender::new(size as u64);
            let mut receiver = Receiver::new(1, size as u64, Digest::of(&data)).unwrap();
            let (mut got, mut waiting) = (Vec::new(), 0usize);
            while !receiver.is_complete() {
                while let Some(range) = sender.next_chunk() {
                    receiver.chunk(&data[range.clone()]).unwrap();
                    waiting += range.len();
                    got.extend_from_slice(&data[range]);
                    prop_assert!(waiting <= TRANSFER_WINDOW as usize);
                }
                let away = waiting.min(step);
                waiting -= away;
                sender.credit(receiver.consumed(away));
            }
            prop_assert!(sender.is_done());
            prop_assert_eq!(got, data);
            prop_assert!(receiver.finish().is_ok());
        }
    }

    #[test]
    fn a_lying_sender_is_stopped() {
        let digest = Digest::of(b"");
        assert!(Receiver::new(1, MAX_ATTACHMENT + 1, digest).is_err());
        let mut small = Receiver::new(1, 10, digest).unwrap();
        assert!(small.chunk(&[0; 11]).is_err(), "over the announced size");
        assert!(small.chunk(&[]).is_err());
        let mut large = Receiver::new(1, 1 << 20, digest).unwrap();
        let chunks = TRANSFER_WINDOW as usize / CHUNK_SIZE;
        for _ in 0..chunks {
            large.chunk(&[0; CHUNK_SIZE]).unwrap();
        }
        assert!(large.chunk(&[0; CHUNK_SIZE]).is_err(), "over the credit");
        let mut wrong = Receiver::new(1, 3, Digest::of(b"abc")).unwrap();
        wrong.chunk(b"abd").unwrap();
        assert!(wrong.finish().is_err());
    }
}
