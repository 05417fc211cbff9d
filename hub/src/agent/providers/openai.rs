//! Chat completions over HTTP, streamed.
//!
//! Tried again (a few times, with growing pauses) is only what nobody saw: a server that is not there,
//! busy or failing, and a stream that broke before its first word. Once text was shown, a break is told.

use super::sse::Lines;
use super::{ModelError, Prompt, Turn, WantedCall};
use crate::config::ModelConfig;
use futures_util::StreamExt as _;
use hearth_shared::identity::{SecretText, display_safe};
use reqwest::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

const TRIES: u32 = 3;
const CONNECT: Duration = Duration::from_secs(10);
/// A model on a small board may think for minutes before its first word.
const SILENCE: Duration = Duration::from_secs(300);
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Text and arguments of one turn.
const MAX_TURN: usize = 400_000;
const MAX_CALLS: usize = 16;
const MAX_ERROR_BODY: usize = 4096;

/// A server.
#[derive(Debug)]
pub(in crate::agent) struct OpenAi {
    client: reqwest::Client,
    url: String,
    model: String,
    key: Option<HeaderValue>,
    pause: Duration,
    silence: Duration,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<ChunkChoice>,
    error: Option<Value>,
}
#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default)]
    delta: Delta,
    finish_reason: Option<String>,
}
#[derive(Deserialize, Default)]
struct Delta {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallPart>>,
}
#[derive(Deserialize)]
struct CallPart {
    index: Option<usize>,
    id: Option<String>,
    function: Option<FunctionPart>,
}
#[derive(Deserialize)]
struct FunctionPart {
    name: Option<String>,
    arguments: Option<String>,
}

/// A failed try.
enum Failed {
    /// May be tried again, after this long if the server said so.
    Again(ModelError, Option<Duration>),
    Final(ModelError),
}

impl OpenAi {
    pub(in crate::agent) fn new(config: &ModelConfig) -> Result<Self, ModelError> {
        // Whoever comes first installs the provider; the other call is refused and changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("hearth/", env!("CARGO_PKG_VERSION")));
        if config.base_url.starts_with("http://") {
            // A server in the house needs no certificate authorities, and a bare machine has none.
            builder = builder.tls_certs_only([]).no_proxy();
        }
        let client = builder
            .build()
            .map_err(|e| ModelError::Unreachable { at: config.base_url.clone(), why: chain(&e) })?;
        Ok(Self {
            client,
            url: format!("{}/chat/completions", config.base_url.trim_end_matches('/')),
            model: config.name.clone(),
            key: key(config)?,
            pause: Duration::from_secs(1),
            silence: SILENCE,
        })
    }

    /// For tests: as fast as they like.
    #[cfg(test)]
    pub(in crate::agent) fn hurried(mut self, silence: Duration) -> Self {
        (self.pause, self.silence) = (Duration::from_millis(1), silence);
        self
    }

    /// One turn. `on_text` gets every piece of text as it comes.
    pub(in crate::agent) async fn turn(
        &self,
        prompt: &Prompt,
        mut on_text: impl FnMut(&str) + Send,
    ) -> Result<Turn, ModelError> {
        let mut body = json!({ "model": self.model, "messages": prompt.messages, "stream": true });
        if !prompt.tools.is_empty() {
            body["tools"] = Value::Array(prompt.tools.clone());
        }
        let mut tries = 1;
        loop {
            let (error, wait) = match self.try_once(&body, tries, &mut on_text).await {
                Ok(turn) => return Ok(turn),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Again(error, wait)) => (error, wait),
            };
            if tries == TRIES {
                return Err(error);
            }
            let pause = wait.unwrap_or(self.pause * 2u32.pow(tries - 1));
            tracing::info!(%error, tries, "the model is tried again");
            tokio::time::sleep(pause).await;
            tries += 1;
        }
    }

    async fn try_once(
        &self,
        body: &Value,
        tries: u32,
        on_text: &mut (impl FnMut(&str) + Send),
    ) -> Result<Turn, Failed> {
        let silent = || ModelError::Silent(self.silence.as_secs());
        let mut request = self.client.post(&self.url).json(body);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let response = tokio::time::timeout(self.silence, request.send())
            .await
            .map_err(|_| Failed::Final(silent()))?
            .map_err(|e| {
                Failed::Again(ModelError::Unreachable { at: self.url.clone(), why: chain(&e) }, None)
            })?;
        let status = response.status();
        if !status.is_success() {
            let wait = response
                .headers()
                .get(RETRY_AFTER)
                .and_then(|v| v.to_str().ok()?.parse().ok())
                .map(|s| Duration::from_secs(s).min(LONGEST_RETRY_AFTER));
            let message = error_text(response, self.silence).await;
            let status = status.as_u16();
            return Err(if status == 429 || status >= 500 {
                Failed::Again(ModelError::Busy { status, tries, message }, wait)
            } else {
                Failed::Final(ModelError::Refused { status, message })
            });
        }
        let mut collected = Collected::default();
        let mut lines = Lines::default();
        let mut stream = response.bytes_stream();
        loop {
            let chunk = match tokio::time::timeout(self.silence, stream.next()).await {
                Err(_) => return Err(collected.broke(silent())),
                Ok(None) if collected.finished => return collected.into_turn().map_err(Failed::Final),
                Ok(None) => {
                    return Err(collected.broke(ModelError::Interrupted("the connection was closed".into())));
                }
                Ok(Some(Err(error))) => return Err(collected.broke(ModelError::Interrupted(chain(&error)))),
                Ok(Some(Ok(chunk))) => chunk,
            };
            // In pieces, so that the limit is one of lines and not of what the network delivers at once.
            for piece in chunk.chunks(64 * 1024) {
                lines.push(piece).map_err(|why| Failed::Final(ModelError::Malformed(why.into())))?;
                while let Some(data) = lines.next_data() {
                    if data == "[DONE]" {
                        return collected.into_turn().map_err(Failed::Final);
                    }
                    collected.take(&data, on_text)?;
                }
            }
        }
    }
}

/// A turn on its way.
#[derive(Default)]
struct Collected {
    turn: Turn,
    finished: bool,
    size: usize,
}

impl Collected {
    fn take(&mut self, data: &str, on_text: &mut impl FnMut(&str)) -> Result<(), Failed> {
        let chunk: Chunk = serde_json::from_str(data)
            .map_err(|e| Failed::Final(ModelError::Malformed(format!("a chunk is no JSON: {e}"))))?;
        if let Some(error) = chunk.error {
            let why = error.get("message").and_then(Value::as_str).unwrap_or("an error without a reason");
            return Err(self.broke(ModelError::Interrupted(display_safe(why, 300))));
        }
        let Some(choice) = chunk.choices.into_iter().next() else { return Ok(()) };
        if let Some(text) = choice.delta.content.filter(|t| !t.is_empty()) {
            self.grow(text.len())?;
            self.turn.text.push_str(&text);
            on_text(&text);
        }
        for part in choice.delta.tool_calls.into_iter().flatten() {
            self.call_part(part)?;
        }
        self.finished |= choice.finish_reason.is_some();
        Ok(())
    }

    fn call_part(&mut self, part: CallPart) -> Result<(), Failed> {
        let calls = &mut self.turn.calls;
        let id = part.id.filter(|i| !i.is_empty());
        // Some servers send every call as number 0, told apart by its id.
        let fresh = match (part.index, &id) {
            (Some(index), _) if index >= calls.len() => true,
            (Some(index), Some(id)) => !calls[index].id.is_empty() && calls[index].id != *id,
            (Some(_), None) => false,
            (None, id) => id.is_some() || calls.is_empty(),
        };
        if fresh {
            if calls.len() == MAX_CALLS {
                return Err(Failed::Final(ModelError::Malformed(format!(
                    "more than {MAX_CALLS} calls at once"
                ))));
            }
            calls.push(WantedCall::default());
        }
        let last = calls.len() - 1;
        let call = &mut calls[if fresh { last } else { part.index.unwrap_or(last).min(last) }];
        if let Some(id) = id {
            call.id = id;
        }
        let function = part.function.unwrap_or(FunctionPart { name: None, arguments: None });
        if let Some(name) = function.name {
            call.name.push_str(&name);
        }
        let arguments = function.arguments.unwrap_or_default();
        call.arguments.push_str(&arguments);
        self.grow(arguments.len() + 1)
    }

    fn grow(&mut self, by: usize) -> Result<(), Failed> {
        self.size += by;
        if self.size > MAX_TURN {
            return Err(Failed::Final(ModelError::Malformed(format!("it is longer than {MAX_TURN} bytes"))));
        }
        Ok(())
    }

    /// A break before anything was shown may be tried again.
    fn broke(&self, error: ModelError) -> Failed {
        if self.turn.text.is_empty() { Failed::Again(error, None) } else { Failed::Final(error) }
    }

    fn into_turn(self) -> Result<Turn, ModelError> {
        if self.turn.text.trim().is_empty() && self.turn.calls.is_empty() {
            return Err(ModelError::Malformed("it is empty".into()));
        }
        Ok(self.turn)
    }
}

fn key(config: &ModelConfig) -> Result<Option<HeaderValue>, ModelError> {
    let text = match (&config.api_key, &config.api_key_env) {
        (Some(key), _) => key.clone(),
        (None, Some(name)) => SecretText::new(
            std::env::var(name)
                .map_err(|_| ModelError::Key(format!("the environment variable {name} is not set")))?,
        ),
        (None, None) => return Ok(None),
    };
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.expose().trim()))
        .map_err(|_| ModelError::Key("it holds a character that cannot be sent".into()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// The message of an error body, cut; a page of HTML is not repeated.
async fn error_text(response: reqwest::Response, patience: Duration) -> String {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Ok(Some(Ok(chunk))) = tokio::time::timeout(patience.min(CONNECT), stream.next()).await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR_BODY {
            break;
        }
    }
    let text = String::from_utf8_lossy(&body);
    let parsed: Option<Value> = serde_json::from_str(&text).ok();
    let told = parsed.as_ref().and_then(|v| {
        let error = v.get("error").unwrap_or(v);
        error.as_str().or_else(|| error.get("message")?.as_str())
    });
    match told {
        Some(message) => display_safe(message, 300),
        None if text.trim_start().starts_with('<') || text.trim().is_empty() => "no reason given".into(),
        None => display_safe(text.trim(), 300),
    }
}

/// The whole chain of causes on one line, without the address (it may hold a secret).
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(cause) = next {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    if text.is_empty() { "no reason given".into() } else { text }
}

#[cfg(test)]
pub(in crate::agent) mod tests;
