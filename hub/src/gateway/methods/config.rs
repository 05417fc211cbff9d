//! `config.*`, `logs.tail`, `gateway.identity.get`: how the hub is set up.

use super::{Access, Call, Method, NoParams, encode, method};
use crate::config::Config;
use crate::devices::Scope;
use crate::gateway::answer::{Answer, unavailable};
use hearth_shared::identity::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

const READ: Access = Access::Operator(Scope::Read);

pub(super) const METHODS: &[Method] = &[
    method!("config.get", READ, get, NoParams => ConfigView),
    method!("config.schema", READ, schema, NoParams => ConfigSchema),
    method!("logs.tail", READ, tail, TailParams => Tail),
    method!("gateway.identity.get", READ, identity, NoParams => Identity),
];

/// The configuration in force, without secrets.
#[derive(Debug, Serialize, JsonSchema)]
struct ConfigView {
    path: String,
    exists: bool,
    /// The file's own text may hold secrets: never sent.
    raw: Option<String>,
    parsed: Value,
    config: Value,
    /// SHA-256 of the file as it is now; differs from what is in force after an edit.
    hash: Option<Digest>,
    valid: bool,
    issues: Vec<String>,
}

async fn get(call: Call, _: NoParams) -> Answer<ConfigView> {
    let hub = &call.gateway.hub;
    let path = hub.home.config();
    let bytes = tokio::fs::read(&path).await.ok();
    let config = encode(&*hub.config);
    Ok(ConfigView {
        path: path.display().to_string(),
        exists: bytes.is_some(),
        raw: None,
        parsed: config.clone(),
        config,
        hash: bytes.map(|b| Digest::of(&b)),
        valid: true,
        issues: Vec::new(),
    })
}

#[derive(Debug, Serialize, JsonSchema)]
struct ConfigSchema {
    schema: Value,
    version: String,
}

async fn schema(_: Call, _: NoParams) -> Answer<ConfigSchema> {
    Ok(ConfigSchema {
        schema: schemars::schema_for!(Config).to_value(),
        version: hearth_shared::VERSION.into(),
    })
}

/// A piece of the log.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TailParams {
    /// Where the last piece ended; without it the newest lines.
    cursor: Option<u64>,
    /// Lines, at most 5000; 500 when left out.
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<usize>,
    /// Bytes, at most 1000000; 250000 when left out.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Tail {
    file: String,
    /// For the next call.
    cursor: u64,
    size: u64,
    lines: Vec<String>,
    /// Older lines were left out.
    truncated: bool,
    /// The file is shorter than the cursor: it was rotated, and this is its beginning.
    reset: bool,
}

async fn tail(call: Call, params: TailParams) -> Answer<Tail> {
    let path = call.gateway.hub.home.log();
    let limit = params.limit.unwrap_or(500).clamp(1, 5000);
    let max_bytes = params.max_bytes.unwrap_or(250_000).clamp(1, 1_000_000);
    tokio::task::spawn_blocking(move || read_tail(&path, params.cursor, limit, max_bytes))
        .await
        .map_err(|e| unavailable(e.to_string()))?
        .map_err(|e| unavailable(format!("the log cannot be read: {e}")))
}

fn read_tail(path: &Path, cursor: Option<u64>, limit: usize, max_bytes: u64) -> std::io::Result<Tail> {
    let file = path.display().to_string();
    let mut log = match std::fs::File::open(path) {
        Ok(log) => log,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Tail { file, cursor: 0, size: 0, lines: Vec::new(), truncated: false, reset: false });
        }
        Err(e) => return Err(e),
    };
    let size = log.metadata()?.len();
    let reset = cursor.is_some_and(|c| c > size);
    let wanted = match cursor {
        Some(cursor) if !reset => cursor,
        Some(_) => 0,
        None => size.saturating_sub(max_bytes),
    };
    let start = wanted.max(size.saturating_sub(max_bytes));
    log.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    log.take(size - start).read_to_end(&mut bytes)?;
    // Only whole lines; the rest comes with the next call.
    let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let text = String::from_utf8_lossy(&bytes[..end]);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // A read that did not begin at a known end of line begins in the middle of one.
    let cut_first = start > 0 && (cursor.is_none() || start > wanted);
    if cut_first && !lines.is_empty() {
        lines.remove(0);
    }
    let extra = lines.len().saturating_sub(limit);
    lines.drain(..extra);
    Ok(Tail { file, cursor: start + end as u64, size, lines, truncated: cut_first || extra > 0, reset })
}

/// Who this hub is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Identity {
    device_id: String,
    public_key: String,
}

async fn identity(call: Call, _: NoParams) -> Answer<Identity> {
    let key = call.gateway.hub.keys.identity.public();
    Ok(Identity { device_id: key.device_id().to_string(), public_key: key.to_base64url() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_goes_on_where_it_ended_and_notices_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.log");
        let none = read_tail(&path, None, 10, 1000).unwrap();
        assert_eq!((none.cursor, none.lines.len()), (0, 0));
        std::fs::write(&path, "one\ntwo\nthr").unwrap();
        let first = read_tail(&path, None, 10, 1000).unwrap();
        assert_eq!(
            (first.lines, first.cursor, first.truncated),
            (vec!["one".into(), "two".into()], 8, false)
        );
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let next = read_tail(&path, Some(8), 10, 1000).unwrap();
        assert_eq!((next.lines, next.cursor), (vec!["three".to_owned()], 14));
        let few = read_tail(&path, None, 1, 1000).unwrap();
        assert_eq!((few.lines, few.truncated), (vec!["three".to_owned()], true));
        let small = read_tail(&path, None, 10, 8).unwrap();
        assert_eq!(small.lines, ["three"], "a line cut by the byte limit is left out");
        std::fs::write(&path, "new\n").unwrap();
        let rotated = read_tail(&path, Some(14), 10, 1000).unwrap();
        assert!(rotated.reset);
        assert_eq!(rotated.lines, ["new"]);
    }
}
