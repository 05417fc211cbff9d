//! Subscriptions of browsers, on disk.

use super::encrypt::{AUTH, POINT};
use crate::store::{Store, StoreError, now_ms};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hearth_shared::identity::DeviceId;
use rusqlite::params;
use schemars::JsonSchema;
use serde::Deserialize;

/// Subscriptions of one device: a browser has one, and may leave old ones behind.
const MAX_PER_DEVICE: i64 = 4;
/// In all.
const MAX_TOTAL: i64 = 128;
/// Longest endpoint.
const MAX_ENDPOINT: usize = 1024;

/// A browser's subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Whose.
    pub device: DeviceId,
    /// Address at the push service; whoever knows it could send junk, so it is not shown.
    pub endpoint: String,
    pub(super) p256dh: [u8; POINT],
    pub(super) auth: [u8; AUTH],
}

/// A browser's keys as `PushSubscription.toJSON()` gives them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// Public key, base64url: 65 bytes.
    pub p256dh: String,
    /// Secret, base64url: 16 bytes.
    pub auth: String,
}

impl Subscription {
    /// Reads what a page hands in; `None` when it is malformed.
    #[must_use]
    pub fn read(device: DeviceId, endpoint: String, keys: &Keys) -> Option<Self> {
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let p256dh: [u8; POINT] = bytes(&keys.p256dh)?.try_into().ok()?;
        let auth = bytes(&keys.auth)?.try_into().ok()?;
        (endpoint.len() <= MAX_ENDPOINT && p256dh[0] == 4).then_some(Self { device, endpoint, p256dh, auth })
    }
}

/// Keeps one; the oldest of the device makes room. False when there is no room at all.
pub(in crate::notify) async fn add(store: &Store, new: Subscription) -> Result<bool, StoreError> {
    store
        .write(move |t| {
            let total: i64 = t.query_row(
                "SELECT count(*) FROM push_subscriptions WHERE endpoint <> ?1",
                [&new.endpoint],
                |r| r.get(0),
            )?;
            if total >= MAX_TOTAL {
                return Ok(false);
            }
            t.execute(
                "INSERT OR REPLACE INTO push_subscriptions (endpoint, device, p256dh, auth, created_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![new.endpoint, new.device.0, new.p256dh, new.auth, now_ms() as i64],
            )?;
            t.execute(
                "DELETE FROM push_subscriptions WHERE device = ?1 AND endpoint NOT IN \
                 (SELECT endpoint FROM push_subscriptions WHERE device = ?1 ORDER BY created_ms DESC, rowid DESC LIMIT ?2)",
                params![new.device.0, MAX_PER_DEVICE],
            )?;
            Ok(true)
        })
        .await
}

/// Forgets one. With a device only its own. True when it was there.
pub(in crate::notify) async fn remove(
    store: &Store,
    endpoint: String,
    device: Option<DeviceId>,
) -> Result<bool, StoreError> {
    store
        .write(move |t| {
            let removed = t.execute(
                "DELETE FROM push_subscriptions WHERE endpoint = ?1 AND (?2 IS NULL OR device = ?2)",
                params![endpoint, device.map(|d| d.0)],
            )?;
            Ok(removed > 0)
        })
        .await
}

/// All of them.
pub(in crate::notify) async fn list(store: &Store) -> Result<Vec<Subscription>, StoreError> {
    store
        .read(|c| {
            let mut query = c.prepare_cached(
                "SELECT device, endpoint, p256dh, auth FROM push_subscriptions ORDER BY created_ms",
            )?;
            let rows = query.query_map([], |r| {
                Ok(Subscription {
                    device: DeviceId(r.get(0)?),
                    endpoint: r.get(1)?,
                    p256dh: r.get(2)?,
                    auth: r.get(3)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
}

/// How many there are, and how many of them are this device's.
pub(in crate::notify) async fn count(
    store: &Store,
    device: Option<DeviceId>,
) -> Result<(usize, usize), StoreError> {
    store
        .read(move |c| {
            let counted: (i64, i64) = c.query_row(
                "SELECT count(*), count(CASE WHEN device = ?1 THEN 1 END) FROM push_subscriptions",
                [device.map(|d| d.0)],
                |r| Ok((r.get(0)?, r.get(1)?)),
            )?;
            Ok((counted.0 as usize, counted.1 as usize))
        })
        .await
}
