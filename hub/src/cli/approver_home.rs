//! A person's approver directory: its keys, the hub it connects to, and notes for the audit.
//!
//! `approver.key` signs grants and nothing else; `device.key` signs connects. The directory is the
//! person's own and is best kept on another machine than the hub.

use super::client::{Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::safe_line;
use crate::home::{Home, write_private};
use crate::keys;
use crate::store::now_ms;
use hearth_shared::identity::{SecretKey, SecretText};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Notes kept per log; the oldest go first.
const MAX_NOTES: usize = 256;

/// Paths below the approver's directory.
#[derive(Debug, Clone)]
pub struct ApproverHome {
    root: PathBuf,
}

/// `approver.json`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name for people.
    pub name: String,
    /// A hub elsewhere; none for the hub of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<HubSettings>,
}

/// How to reach a hub.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubSettings {
    /// `wss://host:port`
    pub url: String,
    /// SHA-256 of its TLS key.
    pub pin: String,
}

/// A head of somebody's log as this person saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// `hub:<id>` or `node:<name>`.
    log: String,
    seq: u64,
    hash: String,
    seen_ms: u64,
}

impl ApproverHome {
    /// `--approver-home`, else `$HEARTH_APPROVER_HOME`, else `~/.local/state/hearth-approver`.
    #[must_use]
    pub fn locate(explicit: Option<&Path>) -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = explicit
            .map(Path::to_path_buf)
            .or_else(|| var("HEARTH_APPROVER_HOME"))
            .or_else(|| var("XDG_STATE_HOME").map(|d| d.join("hearth-approver")))
            .or_else(|| var("HOME").map(|d| d.join(".local/state/hearth-approver")))
            .unwrap_or_else(|| PathBuf::from("hearth-approver"));
        Self { root }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether it has a key.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.file("approver.key").exists()
    }

    /// Makes directory and keys.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn create(&self) -> Result<(), Failure> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root).map_err(|e| {
            Failure::failed(
                format!("{}: {e}", self.root.display()),
                "name another directory with --approver-home",
            )
        })?;
        keys::load_or_make_key(&self.file("approver.key"))?;
        keys::load_or_make_key(&self.file("device.key"))?;
        Ok(())
    }

    fn key(&self, name: &str) -> Result<SecretKey, Failure> {
        if !self.exists() {
            return Err(Failure::not_found(
                format!("there is no approver at {}", self.root.display()),
                "make one with `hearth approver init`",
            ));
        }
        Ok(keys::load_or_make_key(&self.file(name))?)
    }

    /// The key that signs grants.
    ///
    /// # Errors
    /// Exit code 4 when there is none yet.
    pub fn approver_key(&self) -> Result<SecretKey, Failure> {
        self.key("approver.key")
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let path = self.file("approver.json");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Settings::default()),
            Err(e) => {
                return Err(Failure::failed(
                    format!("{}: {e}", path.display()),
                    "check that it belongs to you",
                ));
            }
        };
        serde_json::from_slice(&bytes).map_err(|e| {
            Failure::failed(
                format!("{} is damaged: {e}", path.display()),
                "remove it; your keys stay, and `hearth approver init` writes it anew",
            )
        })
    }

    /// Writes the settings.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn store(&self, settings: &Settings) -> Result<(), Failure> {
        let bytes = serde_json::to_vec_pretty(settings).unwrap_or_default();
        Ok(write_private(&self.file("approver.json"), &bytes)?)
    }

    /// The hub to connect to, with this approver's own device key.
    ///
    /// # Errors
    /// Exit code 3 when this machine's hub is meant and does not run.
    pub fn target(&self, context: &Context) -> Result<Target, Failure> {
        let key = self.key("device.key")?;
        match self.settings()?.hub {
            Some(hub) => {
                let token = std::fs::read_to_string(self.file("device.token")).ok().map(SecretText::new);
                Target::remote(&hub.url, &hub.pin, token, key)
            }
            None => self.local(&context.home, key),
        }
    }

    fn local(&self, home: &Home, key: SecretKey) -> Result<Target, Failure> {
        let mut target = Target::local(home)?;
        if let Target::Local(local) = &mut target {
            local.key = key;
        }
        Ok(target)
    }

    /// Keeps the token that the hub gave this device.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_token(&self, client: &Client) -> Result<(), Failure> {
        if self.settings()?.hub.is_some()
            && let Some(token) = client.hello()["auth"]["deviceToken"].as_str()
        {
            write_private(&self.file("device.token"), token.as_bytes())?;
        }
        Ok(())
    }

    fn notes(&self) -> Vec<Note> {
        std::fs::read(self.file("heads.json"))
            .ok()
            .and_then(|b| serde_json::from_slice(&b).ok())
            .unwrap_or_default()
    }

    /// Notes the end of a log, so that a later cut shows.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&self, log: &str, head: &Value) -> Result<(), Failure> {
        let (Some(seq), Some(hash)) = (head["seq"].as_u64().filter(|s| *s > 0), head["hash"].as_str()) else {
            return Ok(());
        };
        let mut notes = self.notes();
        if notes.iter().any(|n| n.log == log && n.seq == seq && n.hash == hash) {
            return Ok(());
        }
        notes.push(Note { log: log.into(), seq, hash: hash.into(), seen_ms: now_ms() });
        while notes.iter().filter(|n| n.log == log).count() > MAX_NOTES {
            // The first of all stays: it reaches furthest back.
            let second = notes.iter().enumerate().filter(|(_, n)| n.log == log).nth(1).map(|(i, _)| i);
            let Some(second) = second else { break };
            notes.remove(second);
        }
        Ok(write_private(&self.file("heads.json"), &serde_json::to_vec(&notes).unwrap_or_default())?)
    }

    /// Notes what the hub says of its own head and those of its nodes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_report(&self, hub_id: &str, report: &Value) -> Result<(), Failure> {
        self.note(&format!("hub:{hub_id}"), &report["head"])?;
        for node in report["nodes"].as_array().into_iter().flatten() {
            if let Some(name) = node["node"].as_str() {
                self.note(&format!("node:{name}"), &node["head"])?;
            }
        }
        Ok(())
    }

    /// Compares the notes with what the hub has now. One entry a note, with `fault` where they differ.
    ///
    /// # Errors
    /// The hub is gone.
    pub async fn check_notes(&self, client: &mut Client, report: &Value) -> Result<Vec<Value>, Failure> {
        let status = client.call("status", json!({})).await?;
        let hub = format!("hub:{}", status["hubId"].as_str().unwrap_or_default());
        let mut checked = Vec::new();
        for note in self.notes() {
            let fault = if note.log == hub {
                let params = json!({ "seq": note.seq, "hash": note.hash });
                let compared = client.call("hearth.audit.compare", params).await?;
                compared["fault"].as_str().map(|f| format!("the hub's log: {}", safe_line(f)))
            } else if let Some(name) = note.log.strip_prefix("node:") {
                let nodes = report["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
                match nodes.iter().find(|n| n["node"] == name) {
                    Some(node) => node_fault(&note, &node["head"]),
                    None => continue,
                }
            } else {
                continue;
            };
            checked.push(json!({ "log": note.log, "seq": note.seq, "hash": note.hash, "fault": fault }));
        }
        Ok(checked)
    }
}

fn node_fault(note: &Note, head: &Value) -> Option<String> {
    let seq = head["seq"].as_u64().unwrap_or_default();
    if seq < note.seq {
        return Some(format!("{} had {} records when this approver looked, now {seq}", note.log, note.seq));
    }
    (seq == note.seq && head["hash"] != note.hash.as_str())
        .then(|| format!("{} has another record {seq} than this approver saw", note.log))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(seq: u64, hash: &str) -> Note {
        Note { log: "hub:x".into(), seq, hash: hash.into(), seen_ms: 0 }
    }

    #[test]
    fn a_cut_or_rewritten_log_shows_against_the_notes() {
        let held = note(5, "aa");
        assert_eq!(node_fault(&held, &json!({"seq": 9, "hash": "cc"})), None);
        assert!(node_fault(&held, &json!({"seq": 4, "hash": "cc"})).is_some());
        assert!(node_fault(&held, &json!({"seq": 5, "hash": "cc"})).is_some());
    }

    #[test]
    fn notes_are_bounded_and_keep_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let home = ApproverHome::locate(Some(dir.path()));
        home.create().unwrap();
        for seq in 1..=(MAX_NOTES as u64 + 20) {
            home.note("hub:x", &json!({"seq": seq, "hash": format!("h{seq}")})).unwrap();
        }
        home.note("hub:x", &json!({"seq": 0, "hash": "none"})).unwrap();
        let notes = home.notes();
        assert_eq!(notes.len(), MAX_NOTES);
        assert_eq!((notes[0].seq, notes[MAX_NOTES - 1].seq), (1, MAX_NOTES as u64 + 20));
    }

    #[test]
    fn the_two_keys_differ_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let home = ApproverHome::locate(Some(&dir.path().join("a")));
        assert_eq!(home.approver_key().unwrap_err().code(), 4);
        home.create().unwrap();
        let key = home.approver_key().unwrap().public();
        assert_ne!(key, home.key("device.key").unwrap().public());
        home.create().unwrap();
        assert_eq!(home.approver_key().unwrap().public(), key);
    }
}
