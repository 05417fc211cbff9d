//! The machine itself: health, programs, notifications. Works on any Linux, simulated board or not.

mod host;
mod notify;
mod output;
mod process;
mod program;
mod run;

use super::{Board, Call, Handle, Output, Ready, answer};
use crate::config::BoardConfig;
use hearth_shared::command::system::{
    InfoParams, NotifyParams, NotifyResult, RunParams, WhichParams, WhichResult,
};
use hearth_shared::error::{CommandError, ErrorCode};
use host::Host;
use notify::Notifier;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Where programs are looked for: never the caller's or the node's own `PATH`.
pub const TRUSTED_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Programs that may run at once; each may hold its output limit twice in memory.
const MAX_PROGRAMS: usize = 4;

#[derive(Debug)]
pub(super) struct System {
    host: Arc<Host>,
    run: bool,
    notifier: Option<Notifier>,
    programs: Semaphore,
}

/// Makes everything this process writes private, and keeps its memory (with keys in it) and that of
/// the programs it starts out of core files. To be called once, when the process starts.
pub fn confine_process() {
    use rustix::process::{Resource, Rlimit, setrlimit, umask};
    umask(rustix::fs::Mode::from_raw_mode(0o077));
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::warn!(%error, "core files cannot be switched off");
    }
}

impl System {
    pub(super) fn open(config: &BoardConfig, root: &Path, state_dir: &Path) -> Self {
        let notifier = if !config.notify {
            None
        } else if config.simulate {
            Some(Notifier::Log)
        } else {
            Notifier::find()
        };
        Self {
            host: Arc::new(Host { root: root.into(), state_dir: state_dir.into() }),
            run: config.run,
            notifier,
            programs: Semaphore::new(MAX_PROGRAMS),
        }
    }

    /// Whether a command works here. Other families' commands do; they answer for themselves.
    pub(super) fn offers(&self, command: &str) -> bool {
        match command {
            "system.run" => self.run,
            "system.notify" => self.notifier.is_some(),
            _ => true,
        }
    }

    pub(super) fn not_offered(&self, command: &str) -> CommandError {
        if command == "system.run" {
            let why = "system.run is switched off on this node (`run = false` under [board] in node.toml); \
                       whoever keeps the node can change it";
            return CommandError::new(ErrorCode::Denied, why);
        }
        notify::unavailable()
    }

    pub(super) fn model(&self) -> String {
        self.host.model().unwrap_or_default()
    }

    async fn info(&self) -> Result<Output, CommandError> {
        let synchronized = self.host.clock_synchronized().await;
        let host = self.host.clone();
        let info = super::blocking(move || host.report(synchronized)).await?;
        answer(&info)
    }

    async fn which(&self, params: &WhichParams) -> Result<Output, CommandError> {
        let bins = params.bins.clone();
        let found = super::blocking(move || {
            let found = bins.into_iter().filter_map(|bin| {
                let path = program::find(&bin)?;
                Some((bin, path.to_string_lossy().into_owned()))
            });
            Ok(WhichResult { bins: found.collect() })
        });
        answer(&found.await?)
    }

    fn notify_facts(&self) -> Value {
        json!({"via": self.notifier.as_ref().map(Notifier::name)})
    }

    async fn notify(&self, params: &NotifyParams) -> Result<Output, CommandError> {
        let notifier = self.notifier.as_ref().ok_or_else(notify::unavailable)?;
        notifier.show(params).await?;
        answer(&NotifyResult { delivered: notifier.name().into() })
    }

    async fn plan_run(&self, params: &RunParams) -> Result<Ready, CommandError> {
        let params = params.clone();
        super::blocking(move || program::plan(&params)).await
    }

    async fn run(&self, params: &RunParams, call: Call) -> Result<Output, CommandError> {
        let Ok(_permit) = self.programs.try_acquire() else {
            return Err(CommandError::new(
                ErrorCode::Busy,
                format!(
                    "{MAX_PROGRAMS} programs are running on this node, the limit; try again when one ended"
                ),
            ));
        };
        run::run(params, call).await
    }
}

impl Handle<InfoParams> for Board {
    async fn prepare(&self, _: &InfoParams) -> Result<Ready, CommandError> {
        Ok(Ready::plain())
    }
    async fn run(&self, _: InfoParams, call: Call) -> Result<Output, CommandError> {
        call.within(self.system.info()).await
    }
}

impl Handle<WhichParams> for Board {
    async fn prepare(&self, _: &WhichParams) -> Result<Ready, CommandError> {
        Ok(json!({"path": TRUSTED_PATH}).into())
    }
    async fn run(&self, params: WhichParams, call: Call) -> Result<Output, CommandError> {
        call.within(self.system.which(&params)).await
    }
}

impl Handle<RunParams> for Board {
    async fn prepare(&self, params: &RunParams) -> Result<Ready, CommandError> {
        self.system.plan_run(params).await
    }
    async fn run(&self, params: RunParams, call: Call) -> Result<Output, CommandError> {
        self.system.run(&params, call).await
    }
}

impl Handle<NotifyParams> for Board {
    async fn prepare(&self, _: &NotifyParams) -> Result<Ready, CommandError> {
        Ok(self.system.notify_facts().into())
    }
    async fn run(&self, params: NotifyParams, call: Call) -> Result<Output, CommandError> {
        call.within(self.system.notify(&params)).await
    }
}

#[cfg(test)]
mod tests;
