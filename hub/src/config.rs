//! `config.toml`: the typed schema. Every key has a default; every doc comment becomes a line of the
//! example that `hearth config example` prints ([`example`]). [`load`] reads a file and refuses keys it
//! does not know, [`check`] knows the ranges.

mod access;
pub mod check;
pub mod example;
pub mod load;
mod schema;

pub use access::{AccessConfig, DirectPolicy, GroupPolicy};
pub use load::ConfigError;
pub(crate) use schema::fields;

use hearth_shared::identity::SecretText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The whole file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The port and who may reach it.
    pub gateway: GatewayConfig,
    /// Being found on the network.
    pub discovery: DiscoveryConfig,
    /// Letting new devices in.
    pub pairing: PairingConfig,
    /// Asking people.
    pub approvals: ApprovalsConfig,
    /// The hub's own rules for nodes. They can only narrow what a node allows.
    pub nodes: NodesConfig,
    /// Telling a person who is not looking: what waits for a yes, who wants in, what is wrong.
    pub notify: NotifyConfig,
    /// How long things are kept.
    pub retention: RetentionConfig,
    /// Answering people.
    pub agent: AgentConfig,
    /// Chats beside the page and the terminal.
    pub channels: crate::channels::ChannelsConfig,
    /// Logging.
    pub log: LogConfig,
}

/// `[gateway]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Addresses to listen on. `["127.0.0.1"]` is this machine only; `["0.0.0.0"]` also the network.
    pub bind: Vec<IpAddr>,
    /// Port for WebSocket and HTTP.
    pub port: u16,
    /// The hub's name as nodes and people see it; the host name when left out.
    #[schemars(example = &"attic")]
    pub name: Option<String>,
    /// Further host names under which the page and clients may reach the hub.
    pub hosts: Vec<String>,
    /// Let clients on this machine that hold the token in as devices without asking.
    pub auto_approve_local: bool,
    /// Open connections in all.
    pub max_connections: usize,
    /// Requests a second one client may make on average; bursts of four times this are fine.
    pub requests_per_second: u32,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            bind: vec![IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)],
            port: hearth_shared::limits::DEFAULT_PORT,
            name: None,
            hosts: Vec::new(),
            auto_approve_local: true,
            max_connections: 2048,
            requests_per_second: 50,
        }
    }
}

impl GatewayConfig {
    /// The hub's name as nodes and people see it.
    #[must_use]
    pub fn display_name(&self) -> String {
        let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.name.clone().unwrap_or_else(machine)
    }
}

/// `[discovery]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscoveryConfig {
    /// Answer for `hearth.local` and announce the hub (mDNS), when it listens on the network.
    pub mdns: bool,
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self { mdns: true }
    }
}

/// `[pairing]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PairingConfig {
    /// How long `hearth pair` keeps the window open, in seconds.
    pub window_s: u64,
}

impl Default for PairingConfig {
    fn default() -> Self {
        Self { window_s: hearth_shared::limits::PAIRING_WINDOW_MS / 1000 }
    }
}

/// `[approvals]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalsConfig {
    /// How long a request waits for a person, in seconds of the hub's powered time.
    pub lifetime_s: u64,
    /// How long a request that may wait for a device that is away does so, in seconds of the hub's powered
    /// time.
    pub device_wait_s: u64,
    /// Let requests wait even when nobody who could decide is connected, for an owner who looks later with
    /// `hearth approvals`. Otherwise such a request ends at once and says so.
    pub wait_for_approver: bool,
}

impl Default for ApprovalsConfig {
    fn default() -> Self {
        Self {
            lifetime_s: hearth_shared::limits::APPROVAL_LIFETIME_MS / 1000,
            device_wait_s: 24 * 3600,
            wait_for_approver: false,
        }
    }
}

/// `[nodes]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodesConfig {
    /// Commands no node may run through this hub: exact names, or a family as `gpio.*`.
    pub deny: Vec<String>,
    /// Commands for which the hub wants a person asked even where the node does not.
    pub ask: Vec<String>,
    /// Foreign JSON nodes (by device id) on which `system.run` may be asked for at all.
    pub foreign_execute: Vec<String>,
}

/// `[notify]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyConfig {
    /// Program and arguments to run for each notice, without a shell. Arguments that are exactly `{text}`,
    /// `{kind}` or `{id}` are replaced.
    #[schemars(example = &["notify-send", "Hearth", "{text}"])]
    pub command: Vec<String>,
    /// An ntfy server.
    pub ntfy: Option<NtfyConfig>,
    /// Also tell what waits, not only that something does. It leaves the house, and shows on locked screens.
    pub details: bool,
    /// Language of the texts: `en` or `zh`. The page uses its own.
    pub language: NotifyLanguage,
    /// Whom a push service may ask when something is wrong: `mailto:` or `https:`.
    pub contact: String,
    /// Origins of push services beside those of the makers of browsers.
    #[schemars(example = &["https://push.example.org"])]
    pub push_services: Vec<String>,
}

impl Default for NotifyConfig {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            ntfy: None,
            details: false,
            language: NotifyLanguage::En,
            contact: "mailto:hub@hearth.example".into(),
            push_services: Vec::new(),
        }
    }
}

/// Language of notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotifyLanguage {
    /// English.
    En,
    /// Chinese.
    Zh,
}

/// `[notify.ntfy]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NtfyConfig {
    /// Server and topic. Whoever knows a topic reads it: choose one that nobody guesses.
    #[schemars(example = &"https://ntfy.sh/a-topic-nobody-guesses")]
    pub url: String,
    /// Name of the environment variable that holds an access token.
    #[serde(default)]
    #[schemars(example = &"HEARTH_NTFY_TOKEN")]
    pub token_env: Option<String>,
    /// The token itself; better kept in the environment.
    #[serde(default, skip_serializing)]
    #[schemars(example = &"tk_secret")]
    pub token: Option<SecretText>,
}

impl NtfyConfig {
    /// The access token, if the server wants one.
    #[must_use]
    pub fn token(&self) -> Option<SecretText> {
        secret(self.token_env.as_deref(), self.token.as_ref())
    }
}

/// `[retention]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Days that raw readings are kept.
    pub readings_days: u32,
    /// Days that 5-minute minimum, mean and maximum are kept.
    pub summaries_days: u32,
    /// Megabytes of pictures; the oldest go first.
    pub media_mb: u64,
    /// Days that node events are kept.
    pub events_days: u32,
    /// Days that finished actions and approvals are kept. The audit log is never cut.
    pub actions_days: u32,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { readings_days: 7, summaries_days: 365, media_mb: 1024, events_days: 90, actions_days: 30 }
    }
}

/// `[agent]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Any OpenAI-compatible server. Without one, requests are understood by the built-in grammar.
    pub model: Option<ModelConfig>,
    /// Limit of one run in seconds of active time; waiting for a person or a device does not count.
    pub run_limit_s: u64,
    /// Runs at the same time, over all sessions.
    pub max_runs: usize,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self { model: None, run_limit_s: 600, max_runs: 8 }
    }
}

/// `[agent.model]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Base address, for example `http://192.168.1.5:8080/v1`.
    #[schemars(example = &"http://192.168.1.5:8080/v1")]
    pub base_url: String,
    /// Model name as the server knows it.
    #[schemars(example = &"qwen3-8b")]
    pub name: String,
    /// Name of the environment variable that holds the API key.
    #[serde(default)]
    #[schemars(example = &"HEARTH_MODEL_KEY")]
    pub api_key_env: Option<String>,
    /// The key itself; better kept in the environment.
    #[serde(default, skip_serializing)]
    #[schemars(example = &"secret")]
    pub api_key: Option<SecretText>,
    /// Tokens of context.
    #[serde(default = "default_context")]
    pub context_tokens: u32,
}

impl ModelConfig {
    /// The API key: from the environment variable that is named, else from the file; `None` for servers
    /// that want none.
    #[must_use]
    pub fn key(&self) -> Option<SecretText> {
        secret(self.api_key_env.as_deref(), self.api_key.as_ref())
    }
}

/// A secret from the environment variable of this name, else as it stands in the file.
pub(crate) fn secret(variable: Option<&str>, own: Option<&SecretText>) -> Option<SecretText> {
    variable
        .and_then(|name| std::env::var(name).ok())
        .filter(|value| !value.is_empty())
        .map(SecretText::new)
        .or_else(|| own.cloned())
}

fn default_context() -> u32 {
    32_768
}

/// `[log]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `hearth_hub::nodes=debug`.
    pub level: String,
    /// `human` or `json`.
    pub format: LogFormat,
    /// Megabytes of `hub.log` before it is rotated; one old file is kept.
    pub max_mb: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Human, max_mb: 10 }
    }
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For eyes.
    Human,
    /// For programs.
    Json,
}
