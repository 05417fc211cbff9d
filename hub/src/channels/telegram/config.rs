//! `[channels.telegram]`

use crate::config::AccessConfig;
use hearth_shared::identity::SecretText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

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

/// Whether an address is on this machine or in the house.
fn is_near(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        Err(_) => {
            !host.contains('.')
                || [".local", ".lan", ".home.arpa", ".internal"].iter().any(|end| host.ends_with(end))
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
        match reqwest::Url::parse(&self.api_base) {
            Ok(url) if url.scheme() == "https" => {}
            Ok(url) if url.scheme() == "http" && is_near(&url) => {}
            Ok(url) if url.scheme() == "http" => {
                let message =
                    "sends the bot's token in clear; `http://` is for a server in the house, take `https://`";
                found.push(("api_base", message.into()));
            }
            _ => found.push(("api_base", "must be an address that begins with `https://`".into())),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(change: impl FnOnce(&mut TelegramConfig)) -> Vec<&'static str> {
        let mut config =
            TelegramConfig { token: Some(SecretText::new("1:x".to_owned())), ..TelegramConfig::default() };
        change(&mut config);
        config.problems().into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn what_cannot_work_or_is_not_safe_is_said() {
        assert_eq!(problems(|_| {}), Vec::<&str>::new());
        assert_eq!(problems(|c| c.token = None), ["token_env"]);
        assert_eq!(problems(|c| c.token_env = Some("123456:AAH-x".into())), ["token_env"]);
        assert_eq!(problems(|c| c.access.approvers = vec!["@ann".into()]), ["access"]);
        assert_eq!(problems(|c| c.access.allow = vec!["-100".into()]), ["access"]);
        assert_eq!(problems(|c| c.poll_s = 0), ["poll_s"]);
        assert_eq!(problems(|c| c.proxy = Some("ftp://x".into())), ["proxy"]);
        for (base, fine) in [
            ("https://api.example.org", true),
            ("http://127.0.0.1:8081", true),
            ("http://[::1]:8081/x", true),
            ("http://192.168.1.5", true),
            ("http://botapi.local", true),
            ("http://api.telegram.org", false),
            ("http://8.8.8.8", false),
            ("api.telegram.org", false),
        ] {
            assert_eq!(problems(|c| c.api_base = base.into()).is_empty(), fine, "{base}");
        }
    }
}
