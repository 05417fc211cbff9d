//! Requests that only look: in memory, unless it turns out that they must wait.

use super::engine::{Engine, away};
use super::open::{Entry, lock};
use super::record::{self, End, Record};
use super::settle::outcome_word;
use super::{Action, ActionState};
use crate::approvals::audit::Audit;
use crate::approvals::audit::batch::Seen;
use crate::bus::Event;
use crate::nodes::NodeReply;
use crate::store::{StoreError, now_ms};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::link::Outcome;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::Instrument as _;

/// It must wait for a person or for the node: on to the disk.
struct Later;

impl Engine {
    /// A command that only looks: in memory, unless it turns out that it must wait.
    pub(super) fn observe(self: &Arc<Self>, mut record: Record, entry: Arc<Entry>) {
        let engine = self.clone();
        let id = record.action.id;
        record.action.state = ActionState::Running;
        *lock(&entry.looking) = Some(record.action.clone());
        let span = tracing::info_span!("observe", id = %id, correlation = %record.correlation, command = record.action.command);
        self.tasks.spawn(
            async move {
                let outcome = tokio::select! {
                    outcome = engine.look(&record) => outcome,
                    () = entry.cancel.cancelled() => {
                        if let Some(connection) = engine.directory.connection(&record.action.node) {
                            connection.cancel(id);
                        }
                        Ok(End::Failed(CommandError::new(ErrorCode::Cancelled, "withdrawn")))
                    }
                    () = engine.tasks.stop.cancelled() => return,
                };
                let end = match outcome {
                    Ok(end) => end,
                    Err(Later) => match engine.make_durable(&record).await {
                        Ok(()) => return engine.drive(id, &entry).await,
                        Err(error) => End::Failed(CommandError::new(ErrorCode::Internal, error.to_string())),
                    },
                };
                engine.finish_in_memory(&mut record.action, end);
            }
            .instrument(span),
        );
    }

    async fn look(&self, record: &Record) -> Result<End, Later> {
        let action = &record.action;
        let failed = |e: StoreError| End::Failed(CommandError::new(ErrorCode::Internal, e.to_string()));
        let sent = match self.audit.head().await {
            Ok(head) => head,
            Err(error) => return Ok(failed(error)),
        };
        let reply = match self.directory.connection(&action.node) {
            Some(connection) => connection.invoke(record.invoke(sent)).await,
            None => Err(away(record)),
        };
        let (end, answered) = match reply {
            Ok(NodeReply { outcome: Outcome::ApprovalRequired { .. }, .. }) => return Err(Later),
            Ok(NodeReply { outcome: Outcome::Done { result }, media, head }) => {
                let result = serde_json::from_str(&result).unwrap_or(Value::String(result));
                (End::Done { result, media }, head)
            }
            Ok(NodeReply { outcome: Outcome::Failed(error), head, .. }) => (End::Failed(error), head),
            Err(error) if error.code == ErrorCode::NotConnected && record.wait_for_node => return Err(Later),
            Err(error) => (End::Failed(error), None),
        };
        let body = self.audit_body(record, &[("outcome", outcome_word(&end))]);
        let heads = record.checked_on_node.then_some((action.node, sent, answered));
        self.batch.add(Seen { kind: "node.observed", body, heads }).await;
        Ok(end)
    }

    async fn make_durable(&self, record: &Record) -> Result<(), StoreError> {
        let body = self.audit_body(record, &[("reason", json!(record.reason))]);
        let mut record = record.clone();
        record.action.state = ActionState::Submitted;
        self.store
            .write(move |t| {
                record::insert(t, &record, None)?;
                Audit::append_in(t, "action.submitted", &body).map(drop)
            })
            .await
    }

    fn finish_in_memory(&self, action: &mut Action, end: End) {
        match end {
            End::Done { result, media } => {
                action.state = ActionState::Done;
                action.result = Some(result);
                action.media = media;
            }
            End::Failed(error) => {
                action.state = ActionState::Failed;
                action.error = Some(error);
            }
        }
        action.finished_ms = Some(now_ms());
        let id = action.id;
        self.open.finish(action.clone(), true);
        self.bus.emit(Event::ActionChanged { id });
    }
}
