//! `[board]`: the parts of a board and their drivers.

use hearth_shared::command::gpio::{Direction, MAX_PULSE_MS};
use hearth_shared::command::sensor::Quantity;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How often a simulated sensor is recorded unless it says otherwise.
pub const SIMULATED_INTERVAL_MS: u64 = 10_000;
/// How often a real sensor is recorded unless it says otherwise.
pub const REAL_INTERVAL_MS: u64 = 60_000;
/// Parts of one kind a board may have: what a declaration can carry.
pub const MAX_PARTS: usize = 64;

/// `[board]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoardConfig {
    /// A simulated board instead of the real one: every part below is simulated, and without any part
    /// below it has camera `cam0`, relay `pump`, input `button` and sensor `temperature`.
    pub simulate: bool,
    /// Whether `system.run` is offered. What may run is decided by `[policy]` and a person either way.
    pub run: bool,
    /// Whether `system.notify` is offered.
    pub notify: bool,
    /// Whether thermal zones and hwmon chips of this machine are offered as sensors (real board only).
    pub discover: bool,
    /// `[[board.camera]]`
    #[serde(rename = "camera")]
    pub cameras: Vec<CameraConfig>,
    /// `[[board.pin]]`
    #[serde(rename = "pin")]
    pub pins: Vec<PinConfig>,
    /// `[[board.sensor]]`
    #[serde(rename = "sensor")]
    pub sensors: Vec<SensorConfig>,
}

impl Default for BoardConfig {
    fn default() -> Self {
        Self {
            simulate: false,
            run: true,
            notify: true,
            discover: true,
            cameras: Vec::new(),
            pins: Vec::new(),
            sensors: Vec::new(),
        }
    }
}

/// What stands behind a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// Nothing but this program.
    Simulated,
}

/// `[[board.camera]]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CameraConfig {
    /// Stable id: 1 to 64 of `a-z 0-9 . _ -`, beginning with a letter or digit.
    pub id: String,
    /// Name for people; the id when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `front`, `back` or `unknown`.
    #[serde(default)]
    pub position: Position,
    /// What stands behind it; `simulated` on a simulated board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
}

/// Which way a camera looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Position {
    /// At the user.
    Front,
    /// Away from the user.
    Back,
    /// Not said.
    #[default]
    Unknown,
}

impl Position {
    /// As written in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Back => "back",
            Self::Unknown => "unknown",
        }
    }
}

/// `[[board.pin]]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinConfig {
    /// Stable id, as for a camera.
    pub id: String,
    /// Name for people; the id when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `input` or `output`.
    pub direction: Direction,
    /// The state of an output at start, at stop and after a pulse: `false` is off.
    #[serde(default)]
    pub safe: bool,
    /// The part is on when the line is low.
    #[serde(default)]
    pub active_low: bool,
    /// Longest pulse of an output, 1 to 86,400,000 ms.
    #[serde(default = "default_max_pulse")]
    pub max_pulse_ms: u64,
    /// What stands behind it; `simulated` on a simulated board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
}

fn default_max_pulse() -> u64 {
    MAX_PULSE_MS
}

/// `[[board.sensor]]`: a simulated sensor, a file with a number in it, or new names for one that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensorConfig {
    /// Stable id, as for a camera. The id of a found sensor changes that one's name and interval.
    pub id: String,
    /// Name for people; the id when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// Unit symbol; the quantity's usual one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// How often it is recorded, 100 to 86,400,000 ms, or 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// What stands behind it; `simulated` on a simulated board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
    /// A file that holds the value as a number, such as a 1-Wire or IIO attribute under `/sys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// What the number in the file is multiplied by; 0.001 for thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Simulated: the value it drifts around.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<f64>,
    /// Simulated: how far it goes up and down over a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swing: Option<f64>,
}

impl SensorConfig {
    /// One that says nothing but its id.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self {
            id: id.into(),
            name: None,
            quantity: None,
            unit: None,
            interval_ms: None,
            driver: None,
            path: None,
            scale: None,
            base: None,
            swing: None,
        }
    }
}

impl BoardConfig {
    /// The parts with the defaults of a simulated board filled in and every driver named.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let mut board = self.clone();
        if !board.simulate {
            return board;
        }
        if board.cameras.is_empty() && board.pins.is_empty() && board.sensors.is_empty() {
            board.add_default_parts();
        }
        board.cameras.iter_mut().for_each(|c| c.driver = Some(Driver::Simulated));
        board.pins.iter_mut().for_each(|p| p.driver = Some(Driver::Simulated));
        board.sensors.iter_mut().for_each(|s| s.driver = Some(Driver::Simulated));
        board
    }

    fn add_default_parts(&mut self) {
        self.cameras.push(CameraConfig {
            id: "cam0".into(),
            name: Some("camera".into()),
            position: Position::Unknown,
            driver: None,
        });
        for (id, direction) in [("pump", Direction::Output), ("button", Direction::Input)] {
            self.pins.push(PinConfig {
                id: id.into(),
                name: None,
                direction,
                safe: false,
                active_low: false,
                max_pulse_ms: MAX_PULSE_MS,
                driver: None,
            });
        }
        self.sensors
            .push(SensorConfig { quantity: Some(Quantity::Temperature), ..SensorConfig::new("temperature") });
    }

    /// Checks ids, ranges and drivers.
    ///
    /// # Errors
    /// One line that names the part, the key, the value and the limit.
    pub fn check(&self) -> Result<(), String> {
        check_ids("camera", self.cameras.iter().map(|c| (c.id.as_str(), c.name.as_deref())))?;
        check_ids("pin", self.pins.iter().map(|p| (p.id.as_str(), p.name.as_deref())))?;
        check_ids("sensor", self.sensors.iter().map(|s| (s.id.as_str(), s.name.as_deref())))?;
        for pin in &self.pins {
            if !(1..=MAX_PULSE_MS).contains(&pin.max_pulse_ms) {
                return Err(format!(
                    "pin `{}`: max_pulse_ms {} is not within 1 to {MAX_PULSE_MS}",
                    pin.id, pin.max_pulse_ms
                ));
            }
        }
        for sensor in &self.sensors {
            sensor.check().map_err(|why| format!("sensor `{}`: {why}", sensor.id))?;
        }
        Ok(())
    }
}

impl SensorConfig {
    fn check(&self) -> Result<(), String> {
        if let Some(ms) = self.interval_ms.filter(|ms| *ms != 0 && !(100..=86_400_000).contains(ms)) {
            return Err(format!("interval_ms {ms} is neither 0 nor within 100 to 86400000"));
        }
        for (key, value) in [("scale", self.scale), ("base", self.base), ("swing", self.swing)] {
            if value.is_some_and(|v| !v.is_finite()) {
                return Err(format!("{key} is not a finite number"));
            }
        }
        if self.unit.as_ref().is_some_and(|u| u.chars().count() > 16 || u.chars().any(char::is_control)) {
            return Err("unit must be at most 16 characters without control characters".into());
        }
        if self.path.is_some() && self.driver.is_some() {
            return Err("has a driver and a path; give one of them".into());
        }
        if self.path.as_ref().is_some_and(|p| !p.is_absolute()) {
            return Err("path must be absolute".into());
        }
        Ok(())
    }
}

fn check_ids<'a>(kind: &str, parts: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    for (id, name) in parts {
        if !valid_id(id) {
            return Err(format!(
                "{kind} id {id:?} must be 1 to 64 of a-z, 0-9, `.`, `_`, `-`, and begin with a letter or digit"
            ));
        }
        if name.is_some_and(|n| n.is_empty() || n.chars().count() > 64 || n.chars().any(char::is_control)) {
            return Err(format!("{kind} `{id}`: name must have 1 to 64 characters, none of them control"));
        }
        if !seen.insert(id) {
            return Err(format!("{kind} `{id}` is there twice"));
        }
        if seen.len() > MAX_PARTS {
            return Err(format!("more than {MAX_PARTS} parts of kind {kind}"));
        }
    }
    Ok(())
}

/// Ids become file names and parts of policy patterns, so they are plain.
fn valid_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> BoardConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_simulated_board_has_parts_without_any_configuration() {
        let board = parse("simulate = true").resolved();
        assert_eq!(board.check(), Ok(()));
        assert_eq!(board.cameras[0].id, "cam0");
        assert_eq!(board.pins.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), ["pump", "button"]);
        assert_eq!(board.sensors[0].quantity, Some(Quantity::Temperature));
        assert!(board.run);
    }

    #[test]
    fn configured_parts_replace_the_default_ones() {
        let board = parse(
            "simulate = true\n[[pin]]\nid = 'fan'\ndirection = 'output'\nsafe = true\nactive_low = true\n\
             [[sensor]]\nid = 'soil'\nquantity = 'humidity'\ninterval_ms = 500",
        )
        .resolved();
        assert_eq!(board.check(), Ok(()));
        assert!(board.cameras.is_empty());
        assert!(board.pins[0].safe && board.pins[0].active_low);
        assert_eq!(board.sensors[0].driver, Some(Driver::Simulated));
        let again: BoardConfig = toml::from_str(&toml::to_string(&board).unwrap()).unwrap();
        assert_eq!(again, board);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("[[pin]]\nid = '../x'\ndirection = 'input'", "../x"),
            ("[[pin]]\nid = 'a'\ndirection = 'input'\n[[pin]]\nid = 'a'\ndirection = 'input'", "twice"),
            ("[[pin]]\nid = 'a'\ndirection = 'output'\nmax_pulse_ms = 0", "max_pulse_ms"),
            ("[[sensor]]\nid = 'a'\ninterval_ms = 5", "interval_ms"),
            ("[[sensor]]\nid = 'a'\npath = 'x'", "absolute"),
            ("[[camera]]\nid = 'a'\nname = ''", "name"),
        ] {
            let error = parse(text).check().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(toml::from_str::<BoardConfig>("simulated = true").is_err());
    }
}
