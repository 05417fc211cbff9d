//! `hearth demo`: a hub, a node with a simulated board, and a chat, on a fresh machine.
//!
//! Nothing is faked: the hub and the node are processes of their own, the node pairs with a setup code over
//! TLS, and every picture and switched pin needs its approval. Only the board is simulated.

mod children;
mod place;

use super::approve::Policy;
use super::chat::{Outcome, Talk, TalkOptions};
use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::keyboard::Keyboard;
use crate::home::Home;
use children::Children;
use place::Place;
use serde_json::json;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Name of the node.
const NODE: &str = "garage";
/// How long hub and node may take to be ready.
const READY: Duration = Duration::from_secs(30);
/// How long one request may take when nobody is at the terminal.
const REQUEST: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Say this, print the reply, and end
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    /// What to do when the request needs a yes [default: ask]
    #[arg(long, value_enum, default_value_t = Policy::Ask)]
    approve: Policy,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    if context.json && arguments.say.is_none() {
        return Err(Failure::usage(
            "--json needs --say",
            "give the message: `hearth demo --json --say TEXT`",
        ));
    }
    context.block_on(async {
        let place = Place::choose(context)?;
        let result = tokio::select! {
            result = show(arguments, context, &place) => result,
            () = asked_to_end() => Err(Failure::failed("stopped", "start it again with `hearth demo`")),
        };
        place.leave();
        result
    })
}

/// SIGTERM or a closed terminal: the children must not stay behind. Ctrl-C belongs to the chat once it
/// runs, and ends the demo before that.
async fn asked_to_end() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = wait(SignalKind::terminate()) => {}
        _ = wait(SignalKind::hangup()) => {}
    }
}

async fn show(arguments: &Arguments, context: &Context, place: &Place) -> Result<(), Failure> {
    let quiet = context.json;
    let tell = |text: &str| if quiet { Ok(()) } else { context.out.line(text) };
    let mut children = Children::default();
    let result = async {
        let start = async {
            children.start_hub(place).await?;
            let home = Home::locate(Some(place.hub()));
            let target = Target::local(&home)?;
            let mut client = Client::connect(&target, Access::ASKABLE).await?;
            tell(&format!("hub     runs, state in {}", place.hub().display()))?;
            pair_and_run(&mut children, &mut client, place).await?;
            place.set_ready();
            tell(&format!("node    `{NODE}` runs and is paired: camera, relay pump, button, temperature sensor (simulated)"))?;
            if arguments.say.is_none() {
                let link = client.call("hearth.page.link", json!({})).await?;
                tell(&format!("page    {} (lets the first browser in)", link["urls"][0].as_str().unwrap_or_default()))?;
            }
            Ok::<_, Failure>((home, target, client))
        };
        let (home, target, client) = tokio::select! {
            started = tokio::time::timeout(READY, start) => started.map_err(|_| {
                Failure::failed(
                    format!("hub and node were not ready within {} s", READY.as_secs()),
                    format!("look at {} and {}", place.hub().join("hub.log").display(), place.node_log().display()),
                )
            })??,
            _ = tokio::signal::ctrl_c() => return Err(Failure::failed("stopped", "start it again with `hearth demo`")),
        };
        let context = Context { home, explicit_home: None, json: context.json, interactive: context.interactive, out: context.out };
        talk(arguments, &context, &target, client).await
    }
    .await;
    children.end().await;
    result
}

/// Pairs the node through a setup code, starts it, and waits until the hub sees it.
async fn pair_and_run(children: &mut Children, client: &mut Client, place: &Place) -> Result<(), Failure> {
    if !place.is_paired() {
        let window = client.call("hearth.pair.open", json!({ "ttlMs": 60_000 })).await?;
        let code = window["code"].as_str().unwrap_or_default().to_owned();
        children.pair_node(place, &code, NODE).await?;
        client.call("hearth.pair.close", json!({})).await?;
    }
    children.start_node(place)?;
    loop {
        let list = client.call("node.list", json!({})).await?;
        let nodes = list["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        if nodes.iter().any(|n| n["displayName"] == NODE && n["connected"] == true) {
            return Ok(());
        }
        children.check_node(place)?;
        // Presence tells of it at once; the pause is for the case that it came before.
        let _ = tokio::time::timeout(Duration::from_millis(200), client.next()).await;
    }
}

async fn talk(
    arguments: &Arguments,
    context: &Context,
    target: &Target,
    client: Client,
) -> Result<(), Failure> {
    // Without a terminal one request can still be answered, unless it needs a yes.
    let asks = arguments.approve == Policy::Ask && context.interactive;
    let keyboard = if arguments.say.is_none() || asks { Some(Keyboard::open()?) } else { None };
    let options = TalkOptions {
        session: "main".into(),
        policy: Some(arguments.approve),
        once: arguments.say.clone(),
        quiet: context.json,
    };
    if arguments.say.is_none() && context.interactive {
        context
            .out
            .line("Try: take a picture in the garage   how warm is it?   turn the pump on for 5 seconds")?;
    }
    let talk = Talk::new(client, target, Access::ASKABLE, context, keyboard, options).run();
    let outcome = if arguments.say.is_some() && !asks {
        tokio::time::timeout(REQUEST, talk).await.map_err(|_| {
            Failure::failed(
                format!("no answer within {} s", REQUEST.as_secs()),
                "say it again without --say to see more",
            )
        })??
    } else {
        talk.await?
    };
    match outcome {
        Some(outcome) => finish(&outcome, context),
        None => Ok(()),
    }
}

/// The end of `--say`: 0, or 1 with the reason.
fn finish(outcome: &Outcome, context: &Context) -> Result<(), Failure> {
    if context.json {
        context.out.json(&json!({
            "ok": outcome.failure.is_none(),
            "reply": outcome.text,
            "media": outcome.media,
            "error": outcome.failure.as_ref().map(Failure::message),
        }))?;
    }
    match &outcome.failure {
        None => Ok(()),
        Some(failure) => Err(Failure::failed(failure.message(), failure.next())),
    }
}
