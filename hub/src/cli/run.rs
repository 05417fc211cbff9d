//! `hearth run`: the hub itself, started in stages so that a fault is told before anything listens.

use super::context::Context;
use super::error::Failure;
use crate::config::{Config, check};
use crate::gateway::{Gateway, GatewayError};
use crate::home::write_private;
use crate::hub::Hub;
use crate::logging;
use sd_notify::NotifyState;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long clients may take to be told and closed.
const GATEWAY_GRACE: Duration = Duration::from_secs(3);
/// Threads that run tasks; the database has one of its own.
const WORKERS: usize = 2;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Port to listen on; 0 takes any free one [default: `gateway.port`, 18789]
    #[arg(long, env = "HEARTH_PORT", value_name = "PORT", hide_env_values = true)]
    port: Option<u16>,
    /// Address to listen on; may be given several times [default: `gateway.bind`, this machine only]
    #[arg(long, value_name = "ADDRESS")]
    bind: Vec<IpAddr>,
    /// Log to the file only
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let started = Instant::now();
    let mut config = context.config()?;
    if let Some(port) = arguments.port {
        config.gateway.port = port;
    }
    if !arguments.bind.is_empty() {
        config.gateway.bind.clone_from(&arguments.bind);
        if let Some(problem) = check::problems(&config, "").first() {
            return Err(Failure::usage(format!("--bind: {}", problem.message), "see `hearth run --help`"));
        }
    }
    context.home.create()?;
    logging::start(&context.home, &config.log, arguments.quiet).map_err(|e| {
        Failure::failed(e.to_string(), "check the `[log]` section with `hearth config check`")
    })?;
    let _lock = context.home.lock()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().map_err(
            |e| Failure::failed(format!("cannot start: {e}"), "check the limits on threads and memory"),
        )?;
    runtime.block_on(serve(config, context, started))
}

/// Build, bind, announce, run, drain.
async fn serve(config: Config, context: &Context, started: Instant) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("cannot watch signals: {e}"), "try again");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let hub = Hub::open(context.home.clone(), config).await?;
    let listeners = Gateway::bind(&hub.config.gateway).await.map_err(not_bound)?;
    let addresses = listeners.addresses().to_vec();
    let stop = CancellationToken::new();
    let mut gateway = tokio::spawn(Gateway::run(hub.clone(), listeners, stop.clone()));
    announce(&addresses, context, started)?;
    let reason = tokio::select! {
        _ = terminate.recv() => "terminated",
        _ = interrupt.recv() => "interrupted",
        ended = &mut gateway => {
            remove_address(context);
            let why = match ended {
                Ok(Ok(())) => "it ended by itself".into(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            hub.drain("the gateway ended").await;
            return Err(Failure::failed(format!("the gateway stopped: {why}"), "look at `hearth logs`, then start it again"));
        }
    };
    // Nobody must take this hub for running from here on.
    remove_address(context);
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    let drain = async {
        stop.cancel();
        let _ = tokio::time::timeout(GATEWAY_GRACE, gateway).await;
        hub.drain(reason).await;
    };
    tokio::select! {
        () = drain => {}
        // Asked twice: at once.
        _ = terminate.recv() => tracing::warn!("cut off"),
        _ = interrupt.recv() => tracing::warn!("cut off"),
    }
    tracing::info!("stopped");
    Ok(())
}

fn not_bound(error: GatewayError) -> Failure {
    let next = match &error {
        GatewayError::Bind { source, .. } => match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another program has this port: stop it, or take another with --port"
            }
            std::io::ErrorKind::PermissionDenied => {
                "ports below 1024 are the system's: take another with --port"
            }
            std::io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: correct `gateway.bind`"
            }
            _ => "correct `gateway.bind` and `gateway.port`, then check with `hearth config check`",
        },
        _ => "correct `[gateway]`, then check with `hearth config check`",
    };
    Failure::failed(error.to_string(), next)
}

/// Says where the hub listens: to people, to programs, to this machine's command line, to systemd.
fn announce(addresses: &[SocketAddr], context: &Context, started: Instant) -> Result<(), Failure> {
    let lines: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    // A card without space must not keep the hub from answering: the command line then looks into the
    // configuration.
    if let Err(error) = write_private(&context.home.address(), (lines.join("\n") + "\n").as_bytes()) {
        tracing::warn!(%error, "the address cannot be noted");
    }
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(addresses = lines.join(", "), ms, "listening");
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    if context.json {
        return context.out.json_line(&json!({
            "event": "listening", "addresses": lines, "pid": std::process::id(), "ms": ms,
        }));
    }
    context.out.line(format!("Hearth {} listens on {}", hearth_shared::VERSION, lines.join(", ")))
}

fn remove_address(context: &Context) {
    if let Err(error) = std::fs::remove_file(context.home.address()) {
        tracing::debug!(%error, "hub.addr cannot be removed");
    }
}
