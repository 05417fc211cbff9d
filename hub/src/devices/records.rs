//! Rows of the device tables.

use super::{Device, DeviceError, DeviceState, Devices, LinkKind, PendingDevice, Scope};
use crate::approvals::audit::Audit;
use crate::store::{StoreError, now_ms};
use hearth_shared::connect::Role;
use hearth_shared::identity::{DeviceId, PublicKey};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde_json::json;
use std::sync::Arc;

impl LinkKind {
    /// As stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hearth => "hearth",
            Self::Json => "json",
        }
    }
}

impl DeviceState {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Revoked => "revoked",
            Self::Preauthorised => "preauthorised",
        }
    }
}

const COLUMNS: &str = "id, key, coalesce(label, name), roles, kind, state, platform, device_family, client_id, \
                       client_mode, scopes, approved_via, created_ms, approved_ms, last_seen_ms, last_seen_reason";

fn parse_roles(text: &str) -> Vec<Role> {
    text.split(',')
        .filter_map(|r| match r {
            "operator" => Some(Role::Operator),
            "node" => Some(Role::Node),
            _ => None,
        })
        .collect()
}

fn join_roles(roles: &[Role]) -> String {
    roles.iter().map(|r| r.as_str()).collect::<Vec<_>>().join(",")
}

pub(super) fn join_scopes(scopes: &[Scope]) -> String {
    scopes.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(",")
}

pub(super) fn split_scopes(text: &str) -> Vec<Scope> {
    text.split(',').filter_map(Scope::parse).collect()
}

fn device(row: &Row<'_>) -> Result<Device, StoreError> {
    let corrupt = |what: &str| StoreError::Corrupt(format!("devices.{what}"));
    let roles = parse_roles(&row.get::<_, String>(3)?);
    let kind = match row.get::<_, String>(4)?.as_str() {
        "hearth" => LinkKind::Hearth,
        "json" => LinkKind::Json,
        _ => return Err(corrupt("kind")),
    };
    let state = match row.get::<_, String>(5)?.as_str() {
        "accepted" => DeviceState::Accepted,
        "rejected" => DeviceState::Rejected,
        "revoked" => DeviceState::Revoked,
        _ => return Err(corrupt("state")),
    };
    Ok(Device {
        id: DeviceId(row.get(0)?),
        key: PublicKey(row.get(1)?),
        name: row.get(2)?,
        role: *roles.first().ok_or_else(|| corrupt("roles"))?,
        roles,
        kind,
        state,
        platform: row.get(6)?,
        device_family: row.get(7)?,
        client_id: row.get(8)?,
        client_mode: row.get(9)?,
        scopes: split_scopes(&row.get::<_, String>(10)?),
        approved_via: row.get(11)?,
        created_ms: row.get::<_, i64>(12)? as u64,
        approved_ms: row.get::<_, i64>(13)? as u64,
        last_seen_ms: row.get::<_, Option<i64>>(14)?.map(|ms| ms as u64),
        last_seen_reason: row.get(15)?,
    })
}

pub(crate) fn get(connection: &Connection, id: &DeviceId) -> Result<Option<Device>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM devices WHERE id = ?1"))?;
    let found = statement.query_row([id.0], |row| Ok(device(row))).optional()?;
    found.transpose()
}

pub(crate) fn all(connection: &Connection) -> Result<Vec<Device>, StoreError> {
    let mut statement = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM devices ORDER BY coalesce(label, name), id"))?;
    let mut rows = statement.query([])?;
    let mut devices = Vec::new();
    while let Some(row) = rows.next()? {
        devices.push(device(row)?);
    }
    Ok(devices)
}

/// Admits a device: a new row, or the old one with what is approved now added to it. The surface that
/// was shown is settled in the same step.
pub(super) fn admit(
    transaction: &Transaction<'_>,
    asks: &PendingDevice,
    via: &str,
    by: &str,
) -> Result<Device, StoreError> {
    let now = now_ms() as i64;
    let (mut roles, mut scopes) = (vec![asks.role], asks.scopes.clone());
    if let Some(before) = get(transaction, &asks.device_id)?
        && before.state == DeviceState::Accepted
    {
        roles = before.roles;
        if !roles.contains(&asks.role) {
            roles.push(asks.role);
        }
        scopes.extend(before.scopes);
    }
    scopes.sort_unstable();
    scopes.dedup();
    let surface = serde_json::to_string(&asks.surface).unwrap_or_else(|_| "[]".into());
    transaction
        .prepare_cached(
            "INSERT INTO devices (id, key, name, roles, kind, state, platform, device_family, client_id, \
             client_mode, scopes, surface, approved_via, created_ms, approved_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, 'accepted', ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13) \
             ON CONFLICT (id) DO UPDATE SET name = ?3, roles = ?4, state = 'accepted', platform = ?6, \
             device_family = ?7, client_id = ?8, client_mode = ?9, scopes = ?10, \
             surface = iif(?14, ?11, surface), approved_via = ?12, approved_ms = ?13",
        )?
        .execute(params![
            asks.device_id.0,
            asks.key.0,
            asks.name,
            join_roles(&roles),
            asks.kind.as_str(),
            asks.platform,
            asks.device_family,
            asks.client_id,
            asks.client_mode,
            join_scopes(&scopes),
            surface,
            via,
            now,
            asks.role == Role::Node,
        ])?;
    Audit::append_in(
        transaction,
        "device.accepted",
        &json!({
            "device": asks.device_id, "name": asks.name, "role": asks.role, "kind": asks.kind, "via": via,
            "by": by, "scopes": join_scopes(&scopes), "surface": asks.surface,
        }),
    )?;
    get(transaction, &asks.device_id)?.ok_or_else(|| StoreError::Corrupt("devices.id".into()))
}

/// A person said no: remembered, so that the same key does not ask again.
pub(super) fn reject(
    transaction: &Transaction<'_>,
    asks: &PendingDevice,
    by: &str,
) -> Result<(), StoreError> {
    // A refused upgrade leaves an accepted device as it was.
    transaction
        .prepare_cached(
            "INSERT INTO devices (id, key, name, roles, kind, state, platform, device_family, client_id, \
             client_mode, scopes, surface, approved_via, created_ms, approved_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, 'rejected', ?6, ?7, ?8, ?9, '', '[]', 'owner', ?10, ?10) \
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            asks.device_id.0,
            asks.key.0,
            asks.name,
            asks.role.as_str(),
            asks.kind.as_str(),
            asks.platform,
            asks.device_family,
            asks.client_id,
            asks.client_mode,
            now_ms() as i64,
        ])?;
    let body = json!({ "device": asks.device_id, "name": asks.name, "by": by });
    Audit::append_in(transaction, "device.rejected", &body)?;
    Ok(())
}

impl Devices {
    /// A known device.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn get(&self, id: DeviceId) -> Result<Option<Device>, DeviceError> {
        Ok(self.store.read(move |c| get(c, &id)).await?)
    }

    /// All that wait, and all known devices.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn list(&self) -> Result<(Vec<Arc<PendingDevice>>, Vec<Device>), DeviceError> {
        Ok((self.waiting(), self.store.read(all).await?))
    }

    /// One known device by id, unique prefix of the id (4 digits or more), or name (case ignored).
    ///
    /// # Errors
    /// [`DeviceError::Unknown`], [`DeviceError::Ambiguous`], [`DeviceError::Store`].
    pub async fn find(&self, which: &str) -> Result<Device, DeviceError> {
        let devices = self.store.read(all).await?;
        pick(devices, which, "device", |d| (vec![d.id.to_string()], d.name.clone()))
    }

    /// Notes that a device came or went.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn seen(&self, id: DeviceId, reason: &str) -> Result<(), DeviceError> {
        let reason = reason.to_owned();
        Ok(self
            .store
            .write(move |t| {
                t.prepare_cached(
                    "UPDATE devices SET last_seen_ms = ?2, last_seen_reason = ?3 WHERE id = ?1",
                )?
                .execute(params![id.0, now_ms() as i64, reason])?;
                Ok(())
            })
            .await?)
    }
}

/// Shortest prefix of an id that is taken for one.
const MIN_PREFIX: usize = 4;

/// The one of `items` that `which` means: a whole id, a unique prefix of one, or a name.
pub(crate) fn pick<T>(
    items: Vec<T>,
    which: &str,
    what: &'static str,
    ids_and_name: impl Fn(&T) -> (Vec<String>, String),
) -> Result<T, DeviceError> {
    let which = which.trim();
    let (id, name) = (which.to_ascii_lowercase(), which.to_lowercase());
    let mut exact = Vec::new();
    let mut prefix = Vec::new();
    for item in items {
        let (ids, its_name) = ids_and_name(&item);
        if ids.contains(&id) || its_name.to_lowercase() == name {
            exact.push(item);
        } else if id.len() >= MIN_PREFIX && ids.iter().any(|i| i.starts_with(&id)) {
            prefix.push(item);
        }
    }
    let mut found = if exact.is_empty() { prefix } else { exact };
    let shown = || hearth_shared::identity::display_safe(which, 64);
    match found.len() {
        0 => Err(DeviceError::Unknown { what, id: shown() }),
        1 => found.pop().ok_or_else(|| DeviceError::Unknown { what, id: shown() }),
        _ => Err(DeviceError::Ambiguous(shown())),
    }
}
