//! `hearth run`: the hub itself, started in stages so that a fault is told before anything listens.

use super::context::Context;
use super::error::Failure;
use crate::config::check;
use crate::home::write_private;
use crate::hub::Hub;
use crate::logging;
use std::net::IpAddr;
use std::time::Instant;

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
    runtime.block_on(async {
        let hub = Hub::open(context.home.clone(), config).await?;
        hub.drain("stopped").await;
        tracing::info!(ms = started.elapsed().as_millis() as u64, "listening");
        write_private(&context.home.address(), b"")?;
        Ok(())
    })
}
