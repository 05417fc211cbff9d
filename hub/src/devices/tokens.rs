//! Tokens of JSON clients: 32 random bytes, kept as digests.

use super::{Device, DeviceError, DeviceState, Devices, LinkKind, records};
use crate::approvals::audit::Audit;
use crate::bus::Event;
use crate::store::now_ms;
use hearth_shared::connect::Role;
use hearth_shared::frame::close;
use hearth_shared::identity::{DeviceId, Digest, SecretText, same_secret};
use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;
use serde_json::json;

/// What may be shown of a token.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    /// The role it connects in.
    pub role: Role,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// Unix milliseconds, when it was rotated.
    pub rotated_ms: Option<u64>,
}

fn unknown(id: DeviceId) -> DeviceError {
    DeviceError::Unknown { what: "device", id: id.short() }
}

fn may_have_token(device: &Device, role: Role) -> Result<(), DeviceError> {
    if device.kind == LinkKind::Hearth {
        return Err(DeviceError::NoToken(device.name.clone()));
    }
    match device.state {
        DeviceState::Accepted if device.roles.contains(&role) => Ok(()),
        DeviceState::Accepted => Err(unknown(device.id)),
        other => Err(DeviceError::Refused(other.as_str())),
    }
}

impl Devices {
    /// The device token of a JSON client; made at the first call, afterwards only its digest is known and
    /// a fresh one replaces it.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn issue_token(&self, id: DeviceId, role: Role) -> Result<SecretText, DeviceError> {
        self.write_token(id, role, None).await
    }

    async fn write_token(
        &self,
        id: DeviceId,
        role: Role,
        rotated_by: Option<String>,
    ) -> Result<SecretText, DeviceError> {
        let token = SecretText::random()?;
        let digest = token.digest();
        self.store
            .write(move |t| {
                let Some(device) = records::get(t, &id)? else { return Ok(Err(unknown(id))) };
                if let Err(error) = may_have_token(&device, role) {
                    return Ok(Err(error));
                }
                let now = now_ms() as i64;
                let rotated = rotated_by.as_ref().map(|_| now);
                t.prepare_cached(
                    "INSERT INTO device_tokens (device, role, digest, created_ms, rotated_ms) \
                     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (device, role) \
                     DO UPDATE SET digest = ?3, rotated_ms = coalesce(?5, rotated_ms)",
                )?
                .execute(params![id.0, role.as_str(), digest.0, now, rotated])?;
                let (kind, by) = match &rotated_by {
                    Some(by) => ("token.rotated", by.as_str()),
                    None => ("token.issued", "hub"),
                };
                let body = json!({ "device": id, "role": role, "token": digest, "by": by });
                Audit::append_in(t, kind, &body)?;
                Ok(Ok(()))
            })
            .await??;
        Ok(token)
    }

    /// Whether this is the device's token.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn check_token(&self, id: DeviceId, role: Role, token: &str) -> Result<bool, DeviceError> {
        let presented = Digest::of(token.as_bytes());
        let stored = self
            .store
            .read(move |c| {
                Ok(c.prepare_cached(
                    "SELECT digest FROM device_tokens JOIN devices ON id = device \
                     WHERE device = ?1 AND role = ?2 AND state = 'accepted'",
                )?
                .query_row(params![id.0, role.as_str()], |r| r.get::<_, [u8; 32]>(0))
                .optional()?)
            })
            .await?;
        Ok(stored.is_some_and(|digest| same_secret(&digest, &presented.0)))
    }

    /// Makes a new token and closes the device's sockets.
    ///
    /// # Errors
    /// As [`Devices::approve`]; [`DeviceError::NoToken`] for our own nodes.
    pub async fn rotate(
        &self,
        which: &str,
        role: Role,
        by: &str,
    ) -> Result<(DeviceId, SecretText), DeviceError> {
        let device = self.find(which).await?;
        let token = self.write_token(device.id, role, Some(by.to_owned())).await?;
        self.bus.emit(Event::DeviceClosed {
            device: device.id,
            code: close::DEVICE_REMOVED,
            reason: "token rotated".into(),
        });
        Ok((device.id, token))
    }

    /// Voids the token of one role and closes the device's sockets; the device itself stays.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn revoke_token(&self, which: &str, role: Role, by: &str) -> Result<DeviceId, DeviceError> {
        let device = self.find(which).await?;
        let (id, by) = (device.id, by.to_owned());
        self.store
            .write(move |t| {
                t.execute(
                    "DELETE FROM device_tokens WHERE device = ?1 AND role = ?2",
                    params![id.0, role.as_str()],
                )?;
                let body = json!({ "device": id, "role": role, "by": by });
                Audit::append_in(t, "token.revoked", &body)?;
                Ok(())
            })
            .await?;
        self.bus.emit(Event::DeviceClosed {
            device: id,
            code: close::DEVICE_REMOVED,
            reason: "token revoked".into(),
        });
        Ok(id)
    }

    /// What may be shown of a device's tokens.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn tokens(&self, id: DeviceId) -> Result<Vec<TokenInfo>, DeviceError> {
        Ok(self
            .store
            .read(move |c| {
                let mut statement = c.prepare_cached(
                    "SELECT role, created_ms, rotated_ms FROM device_tokens WHERE device = ?1 ORDER BY role",
                )?;
                let rows = statement.query_map([id.0], |r| {
                    let role = if r.get::<_, String>(0)? == "node" { Role::Node } else { Role::Operator };
                    Ok(TokenInfo {
                        role,
                        created_ms: r.get::<_, i64>(1)? as u64,
                        rotated_ms: r.get::<_, Option<i64>>(2)?.map(|ms| ms as u64),
                    })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await?)
    }
}
