//! Looking at a request, and deciding.

use super::deliver::{Asked, not_now};
use super::engine::Engine;
use super::open::lock;
use super::record::{self, End, Record};
use super::settle::Ending;
use super::{ActionError, ActionState};
use crate::approvals::audit::Audit;
use crate::approvals::rows::{self, ShownCard, StoredApproval};
use crate::approvals::{Approval, ApprovalStatus, Card, Decider};
use crate::bus::Event;
use crate::nodes::{NodeConnection, NodeError, NodeView};
use crate::store::StoreError;
use hearth_shared::chain::Head;
use hearth_shared::command::{Class, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::Digest;
use hearth_shared::link::Outcome;
use hearth_shared::reading::RequestId;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Time that a card must leave whoever looks at it.
const TO_DECIDE: Duration = Duration::from_secs(45);

/// A decision that may be taken, before anybody else's.
struct Ready {
    decision: Decision,
    by: String,
    by_hub: bool,
    seen: Option<Digest>,
    /// The head of the audit log that this person was shown, and under which name it is remembered.
    held: Option<(String, Head)>,
    grant: Option<Grant>,
}

impl Engine {
    /// By full id or unique prefix.
    pub(super) async fn find(&self, which: &str) -> Result<StoredApproval, ActionError> {
        let unknown = || ActionError::UnknownApproval(hearth_shared::identity::display_safe(which, 40));
        let prefix = which.trim().to_ascii_lowercase();
        if prefix.is_empty() || prefix.len() > 32 || !prefix.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let powered = self.powered.now().await?;
        let mut found = self.store.read(move |c| rows::with_prefix(c, &prefix, powered)).await?;
        match found.len() {
            0 => Err(unknown()),
            1 => Ok(found.remove(0)),
            _ => Err(ActionError::Ambiguous(which.into())),
        }
    }

    /// See [`super::Actions::card`].
    pub(super) async fn card(self: &Arc<Self>, which: &str) -> Result<Card, ActionError> {
        let stored = self.find(which).await?;
        let id = stored.approval.id;
        let bare = |approval: Approval, head: Head| Card { approval, challenge: None, shown: None, head };
        let open = stored.approval.status == ApprovalStatus::Pending && stored.approval.checked_on_node;
        let head = self.audit.head().await?;
        let Some((record, view, connection)) = self.reach(&stored).await?.filter(|_| open) else {
            return Ok(bare(stored.approval, head));
        };
        let entry = self.adopt(&record);
        // One challenge a request is open on a node: a second person who looks at the same time must not
        // void what the first one is about to sign.
        let open = lock(&entry.fresh).clone().filter(|f| f.lasts(TO_DECIDE));
        let asked = match open {
            Some(fresh) => Asked::Fresh(Box::new(fresh)),
            None => self.ask_challenge(&record, &entry, &view, &*connection).await?,
        };
        match asked {
            Asked::Away => Ok(bare(stored.approval, head)),
            Asked::Failed(error) => Err(error.into()),
            Asked::Outcome(sent, reply) => Err(self.ended_meanwhile(&record, sent, *reply).await?.into()),
            Asked::Fresh(fresh) => {
                let text = fresh.signed.text.clone();
                let need = fresh.challenge.need;
                let powered = self.powered.now().await?;
                let stored = self
                    .store
                    .write(move |t| {
                        rows::set_need(t, &id, need)?;
                        rows::add_card(t, &id, &text, head)?;
                        rows::load(t, &id, powered)
                    })
                    .await?;
                let approval = stored.ok_or_else(|| ActionError::UnknownApproval(id.to_string()))?.approval;
                Ok(Card { approval, challenge: Some(fresh.signed), shown: Some(fresh.challenge), head })
            }
        }
    }

    /// Record, node and connection of an approval, if the node is there.
    async fn reach(
        &self,
        stored: &StoredApproval,
    ) -> Result<Option<(Record, NodeView, Arc<dyn NodeConnection>)>, ActionError> {
        let Some(connection) = self.directory.connection(&stored.approval.node) else { return Ok(None) };
        let Some(record) = self.load(stored.approval.id).await? else { return Ok(None) };
        match self.directory.view(stored.approval.node).await {
            Ok(view) => Ok(Some((record, view, connection))),
            Err(NodeError::Store(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Asked for a challenge, the node told an outcome. What is final is stored; the words are for whoever
    /// wanted to look or decide.
    async fn ended_meanwhile(
        &self,
        record: &Record,
        sent: Head,
        reply: crate::nodes::NodeReply,
    ) -> Result<CommandError, StoreError> {
        let heads = reply.head.map(|answered| (sent, answered));
        let (end, words) = match reply.outcome {
            // It cannot tell now, or wants to be asked again: nothing is final.
            Outcome::Failed(error) if not_now(&error) => {
                return Ok(error);
            }
            Outcome::ApprovalRequired { rule, .. } => {
                return Ok(CommandError::new(ErrorCode::Busy, format!("the node gave no challenge: {rule}")));
            }
            Outcome::Failed(error) => (End::Failed(error.clone()), error),
            Outcome::Done { result } => (
                End::Done {
                    result: serde_json::from_str(&result).unwrap_or(serde_json::Value::String(result)),
                    media: reply.media,
                },
                CommandError::new(ErrorCode::Cancelled, "the node did it already; nothing is left to decide"),
            ),
        };
        let from = Some(ActionState::Asking);
        let ending = Ending { by: Some("node".into()), heads, from, ..Ending::new(end) };
        self.end_with(record, ending).await?;
        if let Some(entry) = self.open.get(&record.action.id) {
            entry.wake.notify_one();
        }
        Ok(words)
    }

    /// See [`super::Actions::decide`].
    pub(super) async fn decide(
        self: &Arc<Self>,
        which: &str,
        decision: Decision,
        by: Decider,
    ) -> Result<Approval, ActionError> {
        let stored = self.find(which).await?;
        if stored.approval.status != ApprovalStatus::Pending {
            return Err(decided(&stored.approval));
        }
        let ready = match by {
            Decider::Hub { who, seen } => self.hub_decides(&stored, decision, who, seen).await?,
            Decider::Person { grant } => self.person_decides(&stored, decision, *grant).await?,
        };
        self.take(&stored.approval, ready).await
    }

    async fn hub_decides(
        self: &Arc<Self>,
        stored: &StoredApproval,
        decision: Decision,
        who: String,
        seen: Option<Digest>,
    ) -> Result<Ready, ActionError> {
        let approval = &stored.approval;
        let id = approval.id;
        let card = self.store.read(move |c| rows::card(c, &id, seen.as_ref())).await?;
        if seen.is_some() && card.is_none() && decision != Decision::Deny {
            return Err(ActionError::Changed);
        }
        let held = card.as_ref().filter(|_| seen.is_some()).map(|c| (format!("approver:{who}"), c.head));
        let ready = Ready {
            decision,
            by: who,
            by_hub: true,
            seen: card.as_ref().map(|c| c.digest),
            held,
            grant: None,
        };
        if decision == Decision::Deny {
            return Ok(ready);
        }
        if approval.need == Need::Person {
            return Err(needs_person(approval));
        }
        if decision == Decision::AllowAlways && !approval.checked_on_node {
            return Err(ActionError::NotEnough(format!(
                "`{}` keeps no rules of this hub; allow it once",
                approval.node_name
            )));
        }
        if decision == Decision::AllowAlways && approval.class != Class::Capture {
            return Err(ActionError::NotEnough(format!(
                "the hub may say \"always\" only for pictures, not for class {}; allow it once, or decide with `hearth approver`",
                approval.class.as_str()
            )));
        }
        if approval.checked_on_node {
            self.compare(stored, card, decision).await?;
        }
        Ok(ready)
    }

    /// With the node there, a fresh challenge shows at once whether the person saw what would run. With
    /// the node away that is compared when it returns.
    async fn compare(
        self: &Arc<Self>,
        stored: &StoredApproval,
        card: Option<ShownCard>,
        decision: Decision,
    ) -> Result<(), ActionError> {
        let Some((record, view, connection)) = self.reach(stored).await? else { return Ok(()) };
        let entry = self.adopt(&record);
        let fresh = match self.ask_challenge(&record, &entry, &view, &*connection).await? {
            Asked::Fresh(fresh) => *fresh,
            Asked::Away => return Ok(()),
            Asked::Failed(error) => return Err(error.into()),
            Asked::Outcome(sent, reply) => {
                return Err(self.ended_meanwhile(&record, sent, *reply).await?.into());
            }
        };
        if fresh.challenge.need == Need::Person {
            let id = stored.approval.id;
            self.store.write(move |t| rows::set_need(t, &id, Need::Person)).await?;
            return Err(needs_person(&stored.approval));
        }
        if card.is_some_and(|card| !card.challenge.same_matter(&fresh.challenge)) {
            return Err(ActionError::Changed);
        }
        if decision == Decision::AllowAlways && fresh.challenge.always.is_none() {
            return Err(ActionError::NotEnough("the node can keep no rule for this; allow it once".into()));
        }
        Ok(())
    }

    async fn person_decides(
        &self,
        stored: &StoredApproval,
        decision: Decision,
        grant: Grant,
    ) -> Result<Ready, ActionError> {
        let approval = &stored.approval;
        let not_enough = |why: String| Err(ActionError::NotEnough(why));
        if grant.decision != decision {
            return not_enough(format!(
                "the signature says {}, not {}",
                grant.decision.as_str(),
                decision.as_str()
            ));
        }
        if !approval.checked_on_node {
            let name = &approval.node_name;
            return not_enough(format!(
                "`{name}` checks no signatures; decide it in chat or with `hearth approvals`"
            ));
        }
        let (id, digest) = (approval.id, grant.challenge);
        let card = self.store.read(move |c| rows::card(c, &id, Some(&digest))).await?;
        let Some(card) = card else { return Err(ActionError::Changed) };
        let view = match self.directory.view(approval.node).await {
            Ok(view) => view,
            Err(NodeError::Store(error)) => return Err(error.into()),
            Err(error) => return Err(CommandError::new(ErrorCode::NotFound, error.to_string()).into()),
        };
        if let Err(error) = grant.verify(&digest, card.challenge.need, &view.approvers) {
            return not_enough(error.to_string());
        }
        if decision != Decision::Deny && self.directory.connection(&approval.node).is_none() {
            return not_enough(format!(
                "`{}` is away, and a signature counts only while it listens; look again when it is back",
                approval.node_name
            ));
        }
        let name = view.approvers.get(&grant.signer).map_or("approver", |a| a.name.as_str());
        let by = format!("approver: {} ({})", name, &grant.signer.to_string()[..8]);
        let held = Some((format!("approver:{}", grant.signer), card.head));
        let seen = Some(card.digest);
        Ok(Ready { decision, by, by_hub: false, seen, held, grant: Some(grant) })
    }

    /// The first decision wins.
    async fn take(&self, approval: &Approval, ready: Ready) -> Result<Approval, ActionError> {
        let id = approval.id;
        let record = self.load(id).await?.ok_or_else(|| ActionError::UnknownApproval(id.to_string()))?;
        let powered = self.powered.now().await?;
        let body = self.audit_body(
            &record,
            &[
                ("decision", json!(ready.decision)),
                ("by", json!(ready.by)),
                ("seen", json!(ready.seen)),
                ("signed", json!(ready.grant.as_ref().map(|g| g.signature.to_string()))),
            ],
        );
        let entry = self.open.get(&id);
        let Ready { decision, by, by_hub, seen, held, grant } = ready;
        let (won, stored) = self
            .store
            .write(move |t| {
                let allowed = decision != Decision::Deny;
                let status = if allowed { ApprovalStatus::Allowed } else { ApprovalStatus::Denied };
                let won = rows::settle(t, &id, status, Some((decision, by_hub)), Some(&by), seen.as_ref())?;
                if won {
                    if allowed {
                        record::advance(t, &id, &[ActionState::Asking], ActionState::Granted, None)?;
                        // The driver looks here when it wakes; nobody but the winner gets this far.
                        if let Some(entry) = &entry {
                            *lock(&entry.grant) = grant;
                            entry.forget_tries();
                        }
                    } else {
                        let message = format!("{by} said no");
                        let end = End::Failed(CommandError::new(ErrorCode::ApprovalDenied, message));
                        record::finish(t, &id, &end, Some(ActionState::Asking))?;
                    }
                    Audit::append_in(t, "approval.decided", &body)?;
                    if let Some((holder, head)) = &held {
                        Audit::note_held_in(t, holder, *head)?;
                    }
                }
                Ok((won, rows::load(t, &id, powered)?))
            })
            .await?;
        let stored = stored.ok_or_else(|| ActionError::UnknownApproval(id.to_string()))?;
        if !won {
            return Err(decided(&stored.approval));
        }
        if let Some(entry) = self.open.get(&id) {
            entry.wake.notify_one();
        }
        self.bus.emit(Event::ApprovalResolved { id });
        self.bus.emit(Event::ActionChanged { id });
        Ok(stored.approval)
    }

    /// See [`super::Actions::cancel`].
    pub(super) async fn cancel(&self, id: RequestId, by: &str) -> Result<(), ActionError> {
        let entry = self.open.get(&id);
        let Some(record) = self.load(id).await? else {
            if let Some(entry) = entry {
                entry.cancel.cancel();
            }
            return Ok(());
        };
        let who = by.to_owned();
        let body = self.audit_body(&record, &[("by", json!(by))]);
        let (sent, resolved) = self
            .store
            .write(move |t| {
                // As it is now: the driver may have sent it meanwhile.
                let Some(now) = record::load(t, &id)?.filter(|r| r.action.finished_ms.is_none()) else {
                    return Ok((false, false));
                };
                Audit::append_in(t, "action.withdrawn", &body)?;
                if now.action.state == ActionState::Running {
                    record::withdraw(t, &id, &who)?;
                    return Ok((true, false));
                }
                let error = CommandError::new(ErrorCode::Cancelled, format!("{who} withdrew it"));
                record::finish(t, &id, &End::Failed(error), None)?;
                let cancelled = ApprovalStatus::Cancelled;
                Ok((false, rows::settle(t, &id, cancelled, None, Some(&who), None)?))
            })
            .await?;
        if sent && let Some(connection) = self.directory.connection(&record.action.node) {
            // Its outcome, whatever it is, comes as the answer to the call that runs.
            connection.cancel(id);
        }
        if resolved {
            self.bus.emit(Event::ApprovalResolved { id });
        }
        self.bus.emit(Event::ActionChanged { id });
        if let Some(entry) = entry {
            entry.wake.notify_one();
        }
        Ok(())
    }
}

fn decided(approval: &Approval) -> ActionError {
    ActionError::AlreadyDecided {
        status: approval.status.as_str(),
        by: approval.decided_by.clone().unwrap_or_else(|| "the hub".into()),
    }
}

fn needs_person(approval: &Approval) -> ActionError {
    ActionError::NotEnough(format!(
        "`{}` on `{}` needs a person's own key; decide with `hearth approver` on a machine whose key the node knows",
        approval.command, approval.node_name
    ))
}
