//! Records every sensor by its own timer.

use super::{Part, Sensors};
use crate::recorder::Recorder;
use futures_util::future::join_all;
use serde_json::json;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

impl Sensors {
    /// Until cancelled. Each sensor waits only for itself.
    pub(in crate::capability) async fn record(&self, cancel: &CancellationToken) {
        join_all(self.parts.iter().map(|part| part.record(&*self.recorder, cancel))).await;
    }
}

impl Part {
    async fn record(&self, recorder: &dyn Recorder, cancel: &CancellationToken) {
        let samples = async {
            let mut wanted = self.interval_ms.subscribe();
            let mut failing = false;
            loop {
                let ms = *wanted.borrow_and_update();
                if ms > 0 {
                    tokio::select! {
                        _ = wanted.changed() => {}
                        () = self.sample_every(Duration::from_millis(ms), recorder, &mut failing) => {}
                    }
                } else if wanted.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = samples => {}
        }
    }

    /// Keeps the phase: a slow reading makes the next one no later, only skips what it missed.
    async fn sample_every(&self, interval: Duration, recorder: &dyn Recorder, failing: &mut bool) {
        let mut timer = tokio::time::interval(interval);
        timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            timer.tick().await;
            match self.read().await {
                Ok(value) => {
                    recorder.reading(&self.id, value);
                    if std::mem::take(failing) {
                        recorder.event("sensor.recovered", json!({"sensor": self.id}).to_string());
                    }
                }
                // Told once, not at every tick.
                Err(error) if !*failing => {
                    *failing = true;
                    tracing::warn!(sensor = self.id, %error, "sensor cannot be read");
                    let body = json!({"sensor": self.id, "error": error.message});
                    recorder.event("sensor.failed", body.to_string());
                }
                Err(_) => {}
            }
        }
    }
}
