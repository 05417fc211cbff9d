//! What the board can do: cameras, pins, sensors, the system.
//!
//! [`Board`] is the seam: drivers stand behind the small traits [`camera::Camera`], [`gpio::Line`] and
//! [`sensor::Sensor`], chosen by configuration. To add a command, give it a line in the table of
//! [`hearth_shared::command`] and an arm in both `match`es below.

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
        use Invocation as I;
        if !self.system.offers(invocation.name()) {
            return Err(self.system.not_offered(invocation.name()));
        }
        let facts = match &invocation {
            I::CameraList(_) | I::GpioList(_) | I::SensorList(_) | I::SystemInfo(_) => json!({}),
            I::CameraSnap(params) => self.cameras.snap_facts(params)?,
            I::GpioRead(params) => self.gpio.read_facts(&params.pin)?,
            I::GpioWrite(params) => self.gpio.write_facts(&params.pin)?,
            I::GpioPulse(params) => self.gpio.pulse_facts(params)?,
            I::SensorRead(params) => self.sensors.facts(&params.sensor)?,
            I::SensorSubscribe(params) => self.sensors.facts(&params.sensor)?,
            I::SystemWhich(_) => json!({"path": system::TRUSTED_PATH}),
            I::SystemNotify(_) => self.system.notify_facts(),
            I::SystemRun(params) => {
                let plan = self.system.plan_run(params).await?;
                return Ok(Prepared {
                    invocation,
                    facts: plan.facts,
                    always_possible: plan.always_possible,
                    executable: Some(plan.executable),
                });
            }
        };
        Ok(Prepared { invocation, facts, always_possible: true, executable: None })
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
        use Invocation as I;
        match prepared.invocation {
            I::CameraList(_) => self.cameras.list(),
            I::CameraSnap(params) => within(timeout, &cancel, self.cameras.snap(&params)).await,
            I::GpioList(_) => self.gpio.list(),
            I::GpioRead(params) => self.gpio.read(&params.pin),
            I::GpioWrite(params) => self.gpio.write(&params),
            I::GpioPulse(params) => self.gpio.pulse(&params),
            I::SensorList(_) => self.sensors.list(),
            I::SensorRead(params) => within(timeout, &cancel, self.sensors.read(&params.sensor)).await,
            // Not cancelled half-way: the setting is on disk or it is not.
            I::SensorSubscribe(params) => self.sensors.subscribe(&params).await,
            I::SystemInfo(_) => within(timeout, &cancel, self.system.info()).await,
            I::SystemWhich(params) => self.system.which(&params).await,
            I::SystemRun(params) => {
                let executable = prepared
                    .executable
                    .ok_or_else(|| CommandError::new(ErrorCode::Internal, "system.run was not prepared"))?;
                self.system.run(&params, &prepared.facts, executable, timeout, &cancel).await
            }
            I::SystemNotify(params) => within(timeout, &cancel, self.system.notify(&params)).await,
        }
    }

    /// Samples sensors by their intervals and watches inputs until cancelled; then puts outputs into
    /// their safe states.
    pub async fn record(&self, cancel: CancellationToken) {
        tokio::join!(self.sensors.record(&cancel), self.gpio.watch(&cancel), cancel.cancelled());
        self.gpio.stop();
    }
}

/// Runs `work` unless it is cancelled or takes too long; then `work` is dropped.
async fn within<T>(
    timeout: Duration,
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::select! {
        // What is done is told, even when it was cancelled in the same moment.
        biased;
        result = tokio::time::timeout(timeout, work) => result.unwrap_or_else(|_| {
            let limit = timeout.as_millis();
            Err(CommandError::new(ErrorCode::Timeout, format!("not done within the limit of {limit} ms")))
        }),
        () = cancel.cancelled() => Err(CommandError::new(ErrorCode::Cancelled, "withdrawn by the caller")),
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
