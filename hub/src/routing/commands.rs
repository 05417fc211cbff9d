//! Chat commands, answered at the door: they work while a run is going on.

use super::{RouteError, Router};
use crate::actions::ActionError;
use crate::approvals::{ApprovalStatus, Decider};
use crate::channels::Inbound;
use hearth_shared::grant::Decision;
use std::time::Duration;

/// How long `/new` waits for the runs it stopped.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Status,
    /// A fresh transcript.
    New,
    /// End what runs in this conversation.
    Stop,
    /// Decide.
    Approve {
        which: String,
        decision: Decision,
    },
    /// `/approve` with something missing.
    HowToApprove,
    Unknown(String),
}

impl Command {
    /// A text that begins with `/` and a letter; a path such as `/etc/x` is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let name = words.next()?.strip_prefix('/')?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return None;
        }
        Some(match name.to_ascii_lowercase().as_str() {
            "help" => Self::Help,
            "status" => Self::Status,
            "new" | "reset" => Self::New,
            "stop" => Self::Stop,
            "approve" => {
                let decision = |w: &str| {
                    Some(match w.to_ascii_lowercase().as_str() {
                        "allow-once" | "once" | "yes" | "allow" => Decision::AllowOnce,
                        "allow-always" | "always" => Decision::AllowAlways,
                        "deny" | "no" => Decision::Deny,
                        _ => return None,
                    })
                };
                match (words.next(), words.next().and_then(decision), words.next()) {
                    (Some(which), Some(decision), None) => {
                        Self::Approve { which: which.to_owned(), decision }
                    }
                    _ => Self::HowToApprove,
                }
            }
            other => Self::Unknown(other.to_owned()),
        })
    }
}

impl Router {
    /// Does a command; what went wrong is told as its reply.
    pub(super) async fn command(
        &self,
        command: Command,
        message: &Inbound,
        session_key: &str,
    ) -> Result<String, RouteError> {
        Ok(match command {
            Command::Help => self.agent.help_text().await.unwrap_or_else(|e| e),
            Command::Status => self.agent.status_text(session_key, &message.text).await.unwrap_or_else(|e| e),
            Command::New => {
                let stopped = self.agent.abort(session_key, None).await?;
                for run in &stopped {
                    // Their last lines belong to the old transcript.
                    self.agent.wait(run, STOP_WITHIN).await?;
                }
                self.agent.forget_question(session_key).await?;
                self.sessions.reset(session_key).await?;
                let more = if stopped.is_empty() { "" } else { " What was going on was stopped." };
                format!("A new conversation. The old one is kept on disk.{more}")
            }
            Command::Stop => match self.agent.abort(session_key, None).await?.len() {
                0 => "Nothing is going on in this conversation.".into(),
                1 => "Stopped.".into(),
                n => format!("Stopped {n} requests."),
            },
            Command::Approve { which, decision } => self.approve(&which, decision, message).await?,
            Command::HowToApprove => {
                "Say `/approve ID allow-once`, `allow-always` or `deny`; `/status` lists what waits.".into()
            }
            Command::Unknown(name) => {
                let known = ["help", "status", "new", "stop", "approve"];
                let near = known
                    .into_iter()
                    .max_by(|a, b| strsim::jaro_winkler(a, &name).total_cmp(&strsim::jaro_winkler(b, &name)));
                let near = near.unwrap_or("help");
                let name = hearth_shared::identity::display_safe(&name, 32);
                format!("There is no /{name}; did you mean /{near}? /help lists what there is.")
            }
        })
    }

    async fn approve(
        &self,
        which: &str,
        decision: Decision,
        message: &Inbound,
    ) -> Result<String, RouteError> {
        if !message.may_decide {
            tracing::warn!(channel = %message.channel, sender = %message.sender, "may not decide approvals");
            return Ok("You may not decide approvals here; ask the owner of this hub.".into());
        }
        let who = format!("{}: {}", message.channel, message.sender);
        // He saw the request's sentence, not a card of a certain moment.
        match self.agent.actions().decide(which, decision, Decider::Hub { who, seen: None }).await {
            Ok(approval) => {
                let done = match (approval.status, decision) {
                    (ApprovalStatus::Denied, _) => "Denied",
                    (_, Decision::AllowAlways) => "Allowed, now and from now on",
                    _ => "Allowed once",
                };
                Ok(format!("{done}: {} ({}).", approval.sentence, approval.node_name))
            }
            Err(ActionError::Store(error)) => Err(error.into()),
            Err(error) => Ok(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_talk() {
        let approve = |which: &str, decision| Some(Command::Approve { which: which.into(), decision });
        for (text, wanted) in [
            ("/help", Some(Command::Help)),
            (" /STATUS ", Some(Command::Status)),
            ("/new", Some(Command::New)),
            ("/stop now", Some(Command::Stop)),
            ("/approve 1a2b allow-once", approve("1a2b", Decision::AllowOnce)),
            ("/approve 1a2b allow-always", approve("1a2b", Decision::AllowAlways)),
            ("/approve 1a2b deny", approve("1a2b", Decision::Deny)),
            ("/approve 1a2b", Some(Command::HowToApprove)),
            ("/approve 1a2b maybe", Some(Command::HowToApprove)),
            ("/approve 1a2b deny x", Some(Command::HowToApprove)),
            ("/stauts", Some(Command::Unknown("stauts".into()))),
            ("/etc/passwd is a file", None),
            ("take a picture", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(Command::parse(text), wanted, "{text}");
        }
    }
}
