//! What the board can do: cameras, pins, sensors, the system.
//!
//! [`Board`] is the seam: drivers stand behind the small traits [`camera::Camera`], [`gpio::Line`] and
//! [`sensor::Sensor`], chosen by configuration. To add a command, give it a line in the table of
//! [`hearth_shared::command`] and implement [`Handle`] for its parameters in the file of its family.

pub mod camera;
pub mod gpio;
pub mod sensor;
pub mod system;

use crate::config::BoardConfig;
use crate::recorder::Recorder;
use camera::Cameras;
use gpio::Gpio;
use hearth_shared::command::{Invocation, SPECS};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::link::{PartDecl, SensorDecl};
use sensor::Sensors;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use system::System;
use tokio_util::sync::CancellationToken;

/// What the board has; the guard adds needs and makes the declaration from it. Lists sorted by id.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Names of commands that work here.
    pub commands: Vec<&'static str>,
    /// Cameras.
    pub cameras: Vec<PartDecl>,
    /// Pins.
    pub pins: Vec<PartDecl>,
    /// Sensors.
    pub sensors: Vec<SensorDecl>,
    /// Board model, or empty.
    pub model: String,
    /// Simulated board.
    pub simulated: bool,
}

/// A command made ready: what it comes to on this board, and what running it needs.
#[derive(Debug)]
pub struct Prepared {
    /// The command.
    pub invocation: Invocation,
    /// Facts for the challenge; compared again when the grant comes. They hold nothing that changes by
    /// itself: no time, no measured value, no state of a pin.
    pub facts: Value,
    /// Whether "allow always" may be offered (never for scripts or writable programs).
    pub always_possible: bool,
    /// For `system.run`: the executable that was hashed, open.
    pub executable: Option<std::fs::File>,
}

/// What a command gave.
#[derive(Debug, Default)]
pub struct Output {
    /// Its result as JSON text.
    pub result: String,
    /// Bytes that travel beside it.
    pub attachments: Vec<Bytes>,
}

/// An attachment.
#[derive(Debug)]
pub struct Bytes {
    /// `image/jpeg` and the like.
    pub mime: String,
    /// The bytes.
    pub data: Vec<u8>,
}

/// The board.
#[derive(Debug)]
pub struct Board {
    cameras: Cameras,
    gpio: Arc<Gpio>,
    sensors: Sensors,
    system: System,
    simulated: bool,
}

impl Board {
    /// Opens what the configuration names; outputs go into their safe states. Must be called inside
    /// the runtime. `name` is the node's name, which a simulated camera writes into its pictures.
    ///
    /// # Errors
    /// When a configured part cannot be used; the message names the part and the key in the file.
    pub fn open(
        config: &BoardConfig,
        name: &str,
        state_dir: &Path,
        recorder: Arc<dyn Recorder>,
    ) -> Result<Arc<Self>, CommandError> {
        Self::open_under(Path::new("/"), config, name, state_dir, recorder)
    }

    /// As [`Board::open`], with another place for `/sys`, `/proc` and `/run`.
    fn open_under(
        root: &Path,
        config: &BoardConfig,
        name: &str,
        state_dir: &Path,
        recorder: Arc<dyn Recorder>,
    ) -> Result<Arc<Self>, CommandError> {
        let config = config.resolved();
        config.check().map_err(|why| {
            CommandError::new(ErrorCode::InvalidParams, format!("[board] in node.toml: {why}"))
        })?;
        let gpio = Arc::new(Gpio::open(&config.pins, state_dir, recorder.clone())?);
        Ok(Arc::new(Self {
            cameras: Cameras::open(&config.cameras, name, &gpio)?,
            sensors: Sensors::open(&config, root, state_dir, recorder)?,
            system: System::open(&config, root, state_dir),
            gpio,
            simulated: config.simulate,
        }))
    }

    /// What the board has now.
    pub fn inventory(&self) -> Inventory {
        let (cameras, pins) = (self.cameras.declared(), self.gpio.declared());
        let sensors = self.sensors.declared();
        let works = |name: &&str| match name.split('.').next() {
            Some("camera") => !cameras.is_empty(),
            Some("gpio") => !pins.is_empty(),
            Some("sensor") => !sensors.is_empty(),
            _ => self.system.offers(name),
        };
        Inventory {
            commands: SPECS.iter().map(|spec| spec.name).filter(works).collect(),
            model: if self.simulated { "Simulated board".into() } else { self.system.model() },
            simulated: self.simulated,
            cameras,
            pins,
            sensors,
        }
    }

    /// Resolves a command to facts. No effect on the world.
    ///
    /// # Errors
    /// `NOT_FOUND` for an unknown part, `INVALID_PARAMS` for what a part cannot do, `HARDWARE` for a
    /// broken one.
    pub async fn prepare(&self, invocation: Invocation) -> Result<Prepared, CommandError> {
        if !self.system.offers(invocation.name()) {
            return Err(self.system.not_offered(invocation.name()));
        }
        // One arm a command; without a `Handle` for its parameters this does not compile.
        macro_rules! arms {
            ($($command:ident)+) => {
                match &invocation {
                    $(Invocation::$command(params) => Handle::prepare(self, params).await?,)+
                }
            };
        }
        let Ready { facts, always_possible, executable } = hearth_shared::for_each_command!(arms);
        Ok(Prepared { invocation, facts, always_possible, executable })
    }

    /// Runs it. Cancelling stops it where that is possible; a program's whole process group is killed.
    ///
    /// # Errors
    /// The command's own.
    pub async fn run(
        &self,
        prepared: Prepared,
        timeout: Duration,
        cancel: CancellationToken,
    ) -> Result<Output, CommandError> {
        let call = Call { facts: prepared.facts, executable: prepared.executable, timeout, cancel };
        macro_rules! arms {
            ($($command:ident)+) => {
                match prepared.invocation {
                    $(Invocation::$command(params) => Handle::run(self, params, call).await,)+
                }
            };
        }
        hearth_shared::for_each_command!(arms)
    }

    /// Samples sensors by their intervals and watches inputs until cancelled; then puts outputs into
    /// their safe states.
    pub async fn record(&self, cancel: CancellationToken) {
        tokio::join!(self.sensors.record(&cancel), self.gpio.watch(&cancel), cancel.cancelled());
        self.gpio.stop();
    }
}

/// What the board does with one command, told apart by its parameters. The families implement it.
trait Handle<P> {
    /// Resolves parameters to facts, without an effect.
    async fn prepare(&self, params: &P) -> Result<Ready, CommandError>;

    /// Does it.
    async fn run(&self, params: P, call: Call) -> Result<Output, CommandError>;
}

/// What [`Handle::prepare`] found out; see [`Prepared`].
#[derive(Debug)]
struct Ready {
    facts: Value,
    always_possible: bool,
    executable: Option<std::fs::File>,
}

impl From<Value> for Ready {
    fn from(facts: Value) -> Self {
        Self { facts, always_possible: true, executable: None }
    }
}

impl Ready {
    /// For a command that says everything by its parameters.
    fn plain() -> Self {
        json!({}).into()
    }
}

/// The circumstances of one run.
#[derive(Debug)]
struct Call {
    facts: Value,
    executable: Option<std::fs::File>,
    timeout: Duration,
    cancel: CancellationToken,
}

impl Call {
    /// Runs `work` unless it is cancelled or takes too long; then `work` is dropped.
    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        tokio::select! {
            // What is done is told, even when it was cancelled in the same moment.
            biased;
            result = tokio::time::timeout(self.timeout, work) => result.unwrap_or_else(|_| {
                let what = format!("not done within the limit of {} ms", self.timeout.as_millis());
                Err(CommandError::new(ErrorCode::Timeout, what))
            }),
            () = self.cancel.cancelled() => {
                Err(CommandError::new(ErrorCode::Cancelled, "withdrawn by the caller"))
            }
        }
    }
}

/// Runs what may block on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommandError> + Send + 'static,
) -> Result<T, CommandError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(stopping()))
}

fn answer(result: &impl Serialize) -> Result<Output, CommandError> {
    let fault = |e: serde_json::Error| CommandError::new(ErrorCode::Internal, format!("result: {e}"));
    Ok(Output { result: serde_json::to_string(result).map_err(fault)?, attachments: Vec::new() })
}

fn stopping() -> CommandError {
    CommandError::new(ErrorCode::Busy, "the node is stopping; try again when it is back")
}

fn not_found<'a>(kind: &str, id: &str, known: impl Iterator<Item = &'a str>) -> CommandError {
    let known: Vec<&str> = known.collect();
    let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
    let id = hearth_shared::identity::display_safe(id, 64);
    CommandError::new(ErrorCode::NotFound, format!("no {kind} `{id}` on this node; it has: {known}"))
}

fn no_driver(kind: &str, id: &str) -> CommandError {
    CommandError::new(
        ErrorCode::InvalidParams,
        format!(
            "[[board.{kind}]] `{id}` in node.toml: say `driver = \"simulated\"`, \
             or `simulate = true` under [board] for the whole board"
        ),
    )
}

#[cfg(test)]
mod tests;
mod wave;
