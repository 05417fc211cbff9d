//! Pins: states, pulses, edges.

mod pin;
mod simulated;

use super::{Output, answer};
use crate::config::board::{Driver, PinConfig};
use crate::recorder::Recorder;
use futures_util::future::{BoxFuture, join_all};
use hearth_shared::command::gpio::{Direction, ListResult, PinState, PulseParams, WriteParams};
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

    pub(super) fn read_facts(&self, id: &str) -> Result<Value, CommandError> {
        Ok(self.find(id)?.facts())
    }

    pub(super) fn write_facts(&self, id: &str) -> Result<Value, CommandError> {
        let pin = self.find(id)?;
        pin.check_output()?;
        Ok(pin.facts())
    }

    pub(super) fn pulse_facts(&self, params: &PulseParams) -> Result<Value, CommandError> {
        let pin = self.find(&params.pin)?;
        pin.check_pulse(params.duration_ms)?;
        Ok(pin.facts())
    }

    /// All pins; a broken one shows its last known state.
    pub(super) fn states(&self) -> Vec<PinState> {
        self.pins.iter().map(|p| p.last_state()).collect()
    }

    pub(super) fn list(&self) -> Result<Output, CommandError> {
        answer(&ListResult { pins: self.states() })
    }

    pub(super) fn read(&self, id: &str) -> Result<Output, CommandError> {
        answer(&self.find(id)?.state()?)
    }

    pub(super) fn write(&self, params: &WriteParams) -> Result<Output, CommandError> {
        answer(&self.find(&params.pin)?.write(params.value, &self.recorder)?)
    }

    pub(super) fn pulse(&self, params: &PulseParams) -> Result<Output, CommandError> {
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
