//! Reading `config.toml`: what is wrong is said with file, line and the way out.

use super::{Config, check, schema};
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// A name this similar (Jaro-Winkler, 0 to 1) is offered for one that is not known.
const SIMILAR: f64 = 0.7;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}; check that it exists and belongs to you", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// Something in it is wrong.
    #[error("{}", render(path.as_deref(), problems))]
    Invalid { path: Option<PathBuf>, problems: Vec<Problem> },
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Line in the file, from 1; none for values from the environment and for limits between keys.
    pub line: Option<usize>,
    /// What is wrong, what is allowed, what to do.
    pub message: String,
}

fn render(path: Option<&Path>, problems: &[Problem]) -> String {
    let file = path.map_or_else(|| "configuration".into(), |p| p.display().to_string());
    let lines = problems.iter().map(|p| match p.line {
        Some(line) => format!("{file}:{line}: {}", p.message),
        None => format!("{file}: {}", p.message),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads the file of a home (a missing one means the defaults), lets the environment override, and
/// checks the whole.
///
/// # Errors
/// [`ConfigError`] with every problem found.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let io = |source| ConfigError::Io { path: path.to_path_buf(), source };
    let text = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(io(e)),
        Ok(meta) if meta.len() > MAX_FILE => {
            return Err(io(std::io::Error::other(format!("{} bytes, the limit is {MAX_FILE}", meta.len()))));
        }
        Ok(_) => std::fs::read_to_string(path).map_err(io)?,
    };
    let invalid = |problems| ConfigError::Invalid { path: Some(path.to_path_buf()), problems };
    let mut config = parse(&text).map_err(invalid)?;
    environment(&mut config, |name| std::env::var(name).ok()).map_err(invalid)?;
    let problems = check::problems(&config, &text);
    if problems.is_empty() { Ok(config) } else { Err(invalid(problems)) }
}

/// Reads a text; unknown keys are refused with the nearest known name.
///
/// # Errors
/// Every problem found.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    let of_toml = |e: &toml::de::Error| Problem {
        line: e.span().map(|s| line_of(text, s.start)),
        message: e.message().trim().replace('\n', "; "),
    };
    let document = toml::de::DeTable::parse(text).map_err(|e| vec![of_toml(&e)])?;
    let mut problems = Vec::new();
    unknown(document.get_ref(), "", &schema::tables(), text, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    toml::from_str(text).map_err(|e| vec![of_toml(&e)])
}

/// Variables that override the file.
fn environment(config: &mut Config, var: impl Fn(&str) -> Option<String>) -> Result<(), Vec<Problem>> {
    if let Some(port) = var("HEARTH_PORT").filter(|p| !p.is_empty()) {
        config.gateway.port = port.parse().map_err(|_| {
            let message =
                format!("the environment variable HEARTH_PORT is `{port}`; it must be a port, 0 to 65535");
            vec![Problem { line: None, message }]
        })?;
    }
    if let Some(level) = var("HEARTH_LOG").filter(|l| !l.is_empty()) {
        config.log.level = level;
    }
    Ok(())
}

fn unknown(
    table: &toml::de::DeTable<'_>,
    path: &str,
    tables: &[schema::Table],
    text: &str,
    problems: &mut Vec<Problem>,
) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let keys = tables.iter().find(|t| t.path == path).map(|t| t.keys.as_slice()).unwrap_or_default();
    for (key, value) in table {
        let name: &str = key.get_ref();
        let full = join(name);
        if tables.iter().any(|t| t.path == full) {
            if let Some(inner) = value.get_ref().as_table() {
                unknown(inner, &full, tables, text, problems);
            }
            continue;
        }
        if keys.iter().any(|k| k.name == name) {
            continue;
        }
        let here = keys.iter().map(|k| join(k.name));
        let inside = tables.iter().filter(|t| !t.path.is_empty()).flat_map(|t| {
            std::iter::once(t.path.clone()).chain(t.keys.iter().map(|k| format!("{}.{}", t.path, k.name)))
        });
        let hint = nearest(&full, here.chain(inside));
        let hint = hint.map_or_else(
            || "; see `hearth config example` for all keys".into(),
            |known| format!("; did you mean `{known}`?"),
        );
        let line = Some(line_of(text, key.span().start));
        problems.push(Problem { line, message: format!("unknown key `{full}`{hint}") });
    }
    problems.sort_by_key(|p| p.line);
}

/// The known name that looks most like `name`: the last part decides, the table in front of it a little.
fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let score = |candidate: &str| {
        let parts = strsim::jaro_winkler(&last(name), &last(candidate));
        0.85 * parts + 0.15 * strsim::jaro_winkler(name, candidate)
    };
    known
        .map(|k| (score(&k), k))
        .filter(|(s, _)| *s >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}

/// Line (from 1) of a byte offset.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Problem {
        parse(text).unwrap_err().remove(0)
    }

    #[test]
    fn unknown_keys_are_refused_with_line_and_nearest_name() {
        let p = problem("[gateway]\nport = 1\nbnd = [\"::1\"]\n");
        assert_eq!(
            p,
            Problem {
                line: Some(3),
                message: "unknown key `gateway.bnd`; did you mean `gateway.bind`?".into()
            }
        );
        let p = problem("\n[gatway]\nport = 1\n");
        assert_eq!(p.line, Some(2));
        assert!(p.message.contains("did you mean `gateway`?"), "{}", p.message);
        // Right key, wrong place.
        let p = problem("port = 5\n");
        assert!(p.message.contains("did you mean `gateway.port`?"), "{}", p.message);
        let p = problem("[agent.model]\nbase_url = \"x\"\nname = \"y\"\nzzzzqq = 1\n");
        assert!(p.message.contains("config example"), "{}", p.message);
    }

    #[test]
    fn every_unknown_key_is_told_at_once() {
        let problems = parse("[log]\nlevl = \"info\"\n[retention]\nmedia = 5\n").unwrap_err();
        assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [Some(2), Some(4)]);
    }

    #[test]
    fn wrong_types_and_broken_syntax_name_the_line() {
        assert_eq!(problem("[gateway]\nport = \"x\"\n").line, Some(2));
        assert_eq!(problem("[gateway]\nport = 70000\n").line, Some(2));
        assert_eq!(problem("[gateway\n").line, Some(1));
        assert_eq!(problem("gateway = 5\n").line, Some(1));
    }

    #[test]
    fn environment_overrides_and_bad_values_are_told() {
        let mut config = Config::default();
        environment(&mut config, |n| (n == "HEARTH_PORT").then(|| "0".into())).unwrap();
        assert_eq!(config.gateway.port, 0);
        assert!(environment(&mut config, |n| (n == "HEARTH_PORT").then(|| "many".into())).is_err());
    }

    #[test]
    fn a_missing_file_means_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let config = load(&dir.path().join("config.toml")).unwrap();
        assert_eq!(config.retention.readings_days, 7);
        let error = load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("check that it exists"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = parse(&text);
        }
    }
}
