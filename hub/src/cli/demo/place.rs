//! Where the demo keeps its state.

use crate::cli::context::Context;
use crate::cli::error::Failure;
use std::cell::Cell;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The directories of one demo.
#[derive(Debug)]
pub(super) struct Place {
    hub: PathBuf,
    node: PathBuf,
    /// Everything but pictures goes when the demo ends.
    passing: bool,
    /// Hub and node came up: their logs are of no further interest.
    ready: Cell<bool>,
}

impl Place {
    /// `--home` or `$HEARTH_HOME` when given, else a fresh directory for this session.
    pub(super) fn choose(context: &Context) -> Result<Self, Failure> {
        let failed = |path: &Path, e: std::io::Error| {
            Failure::failed(
                format!("{}: {e}", path.display()),
                "name a directory that you may write to with --home",
            )
        };
        let make = |path: &Path| {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| failed(path, e))
        };
        let (hub, passing) = match &context.explicit_home {
            Some(home) => (home.clone(), false),
            None => (fresh()?, true),
        };
        make(&hub)?;
        let hub = hub.canonicalize().map_err(|e| failed(&hub, e))?;
        let node = hub.join("demo-node");
        make(&node)?;
        Ok(Self { hub, node, passing, ready: Cell::new(false) })
    }

    /// The hub's state directory.
    pub(super) fn hub(&self) -> &Path {
        &self.hub
    }

    /// The port of an earlier session in this home, which the node remembers; 0 for any free one.
    pub(super) fn port(&self) -> u16 {
        if !self.is_paired() {
            return 0;
        }
        std::fs::read_to_string(self.port_file()).ok().and_then(|p| p.trim().parse().ok()).unwrap_or(0)
    }

    /// Notes the port for the next session.
    pub(super) fn keep_port(&self, address: &str) -> Result<(), Failure> {
        let port = address.rsplit_once(':').map_or("0", |(_, port)| port);
        Ok(crate::home::write_private(&self.port_file(), port.as_bytes())?)
    }

    fn port_file(&self) -> PathBuf {
        self.node.join("demo.port")
    }

    /// The node's.
    pub(super) fn node(&self) -> &Path {
        &self.node
    }

    /// Where the node's log lines go.
    pub(super) fn node_log(&self) -> PathBuf {
        self.hub.join("demo-node.log")
    }

    /// Whether the node was paired in an earlier session.
    pub(super) fn is_paired(&self) -> bool {
        self.node.join("hub.json").exists()
    }

    /// Notes that hub and node came up.
    pub(super) fn set_ready(&self) {
        self.ready.set(true);
    }

    /// Clears up. Pictures stay: their paths were printed. So does all of a demo that did not come up: the
    /// message named its logs.
    pub(super) fn leave(self) {
        if !self.passing || !self.ready.get() {
            return;
        }
        let media = self.hub.join("media");
        let pictures = std::fs::read_dir(&media).is_ok_and(|mut d| d.next().is_some());
        if !pictures {
            let _ = std::fs::remove_dir_all(&self.hub);
            return;
        }
        for entry in std::fs::read_dir(&self.hub).into_iter().flatten().flatten() {
            let path = entry.path();
            if path == media {
                continue;
            }
            let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        }
    }
}

/// A new directory that nobody else can have made.
fn fresh() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir();
    for _ in 0..16 {
        let tag = hearth_shared::identity::random::<6>()
            .map_err(|e| Failure::failed(e.to_string(), "try again"))?;
        let path = base.join(format!("hearth-demo-{}", hex::encode(tag)));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                return Err(Failure::failed(
                    format!("{}: {e}", path.display()),
                    "name a directory that you may write to with --home",
                ));
            }
        }
    }
    Err(Failure::failed("no free name for a temporary directory", "name one with --home"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_survive_a_passing_demo_and_nothing_else_does() {
        let hub = fresh().unwrap();
        std::fs::create_dir(hub.join("media")).unwrap();
        std::fs::create_dir(hub.join("demo-node")).unwrap();
        std::fs::write(hub.join("hub.key"), "x").unwrap();
        std::fs::write(hub.join("media/a.jpg"), "x").unwrap();
        Place { node: hub.join("demo-node"), hub: hub.clone(), passing: true, ready: Cell::new(true) }
            .leave();
        let left: Vec<_> = std::fs::read_dir(&hub).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["media"]);
        assert!(hub.join("media/a.jpg").exists());
        std::fs::remove_file(hub.join("media/a.jpg")).unwrap();
        Place { node: hub.join("demo-node"), hub: hub.clone(), passing: true, ready: Cell::new(true) }
            .leave();
        assert!(!hub.exists());
    }
}
