//! What a run tells while it goes on: the events `chat` and `agent`, numbered per run.

use crate::bus::{AgentEvent, Bus, ChatEvent, Event};
use crate::store::now_ms;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Teller {
    bus: Bus,
    run_id: String,
    session_key: String,
    seq: AtomicU64,
}

impl Teller {
    /// `sent`: events of this run before a restart.
    pub(super) fn new(bus: Bus, run_id: &str, session_key: &str, sent: u64) -> Self {
        Self { bus, run_id: run_id.into(), session_key: session_key.into(), seq: AtomicU64::new(sent) }
    }

    pub(super) fn sent(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    fn next(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn chat(&self, state: &'static str, fields: Value) {
        self.bus.emit(Event::Chat(Arc::new(ChatEvent {
            run_id: self.run_id.clone(),
            session_key: self.session_key.clone(),
            seq: self.next(),
            state,
            fields,
        })));
    }

    pub(super) fn agent(&self, stream: &'static str, data: Value) {
        self.bus.emit(Event::Agent(Arc::new(AgentEvent {
            run_id: self.run_id.clone(),
            seq: self.next(),
            stream,
            ts: now_ms(),
            data,
            session_key: self.session_key.clone(),
        })));
    }

    /// More of the reply: what is new, and the whole so far.
    pub(super) fn delta(&self, delta: &str, whole: &str) {
        let message = json!({ "role": "assistant", "content": [{ "type": "text", "text": whole }], "timestamp": now_ms() });
        self.chat("delta", json!({ "deltaText": delta, "message": message }));
        self.agent("assistant", json!({ "text": whole, "delta": delta }));
    }
}
