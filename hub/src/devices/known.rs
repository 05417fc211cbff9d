//! What is done with known devices: rename, revoke, remove; and the approver keys the hub knows.

use super::{Device, DeviceError, Devices, records};
use crate::approvals::audit::Audit;
use crate::bus::Event;
use crate::store::{StoreError, now_ms};
use hearth_shared::approver::{Approver, ApproverKind};
use hearth_shared::frame::close;
use hearth_shared::identity::{DeviceId, PublicKey, display_safe};
use hearth_shared::limits::MAX_NAME_CHARS;
use rusqlite::params;
use serde_json::json;

impl Devices {
    /// Forgets a device and closes its sockets. Its history (readings, events) goes with it; pictures
    /// stay until they are too old.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn remove(&self, which: &str, by: &str) -> Result<DeviceId, DeviceError> {
        let device = self.find(which).await?;
        let (id, name, who) = (device.id, device.name.clone(), by.to_owned());
        self.store
            .write(move |t| {
                t.execute("DELETE FROM devices WHERE id = ?1", [id.0])?;
                Audit::forget_node_in(t, &id)?;
                Audit::append_in(t, "device.removed", &json!({ "device": id, "name": name, "by": who }))?;
                Ok(())
            })
            .await?;
        self.close_sockets(id, "device removed");
        Ok(id)
    }

    /// Voids a device's tokens and closes its sockets; it may not come back until removed.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn revoke(&self, which: &str, by: &str) -> Result<DeviceId, DeviceError> {
        let device = self.find(which).await?;
        let (id, name, who) = (device.id, device.name.clone(), by.to_owned());
        self.store
            .write(move |t| {
                t.execute("UPDATE devices SET state = 'revoked' WHERE id = ?1", [id.0])?;
                t.execute("DELETE FROM device_tokens WHERE device = ?1", [id.0])?;
                Audit::append_in(t, "device.revoked", &json!({ "device": id, "name": name, "by": who }))?;
                Ok(())
            })
            .await?;
        self.close_sockets(id, "device revoked");
        Ok(id)
    }

    fn close_sockets(&self, device: DeviceId, reason: &str) {
        self.bus.emit(Event::DeviceClosed { device, code: close::DEVICE_REMOVED, reason: reason.into() });
    }

    /// Gives a device a new name; an empty one goes back to what it calls itself.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn rename(&self, which: &str, name: &str) -> Result<DeviceId, DeviceError> {
        let device: Device = self.find(which).await?;
        let id = device.id;
        let label = display_safe(name.trim(), MAX_NAME_CHARS);
        self.store
            .write(move |t| {
                let label = Some(label).filter(|l| !l.is_empty());
                t.execute("UPDATE devices SET label = ?2 WHERE id = ?1", params![id.0, label])?;
                Audit::append_in(
                    t,
                    "device.renamed",
                    &json!({ "device": id, "from": device.name, "to": label }),
                )?;
                Ok(())
            })
            .await?;
        self.bus.emit(Event::PresenceChanged);
        Ok(id)
    }

    /// Persons' approver keys known to the hub: they go into setup codes.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn known_approvers(&self) -> Result<Vec<Approver>, DeviceError> {
        Ok(self
            .store
            .read(|c| {
                let mut statement = c.prepare_cached(
                    "SELECT key, kind, admin, name FROM known_approvers ORDER BY added_ms, key",
                )?;
                let mut rows = statement.query([])?;
                let mut approvers = Vec::new();
                while let Some(row) = rows.next()? {
                    let kind = match row.get::<_, String>(1)?.as_str() {
                        "page" => ApproverKind::Page,
                        "terminal" => ApproverKind::Terminal,
                        _ => return Err(StoreError::Corrupt("known_approvers.kind".into())),
                    };
                    approvers.push(Approver {
                        key: PublicKey(row.get(0)?),
                        kind,
                        admin: row.get(2)?,
                        name: row.get(3)?,
                    });
                }
                Ok(approvers)
            })
            .await?)
    }

    /// Makes a person's approver key known. It counts on a node only once the node has it. A key of kind
    /// `hub` is not a person's and is not taken.
    ///
    /// # Errors
    /// [`DeviceError::Refused`], [`DeviceError::Store`].
    pub async fn add_known_approver(&self, approver: Approver, by: &str) -> Result<(), DeviceError> {
        let kind = match approver.kind {
            ApproverKind::Hub => return Err(DeviceError::NotAPerson),
            ApproverKind::Page => "page",
            ApproverKind::Terminal => "terminal",
        };
        let by = by.to_owned();
        self.store
            .write(move |t| {
                let name = display_safe(&approver.name, MAX_NAME_CHARS);
                t.execute(
                    "INSERT INTO known_approvers (key, kind, admin, name, added_ms) VALUES (?1, ?2, ?3, ?4, ?5) \
                     ON CONFLICT (key) DO UPDATE SET kind = ?2, admin = ?3, name = ?4",
                    params![approver.key.0, kind, approver.admin, name, now_ms() as i64],
                )?;
                let body = json!({
                    "approver": approver.id(), "kind": kind, "admin": approver.admin, "name": name, "by": by,
                });
                Audit::append_in(t, "approver.known", &body)?;
                Ok(())
            })
            .await?;
        Ok(())
    }

    /// Forgets an approver key (id or unique prefix, or name). Nodes that have it keep it until their own
    /// list is changed.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`], [`DeviceError::Ambiguous`], [`DeviceError::Store`].
    pub async fn remove_known_approver(&self, which: &str, by: &str) -> Result<DeviceId, DeviceError> {
        let all = self.known_approvers().await?;
        let approver = records::pick(all, which, "approver", |a| (vec![a.id().to_string()], a.name.clone()))?;
        let (id, by) = (approver.id(), by.to_owned());
        self.store
            .write(move |t| {
                t.execute("DELETE FROM known_approvers WHERE key = ?1", [approver.key.0])?;
                Audit::append_in(t, "approver.forgotten", &json!({ "approver": id, "by": by }))?;
                Ok(())
            })
            .await?;
        Ok(id)
    }
}
