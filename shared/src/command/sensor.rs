//! `sensor.*`

use super::{Params, Target};
use serde::{Deserialize, Serialize};

/// What a sensor measures; decides how people may ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Degrees Celsius.
    Temperature,
    /// Relative humidity, per cent.
    Humidity,
    /// Hectopascal.
    Pressure,
    /// Lux.
    Light,
    /// Volt.
    Voltage,
    /// Ampere.
    Current,
    /// Watt.
    Power,
    /// Revolutions a minute.
    FanSpeed,
    /// Anything else; see the unit.
    Other,
}

/// No parameters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The sensors of a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListResult {
    /// One entry a sensor.
    pub sensors: Vec<SensorInfo>,
}

/// A sensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SensorInfo {
    /// Stable id on this node.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it measures.
    pub quantity: Quantity,
    /// Unit symbol, for example `°C`.
    pub unit: String,
    /// How often it is recorded, milliseconds; 0 is never.
    pub interval_ms: u64,
}

impl Params for ListParams {
    type Result = ListResult;
    fn sentence(&self) -> String {
        "List the sensors".into()
    }
}

/// Which sensor to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadParams {
    /// Sensor id.
    pub sensor: String,
}

/// A value measured just now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadResult {
    /// Sensor id.
    pub sensor: String,
    /// In the unit; always a finite number.
    pub value: f64,
    /// Unit symbol.
    pub unit: String,
}

impl Params for ReadParams {
    type Result = ReadResult;
    fn target(&self) -> Option<Target<'_>> {
        Some(Target { kind: "sensor", id: &self.sensor })
    }
    fn sentence(&self) -> String {
        format!("Read sensor {}", self.sensor)
    }
}

/// How often to record. The node keeps the setting over restarts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscribeParams {
    /// Sensor id.
    pub sensor: String,
    /// 100 ms to 24 hours (86,400,000), or 0 to stop.
    pub interval_ms: u64,
}

impl Params for SubscribeParams {
    type Result = SensorInfo;
    fn check(&self) -> Result<(), String> {
        if self.interval_ms != 0 && !(100..=86_400_000).contains(&self.interval_ms) {
            return Err(format!("intervalMs {} is neither 0 nor within 100 to 86400000", self.interval_ms));
        }
        Ok(())
    }
    fn target(&self) -> Option<Target<'_>> {
        Some(Target { kind: "sensor", id: &self.sensor })
    }
    fn sentence(&self) -> String {
        match self.interval_ms {
            0 => format!("Stop recording sensor {}", self.sensor),
            ms => format!("Record sensor {} every {ms} ms", self.sensor),
        }
    }
}
