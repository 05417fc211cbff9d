//! One call to a node: written down, handed to [`crate::actions`], waited for.

use super::ledger::Outcome;
use super::run::{RunError, RunTask};
use super::{RunState, wording};
use crate::actions::{Action, ActionError, ActionRequest, ActionState, Host};
use crate::bus::Event;
use crate::channels::{self, ApprovalPrompt};
use crate::nodes::Media;
use crate::store::{StoreError, now_ms};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::identity::DeviceId;
use hearth_shared::limits::{DEFAULT_TIMEOUT_MS, EFFECT_KEY_TTL_MS, MAX_TIMEOUT_MS};
use hearth_shared::reading::RequestId;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

/// A command for a node.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Unique in the run, the same after a restart.
    pub(super) id: String,
    pub(super) node: DeviceId,
    pub(super) node_name: String,
    pub(super) command: String,
    pub(super) params: Value,
    /// Wait for a node that is away.
    pub(super) wait_for_node: bool,
    /// What the assistant says why.
    pub(super) reason: Option<String>,
}

/// What is told about the state of an action, once each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Acting,
    Approval,
    Device,
}

impl RunTask {
    /// Makes a call of its own accord: with its lines in the transcript.
    pub(super) async fn call(&self, call: &Call) -> Result<Outcome, RunError> {
        let arguments = json!({ "node": call.node_name, "params": call.params });
        let content =
            json!([{ "type": "toolCall", "id": call.id, "name": call.command, "arguments": arguments }]);
        self.write(self.line(&format!("{}:call", call.id), "assistant", content)).await?;
        let outcome = self.perform(call).await?;
        let text = match &outcome.result {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        self.write_result(&call.id, &call.command, text, outcome.result.is_err()).await?;
        Ok(outcome)
    }

    /// The line that answers a call.
    pub(super) async fn write_result(
        &self,
        id: &str,
        name: &str,
        text: String,
        is_error: bool,
    ) -> Result<(), StoreError> {
        let mut line =
            self.line(&format!("{id}:result"), "toolResult", json!([{ "type": "text", "text": text }]));
        (line.tool_call_id, line.tool_name) = (Some(id.to_owned()), Some(name.to_owned()));
        line.is_error = Some(is_error);
        self.write(line).await
    }

    /// Does what a call says, once: a step that has its outcome is not done again.
    pub(super) async fn perform(&self, call: &Call) -> Result<Outcome, RunError> {
        let ledger = &self.parts.ledger;
        let run_id = &self.new.run_id;
        let body = json!({ "node": call.node, "command": call.command, "params": call.params }).to_string();
        ledger.begin(run_id, &call.id, body).await?;
        let step = ledger.step(run_id, &call.id).await?;
        if let Some(outcome) = step.as_ref().and_then(|s| s.outcome.clone()) {
            return Ok(outcome);
        }
        self.tell.agent(
            "tool",
            json!({ "phase": "start", "name": call.command, "toolCallId": call.id,
                    "args": { "node": call.node_name, "params": call.params } }),
        );
        let outcome =
            self.outcome(call, step.as_ref().and_then(|s| s.action), step.map_or(0, |s| s.at_ms)).await?;
        ledger.end(run_id, &call.id, &outcome).await?;
        let result = outcome.result.as_ref().map_or_else(|e| json!(e.to_string()), Clone::clone);
        self.tell.agent(
            "tool",
            json!({ "phase": "result", "name": call.command, "toolCallId": call.id, "result": result,
                    "isError": outcome.result.is_err() }),
        );
        self.state(RunState::Thinking).await?;
        Ok(outcome)
    }

    async fn outcome(
        &self,
        call: &Call,
        known: Option<RequestId>,
        begun_ms: u64,
    ) -> Result<Outcome, RunError> {
        let failed = |error| Outcome { result: Err(error), media: Vec::new(), decided_by: None };
        // An action that was handed over before a restart is waited for again. What only lived in memory
        // (commands that look) is asked anew: it has no effect.
        if let Some(id) = known
            && self.parts.actions.get(id).await.map_err(told)?.is_some()
        {
            return self.wait_for(id, call).await;
        }
        let looks = hearth_shared::command::spec(&call.command)
            .is_some_and(|s| s.class == hearth_shared::command::Class::Observe);
        let forgotten = known.is_some() || now_ms().saturating_sub(begun_ms) > EFFECT_KEY_TTL_MS;
        if self.resumed && forgotten && !looks {
            return Ok(failed(CommandError::new(
                ErrorCode::OutcomeUnknown,
                format!(
                    "the hub was away and does not know whether {} was done on {}; look before asking again",
                    call.command, call.node_name
                ),
            )));
        }
        self.state(RunState::Acting).await?;
        match self.parts.actions.submit(self.request(call)).await {
            Ok(id) => {
                self.parts.ledger.note_action(&self.new.run_id, &call.id, id).await?;
                self.wait_for(id, call).await
            }
            Err(ActionError::Refused(error)) => Ok(failed(error)),
            Err(other) => Err(told(other)),
        }
    }

    fn request(&self, call: &Call) -> ActionRequest {
        // A program may run as long as it was allowed to; the node needs a little longer to say so.
        let own = call.params.get("timeoutMs").and_then(Value::as_u64);
        let delay = call.params.get("delayMs").and_then(Value::as_u64).unwrap_or(0);
        let timeout = own.map_or(DEFAULT_TIMEOUT_MS + delay, |ms| ms + 5_000).min(MAX_TIMEOUT_MS);
        ActionRequest {
            host: Host::Node,
            node: call.node,
            command: call.command.clone(),
            params: call.params.clone(),
            requester: self.requester(),
            requester_device: None,
            reason: call.reason.clone(),
            session_key: Some(self.new.session_key.clone()),
            run_id: Some(self.new.run_id.clone()),
            timeout: Duration::from_millis(timeout),
            idempotency_key: Some(format!("run/{}/{}", self.new.run_id, call.id)),
            wait_for_node: call.wait_for_node,
            ask_for: None,
            correlation: self.new.correlation,
        }
    }

    /// Waits for the end of an action and tells meanwhile what it waits for.
    async fn wait_for(&self, id: RequestId, call: &Call) -> Result<Outcome, RunError> {
        let mut events = self.parts.bus.subscribe();
        let mut end = std::pin::pin!(self.parts.actions.wait(id));
        let mut phase = Phase::Acting;
        // The state may have changed before we listened.
        self.note_phase(id, call, &mut phase).await?;
        let action = loop {
            tokio::select! {
                biased;
                action = &mut end => break action.map_err(told)?,
                event = events.recv() => match event {
                    Ok(Event::ActionChanged { id: of } | Event::ApprovalRequested { id: of }
                        | Event::ApprovalResolved { id: of }) if of == id => {
                        self.note_phase(id, call, &mut phase).await?;
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => self.note_phase(id, call, &mut phase).await?,
                    // No more events: the end is still awaited.
                    Err(RecvError::Closed) => break (&mut end).await.map_err(told)?,
                },
            }
        };
        self.go_on().await;
        self.ended(action).await
    }

    async fn note_phase(&self, id: RequestId, call: &Call, phase: &mut Phase) -> Result<(), RunError> {
        let Some(action) = self.parts.actions.get(id).await.map_err(told)? else { return Ok(()) };
        let now = match action.state {
            ActionState::WaitingForNode => Phase::Device,
            ActionState::Asking => Phase::Approval,
            _ => Phase::Acting,
        };
        if now == *phase {
            return Ok(());
        }
        *phase = now;
        match now {
            Phase::Acting => self.state(RunState::Acting).await?,
            Phase::Device => {
                self.state(RunState::WaitingDevice).await?;
                let text = wording::waits_for_node(self.lang(), &call.node_name);
                self.tell.chat(
                    "status",
                    json!({ "phase": "waiting_device", "node": call.node_name, "actionId": id, "text": text }),
                );
                self.pause();
            }
            Phase::Approval => {
                self.state(RunState::WaitingApproval).await?;
                let approval = self.parts.actions.approval(&id.to_string()).await.map_err(told)?;
                let prompt = ApprovalPrompt { id: id.to_string(), sentence: approval.sentence };
                let how = channels::can(&self.new.channel).how_to_decide(&prompt);
                let text = wording::waits_for_person(self.lang(), &call.node_name, &prompt, how.as_deref());
                self.tell.chat(
                    "status",
                    json!({ "phase": "waiting_approval", "approvalId": id, "node": call.node_name,
                            "command": call.command, "sentence": prompt.sentence, "text": text }),
                );
                self.pause();
            }
        }
        Ok(())
    }

    async fn ended(&self, action: Action) -> Result<Outcome, RunError> {
        // Only what was asked has a decision; a missing one is no fault.
        let decided_by =
            self.parts.actions.approval(&action.id.to_string()).await.ok().and_then(|a| a.decided_by);
        let result = match (action.state, action.error) {
            (ActionState::Done, _) => Ok(action.result.unwrap_or(Value::Null)),
            (_, Some(error)) => Err(error),
            (_, None) => Err(CommandError::new(ErrorCode::Internal, "the action failed without saying why")),
        };
        Ok(Outcome { result, media: action.media, decided_by })
    }

    /// Pictures of the steps so far.
    pub(super) async fn media_so_far(&self) -> Result<Vec<Media>, StoreError> {
        self.parts.ledger.media(&self.new.run_id).await
    }
}

fn told(error: ActionError) -> RunError {
    match error {
        ActionError::Store(error) => RunError::Store(error),
        other => RunError::Told(other.to_string()),
    }
}
