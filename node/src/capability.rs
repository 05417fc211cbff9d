//! What the board can do: cameras, pins, sensors, the system.
//!
//! [`Board`] is the seam: real drivers and the simulated board stand behind it, chosen by configuration.

use crate::recorder::Recorder;
use hearth_shared::command::Invocation;
use hearth_shared::error::CommandError;
use hearth_shared::link::{PartDecl, SensorDecl};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
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
    /// Facts for the challenge; compared again when the grant comes.
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

/// The board. (Fields by its owner.)
#[derive(Debug)]
pub struct Board {}

impl Board {
    /// Opens what the configuration names; must be called inside the runtime. `name` is the node's
    /// name, which a simulated camera writes into its pictures.
    ///
    /// # Errors
    /// When a configured part cannot be used; the message names the part and the key in the file.
    pub fn open(
        _config: &crate::config::BoardConfig,
        _name: &str,
        _state_dir: &std::path::Path,
        _recorder: Arc<dyn Recorder>,
    ) -> Result<Arc<Self>, CommandError> {
        todo!()
    }

    /// What the board has now.
    pub fn inventory(&self) -> Inventory {
        todo!()
    }

    /// Resolves a command to facts. No effect on the world.
    ///
    /// # Errors
    /// `NOT_FOUND` for an unknown part, `HARDWARE` for a broken one.
    pub async fn prepare(&self, _invocation: Invocation) -> Result<Prepared, CommandError> {
        todo!()
    }

    /// Runs it. Cancelling stops it where that is possible; a program's whole process group is killed.
    ///
    /// # Errors
    /// The command's own.
    pub async fn run(
        &self,
        _prepared: Prepared,
        _timeout: Duration,
        _cancel: CancellationToken,
    ) -> Result<Output, CommandError> {
        todo!()
    }

    /// Samples sensors by their intervals and watches inputs until cancelled; then puts outputs into
    /// their safe states.
    pub async fn record(&self, _cancel: CancellationToken) {
        todo!()
    }
}
