//! `node.toml`

pub mod board;
pub mod load;

pub use board::BoardConfig;
use serde::{Deserialize, Serialize};

/// The whole file. (Completed by its owners: `board` by the capability, `policy` by the guard.)
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The node's name; the host name when left out.
    pub name: Option<String>,
    /// The wall clock is right although systemd-timesyncd does not say so.
    pub trust_clock: bool,
    /// Where the hub is.
    pub hub: HubConfig,
    /// What is kept while the hub is away.
    pub outbox: OutboxConfig,
    /// The board.
    pub board: BoardConfig,
    /// What may run.
    pub policy: PolicyConfig,
    /// The file this was read from: verdicts name it. The loader sets it, and calls
    /// [`PolicyConfig::locate`].
    #[serde(skip)]
    pub file: Option<std::path::PathBuf>,
}

/// A commented file with every key: `hearth-node config example`.
pub const EXAMPLE: &str = include_str!("config/example.toml");

/// `[hub]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HubConfig {
    /// `host:port`, tried before the addresses learned at pairing; at most 8.
    pub addresses: Vec<String>,
}

/// `[outbox]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutboxConfig {
    /// Readings and events kept, 1,000 to 10,000,000.
    pub max_items: u64,
    /// Their size, 1 to 4,096 MiB.
    pub max_mb: u64,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self { max_items: 50_000, max_mb: 16 }
    }
}

/// `[policy]`: what may run on this node, and whose yes it takes. Only this file can loosen it.
///
/// The first rule that fits a request decides; when none fits, the demand of the command's class does.
/// `person` as a class default is in force once the node's list of approvers allows it (two persons'
/// keys, or one and a recovery key); until then it counts as `hub`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Looking at states that are no secret: lists, pins, sensors, health.
    pub observe: Demand,
    /// Pictures.
    pub capture: Demand,
    /// Switching pins, showing notifications.
    pub actuate: Demand,
    /// Running programs.
    pub execute: Demand,
    /// `[[policy.rule]]`, at most 128.
    pub rule: Vec<PolicyRule>,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            observe: Demand::None,
            capture: Demand::Hub,
            actuate: Demand::Hub,
            execute: Demand::Person,
            rule: Vec::new(),
        }
    }
}

/// What a rule demands. Ordered from loose to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// Runs without asking.
    None,
    /// The hub signs after a permitted person decided.
    Hub,
    /// A person signs with a key the hub does not hold.
    Person,
    /// Never runs.
    Deny,
}

/// What happens when a rule's limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beyond {
    /// The request is refused.
    #[default]
    Deny,
    /// It is asked for as if the rule were not there, at least of the hub.
    Ask,
}

/// `[[policy.rule]]`
///
/// ```toml
/// [[policy.rule]]
/// command = "gpio.pulse"
/// pin = "pump"
/// max_duration_ms = 60000
/// need = "none"
/// uses_per_hour = 4
/// beyond = "ask"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// A command, a family such as `gpio.*`, or `*`.
    pub command: String,
    /// What it demands.
    pub need: Demand,
    /// Only this pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Only this camera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub camera: Option<String>,
    /// Only this sensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensor: Option<String>,
    /// Only switching to this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<bool>,
    /// Only pulses of at most this length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// Only pulses longer than this: for rules that are stricter than the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_than_ms: Option<u64>,
    /// `system.run`: exactly this program and these arguments; a last argument `*` stands for any
    /// further ones. A rule that loosens compares the program as it was asked for and allows no extra
    /// environment; a stricter one compares the file name only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// `system.run`: only in this directory. A rule that loosens fits only requests without a
    /// directory when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Only between these times of day in UTC, for example `06:00-20:00`. While the clock is not set
    /// by the network, a rule that loosens is off and a stricter one is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_utc: Option<String>,
    /// At most this many uses, ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// At most this many uses since the program started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_per_boot: Option<u32>,
    /// At most this many uses in an hour of powered time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_per_hour: Option<u32>,
    /// What happens when a limit is reached.
    #[serde(default)]
    pub beyond: Beyond,
    /// Line of the rule's header in the file; 0 when not known.
    #[serde(skip)]
    pub line: usize,
}

impl PolicyConfig {
    /// Notes on which line of `text` (the file this was read from) each rule begins, so that a verdict
    /// can name it.
    pub fn locate(&mut self, text: &str) {
        let headers = text.lines().enumerate().filter(|(_, line)| {
            let bare: String = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            bare == "[[policy.rule]]"
        });
        for (rule, (number, _)) in self.rule.iter_mut().zip(headers) {
            rule.line = number + 1;
        }
    }
}
