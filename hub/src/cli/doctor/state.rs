//! What lies in the state directory.

use super::Layer;
use crate::config::{self, Config};
use crate::home::{Home, HomeError};
use crate::keys;
use rusqlite::{Connection, OpenFlags};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Directory and permissions. False when there is no hub in it.
pub(super) fn home(layer: &mut Layer<'_>, home: &Home) -> bool {
    let root = home.root();
    let meta = match std::fs::metadata(root) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => {
            layer.fail(format!("{} is no directory", root.display()), "name another one with --home");
            return false;
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            layer.warn(format!("{} does not exist yet", root.display()), "`hearth run` makes it");
            return false;
        }
        Err(e) => {
            layer.fail(format!("{}: {e}", root.display()), "run this as the user whom the hub runs as");
            return false;
        }
    };
    let me = rustix::process::geteuid().as_raw();
    let mode = meta.permissions().mode() & 0o777;
    if meta.uid() != me && me != 0 {
        layer.fail(
            format!("{} belongs to user {}, you are {me}", root.display(), meta.uid()),
            "run this as the user whom the hub runs as",
        );
    } else if mode & 0o077 != 0 {
        layer.fail(
            format!("{} can be read by others (mode {mode:03o})", root.display()),
            format!("chmod 700 {}", root.display()),
        );
    } else {
        layer.ok(format!("{} is yours alone", root.display()));
    }
    true
}

/// `config.toml`.
pub(super) fn config(layer: &mut Layer<'_>, home: &Home) -> Option<Config> {
    match config::load::load(&home.config()) {
        Ok(config) => {
            let there =
                if home.config().exists() { "is right" } else { "is not there; the defaults are in force" };
            layer.ok(format!("{} {there}", home.config().display()));
            let lan = config.gateway.bind.iter().any(|a| !a.is_loopback());
            if lan && config.gateway.auto_approve_local {
                layer.ok("the hub listens on the network; every device from there must be let in");
            }
            Some(config)
        }
        Err(error) => {
            layer.fail(error.to_string(), "correct it, then run `hearth config check`");
            None
        }
    }
}

/// Key files: private, and what they should be.
pub(super) fn keys(layer: &mut Layer<'_>, home: &Home) {
    let mut found = 0;
    for path in [home.hub_key(), home.tls(), home.authority(), home.push_key(), home.token(), home.cli_key()]
    {
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        found += 1;
        let mode = meta.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            layer.fail(
                format!("{} can be read by others (mode {mode:03o})", path.display()),
                format!(
                    "chmod 600 {}; if others had access to this machine, pair every node again with new keys",
                    path.display()
                ),
            );
        }
    }
    if found == 0 {
        layer.warn("there are no keys yet", "`hearth run` makes them");
        return;
    }
    let readable = |path: &Path| path.exists();
    let mut good = true;
    for path in [home.hub_key(), home.cli_key()] {
        if readable(&path)
            && let Err(error) = keys::load_or_make_key(&path)
        {
            good = false;
            layer.fail(error.to_string(), "`hearth restore` of a backup made --with-keys brings it back");
        }
    }
    if readable(&home.tls())
        && let Err(failure) = crate::cli::client::pin_of(home)
    {
        good = false;
        layer.fail(
            failure.message().to_owned(),
            "`hearth restore` of a backup made --with-keys brings it back",
        );
    }
    if good {
        layer.ok(format!("{found} key files are readable"));
    }
}

/// `hub.db`.
pub(super) fn database(layer: &mut Layer<'_>, home: &Home) {
    let path = home.database();
    if !path.exists() {
        layer.warn("there is no database yet", "`hearth run` makes it");
        return;
    }
    let check = || -> rusqlite::Result<(String, usize)> {
        let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let verdict = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok((verdict, usize::try_from(version).unwrap_or_default()))
    };
    let known = crate::store::schema_version();
    match check() {
        Ok((verdict, version)) if verdict == "ok" && version <= known => {
            layer.ok(format!("hub.db is whole, schema version {version}"));
        }
        Ok((verdict, version)) if verdict == "ok" => layer.fail(
            format!("hub.db has schema version {version}, this program knows up to {known}"),
            "update hearth, or restore a backup",
        ),
        Ok((verdict, _)) => {
            layer.fail(format!("hub.db is damaged: {verdict}"), "stop the hub and `hearth restore` a backup")
        }
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => layer.warn(
            "hub.db is held by the hub alone, as it is after a start on a full card",
            "free some space, then start the hub again",
        ),
        Err(error) => layer
            .fail(format!("hub.db cannot be read: {error}"), "stop the hub and `hearth restore` a backup"),
    }
}

/// Whether a hub runs on this home.
pub(super) fn lock(layer: &mut Layer<'_>, home: &Home) -> bool {
    if !home.root().join("hub.lock").exists() {
        layer.ok("no hub runs on this directory");
        return false;
    }
    match home.lock() {
        Ok(_) => {
            layer.ok("no hub runs on this directory");
            false
        }
        Err(HomeError::Locked { pid, .. }) => {
            layer.ok(format!("a hub runs on this directory (pid {pid})"));
            true
        }
        Err(error) => {
            layer.fail(error.to_string(), "run this as the user whom the hub runs as");
            false
        }
    }
}
