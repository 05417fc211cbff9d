//! What the rest of the hub holds of a link: calls go in here, answers come back here.

use super::transfer::Stored;
use crate::nodes::{NodeConnection, NodeReply};
use futures_util::future::BoxFuture;
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::Grant;
use hearth_shared::identity::{DeviceId, PublicKey};
use hearth_shared::limits::{MAX_IN_FLIGHT, MAX_TIMEOUT_MS};
use hearth_shared::link::{Invoke, Outcome, ResultFrame, ToNode};
use hearth_shared::reading::RequestId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// The node keeps the time limit itself; the hub waits a little longer for its word.
const GRACE: Duration = Duration::from_secs(5);
/// For a challenge: the node may have to hash a program for it.
const CHALLENGE_LIMIT: Duration = Duration::from_secs(20);
/// For a change of the list of approvers.
const APPROVERS_LIMIT: Duration = Duration::from_secs(20);
/// While an attachment comes in, its request lives on as long as no pause is longer than this …
const TRANSFER_PAUSE: Duration = Duration::from_secs(30);
/// … and all of it takes no longer than this beyond the limit.
const TRANSFER_LIMIT: Duration = Duration::from_secs(10 * 60);
/// For the disk, after the last byte has come.
const STORE_LIMIT: Duration = Duration::from_secs(30);
/// A sign of life from the other end.
const PROBE_LIMIT: Duration = Duration::from_secs(3);
/// Ended requests that are remembered, so that a late answer is told from an invented one.
const REMEMBERED: usize = 1024;
/// Attachments of one request.
const MAX_ATTACHMENTS: usize = 16;

/// What answers a request.
#[derive(Debug)]
pub(super) enum Answer {
    Result(Box<ResultFrame>, Vec<oneshot::Receiver<Stored>>),
    Challenge(SignedChallenge),
    /// The answer came and cannot be believed.
    Fault(CommandError),
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Answer>,
    wants_challenge: bool,
    attachments: Vec<oneshot::Receiver<Stored>>,
    last_chunk: Option<Instant>,
}

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<RequestId, Waiting>,
    ended: VecDeque<RequestId>,
}

/// Whether a request is known.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::nodes) enum Known {
    Waiting,
    /// It ended here already: too late, or withdrawn.
    Late,
    /// Nobody made it.
    Never,
}

/// A change of the list of approvers on its way.
#[derive(Debug)]
struct AwaitedChange {
    wanted: ApproverSet,
    answer: oneshot::Sender<Result<ApproverSet, String>>,
}

#[derive(Debug, Default)]
struct Surface {
    declared: Vec<String>,
    approved: Vec<String>,
}

#[derive(Debug)]
pub(in crate::nodes) struct LinkConnection {
    pub node: DeviceId,
    pub key: PublicKey,
    pub name: String,
    control: mpsc::Sender<ToNode>,
    calls: mpsc::Sender<ToNode>,
    table: Mutex<Table>,
    approvers: Mutex<Option<AwaitedChange>>,
    surface: Mutex<Surface>,
    /// Counts frames from the node.
    heard: watch::Sender<u64>,
    pub closing: CancellationToken,
    close: Mutex<Option<(u16, String)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LinkConnection {
    pub fn new(
        key: PublicKey,
        name: String,
        declared: Vec<String>,
        control: mpsc::Sender<ToNode>,
        calls: mpsc::Sender<ToNode>,
    ) -> Self {
        Self {
            node: key.device_id(),
            key,
            name,
            control,
            calls,
            table: Mutex::default(),
            approvers: Mutex::default(),
            surface: Mutex::new(Surface { declared, approved: Vec::new() }),
            heard: watch::Sender::new(0),
            closing: CancellationToken::new(),
            close: Mutex::default(),
        }
    }

    pub fn control(&self) -> &mpsc::Sender<ToNode> {
        &self.control
    }

    pub fn set_declared(&self, declared: Vec<String>) {
        lock(&self.surface).declared = declared;
    }

    pub fn set_approved(&self, approved: Vec<String>) {
        lock(&self.surface).approved = approved;
    }

    pub fn note_heard(&self) {
        self.heard.send_modify(|n| *n += 1);
    }

    /// What `close` was asked for.
    pub fn asked_to_close(&self) -> Option<(u16, String)> {
        lock(&self.close).take()
    }

    /// The link is over: whoever waits hears it.
    pub fn end(&self) {
        self.closing.cancel();
        lock(&self.table).waiting.clear();
        lock(&self.approvers).take();
    }

    fn gone(&self) -> CommandError {
        CommandError::new(
            ErrorCode::NotConnected,
            format!("node `{}` is not connected any more; it comes back by itself", self.name),
        )
    }

    // --- answers, from the session -------------------------------------------------------------

    pub fn known(&self, request: &RequestId) -> Known {
        let table = lock(&self.table);
        if table.waiting.contains_key(request) {
            Known::Waiting
        } else if table.ended.contains(request) {
            Known::Late
        } else {
            Known::Never
        }
    }

    /// Ties an attachment to its request; false when there are too many of them.
    pub fn attach(&self, request: &RequestId, stored: oneshot::Receiver<Stored>) -> bool {
        let mut table = lock(&self.table);
        let Some(waiting) = table.waiting.get_mut(request) else { return true };
        if waiting.attachments.len() >= MAX_ATTACHMENTS {
            return false;
        }
        waiting.attachments.push(stored);
        waiting.last_chunk = Some(Instant::now());
        true
    }

    pub fn note_chunk(&self, request: &RequestId) {
        if let Some(waiting) = lock(&self.table).waiting.get_mut(request) {
            waiting.last_chunk = Some(Instant::now());
        }
    }

    fn take(&self, request: &RequestId) -> Option<Waiting> {
        let mut table = lock(&self.table);
        let waiting = table.waiting.remove(request)?;
        table.remember(*request);
        Some(waiting)
    }

    pub fn result(&self, frame: Box<ResultFrame>) {
        if let Some(waiting) = self.take(&frame.request) {
            // A node that fails half way has announced attachments that its result does not count.
            let failed = matches!(frame.outcome, Outcome::Failed(_));
            let answer = if failed || frame.attachments as usize == waiting.attachments.len() {
                Answer::Result(frame, waiting.attachments)
            } else {
                let message = format!(
                    "the node announced {} attachments and sent {}",
                    frame.attachments,
                    waiting.attachments.len()
                );
                Answer::Fault(CommandError::new(ErrorCode::Internal, message))
            };
            let _ = waiting.answer.send(answer);
        }
    }

    /// False when nobody asked for a challenge.
    pub fn challenge(&self, request: &RequestId, challenge: SignedChallenge) -> bool {
        let wanted = lock(&self.table).waiting.get(request).is_some_and(|w| w.wants_challenge);
        if wanted && let Some(waiting) = self.take(request) {
            let _ = waiting.answer.send(Answer::Challenge(challenge));
        }
        wanted
    }

    pub fn fault(&self, request: &RequestId, error: CommandError) {
        if let Some(waiting) = self.take(request) {
            let _ = waiting.answer.send(Answer::Fault(error));
        }
    }

    /// The node's list as it is now; it answers a change only when it is the list that was asked for, since
    /// the node also tells of changes made on the node itself.
    pub fn approvers_are(&self, set: ApproverSet) {
        let mut waiting = lock(&self.approvers);
        if waiting.as_ref().is_some_and(|w| w.wanted == set)
            && let Some(change) = waiting.take()
        {
            let _ = change.answer.send(Ok(set));
        }
    }

    /// The node refused the change that was asked for.
    pub fn approvers_refused(&self, message: String) {
        if let Some(change) = lock(&self.approvers).take() {
            let _ = change.answer.send(Err(message));
        }
    }

    // --- calls, from the hub -------------------------------------------------------------------

    fn register(
        &self,
        request: RequestId,
        wants_challenge: bool,
    ) -> Result<oneshot::Receiver<Answer>, CommandError> {
        let (answer, wait) = oneshot::channel();
        let mut table = lock(&self.table);
        let busy = |message: String| Err(CommandError::new(ErrorCode::Busy, message));
        if table.waiting.len() >= MAX_IN_FLIGHT {
            return busy(format!(
                "{MAX_IN_FLIGHT} requests to node `{}` are under way; wait for one",
                self.name
            ));
        }
        if table.waiting.contains_key(&request) {
            return busy(format!("request {request} is under way already"));
        }
        table.ended.retain(|ended| *ended != request);
        let waiting = Waiting { answer, wants_challenge, attachments: Vec::new(), last_chunk: None };
        table.waiting.insert(request, waiting);
        Ok(wait)
    }

    async fn call(
        &self,
        request: RequestId,
        frame: ToNode,
        wants_challenge: bool,
        limit: Duration,
    ) -> Result<Answer, CommandError> {
        if self.closing.is_cancelled() {
            return Err(self.gone());
        }
        let mut wait = self.register(request, wants_challenge)?;
        // Whoever stops waiting takes the request off the table with this.
        let _slot = Slot { connection: self, request };
        let last = Instant::now() + limit + TRANSFER_LIMIT;
        let mut deadline = Instant::now() + limit;
        timeout_at(deadline, self.calls.send(frame))
            .await
            .map_err(|_| self.timeout(limit))?
            .map_err(|_| self.gone())?;
        loop {
            tokio::select! {
                biased;
                answer = &mut wait => return answer.map_err(|_| self.gone()),
                () = self.closing.cancelled() => return Err(self.gone()),
                () = tokio::time::sleep_until(deadline) => match self.in_transfer(&request) {
                    Some(until) if until.min(last) > Instant::now() => deadline = until.min(last),
                    _ => {
                        self.cancel(request);
                        return Err(self.timeout(limit));
                    }
                },
            }
        }
    }

    fn timeout(&self, limit: Duration) -> CommandError {
        let message = format!(
            "node `{}` did not answer within {:.1} s; whether it acted is shown by the same request when it answers again",
            self.name,
            limit.as_secs_f32()
        );
        CommandError::new(ErrorCode::Timeout, message)
    }

    fn in_transfer(&self, request: &RequestId) -> Option<Instant> {
        lock(&self.table).waiting.get(request)?.last_chunk.map(|at| at + TRANSFER_PAUSE)
    }

    async fn reply(&self, answer: Answer) -> Result<NodeReply, CommandError> {
        let (frame, attachments) = match answer {
            Answer::Result(frame, attachments) => (frame, attachments),
            Answer::Fault(error) => return Err(error),
            Answer::Challenge(_) => {
                return Err(CommandError::new(
                    ErrorCode::Internal,
                    "the node sent a challenge nobody asked for",
                ));
            }
        };
        let mut media = Vec::new();
        for attachment in attachments {
            let stored = timeout(STORE_LIMIT, attachment).await;
            match stored {
                Ok(Ok(Ok(stored))) => media.push(stored),
                // The command's own failure says more than an attachment that is missing because of it.
                _ if matches!(frame.outcome, Outcome::Failed(_)) => break,
                Ok(Ok(Err(error))) => return Err(error),
                Ok(Err(_)) => return Err(self.gone()),
                Err(_) => {
                    let message = "the hub's disk did not take the attachment in time";
                    return Err(CommandError::new(ErrorCode::Internal, message));
                }
            }
        }
        Ok(NodeReply { outcome: frame.outcome, media, head: Some(frame.head) })
    }

    /// The hub sends only what is declared and approved, whoever asks.
    fn check_surface(&self, command: &str) -> Result<(), CommandError> {
        let surface = lock(&self.surface);
        if !surface.declared.iter().any(|d| d == command) {
            let message = format!("node `{}` has no command `{command}`; see `hearth nodes show`", self.name);
            return Err(CommandError::new(ErrorCode::UnknownCommand, message));
        }
        if !surface.approved.iter().any(|a| a == command) {
            let message = format!(
                "`{command}` of node `{}` is declared and not approved; run `hearth devices approve {}`",
                self.name, self.name
            );
            return Err(CommandError::new(ErrorCode::NotApproved, message));
        }
        Ok(())
    }
}

impl Table {
    fn remember(&mut self, request: RequestId) {
        if self.ended.len() >= REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(request);
    }
}

struct Slot<'a> {
    connection: &'a LinkConnection,
    request: RequestId,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // Answered requests are off the table already.
        self.connection.take(&self.request);
    }
}

fn limit(timeout_ms: u64) -> Duration {
    Duration::from_millis(timeout_ms.min(MAX_TIMEOUT_MS)) + GRACE
}

impl NodeConnection for LinkConnection {
    fn invoke(&self, invoke: Invoke) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        Box::pin(async move {
            self.check_surface(&invoke.command)?;
            let (request, limit) = (invoke.request, limit(invoke.timeout_ms));
            let answer = self.call(request, ToNode::Invoke(invoke), false, limit).await?;
            self.reply(answer).await
        })
    }

    fn ask_challenge(
        &self,
        invoke: Invoke,
    ) -> BoxFuture<'_, Result<Result<SignedChallenge, NodeReply>, CommandError>> {
        Box::pin(async move {
            self.check_surface(&invoke.command)?;
            let request = invoke.request;
            match self.call(request, ToNode::AskChallenge(invoke), true, CHALLENGE_LIMIT).await? {
                Answer::Challenge(challenge) => Ok(Ok(challenge)),
                other => self.reply(other).await.map(Err),
            }
        })
    }

    fn grant(
        &self,
        request: RequestId,
        grant: Grant,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<NodeReply, CommandError>> {
        Box::pin(async move {
            let limit = limit(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
            let answer = self.call(request, ToNode::Grant { request, grant }, false, limit).await?;
            self.reply(answer).await
        })
    }

    fn cancel(&self, request: RequestId) {
        // A full queue means that the link is stuck: it ends by its heartbeat, and the node's own time
        // limit ends the command.
        let _ = self.control.try_send(ToNode::Cancel { request });
    }

    fn change_approvers(&self, change: ApproversChange) -> BoxFuture<'_, Result<ApproverSet, CommandError>> {
        Box::pin(async move {
            let (answer, wait) = oneshot::channel();
            {
                let mut waiting = lock(&self.approvers);
                if waiting.as_ref().is_some_and(|w| !w.answer.is_closed()) {
                    let message = "another change of the list is under way; try again";
                    return Err(CommandError::new(ErrorCode::Busy, message));
                }
                *waiting = Some(AwaitedChange { wanted: change.set.clone(), answer });
            }
            let exchange = async {
                self.calls.send(ToNode::ChangeApprovers(change)).await.map_err(|_| self.gone())?;
                wait.await.map_err(|_| self.gone())
            };
            match timeout(APPROVERS_LIMIT, exchange).await {
                Ok(Ok(Ok(set))) => Ok(set),
                Ok(Ok(Err(message))) => Err(CommandError::new(ErrorCode::Denied, message)),
                Ok(Err(gone)) => Err(gone),
                Err(_) => Err(self.timeout(APPROVERS_LIMIT)),
            }
        })
    }

    fn surface(&self, approved: Vec<String>) {
        self.set_approved(approved.clone());
        // The node asks for it anew with its next hello when this one is lost.
        let _ = self.control.try_send(ToNode::Surface { approved });
    }

    fn close(&self, code: u16, reason: &str) {
        *lock(&self.close) = Some((code, reason.to_owned()));
        self.closing.cancel();
    }

    fn probe(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if self.closing.is_cancelled() {
                return false;
            }
            let mut heard = self.heard.subscribe();
            // An id that no clock measurement uses.
            let _ = self.control.try_send(ToNode::Ping { id: 0, hub_time_ms: crate::store::now_ms() });
            tokio::select! {
                changed = timeout(PROBE_LIMIT, heard.changed()) => matches!(changed, Ok(Ok(()))),
                () = self.closing.cancelled() => false,
            }
        })
    }
}
