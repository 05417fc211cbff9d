//! `hearth backup` and `hearth restore`: one tar file with a consistent copy of the state.
//!
//! The hub may run meanwhile: SQLite copies the database at one point in time. Keys are left out, so that a
//! stolen backup can neither speak for the hub nor read its connections; `--with-keys` says otherwise.

mod archive;
mod restore;

pub(super) use restore::{Arguments as RestoreArguments, run as restore};

use super::context::Context;
use super::error::Failure;
use super::output::bytes;
use archive::{Entry, Writer};
use jiff::Zoned;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Secrets: without them a restored hub is a new one to its nodes.
const KEYS: [&str; 6] = ["hub.key", "tls.pem", "authority.pem", "push.pem", "token", "cli.key"];

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where to write it [default: hearth-backup-TIME.tar here]
    file: Option<PathBuf>,
    /// Also pictures
    #[arg(long)]
    media: bool,
    /// Also the hub's keys. Whoever has such a backup can be the hub: keep it like the keys
    #[arg(long)]
    with_keys: bool,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let home = &context.home;
    if !home.database().exists() {
        return Err(Failure::not_found(
            format!("there is no hub in {}", home.root().display()),
            "name its directory with --home",
        ));
    }
    let path = match &arguments.file {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("hearth-backup-{}.tar", Zoned::now().strftime("%Y%m%d-%H%M%S"))),
    };
    if path.exists() {
        return Err(Failure::failed(format!("{} is there already", path.display()), "name another file"));
    }
    let mut entries = Vec::new();
    let copy = Copy::of(&home.database(), home.root())?;
    entries.push(Entry { name: "hub.db".into(), path: copy.path.clone() });
    if home.config().exists() {
        entries.push(Entry { name: "config.toml".into(), path: home.config() });
    }
    archive::collect(home.root(), Path::new("agents"), &mut entries)?;
    if arguments.media {
        archive::collect(home.root(), Path::new("media"), &mut entries)?;
    }
    if arguments.with_keys {
        for name in KEYS {
            let path = home.root().join(name);
            if path.exists() {
                entries.push(Entry { name: name.into(), path });
            }
        }
    }
    let mut writer = Writer::create(&path)?;
    for entry in &entries {
        writer.add(entry)?;
    }
    let size = writer.finish(arguments.with_keys)?;
    drop(copy);
    if context.json {
        return context.out.json(&json!({
            "file": path, "bytes": size, "files": entries.len(),
            "media": arguments.media, "keys": arguments.with_keys,
        }));
    }
    context.out.line(format!("{} ({}, {} files)", path.display(), bytes(size), entries.len()))?;
    if arguments.with_keys {
        context.out.line(
            "It holds the hub's keys: whoever has it can be the hub. Keep it where only you can read it.",
        )?;
    } else {
        context.out.line(
            "It holds no keys: on a new machine every node pairs again. `--with-keys` would keep them.",
        )?;
    }
    context.out.line(format!("next: keep it elsewhere; `hearth restore {}` brings it back", path.display()))
}

/// A consistent copy of a database, removed when done.
struct Copy {
    path: PathBuf,
}

impl Copy {
    fn of(database: &Path, folder: &Path) -> Result<Self, Failure> {
        let failed = |e: String| {
            Failure::failed(
                format!("the database cannot be copied: {e}"),
                "`hearth doctor` looks for the cause",
            )
        };
        let tag = hearth_shared::identity::random::<6>().map_err(|e| failed(e.to_string()))?;
        let path = folder.join(format!("backup-{}.tmp", hex::encode(tag)));
        let copy = Self { path };
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)
            .map_err(|e| failed(e.to_string()))?;
        connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(|e| failed(e.to_string()))?;
        let target = copy.path.to_str().ok_or_else(|| failed("its path is no text".into()))?;
        connection.execute("VACUUM INTO ?1", [target]).map_err(|e| failed(e.to_string()))?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
