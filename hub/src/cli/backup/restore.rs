//! `hearth restore`

use super::archive;
use crate::cli::context::Context;
use crate::cli::error::Failure;
use crate::cli::output::time;
use crate::store::Store;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

const DATABASE: &str = "hub.db";
/// Names a restored home takes from the archive, beside the database.
const TAKEN: [&str; 9] =
    ["config.toml", "agents", "media", "hub.key", "tls.pem", "authority.pem", "push.pem", "token", "cli.key"];
/// What belongs to the old database and would spoil the new one.
const BESIDE: [&str; 2] = ["hub.db-wal", "hub.db-shm"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The file that `hearth backup` wrote
    file: PathBuf,
    /// Restore over a hub that is there; its files are kept in a folder beside
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let home = &context.home;
    let root = home.root();
    let occupied = [DATABASE].iter().chain(&TAKEN).chain(&BESIDE).any(|n| has_content(&root.join(n)));
    if occupied && !arguments.force {
        return Err(Failure::failed(
            format!("there is a hub in {} already", root.display()),
            "name an empty directory with --home, or add --force; the present files are kept beside",
        ));
    }
    if !arguments.file.exists() {
        return Err(Failure::not_found(
            format!("there is no {}", arguments.file.display()),
            "name the file that `hearth backup` wrote",
        ));
    }
    home.create()?;
    let _lock = home.lock()?;
    let mut fresh = Fresh::make(root)?;
    let manifest = archive::unpack(&arguments.file, &fresh.path)?;
    check_database(&fresh.path.join("hub.db"))?;
    // A newer schema is refused, an older one is brought up to date, before anything is replaced.
    drop(Store::open(&fresh.path.join("hub.db"))?);
    // The old database goes first and the new one comes last: in between there is none, and with the
    // folder of the new files still there a hub refuses to start.
    fresh.keep = true;
    let kept = set_aside(root, &fresh.path, arguments.force && occupied)?;
    for name in TAKEN.into_iter().chain([DATABASE]) {
        let from = fresh.path.join(name);
        if from.exists() {
            let to = root.join(name);
            // The empty folders that a home is made with.
            let _ = std::fs::remove_dir(&to);
            std::fs::rename(&from, &to).map_err(|e| cannot_write(&to, &e))?;
        }
    }
    std::fs::File::open(root).and_then(|d| d.sync_all()).map_err(|e| cannot_write(root, &e))?;
    home.create()?;
    home.clear_leftovers()?;
    if context.json {
        return context.out.json(&json!({
            "home": root, "files": manifest.files.len(), "keys": manifest.keys,
            "createdMs": manifest.created_ms, "kept": kept,
        }));
    }
    context.out.line(format!(
        "restored {} files of {} into {}",
        manifest.files.len(),
        time(manifest.created_ms),
        root.display()
    ))?;
    if let Some(kept) = kept {
        context.out.line(format!("what was there before is in {}", kept.display()))?;
    }
    let own_keys = root.join("hub.key").exists();
    if !manifest.keys && !own_keys {
        context.out.line("The backup holds no keys: the hub makes new ones, and every node pairs again.")?;
    }
    context.out.line("next: `hearth run`, then `hearth audit verify`")
}

fn has_content(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::read_dir(path).is_ok_and(|mut d| d.next().is_some()),
        Ok(_) => true,
        Err(_) => false,
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(
        format!("{}: {error}", path.display()),
        "check that the directory belongs to you and has space",
    )
}

/// A folder inside the home, on the same file system; removed when done, or when nothing was replaced yet.
struct Fresh {
    path: PathBuf,
    keep: bool,
}

impl Fresh {
    fn make(root: &Path) -> Result<Self, Failure> {
        let tag = hearth_shared::identity::random::<6>()
            .map_err(|e| Failure::failed(e.to_string(), "try again"))?;
        let path = root.join(format!("restore-{}.tmp", hex::encode(tag)));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|e| cannot_write(&path, &e))?;
        Ok(Self { path, keep: false })
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn check_database(path: &Path) -> Result<(), Failure> {
    let damaged = |why: String| {
        Failure::failed(format!("the database in the backup is damaged: {why}"), "take another backup")
    };
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|e| damaged(e.to_string()))?;
    let verdict: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|e| damaged(e.to_string()))?;
    if verdict == "ok" { Ok(()) } else { Err(damaged(verdict)) }
}

/// Moves what will be replaced into a folder of its own.
fn set_aside(root: &Path, fresh: &Path, occupied: bool) -> Result<Option<PathBuf>, Failure> {
    if !occupied {
        return Ok(None);
    }
    let kept = root.join(format!("before-restore-{}", jiff::Zoned::now().strftime("%Y%m%d-%H%M%S")));
    std::fs::DirBuilder::new().mode(0o700).create(&kept).map_err(|e| cannot_write(&kept, &e))?;
    for name in [DATABASE].iter().chain(&BESIDE).chain(&TAKEN) {
        let path = root.join(name);
        let replaced = BESIDE.contains(name) || fresh.join(name).exists();
        if replaced && path.exists() {
            std::fs::rename(&path, kept.join(name)).map_err(|e| cannot_write(&path, &e))?;
        }
    }
    Ok(Some(kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::backup;
    use crate::cli::output::Output;
    use crate::home::Home;

    fn context(dir: &Path) -> Context {
        Context {
            home: Home::locate(Some(dir)),
            explicit_home: None,
            json: true,
            interactive: false,
            out: Output::new(true),
        }
    }

    fn hub(dir: &Path) -> Context {
        let context = context(dir);
        context.home.create().unwrap();
        drop(Store::open(&context.home.database()).unwrap());
        let connection = Connection::open(context.home.database()).unwrap();
        connection.execute_batch("CREATE TABLE mark(x); INSERT INTO mark VALUES (42);").unwrap();
        std::fs::write(context.home.config(), "[log]\nlevel = \"warn\"\n").unwrap();
        std::fs::create_dir_all(context.home.sessions("main")).unwrap();
        std::fs::write(context.home.sessions("main").join("s.jsonl"), "{}\n").unwrap();
        std::fs::write(context.home.media().join("a.jpg"), "jpeg").unwrap();
        std::fs::write(context.home.hub_key(), "secret").unwrap();
        context
    }

    fn mark(home: &Home) -> i64 {
        Connection::open(home.database()).unwrap().query_row("SELECT x FROM mark", [], |r| r.get(0)).unwrap()
    }

    fn backup_to(context: &Context, file: &Path, media: bool, with_keys: bool) {
        let arguments = backup::Arguments { file: Some(file.into()), media, with_keys };
        backup::run(&arguments, context).unwrap();
    }

    #[test]
    fn a_backup_comes_back_without_keys_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let from = hub(&dir.path().join("a"));
        // A writer is at work meanwhile, as in a running hub.
        let _busy = Connection::open(from.home.database()).unwrap();
        for (name, media, keys) in [("1.tar", false, false), ("2.tar", true, true)] {
            let file = dir.path().join(name);
            backup_to(&from, &file, media, keys);
            let to = context(&dir.path().join(name.replace(".tar", "-home")));
            run(&Arguments { file, force: false }, &to).unwrap();
            assert_eq!(mark(&to.home), 42);
            assert!(to.home.sessions("main").join("s.jsonl").exists());
            assert!(to.home.config().exists());
            assert_eq!(to.home.media().join("a.jpg").exists(), media);
            assert_eq!(to.home.hub_key().exists(), keys);
        }
        let left: Vec<_> = std::fs::read_dir(from.home.root())
            .unwrap()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().ends_with(".tmp"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_hub_that_is_there_is_not_overwritten_without_force_and_kept_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let from = hub(&dir.path().join("a"));
        let file = dir.path().join("b.tar");
        backup_to(&from, &file, false, false);
        let to = hub(&dir.path().join("c"));
        Connection::open(to.home.database()).unwrap().execute("UPDATE mark SET x = 7", []).unwrap();
        let refused = run(&Arguments { file: file.clone(), force: false }, &to).unwrap_err();
        assert_eq!(refused.code(), 1);
        assert_eq!(mark(&to.home), 7);
        {
            let _running = to.home.lock().unwrap();
            assert!(run(&Arguments { file: file.clone(), force: true }, &to).is_err(), "a hub runs on it");
        }
        run(&Arguments { file, force: true }, &to).unwrap();
        assert_eq!(mark(&to.home), 42);
        assert!(to.home.hub_key().exists(), "keys that the backup does not bring stay");
        let kept = std::fs::read_dir(to.home.root())
            .unwrap()
            .flatten()
            .find(|e| e.file_name().to_string_lossy().starts_with("before-restore-"))
            .unwrap();
        assert!(kept.path().join("hub.db").exists());
    }

    #[test]
    fn damaged_and_hostile_files_are_refused_and_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let from = hub(&dir.path().join("a"));
        let file = dir.path().join("b.tar");
        backup_to(&from, &file, false, false);
        let good = std::fs::read(&file).unwrap();
        let mut flipped = good.clone();
        flipped[2000] ^= 1;
        let mut hostile = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.as_gnu_mut().unwrap().name[..8].copy_from_slice(b"../evil\0");
        header.set_cksum();
        hostile.append(&header, &b"x"[..]).unwrap();
        for (i, bytes) in
            [flipped, good[..good.len() / 2].to_vec(), b"no tar".to_vec(), hostile.into_inner().unwrap()]
                .into_iter()
                .enumerate()
        {
            let bad = dir.path().join(format!("bad{i}.tar"));
            std::fs::write(&bad, bytes).unwrap();
            let to = context(&dir.path().join(format!("home{i}")));
            let failure = run(&Arguments { file: bad, force: false }, &to).unwrap_err();
            assert_eq!(failure.code(), 1, "{i}: {failure}");
            assert!(!to.home.database().exists());
        }
        assert!(!dir.path().join("evil").exists());
        let gone = run(
            &Arguments { file: dir.path().join("none.tar"), force: false },
            &context(&dir.path().join("x")),
        );
        assert_eq!(gone.unwrap_err().code(), 4);
    }
}
