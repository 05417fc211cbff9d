//! `gpio.*`

use super::{Params, Target};
use serde::{Deserialize, Serialize};

/// Longest pulse: 24 hours. What must stay on longer is a state (`gpio.write`), not a pulse.
pub const MAX_PULSE_MS: u64 = 24 * 3_600_000;

/// Direction of a pin as the node's configuration fixes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Read only.
    Input,
    /// May be written.
    Output,
}

/// No parameters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The pins of a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListResult {
    /// One entry a configured pin.
    pub pins: Vec<PinState>,
}

/// A pin and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PinState {
    /// Id on this node, for example `pump`.
    pub pin: String,
    /// Name for people.
    pub name: String,
    /// Direction.
    pub direction: Direction,
    /// Logical state: `true` is on, whatever the electrical level.
    pub value: bool,
    /// The state it is put into at start, stop and after a pulse; outputs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<bool>,
    /// Milliseconds until a running pulse ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulse_left_ms: Option<u64>,
}

impl Params for ListParams {
    type Result = ListResult;
    fn sentence(&self) -> String {
        "List the pins".into()
    }
}

/// Which pin to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadParams {
    /// Pin id.
    pub pin: String,
}

impl Params for ReadParams {
    type Result = PinState;
    fn target(&self) -> Option<Target<'_>> {
        Some(Target { kind: "pin", id: &self.pin })
    }
    fn sentence(&self) -> String {
        format!("Read pin {}", self.pin)
    }
}

/// Which pin to switch, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WriteParams {
    /// Pin id.
    pub pin: String,
    /// Logical state to set: `true` is on.
    pub value: bool,
}

impl Params for WriteParams {
    type Result = PinState;
    fn target(&self) -> Option<Target<'_>> {
        Some(Target { kind: "pin", id: &self.pin })
    }
    fn sentence(&self) -> String {
        format!("Switch pin {} {}", self.pin, on_off(self.value))
    }
}

/// A pulse. The result comes when it has begun; its end is the node's duty, whatever happens to the
/// link, and is reported as the event `gpio.pulse.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PulseParams {
    /// Pin id.
    pub pin: String,
    /// State during the pulse.
    #[serde(default = "yes")]
    pub value: bool,
    /// 1 to 86,400,000 ms (24 hours); a running pulse on the pin is replaced.
    pub duration_ms: u64,
}

fn yes() -> bool {
    true
}

impl Params for PulseParams {
    type Result = PinState;
    fn check(&self) -> Result<(), String> {
        if self.duration_ms == 0 || self.duration_ms > MAX_PULSE_MS {
            return Err(format!("durationMs {} is not within 1 to {MAX_PULSE_MS}", self.duration_ms));
        }
        Ok(())
    }
    fn target(&self) -> Option<Target<'_>> {
        Some(Target { kind: "pin", id: &self.pin })
    }
    fn sentence(&self) -> String {
        format!("Switch pin {} {} for {}", self.pin, on_off(self.value), seconds(self.duration_ms))
    }
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

/// `20000` is `20 s`, `1500` is `1.5 s`.
fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) {
        format!("{} s", ms / 1000)
    } else {
        format!("{}.{:03} s", ms / 1000, ms % 1000)
    }
}
