//! A camera that looks at a drawn scene.

use super::scene::{Lamp, Scene};
use super::{Camera, Jpeg, Shot};
use crate::capability::gpio::Gpio;
use hearth_shared::error::CommandError;
use std::sync::Arc;

/// Draws a work bench under a window: the sky follows the time of day (UTC), every pin of the board
/// is a lamp that shows its state, and the node's name, the date and the time stand in the picture.
#[derive(Debug)]
pub(super) struct SimulatedCamera {
    title: String,
    gpio: Arc<Gpio>,
}

impl SimulatedCamera {
    pub(super) fn new(node: &str, id: &str, gpio: Arc<Gpio>) -> Self {
        Self { title: format!("{node} / {id}"), gpio }
    }
}

impl Camera for SimulatedCamera {
    fn device_type(&self) -> &'static str {
        "simulated"
    }

    fn shoot(&self, shot: Shot) -> Result<Jpeg, CommandError> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let lamps = self.gpio.states().into_iter().map(|p| Lamp {
            label: p.pin,
            on: p.value,
            output: p.safe.is_some(),
        });
        let scene = Scene { title: &self.title, unix_seconds: now.as_secs(), lamps: lamps.collect() };
        scene.render().encode(shot)
    }
}
