//! Putting the question to a person, and waiting for the answer.

use super::engine::{Approvers, Engine};
use super::open::Entry;
use super::record::{self, End, Record};
use super::settle::Ending;
use super::{ActionState, plan};
use crate::approvals::audit::Audit;
use crate::approvals::{ApprovalStatus, rows};
use crate::bus::Event;
use crate::store::StoreError;
use hearth_shared::command::Need;
use hearth_shared::error::{CommandError, ErrorCode};
use serde_json::json;
use std::time::Duration;

/// How long a request waits for the first approver to connect before it ends with `NOBODY_TO_ASK`: the
/// client that sent it may still be saying that it can show approvals.
const GRACE: Duration = Duration::from_secs(2);
/// For a request of an earlier start: its client comes back with backoff.
const GRACE_AFTER_START: Duration = Duration::from_secs(30);

impl Engine {
    /// Puts the question, if there is anybody to ask.
    pub(super) async fn ask(&self, record: &Record, entry: &Entry, need: Need) -> Result<(), StoreError> {
        if !self.config.approvals.wait_for_approver && !self.somebody_to_ask(entry).await {
            let message = format!(
                "`{}` on `{}` needs a person's yes, and nobody who could decide is connected or may decide in a chat; open `hearth chat`, or set approvals.wait_for_approver in config.toml",
                record.action.command, record.node_name
            );
            return self.end(record, End::Failed(CommandError::new(ErrorCode::NobodyToAsk, message))).await;
        }
        let lifetime = self.lifetime(record).as_millis() as u64;
        let deadline = self.powered.now().await? + lifetime;
        let id = record.action.id;
        // For a foreign node the hub asks before anything is sent, for ours after the node's answer.
        let from = if record.checked_on_node { ActionState::Running } else { ActionState::Submitted };
        let sentence = plan::sentence(record);
        let body = self.audit_body(record, &[("need", json!(need)), ("sentence", json!(sentence))]);
        let asked = self
            .store
            .write(move |t| {
                if !record::advance(t, &id, &[from], ActionState::Asking, None)? {
                    return Ok(false);
                }
                rows::insert(t, &id, &sentence, need, deadline)?;
                Audit::append_in(t, "approval.requested", &body)?;
                Ok(true)
            })
            .await?;
        if asked {
            tracing::info!(need = need.as_str(), "a person must decide");
            self.bus.emit(Event::ApprovalRequested { id });
            self.bus.emit(Event::ActionChanged { id });
        }
        Ok(())
    }

    /// How long a request waits for a person.
    fn lifetime(&self, record: &Record) -> Duration {
        let configured = Duration::from_secs(self.config.approvals.lifetime_s);
        record.ask_for.map_or(configured, |wanted| wanted.min(configured))
    }

    async fn somebody_to_ask(&self, entry: &Entry) -> bool {
        let mut approvers = self.approvers.subscribe();
        let grace = if entry.restored { GRACE_AFTER_START } else { GRACE };
        matches!(tokio::time::timeout(grace, approvers.wait_for(Approvers::any)).await, Ok(Ok(_)))
    }

    pub(super) async fn wait_for_decision(&self, record: &Record, entry: &Entry) -> Result<(), StoreError> {
        let id = record.action.id;
        let powered = self.powered.now().await?;
        let Some(stored) = self.store.read(move |c| rows::load(c, &id, powered)).await? else {
            return Err(StoreError::Corrupt(format!("action {id} asks without an approval")));
        };
        let left = Duration::from_millis(stored.deadline.saturating_sub(powered));
        if !left.is_zero() {
            self.pause(entry, left).await;
            return Ok(());
        }
        let lifetime = self.lifetime(record).as_secs_f32();
        let message = format!("nobody decided within {lifetime} s; ask again when somebody is there");
        let end = End::Failed(CommandError::new(ErrorCode::ApprovalExpired, message));
        let from = Some(ActionState::Asking);
        let ending = Ending { approval: ApprovalStatus::Expired, from, ..Ending::new(end) };
        self.end_with(record, ending).await
    }
}
