//! One call of the Bot API, and what its errors mean. The token is part of every address: no address ever
//! stands in an error or in the log.

use super::config::TelegramConfig;
use crate::channels::adapter::{ChannelError, SendError};
use futures_util::StreamExt as _;
use hearth_shared::identity::{SecretText, display_safe};
use reqwest::multipart::Form;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(10);
/// Largest answer: a hundred updates of at most some kilobytes each.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// Longest that a file may take.
const FILE_LIMIT: Duration = Duration::from_secs(120);
/// When the platform asks for a pause and does not say how long.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Api {
    client: reqwest::Client,
    base: String,
    token: SecretText,
}

/// How a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// No connection: the call was not made.
    NoConnection(String),
    /// It was made and no (whole) answer came.
    NoAnswer(String),
    /// Telegram says no.
    Refused { code: u16, why: String, retry_after: Option<Duration> },
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoConnection(why) => write!(f, "Telegram is not reached: {why}"),
            Self::NoAnswer(why) => write!(f, "no answer from Telegram: {why}"),
            Self::Refused { code, why, .. } => write!(f, "Telegram says {code}: {why}"),
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    result: Value,
    error_code: Option<u16>,
    description: Option<String>,
    parameters: Option<Parameters>,
}

#[derive(Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

impl Api {
    pub(super) fn new(config: &TelegramConfig) -> Result<Self, ChannelError> {
        let token = config.token().ok_or_else(|| {
            let name = config.token_env.as_deref().unwrap_or("token");
            ChannelError::Config(format!("the Telegram token is not there: `{name}` is empty or not set"))
        })?;
        if !token.expose().bytes().all(|b| b.is_ascii_alphanumeric() || b":_-".contains(&b)) {
            return Err(ChannelError::Config(
                "the Telegram token holds characters that no token has; copy it again from @BotFather".into(),
            ));
        }
        // Whoever comes first installs the provider; the other call is refused and changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("hearth/", env!("CARGO_PKG_VERSION")));
        if let Some(proxy) = &config.proxy {
            let proxy = reqwest::Proxy::all(proxy)
                .map_err(|e| ChannelError::Config(format!("channels.telegram.proxy: {}", e.without_url())))?;
            builder = builder.proxy(proxy);
        } else if config.api_base.starts_with("http://") {
            // A server in the house needs neither certificate authorities nor a proxy.
            builder = builder.tls_certs_only([]).no_proxy();
        }
        let client = builder.build().map_err(|e| ChannelError::Config(chain(e)))?;
        Ok(Self { client, base: config.api_base.trim_end_matches('/').to_owned(), token })
    }

    fn url(&self, method: &str) -> String {
        format!("{}/bot{}/{method}", self.base, self.token.expose())
    }

    /// Calls a method with JSON.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<T, ApiError> {
        self.answer(self.client.post(self.url(method)).timeout(limit).json(body)).await
    }

    /// Calls a method with a file.
    pub(super) async fn upload<T: DeserializeOwned>(&self, method: &str, form: Form) -> Result<T, ApiError> {
        self.answer(self.client.post(self.url(method)).timeout(FILE_LIMIT).multipart(form)).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, ApiError> {
        let response = request.send().await.map_err(sending)?;
        let status = response.status().as_u16();
        let bytes = read(response, MAX_ANSWER).await?;
        let Ok(answer) = serde_json::from_slice::<Answer>(&bytes) else {
            // A proxy or a broken server in between: 5xx says that nothing can be told, the rest is a no.
            let why = format!("HTTP {status}, not an answer of the Bot API");
            return Err(match status {
                500.. | 200..=299 => ApiError::NoAnswer(why),
                code => ApiError::Refused { code, why, retry_after: None },
            });
        };
        if answer.ok {
            return serde_json::from_value(answer.result).map_err(|e| ApiError::NoAnswer(e.to_string()));
        }
        let retry_after = answer.parameters.and_then(|p| p.retry_after).map(Duration::from_secs);
        Err(ApiError::Refused {
            code: answer.error_code.unwrap_or(status),
            why: display_safe(&answer.description.unwrap_or_default(), 200),
            retry_after,
        })
    }

    /// Fetches a file that a person sent.
    pub(super) async fn download(&self, path: &str, limit: u64) -> Result<Vec<u8>, ApiError> {
        let no = |why: &str| ApiError::Refused { code: 400, why: why.into(), retry_after: None };
        let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
        if path.contains("..") || !path.chars().all(plain) {
            return Err(no("the file's address is none of Telegram's"));
        }
        let url = format!("{}/file/bot{}/{path}", self.base, self.token.expose());
        let response = self.client.get(url).timeout(FILE_LIMIT).send().await.map_err(sending)?;
        if !response.status().is_success() {
            return Err(no(&format!("HTTP {} for a file", response.status().as_u16())));
        }
        read(response, usize::try_from(limit).unwrap_or(usize::MAX)).await
    }
}

async fn read(response: reqwest::Response, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|e| ApiError::NoAnswer(chain(e)))?;
        if bytes.len() + chunk.len() > limit {
            return Err(ApiError::NoAnswer(format!("more than {limit} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn sending(error: reqwest::Error) -> ApiError {
    if error.is_connect() || error.is_builder() {
        ApiError::NoConnection(chain(error))
    } else {
        ApiError::NoAnswer(chain(error))
    }
}

/// The error and what caused it, without the address.
fn chain(error: reqwest::Error) -> String {
    use std::error::Error as _;
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    display_safe(&text, 300)
}

impl From<ApiError> for SendError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::NoConnection(why) => Self::Unreachable(why),
            ApiError::NoAnswer(why) => Self::Unknown(why),
            ApiError::Refused { code: 429, retry_after, .. } => {
                Self::Slow { wait: retry_after.unwrap_or(DEFAULT_WAIT) }
            }
            // Its own faults, and a token that is wrong for now: later again.
            ApiError::Refused { code: 500.., why, .. } => Self::Unknown(why),
            ApiError::Refused { code: 401 | 404, why, .. } => Self::Unreachable(why),
            ApiError::Refused { code, why, .. } => Self::Refused(format!("{code} {why}")),
        }
    }
}

impl From<ApiError> for ChannelError {
    fn from(error: ApiError) -> Self {
        match &error {
            ApiError::NoConnection(_) | ApiError::NoAnswer(_) => Self::Unreachable(error.to_string()),
            ApiError::Refused { code: 401 | 404, .. } => Self::Credentials(
                "Telegram does not know the bot's token; check it with @BotFather and in [channels.telegram]".into(),
            ),
            ApiError::Refused { code: 409, why, .. } if why.contains("webhook") => Self::Conflict(
                "a webhook is set for this bot, so that nobody can fetch its messages; delete it (deleteWebhook) \
                 or use a bot of its own for the hub"
                    .into(),
            ),
            ApiError::Refused { code: 409, .. } => Self::Conflict(
                "another program fetches this bot's messages (Telegram says 409); stop it, or use a bot of its own \
                 for the hub"
                    .into(),
            ),
            ApiError::Refused { code: 429, retry_after, .. } => {
                Self::Slow(retry_after.unwrap_or(DEFAULT_WAIT))
            }
            ApiError::Refused { .. } => Self::Protocol(error.to_string()),
        }
    }
}
