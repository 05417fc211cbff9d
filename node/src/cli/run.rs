//! `hearth-node run`

use super::open::{Opened, open};
use super::{Context, Failure, status};
use crate::config::Config;
use crate::control::{self, Answer, Request};
use crate::identity::{HubRecord, load_key};
use crate::link::{self, LinkStatus};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long running requests may take to end when the node stops.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the board may take to put its outputs into their safe states.
const SAFE_STATES: Duration = Duration::from_secs(5);

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Use a simulated board: a camera, a relay, a button, a temperature sensor
    #[arg(long)]
    simulate: bool,
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`Failure`]; 3 when the node is not paired.
pub(super) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let Some(mut hub) = HubRecord::load(&context.home)? else { return Err(Failure::not_paired()) };
    if load_key(&context.home)?.is_none() {
        // A new one would be a stranger to the hub, and to this node's own audit log.
        return Err(Failure::new(
            3,
            "node.key is missing although this node is paired; put it back, or run `hearth-node reset`, then pair \
             again",
        ));
    }
    let opened = open(context, arguments.simulate)?;
    if opened.held.guard.hub() != Some(hub.id()) {
        return Err(Failure::new(
            3,
            "hub.json names another hub than the one whose approvers were confirmed here; run `hearth-node \
             reset`, then pair again",
        ));
    }
    opened.held.guard.record_start()?;
    let known = std::mem::take(&mut hub.addresses);
    hub.addresses.clone_from(&opened.held.config.hub.addresses);
    hub.addresses.extend(known.into_iter().filter(|a| !opened.held.config.hub.addresses.contains(a)));
    serve(context, &opened, hub).await
}

async fn serve(context: &Context, opened: &Opened, hub: HubRecord) -> Result<(), Failure> {
    let Opened { held, outbox, node } = opened;
    let (mut term, mut int, mut hup) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    let link = link::Context::new(held.key.clone(), held.clock, Arc::new(node.clone()), outbox.clone());
    let (status, watched) = watch::channel(LinkStatus::default());
    let stop = link.stop.clone();
    let recording = CancellationToken::new();
    let recorder = {
        let (board, recording) = (node.board.clone(), recording.clone());
        tokio::spawn(async move { board.record(recording).await })
    };
    let server = control::Server::bind(&context.home)?;
    let controlled = {
        let (home, node, outbox, hub) = (context.home.clone(), node.clone(), outbox.clone(), hub.clone());
        let changed = link.changed.clone();
        let answer = move |request: Request| {
            let (home, node, outbox, hub) = (home.clone(), node.clone(), outbox.clone(), hub.clone());
            let (changed, watched) = (changed.clone(), watched.clone());
            async move {
                match request {
                    Request::Status => {
                        let link = watched.borrow().now();
                        Answer::Ok(status::running(&home, &node, &outbox, &hub, &link).await)
                    }
                    Request::Ledger { query } => {
                        let guard = node.guard.clone();
                        let work = move || control::ledger::consult(&guard, &query);
                        match tokio::task::spawn_blocking(work).await {
                            Ok(Ok(value)) => Answer::Ok(value),
                            Ok(Err(error)) => Answer::Error(error),
                            Err(error) => Answer::Error(error.to_string()),
                        }
                    }
                    Request::Approvers { change } => {
                        let guard = node.guard.clone();
                        let work = move || control::change_approvers(&guard, change);
                        let answer = match tokio::task::spawn_blocking(work).await {
                            Ok(Ok(value)) => Answer::Ok(value),
                            Ok(Err(error)) => Answer::Error(error.to_string()),
                            Err(error) => Answer::Error(error.to_string()),
                        };
                        changed.notify_one();
                        answer
                    }
                }
            }
        };
        tokio::spawn(server.serve(stop.clone(), answer))
    };
    tracing::info!(
        name = held.config.name.as_deref().unwrap_or_default(),
        id = %held.key.device_id().short(),
        hub = %hub.name,
        version = hearth_shared::VERSION,
        "the node runs"
    );
    {
        let keep = link::keep(&link, &hub, &status);
        tokio::pin!(keep);
        loop {
            tokio::select! {
                () = &mut keep => break,
                _ = term.recv() => break,
                _ = int.recv() => break,
                _ = hup.recv() => {
                    reload(&context.home.config(), held, node);
                    link.changed.notify_one();
                }
            }
        }
        tracing::info!("stopping");
        stop.cancel();
        // Running requests end first, so that their results still reach the hub before the goodbye.
        tokio::join!(node.dispatcher.shutdown(PATIENCE), keep_to_end(keep, &status));
    }
    link.tasks.close();
    if tokio::time::timeout(PATIENCE, link.tasks.wait()).await.is_err() {
        tracing::warn!("requests were still running at the end; the journal has them");
    }
    recording.cancel();
    if tokio::time::timeout(SAFE_STATES, recorder).await.is_err() {
        tracing::error!("the board did not reach its safe states in time");
    }
    if tokio::time::timeout(PATIENCE, controlled).await.is_err() {
        tracing::debug!("control socket did not close in time");
    }
    let outbox = outbox.clone();
    tokio::task::spawn_blocking(move || outbox.close()).await.map_err(|e| Failure::new(1, e.to_string()))?;
    tracing::info!("stopped");
    Ok(())
}

/// Polls the link to its end, unless it has ended already.
async fn keep_to_end(keep: impl Future<Output = ()>, status: &watch::Sender<LinkStatus>) {
    if status.borrow().is_stopped() {
        return;
    }
    keep.await;
}

/// SIGHUP: `[policy]` is read again. What does not fit is said and the old rules stay.
fn reload(path: &Path, held: &super::open::Held, node: &link::Node) {
    let fresh = match Config::load(path) {
        Ok(mut fresh) => {
            fresh.name.get_or_insert_with(crate::identity::host_name);
            fresh.board.simulate |= held.config.board.simulate;
            fresh
        }
        Err(error) => {
            tracing::error!(%error, "the configuration is not usable; the rules stay as they are");
            return;
        }
    };
    let old = &held.config;
    let restart = fresh.board != old.board
        || (fresh.name.as_ref(), &fresh.hub, &fresh.outbox) != (old.name.as_ref(), &old.hub, &old.outbox)
        || fresh.trust_clock != old.trust_clock;
    if restart {
        tracing::warn!("only [policy] is read again while the node runs; restart it for the other changes");
    }
    let config = Config { policy: fresh.policy, file: fresh.file, ..held.config.clone() };
    match node.guard.reload(&config) {
        Ok(()) => tracing::info!("the rules were read again"),
        Err(error) => tracing::error!(%error, "the rules are not usable; the old ones stay"),
    }
}
