//! What a client says of itself in `connect`.

use hearth_shared::identity::SecretText;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Parameters of `connect`. Closed: an unknown property is refused.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the schema is closed and names what clients may send")]
pub struct ConnectParams {
    /// Oldest protocol the client speaks.
    #[schemars(range(min = 1))]
    pub min_protocol: u32,
    /// Newest.
    #[schemars(range(min = 1))]
    pub max_protocol: u32,
    /// The program.
    pub client: ClientInfo,
    /// `operator` (default) or `node`.
    pub role: Option<String>,
    /// Rights asked for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// What the client can do with what it is sent; for nodes, what they have.
    #[serde(default)]
    pub caps: Vec<String>,
    /// Commands of a node.
    #[serde(default)]
    pub commands: Vec<String>,
    /// What the node's system allows it.
    #[serde(default)]
    pub permissions: BTreeMap<String, bool>,
    /// The node's PATH.
    pub path_env: Option<String>,
    /// Taken and not used.
    pub computer_use: Option<serde_json::Value>,
    /// Taken and not used.
    pub worker_runs: Option<serde_json::Value>,
    /// Secrets.
    #[serde(default)]
    pub auth: AuthParams,
    /// Proof of the device's key.
    pub device: Option<DeviceParams>,
    /// For example `en-US`.
    pub locale: Option<String>,
    /// For the log.
    pub user_agent: Option<String>,
}

/// The program that connects.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientInfo {
    /// One of the known ones.
    pub id: ClientId,
    /// How it is used.
    pub mode: ClientMode,
    /// Not empty.
    #[schemars(length(min = 1))]
    pub version: String,
    /// For example `linux`; not empty.
    #[schemars(length(min = 1))]
    pub platform: String,
    /// Name for people.
    pub display_name: Option<String>,
    /// For example `Linux`.
    pub device_family: Option<String>,
    /// Hardware model.
    pub model_identifier: Option<String>,
    /// One installation or run of the program.
    pub instance_id: Option<String>,
    /// Build, at most 96 characters.
    #[schemars(length(max = 96))]
    pub build_id: Option<String>,
    /// Time zone, at most 64 characters.
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
        pub enum $name {
            $(
                #[doc = concat!("`", $text, "`")]
                #[serde(rename = $text)]
                $variant,
            )*
        }
        impl $name {
            /// As on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

words! {
    /// Programs the protocol knows.
    ClientId {
        Cli = "cli",
        GatewayClient = "gateway-client",
        NodeHost = "node-host",
        ControlUi = "openclaw-control-ui",
        WebchatUi = "webchat-ui",
        Webchat = "webchat",
        Tui = "openclaw-tui",
        Macos = "openclaw-macos",
        Linux = "openclaw-linux",
        Ios = "openclaw-ios",
        Watchos = "openclaw-watchos",
        Android = "openclaw-android",
        BrowserCopilot = "openclaw-browser-copilot",
        Worker = "openclaw-worker",
        Probe = "openclaw-probe",
        Fingerprint = "fingerprint",
        Test = "test",
    }
}

words! {
    /// How a program is used.
    ClientMode {
        Webchat = "webchat",
        Cli = "cli",
        Ui = "ui",
        Backend = "backend",
        Node = "node",
        Worker = "worker",
        Probe = "probe",
        Test = "test",
    }
}

/// Secrets; at most one of them is needed.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the schema is closed and names what clients may send")]
pub struct AuthParams {
    /// The gateway token, or a device token.
    pub token: Option<SecretText>,
    /// The gateway token in the other place where clients put it.
    pub password: Option<SecretText>,
    /// A device token.
    pub device_token: Option<SecretText>,
    /// From a setup code.
    pub bootstrap_token: Option<SecretText>,
    /// Other gateways' own; taken and not used.
    pub approval_runtime_token: Option<SecretText>,
    /// Other gateways' own; taken and not used.
    pub agent_runtime_identity_token: Option<SecretText>,
}

impl AuthParams {
    /// The token that a device's signature covers: the first of these that is there. Never the password.
    #[must_use]
    pub fn signed_token(&self) -> &str {
        [&self.token, &self.device_token, &self.bootstrap_token]
            .into_iter()
            .find_map(|t| t.as_ref().map(SecretText::expose))
            .unwrap_or_default()
    }
}

/// Proof of the device's key; see [`hearth_shared::connect::JsonProof`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceParams {
    /// Hex SHA-256 of the public key.
    pub id: String,
    /// 32 bytes, base64url.
    pub public_key: String,
    /// 64 bytes, base64url.
    pub signature: String,
    /// Unix milliseconds.
    pub signed_at: u64,
    /// From `connect.challenge`.
    pub nonce: String,
}

/// Longest list, and longest entry of one, that `connect` may carry.
const MAX_ENTRIES: usize = 256;
const MAX_TEXT: usize = 256;

impl ConnectParams {
    /// What the types do not say: empty and oversized values. In the words of the schema.
    ///
    /// # Errors
    /// The place and the rule.
    pub fn check(&self) -> Result<(), String> {
        let limit = |path: &str, text: &str, max: usize| {
            if text.chars().count() > max {
                return Err(format!("at {path}: must NOT have more than {max} characters"));
            }
            Ok(())
        };
        let c = &self.client;
        for (path, text) in [("/client/version", &c.version), ("/client/platform", &c.platform)] {
            if text.is_empty() {
                return Err(format!("at {path}: must NOT have fewer than 1 characters"));
            }
            limit(path, text, MAX_TEXT)?;
        }
        for (path, text, max) in [
            ("/client/displayName", &c.display_name, MAX_TEXT),
            ("/client/deviceFamily", &c.device_family, MAX_TEXT),
            ("/client/modelIdentifier", &c.model_identifier, MAX_TEXT),
            ("/client/instanceId", &c.instance_id, MAX_TEXT),
            ("/client/buildId", &c.build_id, 96),
            ("/client/timeZone", &c.time_zone, 64),
            ("/pathEnv", &self.path_env, 16 * 1024),
        ] {
            limit(path, text.as_deref().unwrap_or_default(), max)?;
        }
        for (path, list) in [("/scopes", &self.scopes), ("/caps", &self.caps), ("/commands", &self.commands)]
        {
            if list.len() > MAX_ENTRIES {
                return Err(format!("at {path}: must NOT have more than {MAX_ENTRIES} items"));
            }
            list.iter().try_for_each(|entry| limit(path, entry, MAX_TEXT))?;
        }
        if self.min_protocol == 0 || self.max_protocol == 0 {
            return Err("at /minProtocol: must be >= 1".into());
        }
        Ok(())
    }
}
