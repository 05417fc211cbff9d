//! Ranges and rules between keys that the types do not express.

use super::load::Problem;
use super::{Config, NotifyConfig};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Everything that is out of range. `text` is the file, for line numbers.
#[must_use]
pub fn problems(config: &Config, text: &str) -> Vec<Problem> {
    let mut check = Check { text, problems: Vec::new() };
    let gateway = &config.gateway;
    check.range("gateway", "max_connections", gateway.max_connections as u64, 8..=65_536, "connections");
    check.range("gateway", "requests_per_second", gateway.requests_per_second.into(), 1..=10_000, "requests");
    check.range("pairing", "window_s", config.pairing.window_s, 10..=86_400, "seconds");
    check.range("approvals", "lifetime_s", config.approvals.lifetime_s, 10..=604_800, "seconds");
    check.range("approvals", "device_wait_s", config.approvals.device_wait_s, 10..=2_592_000, "seconds");
    let retention = &config.retention;
    check.range("retention", "readings_days", retention.readings_days.into(), 1..=3_650, "days");
    check.range("retention", "summaries_days", retention.summaries_days.into(), 1..=36_500, "days");
    check.range("retention", "media_mb", retention.media_mb, 1..=1_048_576, "megabytes");
    check.range("retention", "events_days", retention.events_days.into(), 1..=36_500, "days");
    check.range("retention", "actions_days", retention.actions_days.into(), 1..=36_500, "days");
    check.range("agent", "run_limit_s", config.agent.run_limit_s, 5..=86_400, "seconds");
    check.range("agent", "max_runs", config.agent.max_runs as u64, 1..=256, "runs");
    check.range("log", "max_mb", config.log.max_mb, 1..=10_240, "megabytes");
    bind(&mut check, &gateway.bind);
    if let Some(name) = &gateway.name
        && (name.trim().is_empty() || name.chars().count() > hearth_shared::limits::MAX_NAME_CHARS)
    {
        check.add("gateway", "name", "must have 1 to 64 characters".into());
    }
    for rule in config.nodes.deny.iter().chain(&config.nodes.ask) {
        if !is_rule(rule) {
            let key = if config.nodes.deny.contains(rule) { "deny" } else { "ask" };
            check.add(
                "nodes",
                key,
                format!(
                    "holds `{rule}`; it must be a command such as `gpio.write` or a family such as `gpio.*`"
                ),
            );
        }
    }
    for id in &config.nodes.foreign_execute {
        if id.parse::<hearth_shared::identity::DeviceId>().is_err() {
            check.add(
                "nodes",
                "foreign_execute",
                format!(
                    "holds `{id}`; it must be device ids of 64 hexadecimal digits, see `hearth nodes list`"
                ),
            );
        }
    }
    notify(&mut check, &config.notify);
    if let Some(model) = &config.agent.model {
        if !(model.base_url.starts_with("http://") || model.base_url.starts_with("https://")) {
            check.add("agent.model", "base_url", "must begin with `http://` or `https://`".into());
        }
        if model.name.trim().is_empty() {
            check.add("agent.model", "name", "must not be empty".into());
        }
        let context = model.context_tokens.into();
        check.range("agent.model", "context_tokens", context, 1_024..=10_000_000, "tokens");
        if let Some(variable) = model.api_key_env.as_deref().filter(|v| !is_variable(v)) {
            check.add(
                "agent.model",
                "api_key_env",
                format!(
                    "is `{variable}`; it must be the name of an environment variable, not the key itself"
                ),
            );
        }
    }
    if config.log.level.parse::<tracing_subscriber::filter::Targets>().is_err() {
        check.add(
            "log",
            "level",
            format!(
                "is `{}`; it must be `error`, `warn`, `info`, `debug`, `trace`, or a filter such as \
                 `info,hearth_hub::nodes=debug`",
                config.log.level
            ),
        );
    }
    for (table, key, message) in config.channels.problems() {
        check.add(&table, key, message);
    }
    check.problems
}

struct Check<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn add(&mut self, table: &str, key: &str, message: String) {
        let line = self.line(table, key);
        self.problems.push(Problem { line, message: format!("`{table}.{key}` {message}") });
    }

    fn range(&mut self, table: &str, key: &str, value: u64, allowed: RangeInclusive<u64>, unit: &str) {
        if !allowed.contains(&value) {
            let (low, high) = (allowed.start(), allowed.end());
            self.add(table, key, format!("is {value}; it must be {low} to {high} {unit}"));
        }
    }

    /// Where a key stands in the file; none when it came from elsewhere.
    fn line(&self, table: &str, key: &str) -> Option<usize> {
        let document = toml::de::DeTable::parse(self.text).ok()?;
        let mut here = document.get_ref();
        for part in table.split('.') {
            here = here.iter().find(|(k, _)| k.get_ref() == part)?.1.get_ref().as_table()?;
        }
        let (found, _) = here.iter().find(|(k, _)| k.get_ref() == key)?;
        Some(super::load::line_of(self.text, found.span().start))
    }
}

fn notify(check: &mut Check<'_>, notify: &NotifyConfig) {
    let web = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    if notify.command.first().is_some_and(|program| program.trim().is_empty()) {
        check.add("notify", "command", "must begin with a program".into());
    }
    if !(notify.contact.starts_with("mailto:") || notify.contact.starts_with("https:")) {
        check.add("notify", "contact", "must begin with `mailto:` or `https:`".into());
    }
    for origin in &notify.push_services {
        let parsed = reqwest::Url::parse(origin);
        if !web(origin) || !parsed.is_ok_and(|url| url.path() == "/" && url.query().is_none()) {
            check.add(
                "notify",
                "push_services",
                format!("holds `{origin}`; it must be origins such as `https://push.example.org`"),
            );
        }
    }
    if let Some(ntfy) = &notify.ntfy {
        let topic = reqwest::Url::parse(&ntfy.url).is_ok_and(|url| url.path().len() > 1);
        if !web(&ntfy.url) || !topic {
            check.add("notify.ntfy", "url", "must be `https://SERVER/TOPIC`".into());
        }
        if ntfy.token_env.as_deref().is_some_and(|v| !is_variable(v)) {
            let message = "must be the name of an environment variable, not the token itself";
            check.add("notify.ntfy", "token_env", message.into());
        }
    }
}

fn bind(check: &mut Check<'_>, addresses: &[IpAddr]) {
    if addresses.is_empty() {
        check.add("gateway", "bind", "is empty; name at least one address, for example `127.0.0.1`".into());
    }
    if addresses.len() > 16 {
        check.add("gateway", "bind", format!("holds {} addresses, the limit is 16", addresses.len()));
    }
    let any = |v4: bool| addresses.iter().any(|a| a.is_unspecified() && a.is_ipv4() == v4);
    for (i, address) in addresses.iter().enumerate() {
        if addresses[..i].contains(address) {
            check.add("gateway", "bind", format!("holds {address} twice"));
        } else if !address.is_unspecified() && any(address.is_ipv4()) {
            check.add("gateway", "bind", format!("holds {address} beside an address that covers it"));
        }
    }
}

fn is_rule(rule: &str) -> bool {
    let word =
        |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    rule.split_once('.')
        .is_some_and(|(family, rest)| word(family) && (rest == "*" || rest.split('.').all(word)))
}

pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::load::parse;
    use super::*;

    fn of(text: &str) -> Vec<Problem> {
        problems(&parse(text).unwrap(), text)
    }

    #[test]
    fn defaults_are_in_range() {
        assert_eq!(of(""), []);
    }

    #[test]
    fn values_out_of_range_name_line_value_and_limits() {
        let found = of("[retention]\nmedia_mb = 1\nreadings_days = 0\n");
        let message = "`retention.readings_days` is 0; it must be 1 to 3650 days".into();
        assert_eq!(found, [Problem { line: Some(3), message }]);
        for text in [
            "[pairing]\nwindow_s = 5",
            "[approvals]\nlifetime_s = 1",
            "[gateway]\nbind = []",
            "[gateway]\nbind = [\"0.0.0.0\", \"127.0.0.1\"]",
            "[gateway]\nbind = [\"::1\", \"::1\"]",
            "[gateway]\nname = \" \"",
            "[nodes]\ndeny = [\"gpio\"]",
            "[nodes]\nask = [\"*\"]",
            "[nodes]\nforeign_execute = [\"abc\"]",
            "[agent.model]\nname = \"m\"\nbase_url = \"ftp://x\"",
            "[agent.model]\nname = \"m\"\nbase_url = \"http://x\"\napi_key_env = \"sk-123\"",
            "[notify]\ncommand = [\" \"]",
            "[notify]\ncontact = \"me\"",
            "[notify]\npush_services = [\"https://push.example/path\"]",
            "[notify.ntfy]\nurl = \"https://ntfy.example\"",
            "[notify.ntfy]\nurl = \"ntfy.example/topic\"",
            "[notify.ntfy]\nurl = \"https://ntfy.example/topic\"\ntoken_env = \"tk-1\"",
            "[log]\nlevel = \"hearth=loud\"",
        ] {
            let found = of(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].line.is_some(), "{text}");
        }
        assert_eq!(
            of("[nodes]\ndeny = [\"gpio.*\", \"system.run\"]\n[log]\nlevel = \"info,hearth_hub=debug\""),
            []
        );
    }
}
