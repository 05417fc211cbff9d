//! The loop of a conversation: keyboard, hub and signals, one event at a time.

mod asks;

use super::reply::{Outcome, Progress, content, progress};
use super::seen;
use crate::cli::approve::{self, Policy};
use crate::cli::card::{Card, short};
use crate::cli::client::{Access, Client, Incoming, Target};
use crate::cli::context::Context;
use crate::cli::error::{Exit, Failure};
use crate::cli::keyboard::{Keyboard, Line};
use crate::cli::output::{safe_line, safe_text};
use crate::store::now_ms;
use hearth_shared::frame::EventFrame;
use hearth_shared::grant::Decision;
use hearth_shared::identity::SecretText;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// When nothing was heard of a run for so long, the hub is asked: an event may have been lost.
const ASK_AFTER: Duration = Duration::from_secs(15);
/// How long a hub that went away is waited for.
const RECONNECT: Duration = Duration::from_secs(120);
/// Messages looked through for replies that came meanwhile.
const HISTORY: u64 = 50;
const PROMPT: &str = "you> ";

const HELP: &str = "\
Say what you want, for example: take a picture in the garage; how warm is it?; turn the pump on for 20 seconds
  /allow ID [always]   decide an approval that waits       /deny ID
  /approvals           what waits                          /quit    leave
Everything else that begins with / goes to the hub: /status, /stop, /help
";

/// How to talk.
#[derive(Debug, Clone)]
pub struct TalkOptions {
    /// Session key or its short form.
    pub session: String,
    /// What to do with approvals; `None` leaves them to others.
    pub policy: Option<Policy>,
    /// One message, then end.
    pub once: Option<String>,
    /// Print nothing.
    pub quiet: bool,
}

/// What was wrong at the end of a run.
#[derive(Debug)]
enum End {
    /// The run itself, in words.
    Run(String),
    /// The command it ran, by code; the reply says it in words.
    Command(String),
}

fn command_failure(code: &str) -> Failure {
    let denied = ["APPROVAL_DENIED", "DENIED", "GRANT_REFUSED"].contains(&code);
    let make = if denied { Failure::denied } else { Failure::failed };
    make(
        format!("the request was not done ({})", safe_line(code)),
        "see `hearth approvals list --all` and `hearth status`".to_owned(),
    )
}

/// A conversation.
pub struct Talk<'a> {
    client: Client,
    target: &'a Target,
    access: Access<'a>,
    context: &'a Context,
    keyboard: Option<Keyboard>,
    options: TalkOptions,
    /// Long form of the session, as events name it.
    session: String,
    run: Option<Run>,
    /// Cards that wait for an answer here; the first one is shown.
    asks: VecDeque<Card>,
    shown: bool,
    /// What was denied here, for the exit code.
    denied: Option<String>,
}

struct Run {
    id: String,
    printed: String,
}

impl std::fmt::Debug for Talk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Talk").field("session", &self.session).finish_non_exhaustive()
    }
}

impl<'a> Talk<'a> {
    /// A conversation over a connected client.
    #[must_use]
    pub fn new(
        client: Client,
        target: &'a Target,
        access: Access<'a>,
        context: &'a Context,
        keyboard: Option<Keyboard>,
        options: TalkOptions,
    ) -> Self {
        let session = crate::routing::Router::session_key(&options.session);
        Self {
            client,
            target,
            access,
            context,
            keyboard,
            options,
            session,
            run: None,
            asks: VecDeque::new(),
            shown: false,
            denied: None,
        }
    }

    /// Talks until the person leaves (`None`), or the single message is answered.
    ///
    /// # Errors
    /// The hub is gone, or output cannot be written.
    pub async fn run(mut self) -> Result<Option<Outcome>, Failure> {
        let outcome = self.talk().await;
        self.client.close().await;
        outcome
    }

    async fn talk(&mut self) -> Result<Option<Outcome>, Failure> {
        let broken = |e: std::io::Error| Failure::failed(format!("cannot watch signals: {e}"), "try again");
        let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(broken)?;
        if let Some(text) = self.options.once.clone() {
            self.send(&text).await?;
        } else {
            self.greet().await?;
        }
        loop {
            self.prompt()?;
            let keyboard = async {
                match &mut self.keyboard {
                    Some(keyboard) => keyboard.next().await,
                    None => std::future::pending().await,
                }
            };
            let running = self.run.is_some();
            tokio::select! {
                line = keyboard => {
                    if self.on_line(line).await? {
                        return Ok(None);
                    }
                }
                incoming = self.client.next() => match incoming {
                    Ok(Incoming::Event(event)) => {
                        if let Some(outcome) = self.on_event(event).await? {
                            return Ok(Some(outcome));
                        }
                    }
                    Ok(Incoming::Answer { .. }) => {}
                    Err(failure) => self.reconnect(failure).await?,
                },
                () = tokio::time::sleep(ASK_AFTER), if running => {
                    if let Some(outcome) = self.ask_for_run().await? {
                        return Ok(Some(outcome));
                    }
                }
                _ = interrupt.recv() => {
                    if self.on_interrupt().await? {
                        return Ok(None);
                    }
                }
                _ = terminate.recv() => return Ok(None),
                _ = hangup.recv() => return Ok(None),
            }
        }
    }

    fn say(&mut self, text: &str) -> Result<(), Failure> {
        if self.options.quiet {
            return Ok(());
        }
        match &mut self.keyboard {
            Some(keyboard) => keyboard.print(self.context.out, text),
            None => self.context.out.raw(text),
        }
    }

    /// What came while nobody looked, and what waits.
    async fn greet(&mut self) -> Result<(), Failure> {
        if self.context.interactive {
            self.say("Connected. Say what you want; /help tells more, /quit leaves.\n")?;
        }
        self.catch_up(true).await
    }

    async fn catch_up(&mut self, fresh: bool) -> Result<(), Failure> {
        let params = json!({ "sessionKey": self.session, "limit": HISTORY });
        let history = self.client.call("chat.history", params).await?;
        let last = seen::last(&self.context.home, &self.session);
        let mut newest = 0;
        let mut told = !fresh;
        for message in history["messages"].as_array().into_iter().flatten() {
            let at = message["timestamp"].as_u64().unwrap_or_default();
            newest = newest.max(at);
            if message["role"] == "assistant" && last.is_some_and(|last| at > last) {
                if !told {
                    told = true;
                    self.say("While you were away:\n")?;
                }
                let (text, media) = content(message);
                self.say(&rendered(&text, &media))?;
            }
        }
        seen::note(&self.context.home, &self.session, newest.max(1));
        if self.options.policy.is_some() {
            let pending = self.client.call("approval.list", json!({})).await?;
            for approval in pending["approvals"].as_array().into_iter().flatten() {
                let told = approve::told(approval);
                self.on_ask(&told.id, told.session_key.as_deref()).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, text: &str) -> Result<(), Failure> {
        let id = SecretText::random().map_err(|e| Failure::failed(e.to_string(), "try again"))?;
        let id = id.expose().to_owned();
        let params = json!({ "sessionKey": self.session, "message": text, "idempotencyKey": id });
        self.client.call("chat.send", params).await?;
        self.run = Some(Run { id, printed: String::new() });
        Ok(())
    }

    /// A line was entered; true means leave.
    async fn on_line(&mut self, line: Line) -> Result<bool, Failure> {
        let text = match line {
            Line::Text(text) => text,
            Line::Interrupted | Line::End if self.asks.is_empty() => return Ok(true),
            // At a card, leaving the prompt leaves the approval to others; it stays pending.
            Line::Interrupted | Line::End => {
                if let Some(card) = self.asks.pop_front() {
                    self.shown = false;
                    let id = short(&card.told.id);
                    self.say(&format!(
                        "left open; decide later with `hearth approvals allow {id}` or deny\n"
                    ))?;
                }
                return Ok(line == Line::End && self.options.once.is_none());
            }
        };
        if let Some(card) = self.asks.front().cloned() {
            match approve::parse_answer(&text, card.offers_always_by_hub()) {
                Some(decision) => {
                    self.asks.pop_front();
                    self.shown = false;
                    self.decide(card, decision).await?;
                }
                None if text.trim().is_empty() => {}
                None if matches!(text.trim(), "/quit" | "/exit") => return Ok(true),
                None => self.say("Please answer with one of the words.\n")?,
            }
            return Ok(false);
        }
        self.on_message(text.trim()).await
    }

    async fn on_message(&mut self, text: &str) -> Result<bool, Failure> {
        let mut words = text.split_whitespace();
        match words.next() {
            None => {}
            Some("/quit" | "/exit") => return Ok(true),
            Some("/help") => self.say(HELP)?,
            Some("/approvals") => self.list_approvals().await?,
            Some(command @ ("/allow" | "/deny")) => {
                let Some(id) = words.next() else {
                    self.say("Name the approval: /approvals lists them.\n")?;
                    return Ok(false);
                };
                let decision = match (command, words.next()) {
                    ("/deny", _) => Decision::Deny,
                    (_, Some("always")) => Decision::AllowAlways,
                    _ => Decision::AllowOnce,
                };
                match approve::fetch(&mut self.client, id).await {
                    Ok(card) => {
                        self.say(&card.text(now_ms()))?;
                        self.decide(card, decision).await?;
                    }
                    Err(failure) => self.tell(&failure)?,
                }
            }
            Some(_) => {
                if let Err(failure) = self.send(text).await {
                    self.tell(&failure)?;
                }
            }
        }
        Ok(false)
    }

    /// Tells a failure that does not end the conversation.
    fn tell(&mut self, failure: &Failure) -> Result<(), Failure> {
        if failure.code() == Exit::Unreachable as u8 {
            return Err(failure.clone());
        }
        self.say(&format!("{}\n  next: {}\n", failure.message(), failure.next()))
    }

    async fn on_event(&mut self, event: EventFrame) -> Result<Option<Outcome>, Failure> {
        let payload = event.payload.unwrap_or_default();
        match event.event.as_str() {
            "chat" => return self.on_chat(&payload),
            "exec.approval.requested" => {
                let id = payload["id"].as_str().unwrap_or_default().to_owned();
                let session = payload["request"]["sessionKey"].as_str().map(str::to_owned);
                self.on_ask(&id, session.as_deref()).await?;
            }
            "exec.approval.resolved" => self.on_resolved(&payload)?,
            "shutdown" => self.say("The hub stops; waiting for it to come back.\n")?,
            _ => {}
        }
        Ok(None)
    }

    fn on_chat(&mut self, payload: &Value) -> Result<Option<Outcome>, Failure> {
        if payload["sessionKey"].as_str() != Some(self.session.as_str()) {
            return Ok(None);
        }
        let Some(progress) = progress(payload) else { return Ok(None) };
        let run_id = payload["runId"].as_str().unwrap_or_default();
        if self.run.as_ref().is_none_or(|r| r.id != run_id) {
            // Somebody else's run, or one of before: only its end is of interest.
            if let (Progress::Final { text, media, .. }, None) = (&progress, &self.options.once) {
                seen::note(&self.context.home, &self.session, now_ms());
                self.say(&rendered(text, media))?;
            }
            return Ok(None);
        }
        match progress {
            // A card says itself that a person is waited for.
            Progress::Status { phase, text } => {
                if phase == "waiting_device" && !text.is_empty() {
                    self.say(&format!("{}\n", safe_text(&text)))?;
                }
                Ok(None)
            }
            Progress::Text(text) => {
                self.stream(&text)?;
                Ok(None)
            }
            Progress::Final { text, media, failure } => self.end(text, media, failure.map(End::Command)),
            Progress::Failed(why) => self.end(String::new(), Vec::new(), Some(End::Run(why))),
        }
    }

    /// Prints what is new of the reply.
    fn stream(&mut self, text: &str) -> Result<(), Failure> {
        let Some(run) = &mut self.run else { return Ok(()) };
        let fresh = match text.strip_prefix(run.printed.as_str()) {
            Some(rest) => safe_text(rest),
            None => format!("\n{}", safe_text(text)),
        };
        run.printed = text.to_owned();
        self.say(&fresh)
    }

    fn end(
        &mut self,
        text: String,
        media: Vec<String>,
        error: Option<End>,
    ) -> Result<Option<Outcome>, Failure> {
        if !text.is_empty() {
            self.stream(&text)?;
        }
        let Some(run) = self.run.take() else { return Ok(None) };
        if !run.printed.is_empty() {
            self.say("\n")?;
        }
        for path in &media {
            self.say(&format!("picture: {}\n", safe_line(path)))?;
        }
        seen::note(&self.context.home, &self.session, now_ms());
        let failure = match (error, &self.denied) {
            (_, Some(id)) if self.options.once.is_some() => Some(Failure::denied(
                format!("approval {} was denied", short(id)),
                "say it again and allow it, or see `hearth approvals list --all`",
            )),
            (Some(End::Run(why)), _) => {
                Some(Failure::failed(safe_line(&why), "see `hearth status` and `hearth logs`"))
            }
            // In a conversation the reply has said it; a single request must also end with a failure.
            (Some(End::Command(code)), _) if self.options.once.is_some() => Some(command_failure(&code)),
            (Some(End::Command(_)) | None, _) => None,
        };
        if self.options.once.is_some() {
            return Ok(Some(Outcome { run_id: run.id, text, media, failure }));
        }
        if let Some(failure) = failure {
            self.say(&format!("{}\n  next: {}\n", failure.message(), failure.next()))?;
        }
        Ok(None)
    }

    /// Asks the hub how the run stands, in case its end was not heard.
    async fn ask_for_run(&mut self) -> Result<Option<Outcome>, Failure> {
        let Some(run) = &self.run else { return Ok(None) };
        let id = run.id.clone();
        let state = self.client.call("agent.wait", json!({ "runId": id, "timeoutMs": 1 })).await?;
        match state["status"].as_str() {
            Some("ok") => {
                let params = json!({ "sessionKey": self.session, "limit": HISTORY });
                let history = self.client.call("chat.history", params).await?;
                let of_run = |m: &&Value| m["role"] == "assistant" && m["runId"] == id.as_str();
                let last = history["messages"].as_array().and_then(|all| all.iter().rfind(of_run).cloned());
                let (text, media) = last.as_ref().map(content).unwrap_or_default();
                let failure = state["error"].as_str().map(|code| End::Command(code.to_owned()));
                self.end(text, media, failure)
            }
            Some("error") => {
                let why = state["error"].as_str().unwrap_or("the request failed").to_owned();
                self.end(String::new(), Vec::new(), Some(End::Run(why)))
            }
            _ => Ok(None),
        }
    }

    /// Ctrl-C while no prompt is open: stops the run; without a run, leaves. True means leave.
    async fn on_interrupt(&mut self) -> Result<bool, Failure> {
        if self.run.is_none() {
            return Ok(true);
        }
        self.stop().await?;
        self.say("\nstopped\n")?;
        if self.options.once.is_some() {
            return Err(Failure::failed("stopped", "say it again"));
        }
        self.run = None;
        Ok(false)
    }

    /// Stops the run that goes on.
    async fn stop(&mut self) -> Result<(), Failure> {
        let Some(run) = &self.run else { return Ok(()) };
        let params = json!({ "sessionKey": self.session, "runId": run.id });
        self.client.call("chat.abort", params).await.map(drop)
    }

    /// The hub went away: waits for it and takes up where it was.
    async fn reconnect(&mut self, failure: Failure) -> Result<(), Failure> {
        self.say(&format!("{}; trying again\n", failure.message()))?;
        let deadline = tokio::time::Instant::now() + RECONNECT;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            // The address may be another one after a restart.
            let target = match self.target {
                Target::Local(_) => Target::local(&self.context.home),
                Target::Remote(_) => Err(failure.clone()),
            };
            if let Ok(target) = target
                && let Ok(client) = Client::connect(&target, self.access).await
            {
                self.client = client;
                self.say("connected again\n")?;
                return if self.options.once.is_none() { self.catch_up(false).await } else { Ok(()) };
            }
            if tokio::time::Instant::now() > deadline {
                return Err(failure);
            }
        }
    }
}

fn rendered(text: &str, media: &[String]) -> String {
    let mut out = format!("{}\n", safe_text(text));
    for path in media {
        out.push_str(&format!("picture: {}\n", safe_line(path)));
    }
    out
}
