//! Sensors: reading now, and recording by interval.

mod intervals;
mod sampler;
mod simulated;
pub(super) mod sysfs;

use super::{Board, Call, Handle, Output, Ready, answer};
use crate::config::board::{
    BoardConfig, Driver, MAX_PARTS, REAL_INTERVAL_MS, SIMULATED_INTERVAL_MS, SensorConfig,
};
use crate::recorder::Recorder;
use hearth_shared::command::sensor::{
    ListParams, ListResult, Quantity, ReadParams, ReadResult, SensorInfo, SubscribeParams,
};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::link::SensorDecl;
use intervals::Intervals;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// What one reading may take. The slowest ordinary sensor, 1-Wire at 12 bits, needs 750 ms.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// A sensor driver.
pub trait Sensor: Send + Sync + std::fmt::Debug {
    /// Measures, in the declared unit. Blocking: called on a thread that may wait, once at a time.
    ///
    /// # Errors
    /// `HARDWARE`.
    fn read(&self) -> Result<f64, CommandError>;
}

/// The sensors of the board, sorted by id.
#[derive(Debug)]
pub(super) struct Sensors {
    parts: Vec<Part>,
    intervals: Arc<Intervals>,
    recorder: Arc<dyn Recorder>,
}

#[derive(Debug)]
struct Part {
    id: String,
    name: String,
    quantity: Quantity,
    unit: String,
    interval_ms: watch::Sender<u64>,
    driver: Arc<dyn Sensor>,
    /// One reading at a time, so that a sensor that hangs holds one thread and no more.
    free: Arc<Semaphore>,
}

impl Sensors {
    /// `root` is `/` but for tests.
    pub(super) fn open(
        board: &BoardConfig,
        root: &Path,
        state_dir: &Path,
        recorder: Arc<dyn Recorder>,
    ) -> Result<Self, CommandError> {
        let mut found = if board.discover && !board.simulate { sysfs::discover(root) } else { Vec::new() };
        // Those that were asked for go before those that were found.
        let room = MAX_PARTS.saturating_sub(board.sensors.len());
        let is_configured = |f: &sysfs::Found| board.sensors.iter().any(|c| c.id == f.id);
        found.sort_by_key(|f| !is_configured(f));
        found.truncate(room.max(found.iter().filter(|f| is_configured(f)).count()));
        let ids = found.iter().map(|f| f.id.as_str()).collect::<Vec<_>>().join(", ");
        let mut parts: Vec<Part> = found.iter().map(Part::found).collect();
        for config in &board.sensors {
            match parts.iter_mut().find(|p| p.id == config.id) {
                Some(part) => part.adjust(config),
                None => parts.push(Part::configured(config, &ids)?),
            }
        }
        parts.sort_by(|a, b| a.id.cmp(&b.id));
        let intervals = Arc::new(Intervals::load(state_dir));
        for part in &parts {
            if let Some(ms) = intervals.get(&part.id) {
                part.interval_ms.send_replace(ms);
            }
        }
        Ok(Self { parts, intervals, recorder })
    }

    pub(super) fn declared(&self) -> Vec<SensorDecl> {
        let decl = |p: &Part| SensorDecl {
            id: p.id.clone(),
            name: p.name.clone(),
            quantity: p.quantity,
            unit: p.unit.clone(),
        };
        self.parts.iter().map(decl).collect()
    }

    fn find(&self, id: &str) -> Result<&Part, CommandError> {
        let ids = || self.parts.iter().map(|p| p.id.as_str());
        self.parts.iter().find(|p| p.id == id).ok_or_else(|| super::not_found("sensor", id, ids()))
    }

    fn facts(&self, id: &str) -> Result<Value, CommandError> {
        let part = self.find(id)?;
        Ok(json!({"sensor": part.id, "name": part.name, "quantity": part.quantity, "unit": part.unit}))
    }

    fn list(&self) -> Result<Output, CommandError> {
        answer(&ListResult { sensors: self.parts.iter().map(Part::info).collect() })
    }

    async fn read(&self, id: &str) -> Result<Output, CommandError> {
        let part = self.find(id)?;
        let value = part.read().await?;
        answer(&ReadResult { sensor: part.id.clone(), value, unit: part.unit.clone() })
    }

    /// Stores the interval, then obeys it: a setting that was answered survives a power cut.
    async fn subscribe(&self, params: &SubscribeParams) -> Result<Output, CommandError> {
        let part = self.find(&params.sensor)?;
        let (intervals, id, ms) = (self.intervals.clone(), params.sensor.clone(), params.interval_ms);
        super::blocking(move || intervals.set(&id, ms)).await?;
        part.interval_ms.send_replace(ms);
        answer(&part.info())
    }
}

impl Part {
    fn new(id: &str, quantity: Quantity, interval_ms: u64, driver: Arc<dyn Sensor>) -> Self {
        Self {
            id: id.into(),
            name: id.into(),
            quantity,
            unit: unit_of(quantity).into(),
            interval_ms: watch::Sender::new(interval_ms),
            driver,
            free: Arc::new(Semaphore::new(1)),
        }
    }

    fn found(found: &sysfs::Found) -> Self {
        let driver = Arc::new(sysfs::File { path: found.path.clone(), scale: found.scale });
        Self { name: found.name.clone(), ..Self::new(&found.id, found.quantity, REAL_INTERVAL_MS, driver) }
    }

    fn configured(config: &SensorConfig, found: &str) -> Result<Self, CommandError> {
        let quantity = config.quantity.unwrap_or(Quantity::Other);
        let mut part = if let Some(Driver::Simulated) = config.driver {
            let driver = Arc::new(simulated::Drift::new(config, quantity));
            Self::new(&config.id, quantity, SIMULATED_INTERVAL_MS, driver)
        } else if let Some(path) = &config.path {
            let driver = Arc::new(sysfs::File { path: path.clone(), scale: config.scale.unwrap_or(1.0) });
            Self::new(&config.id, quantity, REAL_INTERVAL_MS, driver)
        } else {
            return Err(CommandError::new(
                ErrorCode::NotFound,
                format!(
                    "sensor `{}` in [[board.sensor]] has no `path` and no `driver = \"simulated\"`, and was \
                     not found on this machine, which has: {}",
                    config.id,
                    if found.is_empty() { "none" } else { found }
                ),
            ));
        };
        part.adjust(config);
        Ok(part)
    }

    /// Takes over what the configuration says about names and intervals.
    fn adjust(&mut self, config: &SensorConfig) {
        if let Some(name) = &config.name {
            self.name.clone_from(name);
        }
        if let Some(quantity) = config.quantity {
            self.quantity = quantity;
            self.unit = unit_of(quantity).into();
        }
        if let Some(unit) = &config.unit {
            self.unit.clone_from(unit);
        }
        if let Some(ms) = config.interval_ms {
            self.interval_ms.send_replace(ms);
        }
    }

    fn info(&self) -> SensorInfo {
        SensorInfo {
            id: self.id.clone(),
            name: self.name.clone(),
            quantity: self.quantity,
            unit: self.unit.clone(),
            interval_ms: *self.interval_ms.borrow(),
        }
    }

    async fn read(&self) -> Result<f64, CommandError> {
        let hardware =
            |what: &str| CommandError::new(ErrorCode::Hardware, format!("sensor `{}` {what}", self.id));
        let measure = async {
            let permit = self.free.clone().acquire_owned().await.map_err(|_| super::stopping())?;
            let driver = self.driver.clone();
            super::blocking(move || {
                let value = driver.read();
                drop(permit);
                value
            })
            .await
        };
        let value = tokio::time::timeout(READ_LIMIT, measure).await.map_err(|_| {
            hardware(&format!("did not answer within {} s; check its wiring", READ_LIMIT.as_secs()))
        })??;
        if value.is_finite() { Ok(value) } else { Err(hardware("gave no number")) }
    }
}

fn unit_of(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Temperature => "°C",
        Quantity::Humidity => "%",
        Quantity::Pressure => "hPa",
        Quantity::Light => "lx",
        Quantity::Voltage => "V",
        Quantity::Current => "A",
        Quantity::Power => "W",
        Quantity::FanSpeed => "rpm",
        Quantity::Other => "",
    }
}

impl Handle<ListParams> for Board {
    async fn prepare(&self, _: &ListParams) -> Result<Ready, CommandError> {
        Ok(Ready::plain())
    }
    async fn run(&self, _: ListParams, _: Call) -> Result<Output, CommandError> {
        self.sensors.list()
    }
}

impl Handle<ReadParams> for Board {
    async fn prepare(&self, params: &ReadParams) -> Result<Ready, CommandError> {
        self.sensors.facts(&params.sensor).map(Ready::from)
    }
    async fn run(&self, params: ReadParams, call: Call) -> Result<Output, CommandError> {
        call.within(self.sensors.read(&params.sensor)).await
    }
}

impl Handle<SubscribeParams> for Board {
    async fn prepare(&self, params: &SubscribeParams) -> Result<Ready, CommandError> {
        self.sensors.facts(&params.sensor).map(Ready::from)
    }
    async fn run(&self, params: SubscribeParams, _: Call) -> Result<Output, CommandError> {
        // Not cancelled half-way: the setting is on disk or it is not.
        self.sensors.subscribe(&params).await
    }
}
