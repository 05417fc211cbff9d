//! The example file: every key with its meaning and its default, all commented out, so that an empty
//! file and the example mean the same.

use super::schema::{self, Table};

/// Width of comment lines.
const WIDTH: usize = 96;

/// The text that `hearth config example` prints.
#[must_use]
pub fn text() -> String {
    let mut out = String::new();
    comment(
        &mut out,
        "Hearth hub configuration. Every key is shown with its default; take the `#` away in front of a key \
         to change it. The hub reads this file when it starts; `hearth config check` tells whether it will.",
    );
    for table in schema::tables() {
        if !table.path.is_empty() {
            write_table(&mut out, &table);
        }
    }
    out
}

fn write_table(out: &mut String, table: &Table) {
    out.push('\n');
    comment(out, &table.doc);
    // A table that is there by default may stand; one that is not would switch something on.
    out.push_str(if table.optional { "#[" } else { "[" });
    out.push_str(&table.path);
    out.push_str("]\n");
    for key in &table.keys {
        comment(out, &key.doc);
        match (&key.default, &key.example) {
            (Some(value), _) => out.push_str(&format!("#{} = {value}\n", key.name)),
            (None, Some(value)) => out.push_str(&format!("#{} = {value}   # not set by default\n", key.name)),
            (None, None) => out.push_str(&format!("#{} =\n", key.name)),
        }
    }
}

fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() > 1 && line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::{Config, load};
    use super::*;

    /// Takes the `#` away in front of keys and tables.
    fn uncommented() -> String {
        text()
            .lines()
            .map(|l| if l.starts_with("# ") { l } else { l.trim_start_matches('#') }.to_owned() + "\n")
            .collect()
    }

    #[test]
    fn the_example_means_the_defaults_and_every_key_in_it_is_known() {
        let parsed = load::parse(&text()).unwrap();
        let as_json = |c: &Config| serde_json::to_value(c).unwrap();
        assert_eq!(as_json(&parsed), as_json(&Config::default()));
        let full = load::parse(&uncommented()).unwrap();
        assert!(full.agent.model.is_some());
        assert_eq!(full.gateway.port, Config::default().gateway.port);
    }

    #[test]
    fn the_committed_example_does_not_drift() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config.example.toml");
        if std::env::var_os("HEARTH_BLESS").is_some() {
            std::fs::write(path, text()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == text(),
            "run `HEARTH_BLESS=1 cargo test -p hearth-hub config::example` and commit"
        );
    }
}
