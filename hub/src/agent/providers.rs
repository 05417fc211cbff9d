//! Language models. One kind so far: any server that speaks OpenAI's chat completions.

pub(super) mod openai;
mod sse;

use serde_json::Value;

/// What a model said in one turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Turn {
    /// Text, already told piece by piece.
    pub(super) text: String,
    /// Tools it wants called.
    pub(super) calls: Vec<WantedCall>,
}

/// A tool call as the model wrote it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct WantedCall {
    /// The model's id; ours replaces it.
    pub(super) id: String,
    pub(super) name: String,
    /// JSON text, or what the model took for it.
    pub(super) arguments: String,
}

/// Why there is no answer, in words for the person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ModelError {
    #[error("the language model at {at} cannot be reached: {why}; check [agent.model] base_url")]
    Unreachable { at: String, why: String },
    #[error("the language model refused the request ({status}): {message}")]
    Refused { status: u16, message: String },
    #[error("the language model is busy ({status}) after {tries} tries: {message}")]
    Busy { status: u16, tries: u32, message: String },
    #[error("the language model's answer broke off: {0}; ask again")]
    Interrupted(String),
    #[error("the language model sent nothing for {0} seconds")]
    Silent(u64),
    #[error("the language model's answer cannot be used: {0}")]
    Malformed(String),
    #[error("the model key cannot be used: {0}")]
    Key(String),
}

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    /// In the form of chat completions.
    pub(super) messages: Vec<Value>,
    /// Likewise.
    pub(super) tools: Vec<Value>,
}
