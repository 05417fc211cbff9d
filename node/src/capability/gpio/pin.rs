//! One pin: its state, and the pulse that runs on it.

use super::Line;
use crate::config::board::PinConfig;
use crate::recorder::Recorder;
use hearth_shared::command::gpio::{Direction, PinState};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::link::PartDecl;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long to wait before a line that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pin {
    config: PinConfig,
    line: Box<dyn Line>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// The last state that was set or seen.
    value: bool,
    pulse: Option<Pulse>,
    /// Counts pulses, so that the timer of an old one cannot end a new one.
    generation: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Pulse {
    until: Instant,
    timer: AbortHandle,
}

impl Pin {
    /// Puts an output into its safe state.
    pub(super) fn open(config: &PinConfig, line: Box<dyn Line>) -> Result<Self, CommandError> {
        let value = match config.direction {
            Direction::Output => {
                line.set(config.safe)?;
                config.safe
            }
            Direction::Input => line.get()?,
        };
        let now = Now { value, pulse: None, generation: 0, stopped: false };
        Ok(Self { config: config.clone(), line, now: Mutex::new(now) })
    }

    pub(super) fn id(&self) -> &str {
        &self.config.id
    }

    pub(super) fn direction(&self) -> Direction {
        self.config.direction
    }

    fn name(&self) -> &str {
        self.config.name.as_deref().unwrap_or(&self.config.id)
    }

    fn is_output(&self) -> bool {
        self.config.direction == Direction::Output
    }

    pub(super) fn declared(&self) -> PartDecl {
        let detail = if self.is_output() { "output" } else { "input" };
        PartDecl { id: self.config.id.clone(), name: self.name().into(), detail: detail.into() }
    }

    /// What a person should know before the pin is switched. Nothing in it changes by itself: a
    /// challenge is compared with it again when the grant comes.
    pub(super) fn facts(&self) -> Value {
        let config = &self.config;
        let mut facts = json!({
            "pin": config.id,
            "name": self.name(),
            "line": self.line.place(),
            "direction": config.direction,
            "activeLow": config.active_low,
        });
        if self.is_output() {
            facts["safe"] = config.safe.into();
            facts["maxPulseMs"] = config.max_pulse_ms.into();
        }
        facts
    }

    pub(super) fn check_output(&self) -> Result<(), CommandError> {
        if self.is_output() {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::InvalidParams,
            format!("pin `{}` is an input; only outputs can be switched", self.config.id),
        ))
    }

    pub(super) fn check_pulse(&self, duration_ms: u64) -> Result<(), CommandError> {
        self.check_output()?;
        let limit = self.config.max_pulse_ms;
        if duration_ms <= limit {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::InvalidParams,
            format!(
                "durationMs {duration_ms} is over {limit}, the limit of pin `{}` (max_pulse_ms in node.toml)",
                self.config.id
            ),
        ))
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, now: &Now) -> PinState {
        let left = now.pulse.as_ref().map(|p| p.until.saturating_duration_since(Instant::now()));
        PinState {
            pin: self.config.id.clone(),
            name: self.name().into(),
            direction: self.config.direction,
            value: now.value,
            safe: self.is_output().then_some(self.config.safe),
            pulse_left_ms: left.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    pub(super) fn state(&self) -> Result<PinState, CommandError> {
        let mut now = self.lock();
        now.value = self.line.get()?;
        Ok(self.describe(&now))
    }

    pub(super) fn last_state(&self) -> PinState {
        let mut now = self.lock();
        match self.line.get() {
            Ok(value) => now.value = value,
            Err(error) => tracing::warn!(pin = self.config.id, %error, "pin cannot be read"),
        }
        self.describe(&now)
    }

    pub(super) fn write(
        self: &Arc<Self>,
        value: bool,
        recorder: &Arc<dyn Recorder>,
    ) -> Result<PinState, CommandError> {
        self.check_output()?;
        self.switch(value, None, recorder)
    }

    pub(super) fn pulse(
        self: &Arc<Self>,
        value: bool,
        length: Duration,
        recorder: &Arc<dyn Recorder>,
    ) -> Result<PinState, CommandError> {
        self.check_pulse(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))?;
        self.switch(value, Some(length), recorder)
    }

    /// Sets the line, for a while or for good. When the driver fails, nobody knows what the line does:
    /// it is then made safe, again and again until that works.
    fn switch(
        self: &Arc<Self>,
        value: bool,
        length: Option<Duration>,
        recorder: &Arc<dyn Recorder>,
    ) -> Result<PinState, CommandError> {
        let mut now = self.lock();
        if now.stopped {
            return Err(crate::capability::stopping());
        }
        let result = self.line.set(value);
        let ended = end_pulse(&mut now);
        if result.is_ok() {
            now.value = value;
        }
        if let Some(length) = if result.is_ok() { length } else { Some(Duration::ZERO) } {
            now.generation += 1;
            let until = Instant::now() + length;
            let timer = tokio::spawn(self.clone().time_pulse(now.generation, until, recorder.clone()));
            now.pulse = Some(Pulse { until, timer: timer.abort_handle() });
        }
        let state = self.describe(&now);
        drop(now);
        if ended {
            self.report_end(&**recorder, state.value, if length.is_some() { "replaced" } else { "written" });
        }
        result.map(|()| state)
    }

    /// Ends one pulse at its time. A line that cannot be switched is tried until it can: a pump must
    /// not stay on because of one failed call.
    async fn time_pulse(self: Arc<Self>, generation: u64, until: Instant, recorder: Arc<dyn Recorder>) {
        tokio::time::sleep_until(until).await;
        loop {
            match self.try_end(generation) {
                Ok(true) => return self.report_end(&*recorder, self.config.safe, "elapsed"),
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(pin = self.config.id, %error, "pulse cannot be ended, trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Whether this call ended the pulse; `false` when a newer one, a write or the stop already did.
    fn try_end(&self, generation: u64) -> Result<bool, CommandError> {
        let mut now = self.lock();
        if now.generation != generation || now.pulse.is_none() {
            return Ok(false);
        }
        self.line.set(self.config.safe)?;
        now.value = self.config.safe;
        now.pulse = None;
        Ok(true)
    }

    /// Ends a pulse, makes an output safe, and refuses to switch it from now on.
    pub(super) fn stop(&self, recorder: Option<&dyn Recorder>) {
        if !self.is_output() {
            return;
        }
        let mut now = self.lock();
        now.stopped = true;
        let ended = end_pulse(&mut now);
        match self.line.set(self.config.safe) {
            Ok(()) => now.value = self.config.safe,
            Err(error) => tracing::error!(pin = self.config.id, %error, "pin cannot be made safe"),
        }
        let value = now.value;
        drop(now);
        if let Some(recorder) = recorder.filter(|_| ended) {
            self.report_end(recorder, value, "stopped");
        }
    }

    fn report_end(&self, recorder: &dyn Recorder, value: bool, reason: &str) {
        let body = json!({"pin": self.config.id, "value": value, "reason": reason});
        recorder.event("gpio.pulse.ended", body.to_string());
    }

    /// Reports the edges of an input until cancelled.
    pub(super) async fn watch(&self, recorder: &dyn Recorder, cancel: &CancellationToken) {
        let mut known = self.lock().value;
        let mut failed = false;
        loop {
            let change = tokio::select! {
                () = cancel.cancelled() => return,
                change = self.line.changed(known) => change,
            };
            match change {
                Ok(value) => {
                    known = value;
                    failed = false;
                    self.lock().value = value;
                    let body = json!({"pin": self.config.id, "value": value});
                    recorder.event("gpio.edge", body.to_string());
                }
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(pin = self.config.id, %error, "input cannot be watched, trying again");
                    }
                    tokio::select! {
                        () = cancel.cancelled() => return,
                        () = tokio::time::sleep(RETRY) => {}
                    }
                }
            }
        }
    }
}

/// Forgets a running pulse; whether there was one.
fn end_pulse(now: &mut Now) -> bool {
    now.pulse.take().map(|pulse| pulse.timer.abort()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::BoxFuture;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// A line whose driver fails a number of times.
    #[derive(Debug, Default)]
    struct Faulty {
        on: AtomicBool,
        failures: AtomicU32,
    }

    impl Line for Arc<Faulty> {
        fn place(&self) -> String {
            "test".into()
        }
        fn get(&self) -> Result<bool, CommandError> {
            Ok(self.on.load(Ordering::Relaxed))
        }
        fn set(&self, on: bool) -> Result<(), CommandError> {
            let fails = |n: u32| n.checked_sub(1);
            if self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() {
                return Err(CommandError::new(ErrorCode::Hardware, "line fault"));
            }
            self.on.store(on, Ordering::Relaxed);
            Ok(())
        }
        fn changed(&self, _known: bool) -> BoxFuture<'_, Result<bool, CommandError>> {
            Box::pin(std::future::pending())
        }
    }

    #[derive(Debug, Default)]
    struct Nowhere;
    impl Recorder for Nowhere {
        fn reading(&self, _sensor: &str, _value: f64) {}
        fn event(&self, _kind: &str, _json: String) {}
    }

    fn pin() -> (Arc<Pin>, Arc<Faulty>, Arc<dyn Recorder>) {
        let line = Arc::new(Faulty::default());
        let config = toml::from_str("id = 'pump'\ndirection = 'output'").unwrap();
        let pin = Pin::open(&config, Box::new(line.clone())).unwrap();
        (Arc::new(pin), line, Arc::new(Nowhere))
    }

    #[tokio::test(start_paused = true)]
    async fn a_pulse_whose_end_fails_is_ended_as_soon_as_the_line_works() {
        let (pin, line, recorder) = pin();
        pin.pulse(true, Duration::from_secs(5), &recorder).unwrap();
        line.failures.store(3, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(7_500)).await;
        assert!(pin.state().unwrap().value);
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        assert!(!pin.state().unwrap().value);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_cannot_be_switched_is_made_safe() {
        let (pin, line, recorder) = pin();
        pin.write(true, &recorder).unwrap();
        line.failures.store(2, Ordering::Relaxed);
        assert_eq!(pin.write(true, &recorder).unwrap_err().code, ErrorCode::Hardware);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(!pin.state().unwrap().value, "the error left the pump on");
    }
}
