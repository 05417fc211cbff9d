//! From a decision to the node: the grant over a fresh challenge.

use super::engine::{Engine, away};
use super::open::{Entry, Fresh, lock};
use super::record::{self, End, Record};
use super::settle::Ending;
use super::{ActionState, Host};
use crate::approvals::audit::Audit;
use crate::approvals::rows::{self, StoredApproval};
use crate::bus::Event;
use crate::nodes::{NodeConnection, NodeReply, NodeView};
use crate::store::{StoreError, now_ms};
use hearth_shared::chain::Head;
use hearth_shared::challenge::{Challenge, SignedChallenge};
use hearth_shared::command::Need;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::link::Outcome;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Grants for one decision. Each needs a fresh challenge; nothing was started before.
pub(super) const MAX_TRIES: u32 = 3;
/// Time a grant may take to the node.
const ON_THE_WAY: Duration = Duration::from_secs(10);
/// Wait for another conversation with the node about the same request.
const BUSY_WAIT: Duration = Duration::from_secs(15);
/// Pause before the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What asking for a challenge came to.
pub(super) enum Asked {
    /// It is checked: the node's own, and about this request.
    Fresh(Box<Fresh>),
    /// The node is away, or does not answer.
    Away,
    /// The node answered with an outcome instead; the hub's head that it was sent stands beside it.
    Outcome(Head, Box<NodeReply>),
    /// It cannot tell now.
    Failed(CommandError),
}

impl Engine {
    /// Fetches a challenge and checks that it is about this request. An earlier one is void on the node.
    pub(super) async fn ask_challenge(
        &self,
        record: &Record,
        entry: &Entry,
        view: &NodeView,
        connection: &dyn NodeConnection,
    ) -> Result<Asked, StoreError> {
        let Ok(permit) = tokio::time::timeout(BUSY_WAIT, entry.talk.acquire()).await else {
            let message = "the node is being asked about this request already; try again";
            return Ok(Asked::Failed(CommandError::new(ErrorCode::Busy, message)));
        };
        let _permit = permit.map_err(|_| StoreError::Closed)?;
        let head = self.audit.head().await?;
        lock(&entry.fresh).take();
        let at = Instant::now();
        Ok(match connection.ask_challenge(record.invoke(head)).await {
            Ok(Ok(signed)) => match self.check_challenge(record, view, &signed) {
                Ok(challenge) => {
                    let fresh = Fresh { signed, challenge, at };
                    *lock(&entry.fresh) = Some(fresh.clone());
                    Asked::Fresh(Box::new(fresh))
                }
                Err(error) => Asked::Failed(error),
            },
            Ok(Err(reply)) => Asked::Outcome(head, Box::new(reply)),
            // A link that is cut looks like a slow one for a minute. A challenge that is not answered started
            // nothing, so there is no harm in taking the node for away.
            Err(error) if matches!(error.code, ErrorCode::NotConnected | ErrorCode::Timeout) => Asked::Away,
            Err(error) => Asked::Failed(error),
        })
    }

    /// A node may complete the parameters (a newer one knows more of them), never change them.
    fn check_challenge(
        &self,
        record: &Record,
        view: &NodeView,
        signed: &SignedChallenge,
    ) -> Result<Challenge, CommandError> {
        let wrong = |what: &str| {
            let message =
                format!("`{}` answered with a challenge {what}; update hub and node", record.node_name);
            CommandError::new(ErrorCode::GrantRefused, message)
        };
        let challenge =
            signed.open(&view.device.key).map_err(|e| wrong(&format!("that cannot be used: {e}")))?;
        let action = &record.action;
        let params_kept = match (action.params.as_object(), challenge.params.as_object()) {
            (Some(ours), Some(theirs)) => ours.iter().all(|(key, value)| theirs.get(key) == Some(value)),
            _ => false,
        };
        if challenge.hub != self.keys.identity.device_id() {
            return Err(wrong("for another hub"));
        }
        if challenge.request != action.id || challenge.command != action.command || !params_kept {
            return Err(wrong("about something else than was asked"));
        }
        if challenge.class != record.class {
            return Err(wrong("of another class than the command has"));
        }
        Ok(challenge)
    }

    /// Decided yes; the grant is not delivered yet.
    pub(super) async fn deliver(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
        let id = record.action.id;
        let powered = self.powered.now().await?;
        let Some(stored) = self.store.read(move |c| rows::load(c, &id, powered)).await? else {
            return Err(StoreError::Corrupt(format!("action {id} was granted without an approval")));
        };
        let person_grant = lock(&entry.grant).take();
        if record.checked_on_node && !stored.by_hub && person_grant.is_none() {
            let note = "the hub stopped before it could pass the decision on";
            return self.reopen(record, stored.approval.need, note).await;
        }
        let left = Duration::from_millis(stored.deadline.saturating_sub(powered));
        if left.is_zero() {
            let by = stored.approval.decided_by.unwrap_or_default();
            let message = format!("{by} allowed it, but `{}` did not come back in time", record.node_name);
            let end = End::Failed(CommandError::new(ErrorCode::ApprovalExpired, message));
            return self.end(record, end).await;
        }
        if record.host == Host::Gateway {
            let decision = stored.approval.decision.unwrap_or(Decision::AllowOnce);
            let result = json!({ "decision": decision });
            return self.end(record, End::Done { result, media: Vec::new() }).await;
        }
        let Some(connection) = self.directory.connection(&record.action.node) else {
            if person_grant.is_some() {
                let note = "the node went away before the signature reached it";
                return self.reopen(record, stored.approval.need, note).await;
            }
            self.pause(entry, left).await;
            return Ok(());
        };
        if let Some(refused) = self.check_again(record).await? {
            return self.end(record, End::Failed(refused)).await;
        }
        if !record.checked_on_node {
            return self.send_unchecked(record, entry, &*connection).await;
        }
        let grant = match person_grant {
            Some(grant) => grant,
            None => match self.sign(record, entry, &stored, &*connection).await? {
                Some(grant) => grant,
                None => return Ok(()),
            },
        };
        self.send_grant(record, entry, grant, &*connection).await
    }

    /// A foreign node: the hub is the only gate, and its yes is all there is.
    async fn send_unchecked(
        &self,
        record: &Record,
        entry: &Entry,
        connection: &dyn NodeConnection,
    ) -> Result<(), StoreError> {
        let id = record.action.id;
        let deadline = self.lost_deadline(record).await?;
        let body = self.audit_body(record, &[("checkedOnNode", json!(false))]);
        let running = self
            .store
            .write(move |t| {
                let moved =
                    record::advance(t, &id, &[ActionState::Granted], ActionState::Running, Some(deadline))?;
                if moved {
                    Audit::append_in(t, "grant.unchecked", &body)?;
                }
                Ok(moved)
            })
            .await?;
        if running {
            self.bus.emit(Event::ActionChanged { id });
            self.call(record, entry, connection).await?;
        }
        Ok(())
    }

    /// The hub's signature over a fresh challenge, if it is about what the person saw; `None` when the
    /// state changed instead, or must be looked at again.
    async fn sign(
        &self,
        record: &Record,
        entry: &Entry,
        stored: &StoredApproval,
        connection: &dyn NodeConnection,
    ) -> Result<Option<Grant>, StoreError> {
        let need = stored.approval.need;
        let ready = lock(&entry.fresh).take().filter(|f| f.lasts(ON_THE_WAY));
        let fresh = match ready {
            Some(fresh) => fresh,
            None => {
                let view = match self.directory.view(record.action.node).await {
                    Ok(view) => view,
                    Err(crate::nodes::NodeError::Store(error)) => return Err(error),
                    Err(_) => {
                        self.end(record, End::Failed(away(record))).await?;
                        return Ok(None);
                    }
                };
                match self.ask_challenge(record, entry, &view, connection).await? {
                    Asked::Fresh(fresh) => *fresh,
                    Asked::Away => {
                        self.pause(entry, PAUSE).await;
                        return Ok(None);
                    }
                    Asked::Outcome(head, reply) => {
                        self.outcome_instead(record, entry, need, head, *reply).await?;
                        return Ok(None);
                    }
                    Asked::Failed(error) => {
                        self.try_again(record, entry, need, &error.message).await?;
                        return Ok(None);
                    }
                }
            }
        };
        if fresh.challenge.need == Need::Person {
            let note = "the node needs a person's own key by now";
            self.reopen(record, Need::Person, note).await?;
            return Ok(None);
        }
        let id = record.action.id;
        let seen = match stored.seen {
            Some(digest) => self.store.read(move |c| rows::card(c, &id, Some(&digest))).await?,
            None => None,
        };
        if seen.is_some_and(|card| !card.challenge.same_matter(&fresh.challenge)) {
            let note = "what would run is no longer what was shown; look at it again";
            self.reopen(record, fresh.challenge.need.max(need), note).await?;
            return Ok(None);
        }
        let decision = stored.approval.decision.unwrap_or(Decision::AllowOnce);
        if decision == Decision::AllowAlways && fresh.challenge.always.is_none() {
            let note = "the node can keep no rule for this; allow it once";
            self.reopen(record, need, note).await?;
            return Ok(None);
        }
        Ok(Some(Grant::sign(&self.keys.identity, fresh.signed.digest(), decision, now_ms())))
    }

    /// Sends a grant; that it was sent is on disk first.
    async fn send_grant(
        &self,
        record: &Record,
        entry: &Entry,
        grant: Grant,
        connection: &dyn NodeConnection,
    ) -> Result<(), StoreError> {
        let id = record.action.id;
        let wait = Duration::from_secs(self.config.approvals.device_wait_s);
        let deadline = self.powered.now().await? + wait.as_millis() as u64;
        let body = self.audit_body(
            record,
            &[
                ("challenge", json!(grant.challenge)),
                ("decision", json!(grant.decision)),
                ("signer", json!(grant.signer)),
            ],
        );
        let head = self
            .store
            .write(move |t| {
                if !record::advance(t, &id, &[ActionState::Granted], ActionState::Running, Some(deadline))? {
                    return Ok(None);
                }
                Audit::append_in(t, "grant.sent", &body).map(Some)
            })
            .await?;
        let Some(head) = head else { return Ok(()) };
        self.bus.emit(Event::ActionChanged { id });
        let permit = entry.talk.acquire().await.map_err(|_| StoreError::Closed)?;
        // Whatever the node says, this challenge is used up.
        lock(&entry.fresh).take();
        let reply = connection.grant(id, grant, record.timeout).await;
        drop(permit);
        // Neither was anything started, nor (when the link is full) sent.
        let refusal = match &reply {
            Ok(NodeReply { outcome: Outcome::Failed(error), .. })
                if error.code == ErrorCode::GrantRefused =>
            {
                Some(error.message.clone())
            }
            Err(error) if error.code == ErrorCode::Busy => Some(error.message.clone()),
            _ => None,
        };
        if let Some(why) = refusal {
            return self.refused(record, entry, &why).await;
        }
        self.settle(record, entry, head, reply).await
    }

    /// The node did not take the grant, so nothing was started: too late, another boot, another policy.
    async fn refused(&self, record: &Record, entry: &Entry, why: &str) -> Result<(), StoreError> {
        let id = record.action.id;
        tracing::warn!(why, "the node refused a grant");
        let powered = self.powered.now().await?;
        let stored = self.store.read(move |c| rows::load(c, &id, powered)).await?;
        let Some(stored) = stored else { return Ok(()) };
        let need = stored.approval.need;
        if !stored.by_hub || need == Need::Person {
            let note = format!("the node did not take the signature: {why}");
            return self.reopen(record, need, &note).await;
        }
        if !self.advance(id, ActionState::Running, ActionState::Granted, None).await? {
            return Ok(());
        }
        self.try_again(record, entry, need, why).await
    }

    /// After a pause the driver comes back to [`Engine::deliver`], a few times.
    async fn try_again(
        &self,
        record: &Record,
        entry: &Entry,
        need: Need,
        why: &str,
    ) -> Result<(), StoreError> {
        if entry.count_try() >= MAX_TRIES {
            entry.forget_tries();
            return self.reopen(record, need, &format!("the decision could not be delivered: {why}")).await;
        }
        self.pause(entry, PAUSE).await;
        Ok(())
    }

    /// Asked for a challenge, the node told an outcome: that of its journal, or a refusal.
    async fn outcome_instead(
        &self,
        record: &Record,
        entry: &Entry,
        need: Need,
        sent: Head,
        reply: NodeReply,
    ) -> Result<(), StoreError> {
        let heads = reply.head.map(|answered| (sent, answered));
        let end = match reply.outcome {
            Outcome::Failed(error) if not_now(&error) => {
                return self.try_again(record, entry, need, &error.message).await;
            }
            Outcome::Failed(error) => End::Failed(error),
            Outcome::Done { result } => End::Done {
                result: serde_json::from_str(&result).unwrap_or(serde_json::Value::String(result)),
                media: reply.media,
            },
            Outcome::ApprovalRequired { rule, .. } => {
                return self.try_again(record, entry, need, &rule).await;
            }
        };
        self.end_with(record, Ending { heads, ..Ending::new(end) }).await
    }

    /// Asks again: the decision cannot be used any more. The lifetime goes on counting.
    pub(super) async fn reopen(&self, record: &Record, need: Need, note: &str) -> Result<(), StoreError> {
        let id = record.action.id;
        let body = self.audit_body(record, &[("note", json!(note)), ("need", json!(need))]);
        let note = note.to_owned();
        let reopened = self
            .store
            .write(move |t| {
                let from = [ActionState::Granted, ActionState::Running];
                let moved = record::advance(t, &id, &from, ActionState::Asking, None)?;
                if moved {
                    rows::reopen(t, &id, need, &note)?;
                    Audit::append_in(t, "approval.reopened", &body)?;
                }
                Ok(moved)
            })
            .await?;
        if reopened {
            self.bus.emit(Event::ApprovalRequested { id });
            self.bus.emit(Event::ActionChanged { id });
        }
        Ok(())
    }
}

/// An answer that says nothing about the request: the node is full, or just stopping.
pub(super) fn not_now(error: &CommandError) -> bool {
    matches!(error.code, ErrorCode::Busy | ErrorCode::RateLimited | ErrorCode::Cancelled)
}
