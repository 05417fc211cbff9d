//! Clock, disk, memory of the machine.

use super::Layer;
use crate::cli::output::bytes;
use crate::home::Home;
use crate::store::now_ms;
use std::path::Path;

/// Before this the clock is surely wrong: 2026-01-01.
const EARLIEST_MS: u64 = 1_767_225_600_000;
/// Free space that is little, and far too little.
const LITTLE: u64 = 500_000_000;
const FAR_TOO_LITTLE: u64 = 50_000_000;

pub(super) fn check(layer: &mut Layer<'_>, home: &Home) {
    clock(layer);
    disk(layer, home.root());
}

fn clock(layer: &mut Layer<'_>) {
    if now_ms() < EARLIEST_MS {
        layer.fail(
            "the clock is years behind",
            "set it, or let the network set it: `timedatectl set-ntp true`",
        );
        return;
    }
    // systemd's own marks; other time services leave none, and then nothing can be said.
    let timesync = Path::new("/run/systemd/timesync");
    if timesync.exists() && !timesync.join("synchronized").exists() {
        layer.warn(
            "the clock is not set by the network yet",
            "wait, or check `timedatectl`; readings are dated right once it is",
        );
    } else {
        layer.ok("the clock is plausible");
    }
}

fn disk(layer: &mut Layer<'_>, root: &Path) {
    // The nearest directory that exists.
    let Some(place) = root.ancestors().find(|p| p.exists()) else { return };
    let free = match rustix::fs::statvfs(place) {
        Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
        Err(error) => {
            layer.warn(format!("free space is not known: {error}"), "check the disk with `df`");
            return;
        }
    };
    let what = format!("{} free at {}", bytes(free), place.display());
    match free {
        0..FAR_TOO_LITTLE => layer.fail(what, "free some space: the hub cannot write safely"),
        FAR_TOO_LITTLE..LITTLE => layer.warn(what, "free some space, or lower `retention.media_mb`"),
        _ => layer.ok(what),
    }
}
