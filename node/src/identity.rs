//! Who this node is, when it is, and which hub it belongs to.

use crate::state::{Home, StateError, write_atomically};
use hearth_shared::identity::{DeviceId, Digest, PublicKey, SecretKey};
use hearth_shared::reading::BootId;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Reads `node.key`, or makes it.
///
/// # Errors
/// [`StateError`] when it cannot be read or written, is open to others, or is damaged.
pub fn load_or_create_key(home: &Home) -> Result<Arc<SecretKey>, StateError> {
    if let Some(key) = load_key(home)? {
        return Ok(Arc::new(key));
    }
    let key = SecretKey::generate()?;
    let text = Zeroizing::new(format!("{}\n", hex::encode(&key.seed()[..])));
    let path = home.key();
    write_atomically(&path, text.as_bytes()).map_err(StateError::io("write", &path))?;
    Ok(Arc::new(key))
}

const NO_KEY: &str = "it must hold 64 hex digits; restore it, or remove it and run `hearth-node reset` for a \
     new identity";

/// Reads `node.key`; `None` when there is none yet.
///
/// # Errors
/// See [`load_or_create_key`].
pub fn load_key(home: &Home) -> Result<Option<SecretKey>, StateError> {
    let path = home.key();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => Zeroizing::new(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            return Err(StateError::Damaged { path, why: NO_KEY.into() });
        }
        Err(e) => return Err(StateError::io("read", &path)(e)),
    };
    let meta = std::fs::metadata(&path).map_err(StateError::io("read", &path))?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(StateError::Exposed { path, mode });
    }
    let mut seed = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim(), &mut seed[..])
        .map_err(|_| StateError::Damaged { path, why: NO_KEY.into() })?;
    Ok(Some(SecretKey::from_seed(&seed)))
}

/// The hub this node is paired with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HubRecord {
    /// Its identity.
    pub key: PublicKey,
    /// SHA-256 of its TLS key.
    pub spki: Digest,
    /// `host:port`, the likeliest first.
    pub addresses: Vec<String>,
    /// Its name for people.
    pub name: String,
}

impl HubRecord {
    /// Its device id.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.key.device_id()
    }

    /// Reads `hub.json`; `None` when the node is not paired.
    ///
    /// # Errors
    /// [`StateError`] when it cannot be read or is damaged.
    pub fn load(home: &Home) -> Result<Option<Self>, StateError> {
        let path = home.hub();
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| StateError::Damaged { path, why: format!("{e}; pair again") }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StateError::io("read", &path)(e)),
        }
    }

    /// Writes it durably.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn store(&self, home: &Home) -> Result<(), StateError> {
        let path = home.hub();
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|e| StateError::Damaged { path: path.clone(), why: e.to_string() })?;
        bytes.push(b'\n');
        write_atomically(&path, &bytes).map_err(StateError::io("write", &path))
    }
}

/// 2025-01-01: a clock that says less was never set.
const PLAUSIBLE_FROM_MS: u64 = 1_735_689_600_000;
/// 2100-01-01.
const PLAUSIBLE_TO_MS: u64 = 4_102_444_800_000;
/// systemd-timesyncd touches this once it has set the clock in this boot of the board.
const SYNCHRONISED_FLAG: &str = "/run/systemd/timesync/synchronized";

/// The clocks of one start of the node. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    boot: BootId,
    started: Duration,
    trusted: bool,
}

impl Clock {
    /// Starts at zero with a fresh boot id. `trusted`: the owner says that the wall clock is right (an RTC
    /// or chrony keeps it), so the flag of systemd-timesyncd is not asked for.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn start(trusted: bool) -> Result<Self, StateError> {
        Ok(Self { boot: BootId::fresh()?, started: boot_time(), trusted })
    }

    /// This start.
    #[must_use]
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// Milliseconds since this start; goes on while the board sleeps and never jumps.
    #[must_use]
    pub fn mono_ms(&self) -> u64 {
        let ms = boot_time().saturating_sub(self.started).as_millis();
        u64::try_from(ms).unwrap_or(u64::MAX)
    }

    /// Unix milliseconds, if the clock was set by the network (or is trusted) and shows a plausible year.
    #[must_use]
    pub fn wall_ms(&self) -> Option<u64> {
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis();
        let ms = u64::try_from(ms).ok()?;
        let set = self.trusted || Path::new(SYNCHRONISED_FLAG).exists();
        (set && (PLAUSIBLE_FROM_MS..PLAUSIBLE_TO_MS).contains(&ms)).then_some(ms)
    }
}

/// Time since the board started, sleep included.
fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The host's name, cleaned to what a node name may hold; `node` when nothing is left.
#[must_use]
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let clean: String = name
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
        .take(hearth_shared::limits::MAX_NAME_CHARS)
        .collect();
    if clean.is_empty() { "node".into() } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path().join("home")));
        home.prepare().unwrap();
        (dir, home)
    }

    #[test]
    fn key_is_made_once_and_a_damaged_or_open_one_is_named() {
        let (_dir, home) = home();
        assert!(load_key(&home).unwrap().is_none());
        let first = load_or_create_key(&home).unwrap();
        assert_eq!(load_or_create_key(&home).unwrap().public(), first.public());
        std::fs::set_permissions(home.key(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(load_key(&home), Err(StateError::Exposed { mode: 0o644, .. })));
        write_atomically(&home.key(), b"zz").unwrap();
        assert!(matches!(load_key(&home), Err(StateError::Damaged { .. })));
    }

    #[test]
    fn hub_record_round_trips_and_a_damaged_one_is_named() {
        let (_dir, home) = home();
        assert_eq!(HubRecord::load(&home).unwrap(), None);
        let record = HubRecord {
            key: PublicKey([1; 32]),
            spki: Digest([2; 32]),
            addresses: vec!["127.0.0.1:1".into()],
            name: "home".into(),
        };
        record.store(&home).unwrap();
        assert_eq!(HubRecord::load(&home).unwrap(), Some(record));
        write_atomically(&home.hub(), b"{").unwrap();
        assert!(matches!(HubRecord::load(&home), Err(StateError::Damaged { .. })));
    }

    #[test]
    fn monotonic_time_rises_and_a_trusted_clock_has_a_wall_time() {
        let clock = Clock::start(true).unwrap();
        let first = clock.mono_ms();
        assert!(clock.mono_ms() >= first && first < 60_000);
        assert!(clock.wall_ms().is_some());
        assert_ne!(Clock::start(true).unwrap().boot(), clock.boot());
    }

    #[test]
    fn host_name_can_stand_in_a_declaration() {
        let name = host_name();
        assert!(!name.is_empty() && name.chars().count() <= 64);
    }
}
