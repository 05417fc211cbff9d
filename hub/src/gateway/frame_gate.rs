//! A socket that hands out one WebSocket frame at a time.
//!
//! Before `connect` the WebSocket library must refuse frames over 64 KiB, afterwards it must take 25 MiB,
//! and its limit cannot be changed while it runs. So the handshake runs on a first instance behind this
//! gate, which never reads past the end of a frame: when the handshake is over nothing is left in the
//! first instance's buffer, and a second one with the larger limit goes on with the same socket. What a
//! client sends before its `connect` is answered waits in the kernel's buffer, bounded by TCP itself.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module.
#[derive(Debug)]
pub(crate) struct FrameGate<S> {
    inner: S,
    at: At,
}

/// Where in a frame (RFC 6455, 5.2) the reading stands.
#[derive(Debug)]
enum At {
    /// Header bytes seen so far.
    Header { bytes: [u8; 14], have: usize },
    /// Payload bytes still to come.
    Payload { left: u64 },
}

impl At {
    const START: Self = Self::Header { bytes: [0; 14], have: 0 };

    /// How many bytes may be read without passing the end of the header or the frame.
    fn wanted(&self) -> usize {
        match self {
            Self::Header { bytes, have } => header_length(bytes, *have) - have,
            Self::Payload { left } => usize::try_from(*left).unwrap_or(usize::MAX),
        }
    }

    fn advance(&mut self, read: &[u8]) {
        match self {
            Self::Header { bytes, have } => {
                bytes[*have..*have + read.len()].copy_from_slice(read);
                *have += read.len();
                if *have >= 2 && *have == header_length(bytes, *have) {
                    let left = payload_length(bytes);
                    *self = if left == 0 { Self::START } else { Self::Payload { left } };
                }
            }
            Self::Payload { left } => {
                *left -= read.len() as u64;
                if *left == 0 {
                    *self = Self::START;
                }
            }
        }
    }
}

/// Length of the whole header once its first two bytes are known; 2 before.
fn header_length(bytes: &[u8; 14], have: usize) -> usize {
    if have < 2 {
        return 2;
    }
    let extended = match bytes[1] & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask = if bytes[1] & 0x80 == 0 { 0 } else { 4 };
    2 + extended + mask
}

fn payload_length(bytes: &[u8; 14]) -> u64 {
    match bytes[1] & 0x7f {
        126 => u64::from(u16::from_be_bytes([bytes[2], bytes[3]])),
        127 => {
            let mut long = [0; 8];
            long.copy_from_slice(&bytes[2..10]);
            u64::from_be_bytes(long)
        }
        short => u64::from(short),
    }
}

impl<S> FrameGate<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, at: At::START }
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameGate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        let wanted = this.at.wanted().min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(wanted));
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
        this.at.advance(part.filled());
        let read = part.filled().len();
        buf.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameGate<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    fn frame(payload: &[u8], masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut bytes = vec![0x81];
        match payload.len() {
            n @ 0..126 => bytes.push(mask | n as u8),
            n @ 126..65536 => {
                bytes.push(mask | 126);
                bytes.extend((n as u16).to_be_bytes());
            }
            n => {
                bytes.push(mask | 127);
                bytes.extend((n as u64).to_be_bytes());
            }
        }
        if masked {
            bytes.extend([1, 2, 3, 4]);
        }
        bytes.extend(payload);
        bytes
    }

    proptest! {
        #[test]
        fn a_read_never_crosses_the_end_of_a_frame(
            sizes in prop::collection::vec((0usize..70_000, any::<bool>()), 1..5),
            chunk in 1usize..5000,
        ) {
            let frames: Vec<Vec<u8>> =
                sizes.iter().map(|(n, masked)| frame(&vec![7; *n], *masked)).collect();
            let all = frames.concat();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut gate = FrameGate::new(&all[..]);
                for whole in &frames {
                    let mut got: Vec<u8> = Vec::new();
                    let mut buffer = vec![0; chunk];
                    while got.len() < whole.len() {
                        let n = gate.read(&mut buffer).await.unwrap();
                        prop_assert!(n > 0);
                        got.extend(&buffer[..n]);
                    }
                    prop_assert_eq!(&got, whole, "exactly this frame, nothing of the next");
                }
                Ok(())
            })?;
        }
    }
}
