//! Which frame goes next. Pure: heartbeats and control frames first, then results, then one chunk of one
//! transfer in turn, as credit allows.

use crate::dispatch::Reply;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::identity::Digest;
use hearth_shared::limits::{MAX_ATTACHMENT, MAX_LINK_FRAME};
use hearth_shared::link::flow::Sender;
use hearth_shared::link::{Attachment, Outcome, ResultFrame, ToHub};
use hearth_shared::reading::RequestId;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// Control frames that may wait: an answer to each request in flight, twice, and some.
const MAX_CONTROL: usize = 1024;
/// A transfer that got no credit for this long is given up.
const STALL_MS: u64 = 60_000;

/// A transfer in progress.
#[derive(Debug)]
struct Transfer {
    id: u32,
    data: Vec<u8>,
    flow: Sender,
}

/// A finished request on its way out.
#[derive(Debug)]
struct Active {
    reply: Reply,
    current: Option<Transfer>,
    waiting: VecDeque<crate::capability::Bytes>,
    /// When bytes moved last, on the caller's clock.
    moved_ms: u64,
    /// Why it is given up; the result says so.
    failure: Option<CommandError>,
    _room: Option<OwnedSemaphorePermit>,
}

/// A frame, and how it may be answered for when it cannot be encoded.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// As it is.
    Frame(ToHub),
    /// A result that needs another outcome: sign this failure for the request instead.
    Failed(RequestId, CommandError),
}

/// The pure part.
#[derive(Debug, Default)]
pub struct Queue {
    pong: Option<ToHub>,
    control: VecDeque<ToHub>,
    replies: VecDeque<Active>,
    last_transfer: u32,
}

impl Queue {
    /// A heartbeat's answer; an older one that did not leave yet is out of date.
    pub fn pong(&mut self, frame: ToHub) {
        self.pong = Some(frame);
    }

    /// A small frame. `false` when too many wait: the other side asks and does not read.
    #[must_use]
    pub fn control(&mut self, frame: ToHub) -> bool {
        if self.control.len() >= MAX_CONTROL {
            return false;
        }
        self.control.push_back(frame);
        true
    }

    /// A finished request.
    pub fn reply(&mut self, mut reply: Reply, room: Option<OwnedSemaphorePermit>, now_ms: u64) {
        let waiting = VecDeque::from(std::mem::take(&mut reply.attachments));
        let failure = waiting.iter().find(|a| a.data.len() as u64 > MAX_ATTACHMENT).map(|a| {
            let size = a.data.len();
            CommandError::new(
                ErrorCode::TooLarge,
                format!(
                    "the attachment has {size} bytes, the limit is {MAX_ATTACHMENT}; ask for a smaller one"
                ),
            )
        });
        self.replies.push_back(Active {
            reply,
            current: None,
            waiting,
            moved_ms: now_ms,
            failure,
            _room: room,
        });
    }

    /// The hub takes more bytes of a transfer. Unknown numbers belong to transfers that are over.
    pub fn credit(&mut self, transfer: u32, bytes: u32, now_ms: u64) {
        for active in &mut self.replies {
            if let Some(current) = active.current.as_mut().filter(|t| t.id == transfer) {
                current.flow.credit(bytes);
                active.moved_ms = now_ms;
            }
        }
    }

    /// The hub withdrew a request whose result is on its way: what is not sent yet is not sent.
    pub fn cancel(&mut self, request: &RequestId) {
        for active in self.replies.iter_mut().filter(|a| a.reply.frame.request == *request) {
            if active.current.is_some() || !active.waiting.is_empty() {
                let why = "withdrawn while its attachment was sent; the command itself had finished";
                active.failure = Some(CommandError::new(ErrorCode::Cancelled, why));
            }
        }
    }

    /// Gives up transfers that the hub has let stand.
    pub fn expire(&mut self, now_ms: u64) {
        for active in &mut self.replies {
            let stalled = now_ms.saturating_sub(active.moved_ms) > STALL_MS;
            if stalled && (active.current.is_some() || !active.waiting.is_empty()) {
                let why = format!("the hub took no bytes of the attachment for {} s", STALL_MS / 1000);
                active.failure.get_or_insert(CommandError::new(ErrorCode::Timeout, why));
            }
        }
    }

    /// Nothing is left to send that could be sent or is waiting for credit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pong.is_none() && self.control.is_empty() && self.replies.is_empty()
    }

    /// The next frame that must not wait behind bulk.
    pub fn urgent(&mut self) -> Option<Next> {
        if let Some(frame) = self.pong.take().or_else(|| self.control.pop_front()) {
            return Some(Next::Frame(frame));
        }
        for at in 0..self.replies.len() {
            let active = &mut self.replies[at];
            if active.failure.is_some() {
                if let Some(transfer) = active.current.take() {
                    return Some(Next::Frame(ToHub::AbortTransfer { transfer: transfer.id }));
                }
                let active = self.replies.remove(at)?;
                return Some(Next::Failed(active.reply.frame.request, active.failure?));
            }
            if active.current.as_ref().is_some_and(|t| t.flow.is_done()) {
                active.current = None;
            }
            if active.current.is_none() {
                if let Some(attachment) = active.waiting.pop_front() {
                    self.last_transfer = self.last_transfer.wrapping_add(1);
                    let (id, size) = (self.last_transfer, attachment.data.len() as u64);
                    let announcement = Attachment {
                        transfer: id,
                        request: active.reply.frame.request,
                        mime: attachment.mime,
                        size,
                        sha256: Digest::of(&attachment.data),
                    };
                    active.current = Some(Transfer { id, data: attachment.data, flow: Sender::new(size) });
                    return Some(Next::Frame(ToHub::Attachment(announcement)));
                }
                let active = self.replies.remove(at)?;
                return Some(result(active.reply.frame));
            }
        }
        None
    }

    /// One chunk of the next transfer that has credit, in turn.
    pub fn bulk(&mut self, now_ms: u64) -> Option<ToHub> {
        for _ in 0..self.replies.len() {
            let mut active = self.replies.pop_front()?;
            let chunk = active.current.as_mut().and_then(|transfer| {
                let range = transfer.flow.next_chunk()?;
                let bytes = transfer.data[range].to_vec();
                Some(ToHub::Chunk { transfer: transfer.id, bytes })
            });
            if chunk.is_some() {
                active.moved_ms = now_ms;
            }
            self.replies.push_back(active);
            if chunk.is_some() {
                return chunk;
            }
        }
        None
    }
}

/// A result, or the failure to send in its place when it is too long for a frame.
fn result(frame: ResultFrame) -> Next {
    let long = match &frame.outcome {
        Outcome::Done { result } => result.len(),
        Outcome::Failed(error) => error.message.len(),
        Outcome::ApprovalRequired { rule, .. } => rule.len(),
    };
    // What is around the text is a few hundred bytes.
    if long > MAX_LINK_FRAME - 1024 {
        let why = format!("the result has {long} bytes, the limit is {}", MAX_LINK_FRAME - 1024);
        return Next::Failed(frame.request, CommandError::new(ErrorCode::TooLarge, why));
    }
    Next::Frame(ToHub::Result(Box::new(frame)))
}

/// The queue of one connection, shared by its reader, its writer and running requests.
#[derive(Debug, Default)]
pub struct Outgoing {
    queue: Mutex<Queue>,
    /// Told when something was added.
    pub wake: Notify,
}

impl Outgoing {
    /// Locks the queue; never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue and wakes the writer.
    pub fn with<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let result = change(&mut self.lock());
        self.wake.notify_one();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Bytes;
    use hearth_shared::chain::Head;
    use hearth_shared::identity::SecretKey;
    use hearth_shared::limits::{CHUNK_SIZE, TRANSFER_WINDOW};

    fn reply(id: u8, attachments: &[usize]) -> Reply {
        let key = SecretKey::from_seed(&[1; 32]);
        let outcome = Outcome::Done { result: "{}".into() };
        let count = attachments.len() as u32;
        Reply {
            frame: ResultFrame::sign(&key, RequestId([id; 16]), outcome, count, Head::default()),
            attachments: attachments
                .iter()
                .map(|n| Bytes { mime: "image/jpeg".into(), data: vec![id; *n] })
                .collect(),
        }
    }

    fn pong(id: u64) -> ToHub {
        ToHub::Pong { id, mono_ms: 0, wall_ms: None }
    }

    /// The frames in the order in which a writer would send them, without new credit.
    fn drain(queue: &mut Queue) -> Vec<Next> {
        std::iter::from_fn(|| queue.urgent().or_else(|| queue.bulk(0).map(Next::Frame))).collect()
    }

    #[test]
    fn heartbeats_and_results_overtake_a_stalled_picture() {
        let mut queue = Queue::default();
        queue.reply(reply(1, &[1 << 20]), None, 0);
        let before = drain(&mut queue);
        assert_eq!(before.len(), 1 + TRANSFER_WINDOW as usize / CHUNK_SIZE, "a window, then it waits");
        queue.reply(reply(2, &[]), None, 0);
        queue.pong(pong(1));
        queue.pong(pong(2));
        let after = drain(&mut queue);
        assert_eq!(after[0], Next::Frame(pong(2)), "only the newest");
        assert!(matches!(&after[1], Next::Frame(ToHub::Result(r)) if r.request == RequestId([2; 16])));
        assert_eq!(after.len(), 2);
        queue.credit(1, 5 * CHUNK_SIZE as u32, 0);
        queue.credit(99, 5, 0);
        assert_eq!(drain(&mut queue).len(), 5);
        assert!(!queue.is_empty());
    }

    #[test]
    fn attachments_come_whole_and_in_order_before_their_result_and_transfers_take_turns() {
        let mut queue = Queue::default();
        queue.reply(reply(1, &[20_000, 0, 5]), None, 0);
        queue.reply(reply(2, &[20_000]), None, 0);
        let frames = drain(&mut queue);
        let names: Vec<String> = frames
            .iter()
            .map(|f| match f {
                Next::Frame(ToHub::Attachment(a)) => format!("a{}", a.transfer),
                Next::Frame(ToHub::Chunk { transfer, .. }) => format!("c{transfer}"),
                Next::Frame(ToHub::Result(r)) => format!("r{}", r.request.0[0]),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["a1", "a2", "c1", "c2", "c1", "a3", "a4", "c2", "r2", "c4", "r1"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_withdrawn_or_stalled_transfer_is_aborted_and_its_result_says_why() {
        let mut queue = Queue::default();
        queue.reply(reply(1, &[1 << 20]), None, 0);
        queue.reply(reply(2, &[1 << 20]), None, 0);
        drain(&mut queue);
        queue.cancel(&RequestId([1; 16]));
        let frames = drain(&mut queue);
        assert_eq!(frames[0], Next::Frame(ToHub::AbortTransfer { transfer: 1 }));
        assert!(
            matches!(&frames[1], Next::Failed(r, e) if r.0[0] == 1 && e.code == ErrorCode::Cancelled),
            "{frames:?}"
        );
        queue.expire(STALL_MS);
        assert_eq!(drain(&mut queue), []);
        queue.expire(STALL_MS + 1);
        let frames = drain(&mut queue);
        assert!(matches!(&frames[1], Next::Failed(r, e) if r.0[0] == 2 && e.code == ErrorCode::Timeout));
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_too_large_fails_with_the_limit() {
        let mut queue = Queue::default();
        queue.reply(reply(1, &[MAX_ATTACHMENT as usize + 1]), None, 0);
        let mut long = reply(2, &[]);
        long.frame.outcome = Outcome::Done { result: "x".repeat(MAX_LINK_FRAME) };
        queue.reply(long, None, 0);
        for next in drain(&mut queue) {
            assert!(matches!(next, Next::Failed(_, e) if e.code == ErrorCode::TooLarge));
        }
        assert!(queue.is_empty());
    }

    #[test]
    fn a_hub_that_does_not_read_cannot_fill_the_memory() {
        let mut queue = Queue::default();
        let taken = (0..2 * MAX_CONTROL).filter(|_| queue.control(pong(1))).count();
        assert_eq!(taken, MAX_CONTROL);
    }
}
