//! Pins: states, pulses, edges.

mod pin;
mod simulated;

use super::{Board, Call, Handle, Output, Ready, answer};
use crate::config::board::{Driver, PinConfig};
use crate::recorder::Recorder;
use futures_util::future::{BoxFuture, join_all};
use hearth_shared::command::gpio::{
    Direction, ListParams, ListResult, PinState, PulseParams, ReadParams, WriteParams,
};
use hearth_shared::error::CommandError;
use hearth_shared::link::PartDecl;
use pin::Pin;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One line of a GPIO chip. Values are logical (`true` is on): the driver knows about active-low, as
/// the kernel's character device does. Calls return at once.
pub trait Line: Send + Sync + std::fmt::Debug {
    /// Where the line is, for example `simulated`.
    fn place(&self) -> String;

    /// The state now.
    ///
    /// # Errors
    /// `HARDWARE`.
    fn get(&self) -> Result<bool, CommandError>;

    /// Switches an output.
    ///
    /// # Errors
    /// `HARDWARE`.
    fn set(&self, on: bool) -> Result<(), CommandError>;

    /// Waits until an input is no longer `known` and gives its new state. Cancellation safe.
    fn changed(&self, known: bool) -> BoxFuture<'_, Result<bool, CommandError>>;
}

/// The pins of the board, sorted by id. Outputs are put into their safe states when it is opened, by
/// [`Gpio::stop`], and when it is dropped.
#[derive(Debug)]
pub(super) struct Gpio {
    pins: Vec<Arc<Pin>>,
    recorder: Arc<dyn Recorder>,
}

impl Gpio {
    pub(super) fn open(
        configs: &[PinConfig],
        state_dir: &Path,
        recorder: Arc<dyn Recorder>,
    ) -> Result<Self, CommandError> {
        let mut pins = Vec::with_capacity(configs.len());
        for config in configs {
            let line: Box<dyn Line> = match config.driver {
                Some(Driver::Simulated) => simulated::open(config, state_dir)?,
                None => return Err(super::no_driver("pin", &config.id)),
            };
            pins.push(Arc::new(Pin::open(config, line)?));
        }
        pins.sort_by(|a, b| a.id().cmp(b.id()));
        Ok(Self { pins, recorder })
    }

    pub(super) fn declared(&self) -> Vec<PartDecl> {
        self.pins.iter().map(|p| p.declared()).collect()
    }

    fn find(&self, id: &str) -> Result<&Arc<Pin>, CommandError> {
        let ids = || self.pins.iter().map(|p| p.id());
        self.pins.iter().find(|p| p.id() == id).ok_or_else(|| super::not_found("pin", id, ids()))
    }

    fn read_facts(&self, id: &str) -> Result<Value, CommandError> {
        Ok(self.find(id)?.facts())
    }

    fn write_facts(&self, id: &str) -> Result<Value, CommandError> {
        let pin = self.find(id)?;
        pin.check_output()?;
        Ok(pin.facts())
    }

    fn pulse_facts(&self, params: &PulseParams) -> Result<Value, CommandError> {
        let pin = self.find(&params.pin)?;
        pin.check_pulse(params.duration_ms)?;
        Ok(pin.facts())
    }

    /// All pins; a broken one shows its last known state.
    pub(super) fn states(&self) -> Vec<PinState> {
        self.pins.iter().map(|p| p.last_state()).collect()
    }

    fn list(&self) -> Result<Output, CommandError> {
        answer(&ListResult { pins: self.states() })
    }

    fn read(&self, id: &str) -> Result<Output, CommandError> {
        answer(&self.find(id)?.state()?)
    }

    fn write(&self, params: &WriteParams) -> Result<Output, CommandError> {
        answer(&self.find(&params.pin)?.write(params.value, &self.recorder)?)
    }

    fn pulse(&self, params: &PulseParams) -> Result<Output, CommandError> {
        let length = Duration::from_millis(params.duration_ms);
        answer(&self.find(&params.pin)?.pulse(params.value, length, &self.recorder)?)
    }

    /// Reports the edges of all inputs as `gpio.edge` until cancelled.
    pub(super) async fn watch(&self, cancel: &CancellationToken) {
        let inputs = self.pins.iter().filter(|p| p.direction() == Direction::Input);
        join_all(inputs.map(|pin| pin.watch(&*self.recorder, cancel))).await;
    }

    /// Ends pulses, puts outputs into their safe states and refuses to switch from then on.
    pub(super) fn stop(&self) {
        self.pins.iter().for_each(|pin| pin.stop(Some(&*self.recorder)));
    }
}

impl Drop for Gpio {
    fn drop(&mut self) {
        self.pins.iter().for_each(|pin| pin.stop(None));
    }
}

impl Handle<ListParams> for Board {
    async fn prepare(&self, _: &ListParams) -> Result<Ready, CommandError> {
        Ok(Ready::plain())
    }
    async fn run(&self, _: ListParams, _: Call) -> Result<Output, CommandError> {
        self.gpio.list()
    }
}

impl Handle<ReadParams> for Board {
    async fn prepare(&self, params: &ReadParams) -> Result<Ready, CommandError> {
        self.gpio.read_facts(&params.pin).map(Ready::from)
    }
    async fn run(&self, params: ReadParams, _: Call) -> Result<Output, CommandError> {
        self.gpio.read(&params.pin)
    }
}

impl Handle<WriteParams> for Board {
    async fn prepare(&self, params: &WriteParams) -> Result<Ready, CommandError> {
        self.gpio.write_facts(&params.pin).map(Ready::from)
    }
    async fn run(&self, params: WriteParams, _: Call) -> Result<Output, CommandError> {
        self.gpio.write(&params)
    }
}

impl Handle<PulseParams> for Board {
    async fn prepare(&self, params: &PulseParams) -> Result<Ready, CommandError> {
        self.gpio.pulse_facts(params).map(Ready::from)
    }
    async fn run(&self, params: PulseParams, _: Call) -> Result<Output, CommandError> {
        self.gpio.pulse(&params)
    }
}
