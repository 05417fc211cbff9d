//! Pins without wires: outputs remember what they were set to, inputs follow a file.

use super::Line;
use crate::config::board::PinConfig;
use futures_util::future::{BoxFuture, FutureExt};
use hearth_shared::command::gpio::Direction;
use hearth_shared::error::{CommandError, ErrorCode};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often an input's file is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Opens a simulated line. An input `button` follows the file `sim/button` in the state directory,
/// which holds `0` or `1` (the electrical level) and is made with the level of "off" when it is missing:
/// `echo 1 > ~/.local/state/hearth-node/sim/button` presses it.
pub(super) fn open(config: &PinConfig, state_dir: &Path) -> Result<Box<dyn Line>, CommandError> {
    if config.direction == Direction::Output {
        return Ok(Box::new(Output(AtomicBool::new(config.safe))));
    }
    let folder = state_dir.join("sim");
    let path = folder.join(&config.id);
    if !path.exists() {
        let level = if config.active_low { "1\n" } else { "0\n" };
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, level))
            .map_err(|e| broken(&path, &e))?;
    }
    Ok(Box::new(Input { path, active_low: config.active_low }))
}

#[derive(Debug)]
struct Output(AtomicBool);

impl Line for Output {
    fn place(&self) -> String {
        "simulated".into()
    }
    fn get(&self) -> Result<bool, CommandError> {
        Ok(self.0.load(Ordering::Relaxed))
    }
    fn set(&self, on: bool) -> Result<(), CommandError> {
        self.0.store(on, Ordering::Relaxed);
        Ok(())
    }
    fn changed(&self, _known: bool) -> BoxFuture<'_, Result<bool, CommandError>> {
        std::future::pending().boxed()
    }
}

#[derive(Debug)]
struct Input {
    path: PathBuf,
    active_low: bool,
}

impl Line for Input {
    fn place(&self) -> String {
        "simulated".into()
    }

    fn get(&self) -> Result<bool, CommandError> {
        let mut text = String::new();
        std::fs::File::open(&self.path)
            .and_then(|file| file.take(16).read_to_string(&mut text))
            .map_err(|e| broken(&self.path, &e))?;
        match text.trim() {
            "1" => Ok(!self.active_low),
            // An editor or `>` empties a file before it writes.
            "0" | "" => Ok(self.active_low),
            _ => Err(CommandError::new(
                ErrorCode::Hardware,
                format!("{} must hold 0 or 1", self.path.display()),
            )),
        }
    }

    fn set(&self, _on: bool) -> Result<(), CommandError> {
        Err(CommandError::new(ErrorCode::InvalidParams, "an input cannot be switched"))
    }

    fn changed(&self, known: bool) -> BoxFuture<'_, Result<bool, CommandError>> {
        async move {
            loop {
                tokio::time::sleep(POLL).await;
                match self.get() {
                    Ok(value) if value == known => {}
                    changed => return changed,
                }
            }
        }
        .boxed()
    }
}

fn broken(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::new(ErrorCode::Hardware, format!("simulated input {}: {error}", path.display()))
}
