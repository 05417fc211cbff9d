//! A value that wanders as a real one does.

use super::Sensor;
use crate::capability::wave::sine;
use crate::config::board::SensorConfig;
use hearth_shared::command::sensor::Quantity;
use hearth_shared::error::CommandError;
use std::time::SystemTime;

/// Around `base`: a wave over the day (lowest at 5:00 UTC, highest at 17:00) of `swing`, a slow drift
/// and a little noise of a tenth of it each. A function of time alone, so nothing has to be kept.
#[derive(Debug)]
pub(super) struct Drift {
    base: f64,
    swing: f64,
    /// Differs by sensor, so that two do not move together.
    phase: f64,
}

impl Drift {
    pub(super) fn new(config: &SensorConfig, quantity: Quantity) -> Self {
        let (base, swing) = match quantity {
            Quantity::Temperature => (21.0, 2.0),
            Quantity::Humidity => (48.0, 8.0),
            Quantity::Pressure => (1_013.0, 4.0),
            Quantity::Light => (400.0, 300.0),
            Quantity::Voltage => (5.0, 0.05),
            Quantity::Current => (0.6, 0.2),
            Quantity::Power => (3.0, 1.0),
            Quantity::FanSpeed => (1_800.0, 200.0),
            Quantity::Other => (50.0, 10.0),
        };
        let phase = config.id.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Self {
            base: config.base.unwrap_or(base),
            swing: config.swing.unwrap_or(swing),
            phase: f64::from(phase % 1_000) / 1_000.0,
        }
    }

    fn at(&self, seconds: f64) -> f64 {
        let turn = |period: f64, phase: f64| sine(seconds / period + phase);
        let day = turn(86_400.0, -11.0 / 24.0);
        let drift = turn(7_919.0, self.phase) * 0.7 + turn(1_733.0, self.phase * 3.0) * 0.3;
        // The fraction of a large multiple is as good as noise, and needs no generator.
        let noise = 2.0 * ((seconds * 12.989_8 + self.phase * 78.233) * 43_758.547).fract() - 1.0;
        let value = self.base + self.swing * (day + 0.1 * drift + 0.1 * noise);
        (value * 100.0).round() / 100.0
    }
}

impl Sensor for Drift {
    fn read(&self) -> Result<f64, CommandError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(self.at(now.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_drifts_around_its_base_with_a_low_in_the_morning() {
        let drift = Drift::new(&SensorConfig::new("temperature"), Quantity::Temperature);
        let day = 1_774_742_400.0;
        let values: Vec<f64> = (0..1_440).map(|minute| drift.at(day + f64::from(minute) * 60.0)).collect();
        assert!(values.iter().all(|v| (18.0..24.0).contains(v)), "{values:?}");
        assert!(values[300] < 19.6 && values[1_020] > 22.4);
        let same = values.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(same < 200, "{same} of 1439 steps without a change");
        let other = Drift::new(&SensorConfig::new("soil"), Quantity::Temperature);
        assert_ne!(other.at(day), drift.at(day));
    }
}
