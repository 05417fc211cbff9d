//! `[channels.telegram]`

use crate::config::AccessConfig;
use hearth_shared::identity::SecretText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[channels.telegram]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelegramConfig {
    /// Name of the environment variable that holds the bot's token, as @BotFather gave it.
    #[schemars(example = &"HEARTH_TELEGRAM_TOKEN")]
    pub token_env: Option<String>,
    /// The token itself; better kept in the environment.
    #[serde(skip_serializing)]
    #[schemars(example = &"123456:secret")]
    pub token: Option<SecretText>,
    /// Address of the Bot API; another one for a Bot API server of your own.
    pub api_base: String,
    /// A proxy for it: `http://`, `https://` or `socks5h://`.
    #[schemars(example = &"socks5h://192.168.1.5:1080")]
    pub proxy: Option<String>,
    /// Seconds for which Telegram holds a question for news.
    pub poll_s: u64,
    /// Who may write to the bot.
    pub access: AccessConfig,
}

impl Default for TelegramConfig {
    fn default() -> Self {
        Self {
            token_env: None,
            token: None,
            api_base: "https://api.telegram.org".into(),
            proxy: None,
            poll_s: 50,
            access: AccessConfig::default(),
        }
    }
}

impl TelegramConfig {
    /// From the environment variable that is named, else from the file.
    pub(super) fn token(&self) -> Option<SecretText> {
        crate::config::secret(self.token_env.as_deref(), self.token.as_ref())
    }

    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if self.token_env.is_none() && self.token.is_none() {
            found.push((
                "token_env",
                "is missing; name the variable with the token that @BotFather gave you".into(),
            ));
        }
        if let Some(name) = self.token_env.as_deref().filter(|n| !crate::config::check::is_variable(n)) {
            let message =
                format!("is `{name}`; it must be the name of an environment variable, not the token itself");
            found.push(("token_env", message));
        }
        // The base may hold a path; `https` is needed for everything but a server in the house.
        if !(self.api_base.starts_with("http://") || self.api_base.starts_with("https://")) {
            found.push(("api_base", "must begin with `http://` or `https://`".into()));
        }
        if let Some(proxy) = &self.proxy
            && !["http://", "https://", "socks5://", "socks5h://"].iter().any(|s| proxy.starts_with(s))
        {
            found
                .push(("proxy", "must begin with `http://`, `https://`, `socks5://` or `socks5h://`".into()));
        }
        if !(1..=50).contains(&self.poll_s) {
            found.push(("poll_s", format!("is {}; it must be 1 to 50 seconds", self.poll_s)));
        }
        let people = self
            .access
            .allow
            .iter()
            .map(|id| ("access", id))
            .chain(self.access.approvers.iter().map(|id| ("access", id)));
        for (key, id) in people.filter(|(_, id)| !id.parse::<i64>().is_ok_and(|n| n > 0)) {
            let message = format!(
                "holds `{id}` as a person; it must be a numeric Telegram id such as \"12345678\", never a name (names can change hands)"
            );
            found.push((key, message));
        }
        found
    }
}
