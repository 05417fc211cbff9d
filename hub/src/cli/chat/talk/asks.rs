//! What waits for a yes or no while a conversation goes on.

use super::{PROMPT, Talk};
use crate::cli::approve::{self, Policy};
use crate::cli::card::{Card, short};
use crate::cli::error::Failure;
use crate::cli::keyboard::Keyboard;
use crate::cli::output::safe_line;
use crate::store::now_ms;
use hearth_shared::grant::Decision;
use serde_json::{Value, json};

impl Talk<'_> {
    pub(super) async fn list_approvals(&mut self) -> Result<(), Failure> {
        let pending = self.client.call("approval.list", json!({})).await?;
        let all = pending["approvals"].as_array().cloned().unwrap_or_default();
        if all.is_empty() {
            return self.say("Nothing waits for an approval.\n");
        }
        for approval in &all {
            let told = approve::told(approval);
            let line = format!(
                "{}  {}: {}\n",
                short(&told.id),
                safe_line(&told.node_name),
                safe_line(&told.sentence)
            );
            self.say(&line)?;
        }
        Ok(())
    }

    pub(super) async fn decide(&mut self, card: Card, decision: Decision) -> Result<(), Failure> {
        if card.needs_person() && decision != Decision::Deny {
            return self.say(&format!(
                "This needs a person's own key: decide with `hearth approver allow {}`.\n",
                short(&card.told.id)
            ));
        }
        match approve::decide(&mut self.client, &card, decision).await {
            Ok(_) => {
                if decision == Decision::Deny {
                    self.denied = Some(card.told.id.clone());
                }
                Ok(())
            }
            Err(failure) if approve::is_changed(&failure) => {
                self.say("What would run has changed since; look again.\n")?;
                if let Ok(fresh) = approve::fetch(&mut self.client, &card.told.id).await {
                    self.asks.push_front(fresh);
                    self.shown = false;
                }
                Ok(())
            }
            Err(failure) => self.tell(&failure),
        }
    }

    pub(super) async fn on_ask(&mut self, id: &str, session: Option<&str>) -> Result<(), Failure> {
        let mine = session == Some(self.session.as_str());
        let Some(policy) = self.options.policy else { return Ok(()) };
        // A script answers for its own request only; a person in a conversation may see them all.
        if (!mine && (policy != Policy::Ask || self.options.once.is_some()))
            || self.asks.iter().any(|c| c.told.id == id)
        {
            return Ok(());
        }
        let card = match approve::fetch(&mut self.client, id).await {
            Ok(card) if card.told.status == "pending" => card,
            Ok(_) => return Ok(()),
            Err(failure) => return self.tell(&failure),
        };
        match policy {
            Policy::Yes | Policy::No => {
                self.say(&format!("\n{}", card.text(now_ms())))?;
                let (decision, word) = match policy {
                    Policy::Yes => (Decision::AllowOnce, "allowed once"),
                    _ => (Decision::Deny, "denied"),
                };
                self.say(&format!("{word}, as --approve says\n"))?;
                self.decide(card, decision).await
            }
            Policy::Ask if card.needs_person() => {
                let id = short(&card.told.id);
                self.say(&format!("\n{}", card.text(now_ms())))?;
                self.say(&format!(
                    "Decide with `hearth approver allow {id}` or `hearth approver deny {id}`.\n"
                ))
            }
            Policy::Ask if self.keyboard.is_none() => {
                self.say(&format!("\n{}", card.text(now_ms())))?;
                self.stop().await?;
                Err(Failure::failed(
                    "it needs a yes, and there is no terminal to ask at; nothing was done",
                    "say it again with --approve yes or --approve no",
                ))
            }
            Policy::Ask => {
                self.asks.push_back(card);
                Ok(())
            }
        }
    }

    pub(super) fn on_resolved(&mut self, payload: &Value) -> Result<(), Failure> {
        let id = payload["id"].as_str().unwrap_or_default();
        let by = payload["resolvedBy"].as_str().unwrap_or("nobody in time");
        let decision = payload["decision"].as_str().unwrap_or("expired");
        if self.asks.iter().any(|c| c.told.id == id) {
            let first = self.asks.front().is_some_and(|c| c.told.id == id);
            self.asks.retain(|c| c.told.id != id);
            let more = if first && self.shown { "; press Enter" } else { "" };
            self.shown &= !first;
            self.say(&format!(
                "approval {}: {} by {}{more}\n",
                short(id),
                safe_line(decision),
                safe_line(by)
            ))?;
        }
        Ok(())
    }

    /// Shows what waits first: a card, else the prompt for a message.
    pub(super) fn prompt(&mut self) -> Result<(), Failure> {
        if self.keyboard.as_ref().is_none_or(Keyboard::is_open) {
            return Ok(());
        }
        if let Some(card) = self.asks.front() {
            let question = approve::question(card.offers_always_by_hub());
            if !self.shown {
                let text = card.text(now_ms());
                self.shown = true;
                self.say(&format!("\n{text}"))?;
            }
            if let Some(keyboard) = &mut self.keyboard {
                keyboard.prompt(question, false);
            }
        } else if self.run.is_none()
            && self.options.once.is_none()
            && let Some(keyboard) = &mut self.keyboard
        {
            keyboard.prompt(PROMPT, true);
        }
        Ok(())
    }
}
