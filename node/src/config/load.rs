//! Reading `node.toml`: what is wrong is said with file, line and the nearest known name.

use super::Config;
use std::io;
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 256 * 1024;
/// A name this similar (Jaro-Winkler, 0 to 1) is offered for an unknown one.
const SIMILAR: f64 = 0.7;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// It is not what it should be.
    #[error("{path}:{line}: {message}")]
    Invalid { path: PathBuf, line: usize, message: String },
    /// A value from the environment.
    #[error("environment variable {name}: {message}")]
    Environment { name: &'static str, message: String },
}

impl Config {
    /// Reads `path` (a missing file means the defaults), lets `HEARTH_NODE_NAME` override, checks.
    ///
    /// # Errors
    /// [`ConfigError`], one line.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = match std::fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Ok(meta) if meta.len() > MAX_FILE => {
                let source = io::Error::other(format!("{} bytes, the limit is {MAX_FILE}", meta.len()));
                return Err(ConfigError::Io { path: path.into(), source });
            }
            _ => std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Io { path: path.into(), source })?,
        };
        let mut config = Self::parse(&text, path)?;
        if let Some(name) = std::env::var("HEARTH_NODE_NAME").ok().filter(|n| !n.is_empty()) {
            check_name(&name)
                .map_err(|message| ConfigError::Environment { name: "HEARTH_NODE_NAME", message })?;
            config.name = Some(name);
        }
        Ok(config)
    }

    /// Reads a text as if it stood in `path`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let invalid =
            |line: usize, message: String| ConfigError::Invalid { path: path.into(), line, message };
        let mut config: Self = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |s| line_of(text, s.start));
            invalid(line, explain(e.message()))
        })?;
        config.policy.locate(text);
        config.file = Some(path.into());
        let line =
            |key: &str| text.lines().position(|l| l.trim_start().starts_with(key)).map_or(1, |n| n + 1);
        if let Some(name) = &config.name {
            check_name(name).map_err(|why| invalid(line("name"), why))?;
        }
        for (key, value, range) in [
            ("max_items", config.outbox.max_items, 1_000..=10_000_000),
            ("max_mb", config.outbox.max_mb, 1..=4_096),
        ] {
            if !range.contains(&value) {
                let (low, high) = (range.start(), range.end());
                return Err(invalid(
                    line(key),
                    format!("outbox.{key} is {value}, it must be {low} to {high}"),
                ));
            }
        }
        if config.hub.addresses.len() > 8 {
            return Err(invalid(line("addresses"), "hub.addresses has more than 8 entries".into()));
        }
        if let Err(why) = config.board.check() {
            return Err(invalid(line("[[board"), why));
        }
        if let Err(why) = crate::guard::policy::Policy::compile(&config) {
            return Err(invalid(line("[[policy"), why.to_string()));
        }
        Ok(config)
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let count = name.chars().count();
    if count == 0 || count > hearth_shared::limits::MAX_NAME_CHARS {
        return Err(format!("the name has {count} characters, it must have 1 to 64"));
    }
    if name.chars().any(hearth_shared::identity::is_deceptive) {
        return Err("the name holds a control or invisible character".into());
    }
    Ok(())
}

/// Adds the nearest known name to "unknown field `x`, expected one of `a`, `b`", on one line.
fn explain(message: &str) -> String {
    let line = message.trim().replace('\n', "; ");
    let Some(rest) = line.strip_prefix("unknown field `") else { return line };
    let mut names = rest.split('`').step_by(2);
    let Some(unknown) = names.next() else { return line };
    let known: Vec<&str> = rest.split('`').skip(2).step_by(2).collect();
    let best = known
        .iter()
        .map(|k| (strsim::jaro_winkler(unknown, k), k))
        .filter(|(score, _)| *score >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((_, name)) => format!("unknown key `{unknown}`; did you mean `{name}`?"),
        None => format!("unknown key `{unknown}`; known here: {}", known.join(", ")),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}

/// `text` with the top-level key `name` set, everything else as it was.
#[must_use]
pub fn with_name(text: &str, name: &str) -> String {
    let line = format!("name = {}", toml::Value::String(name.into()));
    let mut lines: Vec<&str> = text.lines().collect();
    let tables = lines.iter().position(|l| l.trim_start().starts_with('[')).unwrap_or(lines.len());
    let is_name =
        |l: &&str| l.trim_start().strip_prefix("name").is_some_and(|r| r.trim_start().starts_with('='));
    match lines[..tables].iter().position(is_name) {
        Some(at) => lines[at] = &line,
        None => lines.insert(0, &line),
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        Config::parse(text, Path::new("node.toml")).unwrap_err().to_string()
    }

    #[test]
    fn unknown_keys_name_line_and_nearest_name() {
        assert_eq!(message("\nnmae = \"x\"\n"), "node.toml:2: unknown key `nmae`; did you mean `name`?");
        let text = message("[policy]\nactuat = \"hub\"\n");
        assert_eq!(text, "node.toml:2: unknown key `actuat`; did you mean `actuate`?");
        let text = message("[[board.pin]]\nid = \"a\"\ndirection = \"output\"\nactiv_low = true\n");
        assert!(text.contains("did you mean `active_low`?"), "{text}");
        assert!(message("zzz = 1\n").contains("known here: "), "no guess where nothing is near");
    }

    #[test]
    fn ranges_types_and_syntax_name_the_line() {
        assert!(message("[outbox]\nmax_items = 5\n").starts_with("node.toml:2: outbox.max_items is 5"));
        assert!(message("name = \"\"\n").starts_with("node.toml:1: "));
        assert!(message("name = \"a\\u200bb\"\n").contains("invisible"));
        assert!(message("[policy]\nactuate = \"maybe\"\n").starts_with("node.toml:2: "));
        assert!(message("[board\n").starts_with("node.toml:1: "));
    }

    #[test]
    fn the_example_documents_every_key_and_is_itself_valid() {
        let example = super::super::EXAMPLE;
        let bare: String = example
            .lines()
            .map(|l| l.strip_prefix("#:").map_or(l, |key| key.trim_start()))
            .map(|l| format!("{l}\n"))
            .collect();
        let config = Config::parse(&bare, Path::new("node.toml")).unwrap();
        assert_eq!((config.board.cameras.len(), config.board.pins.len()), (1, 1));
        Config::parse(example, Path::new("node.toml")).unwrap();
        // What is optional is set in the example, so that its key is serialised.
        let value = serde_json::to_value(&config).unwrap();
        let mut keys = Vec::new();
        collect(&value, &mut keys);
        for key in keys {
            assert!(bare.contains(&format!("{key} = ")) || bare.contains(&format!("{key}]")), "{key}");
        }
        for key in ["scale", "longer_than_ms", "between_utc", "uses_per_boot", "cwd", "run", "path", "beyond"]
        {
            assert!(bare.contains(&format!("{key} = ")), "{key}");
        }
    }

    fn collect(value: &serde_json::Value, keys: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    keys.push(key.clone());
                    collect(value, keys);
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|v| collect(v, keys)),
            _ => {}
        }
    }

    #[test]
    fn a_name_is_set_without_touching_the_rest() {
        assert_eq!(with_name("", "garage"), "name = \"garage\"\n");
        let text = "# mine\nname = \"old\"\n[board]\nsimulate = true\n";
        assert_eq!(with_name(text, "new"), "# mine\nname = \"new\"\n[board]\nsimulate = true\n");
        let text = "[[board.sensor]]\nid = \"t\"\nname = \"not this\"\n";
        let changed = with_name(text, "a \"b\"");
        let config = Config::parse(&changed, Path::new("x")).unwrap();
        assert_eq!(config.name.as_deref(), Some("a \"b\""));
        assert_eq!(config.board.sensors[0].name.as_deref(), Some("not this"));
    }
}
