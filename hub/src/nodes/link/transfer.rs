//! Attachments on their way into `media/`.
//!
//! The session checks and counts; one task per attachment writes, and gives credit for what it has
//! written: a stalled disk stalls that attachment and nothing else. When the bytes cannot be kept (the
//! card is full), the rest is taken and thrown away, so that the node can go on and its request ends with
//! a reason.

use super::connection::{Known, LinkConnection};
use crate::hub::Tasks;
use crate::nodes::Media;
use crate::nodes::media::{Facts, Incoming, MediaError, MediaStore, verify};
use crate::store::StoreError;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::limits::{CHUNK_SIZE, MAX_IN_FLIGHT, TRANSFER_WINDOW};
use hearth_shared::link::flow::Receiver;
use hearth_shared::link::{Attachment, LinkError, ToNode};
use hearth_shared::reading::RequestId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// What became of an attachment.
pub(super) type Stored = Result<Media, CommandError>;

/// Attachments under way on one link: one for each request in flight. Only a node that fills every window
/// while the hub's disk stands still makes them cost memory, 128 KiB each.
const MAX_TRANSFERS: usize = MAX_IN_FLIGHT;
/// Chunks that may wait for the disk. Honest chunks are full ones, apart from the last.
const MAX_WAITING: usize = 4 * (TRANSFER_WINDOW as usize / CHUNK_SIZE);

#[derive(Debug)]
enum Transfer {
    Storing {
        request: RequestId,
        receiver: Shared,
        chunks: mpsc::Sender<Vec<u8>>,
    },
    /// Refused; what was sent on credit before the node heard of it is still coming.
    Ignored {
        left: u64,
    },
}

type Shared = Arc<Mutex<Option<Receiver>>>;

/// The attachments of one link.
#[derive(Debug)]
pub(super) struct Transfers {
    connection: Arc<LinkConnection>,
    media: MediaStore,
    tasks: Tasks,
    open: HashMap<u32, Transfer>,
}

fn fault(transfer: u32, why: &'static str) -> LinkError {
    LinkError::Transfer { transfer, why }
}

impl Transfers {
    pub fn new(connection: Arc<LinkConnection>, media: MediaStore, tasks: Tasks) -> Self {
        Self { connection, media, tasks, open: HashMap::new() }
    }

    /// An attachment is announced.
    pub fn begin(&mut self, attachment: Attachment) -> Result<(), LinkError> {
        let transfer = attachment.transfer;
        if self.open.contains_key(&transfer) {
            return Err(fault(transfer, "its number is in use"));
        }
        let known = self.connection.known(&attachment.request);
        if known == Known::Never {
            return Err(fault(transfer, "it belongs to no request"));
        }
        let (done, stored) = oneshot::channel();
        if !self.connection.attach(&attachment.request, stored) {
            return Err(fault(transfer, "too many attachments for one request"));
        }
        let refusal = if known == Known::Late {
            Some(CommandError::new(ErrorCode::Cancelled, "the request has ended"))
        } else if self.open.len() >= MAX_TRANSFERS {
            let message =
                format!("{MAX_TRANSFERS} attachments are under way on this link already; try again");
            Some(CommandError::new(ErrorCode::Busy, message))
        } else {
            None
        };
        let receiver = match (refusal, Receiver::new(transfer, attachment.size, attachment.sha256)) {
            (None, Ok(receiver)) => receiver,
            (refusal, receiver) => {
                let error = refusal.unwrap_or_else(|| {
                    let why = receiver.err().map_or_else(String::new, |e| e.to_string());
                    CommandError::new(
                        ErrorCode::TooLarge,
                        format!("{} bytes announced: {why}", attachment.size),
                    )
                });
                // Credit is never given, so this is all that may still come.
                if self.open.len() >= 2 * MAX_TRANSFERS {
                    return Err(fault(transfer, "too many attachments at once"));
                }
                self.open.insert(transfer, Transfer::Ignored { left: u64::from(TRANSFER_WINDOW) });
                self.connection.fault(&attachment.request, error);
                withdraw(&self.connection, attachment.request);
                return Ok(());
            }
        };
        let receiver: Shared = Arc::new(Mutex::new(Some(receiver)));
        let (chunks, queue) = mpsc::channel(MAX_WAITING);
        let whole = attachment.size == 0;
        let task = Task {
            connection: self.connection.clone(),
            media: self.media.clone(),
            receiver: receiver.clone(),
            attachment,
        };
        if !whole {
            self.open
                .insert(transfer, Transfer::Storing { request: task.attachment.request, receiver, chunks });
        }
        self.tasks.spawn(async move {
            let _ = done.send(task.run(queue).await);
        });
        Ok(())
    }

    /// Bytes came.
    pub fn chunk(&mut self, transfer: u32, bytes: Vec<u8>) -> Result<(), LinkError> {
        match self.open.get_mut(&transfer) {
            None => Err(fault(transfer, "was not announced, or is complete")),
            Some(Transfer::Ignored { left }) => {
                *left =
                    left.checked_sub(bytes.len() as u64).ok_or(fault(transfer, "more bytes than credit"))?;
                Ok(())
            }
            Some(Transfer::Storing { request, receiver, chunks }) => {
                let complete = {
                    let mut receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
                    let Some(receiver) = receiver.as_mut() else { return Ok(()) };
                    receiver.chunk(&bytes)?;
                    receiver.is_complete()
                };
                self.connection.note_chunk(request);
                if let Err(mpsc::error::TrySendError::Full(_)) = chunks.try_send(bytes) {
                    return Err(fault(transfer, "its chunks are too small"));
                }
                if complete {
                    self.open.remove(&transfer);
                }
                Ok(())
            }
        }
    }

    /// The node ends it early. One that is complete or was never there is no matter.
    pub fn abort(&mut self, transfer: u32) {
        self.open.remove(&transfer);
    }
}

fn withdraw(connection: &LinkConnection, request: RequestId) {
    let _ = connection.control().try_send(ToNode::Cancel { request });
}

struct Task {
    connection: Arc<LinkConnection>,
    media: MediaStore,
    receiver: Shared,
    attachment: Attachment,
}

impl Task {
    async fn run(self, chunks: mpsc::Receiver<Vec<u8>>) -> Stored {
        let stored = self.store(chunks).await;
        stored.map_err(|error| {
            let code = match &error {
                MediaError::Full { .. } | MediaError::OverBudget { .. } => ErrorCode::TooLarge,
                MediaError::Io(e) if e.kind() == std::io::ErrorKind::StorageFull => {
                    self.media.ask_room();
                    ErrorCode::TooLarge
                }
                MediaError::Store(StoreError::Full) => {
                    self.media.ask_room();
                    ErrorCode::TooLarge
                }
                MediaError::Aborted => ErrorCode::Cancelled,
                MediaError::Link(_) => ErrorCode::Hardware,
                _ => ErrorCode::Internal,
            };
            tracing::warn!(node = %self.connection.name, %error, "an attachment was not stored");
            CommandError::new(code, format!("the attachment could not be stored: {error}"))
        })
    }

    async fn store(&self, mut chunks: mpsc::Receiver<Vec<u8>>) -> Result<Media, MediaError> {
        let Attachment { transfer, request, mime, size, sha256 } = self.attachment.clone();
        let mut target: Result<Incoming, MediaError> = self.media.begin(size).await;
        let mut written = 0u64;
        while written < size {
            let bytes = chunks.recv().await.ok_or(MediaError::Aborted)?;
            if let Ok(file) = &mut target
                && let Err(error) = file.write(&bytes).await
            {
                target = Err(error);
            }
            written += bytes.len() as u64;
            let credit = {
                let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
                receiver.as_mut().map_or(0, |r| r.consumed(bytes.len()))
            };
            if written < size {
                let credit = ToNode::Credit { transfer, bytes: credit };
                self.connection.control().send(credit).await.map_err(|_| MediaError::Aborted)?;
            }
        }
        let incoming = target?;
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        verify(receiver.ok_or(MediaError::Aborted)?)?;
        let facts = Facts { node: self.connection.node, request, mime, size, sha256 };
        self.media.finish(incoming, facts).await
    }
}
