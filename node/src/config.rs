//! `node.toml`

use serde::{Deserialize, Serialize};

/// The whole file. (Completed by its owners: `board` by the capability, `policy` by the guard.)
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The node's name; the host name when left out.
    pub name: Option<String>,
    /// The board.
    pub board: BoardConfig,
    /// What may run.
    pub policy: PolicyConfig,
}

/// `[board]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoardConfig {
    /// A simulated board instead of the real one.
    pub simulate: bool,
}

/// `[policy]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {}
