//! `approver run`, `allow` and `deny`: show the card, sign over a fresh challenge, deliver.

use crate::cli::approve;
use crate::cli::approver_home::ApproverHome;
use crate::cli::card::{Card, short};
use crate::cli::client::{Client, Incoming};
use crate::cli::context::Context;
use crate::cli::error::{Exit, Failure};
use crate::cli::keyboard::{Keyboard, Line};
use crate::cli::output::safe_line;
use crate::store::now_ms;
use hearth_shared::backoff::Backoff;
use hearth_shared::grant::{Decision, Grant};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// A person looks at this screen: the hub is tried again at least so often.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Opens a card and notes the head that came with it.
async fn open(home: &ApproverHome, client: &mut Client, id: &str) -> Result<Card, Failure> {
    let answer = client.call("approval.get", json!({ "id": id })).await?;
    let card = approve::card_of(&answer)?;
    if let Some((_, challenge)) = &card.signed {
        let head = &answer["card"]["head"];
        home.note(&format!("hub:{}", challenge.hub), head)?;
        // Records up to there count as anchored now. The card matters more than this.
        let _ = client.try_call(Duration::from_secs(10), "hearth.audit.held", head.clone()).await?;
    }
    Ok(card)
}

/// Why a person's key cannot sign: there is no challenge.
fn unsigned(card: &Card) -> Failure {
    if card.told.checked_on_node {
        Failure::failed(
            format!("{} is away, and only it can say what would run", safe_line(&card.told.node_name)),
            "decide when it is back: the request goes on waiting",
        )
    } else {
        Failure::denied(
            "this node does not check signatures: a person's key has no meaning for it",
            "decide on the hub with `hearth approvals`",
        )
    }
}

/// Signs over a fresh challenge. `None` when what would run is no longer what was shown.
async fn sign(
    home: &ApproverHome,
    client: &mut Client,
    shown: &Card,
    decision: Decision,
) -> Result<Option<Value>, Failure> {
    let fresh = open(home, client, &shown.told.id).await?;
    let (Some((_, seen)), Some((signed, challenge))) = (&shown.signed, &fresh.signed) else {
        return Err(unsigned(shown));
    };
    if !seen.same_matter(challenge) {
        return Ok(None);
    }
    let grant = Grant::sign(&home.approver_key()?, signed.digest(), decision, now_ms());
    match approve::deliver(client, &fresh, &grant).await {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if approve::is_changed(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// One decision from the command line.
pub(super) async fn one(
    home: &ApproverHome,
    id: &str,
    decision: Decision,
    yes: bool,
    context: &Context,
) -> Result<(), Failure> {
    let mut client = super::connect(home, context).await?;
    let mut keyboard = None;
    loop {
        let card = open(home, &mut client, id).await?;
        if card.signed.is_none() {
            return Err(unsigned(&card));
        }
        if decision == Decision::AllowAlways && !card.offers_always() {
            return Err(Failure::usage(
                "\"always\" cannot be chosen for this",
                "allow it once: leave --always out",
            ));
        }
        if !context.json {
            context.out.raw(card.text(now_ms()))?;
        }
        if !yes && decision != Decision::Deny {
            if !context.interactive {
                return Err(Failure::usage("nobody can be asked here", "run it in a terminal, or add --yes"));
            }
            let keyboard = match &mut keyboard {
                Some(keyboard) => keyboard,
                none => none.insert(Keyboard::open()?),
            };
            keyboard.prompt("sign a yes over exactly this? [y]es or [n]o: ", false);
            let answer = keyboard.next().await;
            if !matches!(&answer, Line::Text(t) if approve::parse_answer(t, false) == Some(Decision::AllowOnce))
            {
                return Err(Failure::failed(
                    "not signed",
                    "the request goes on waiting; deny it with `hearth approver deny`",
                ));
            }
        }
        if let Some(answer) = sign(home, &mut client, &card, decision).await? {
            client.close().await;
            if context.json {
                return context.out.json(&answer);
            }
            let word = if decision == Decision::Deny { "no" } else { "yes" };
            return context.out.line(format!("signed a {word} and delivered it"));
        }
        if yes {
            return Err(Failure::failed("what would run changed since it was shown", approve::CHANGED));
        }
        context.out.line("What would run has changed since; look again.")?;
    }
}

/// Waits for requests until the person leaves.
pub(super) async fn run(home: &ApproverHome, context: &Context) -> Result<(), Failure> {
    if !context.interactive {
        return Err(Failure::usage(
            "`hearth approver run` needs a terminal",
            "decide single requests with `hearth approver allow ID` or `deny ID`",
        ));
    }
    home.approver_key()?;
    let mut keyboard = Keyboard::open()?;
    let mut backoff = Backoff::default();
    loop {
        let failure = match super::connect(home, context).await {
            Ok(client) => {
                let since = std::time::Instant::now();
                context.out.line("Waiting for requests; Ctrl-C leaves.")?;
                match attend(home, client, &mut keyboard, context).await {
                    Ok(()) => return Ok(()),
                    Err(failure) => {
                        backoff.connection_ended(since.elapsed().as_millis() as u64);
                        failure
                    }
                }
            }
            Err(failure) => failure,
        };
        if failure.code() != Exit::Unreachable as u8 {
            return Err(failure);
        }
        let random = hearth_shared::identity::random::<8>().map_or(0, u64::from_le_bytes);
        let pause = Duration::from_millis(backoff.next_delay_ms(random)).min(LONGEST_PAUSE);
        context.out.line(format!("{}; trying again in {} s", failure.message(), pause.as_secs().max(1)))?;
        tokio::select! {
            () = tokio::time::sleep(pause.max(Duration::from_secs(1))) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// One connection's time.
async fn attend(
    home: &ApproverHome,
    mut client: Client,
    keyboard: &mut Keyboard,
    context: &Context,
) -> Result<(), Failure> {
    let pending = client.call("approval.list", json!({})).await?;
    let mut waiting: VecDeque<String> = pending["approvals"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|a| a["id"].as_str().map(str::to_owned))
        .collect();
    let mut shown: Option<Card> = None;
    loop {
        if shown.is_none()
            && let Some(id) = waiting.pop_front()
        {
            match open(home, &mut client, &id).await {
                Ok(card) if card.told.status != "pending" => continue,
                Ok(card) => {
                    keyboard.print(context.out, &format!("\n{}", card.text(now_ms())))?;
                    if card.signed.is_some() {
                        shown = Some(card);
                    } else {
                        keyboard.print(context.out, &format!("{}\n", unsigned(&card)))?;
                    }
                    continue;
                }
                Err(failure) if failure.code() == Exit::Unreachable as u8 => return Err(failure),
                Err(failure) => keyboard.print(context.out, &format!("{failure}\n"))?,
            }
        }
        if let Some(card) = &shown {
            keyboard.prompt(approve::question(card.offers_always()), false);
        }
        tokio::select! {
            incoming = client.next() => {
                let Incoming::Event(event) = incoming? else { continue };
                let payload = event.payload.unwrap_or_default();
                let id = payload["id"].as_str().unwrap_or_default().to_owned();
                match event.event.as_str() {
                    "exec.approval.requested" => waiting.push_back(id),
                    "exec.approval.resolved" => {
                        waiting.retain(|w| *w != id);
                        if shown.as_ref().is_some_and(|c| c.told.id == id) {
                            shown = None;
                            let by = safe_line(payload["resolvedBy"].as_str().unwrap_or("nobody in time"));
                            keyboard.print(context.out, &format!("approval {} was settled by {by}; press Enter\n", short(&id)))?;
                        }
                    }
                    _ => {}
                }
            }
            line = keyboard.next() => match line {
                Line::Interrupted | Line::End => return Ok(()),
                Line::Text(text) => {
                    if let Some(card) = shown.take() {
                        match approve::parse_answer(&text, card.offers_always()) {
                            None => shown = Some(card),
                            Some(decision) => settle(home, &mut client, &card, decision, &mut waiting, context).await?,
                        }
                    }
                }
            },
            _ = tokio::signal::ctrl_c(), if !keyboard.is_open() => return Ok(()),
        }
    }
}

async fn settle(
    home: &ApproverHome,
    client: &mut Client,
    card: &Card,
    decision: Decision,
    waiting: &mut VecDeque<String>,
    context: &Context,
) -> Result<(), Failure> {
    match sign(home, client, card, decision).await {
        Ok(Some(_)) => context.out.line(format!("signed: {}", decision.as_str())),
        Ok(None) => {
            waiting.push_front(card.told.id.clone());
            context.out.line("What would run has changed since; look again.")
        }
        Err(failure) if failure.code() == Exit::Unreachable as u8 => Err(failure),
        Err(failure) => context.out.line(failure.to_string()),
    }
}
