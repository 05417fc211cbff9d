//! What a node declares, what of it a person approved, and what waits.
//!
//! The approved surface stands with the device (`devices.surface`), because the first one is settled in
//! the same step as the device itself; what is declared later waits here, and what was approved works on.

use super::{Arrival, NodeError, NodeView, Nodes};
use crate::approvals::audit::Audit;
use crate::bus::Event;
use crate::devices::{self, DeviceError};
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::approver::ApproverSet;
use hearth_shared::identity::{DeviceId, random};
use hearth_shared::limits::MAX_NODE_CHANGES_AN_HOUR;
use hearth_shared::link::Declaration;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde_json::json;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// A node's stored state.
#[derive(Debug, Default)]
pub(super) struct NodeRow {
    pub declaration: Option<Declaration>,
    pub declared: Vec<String>,
    pub approved: Vec<String>,
    pub refused: Vec<String>,
    pub caps: Vec<String>,
    pub approvers: ApproverSet,
    pub version: String,
    pub pending_request: Option<String>,
    pub pending_ms: Option<u64>,
}

impl NodeRow {
    /// Declared, not approved, and not refused before.
    pub fn pending(&self) -> Vec<String> {
        let new = |part: &&String| !self.approved.contains(part) && !self.refused.contains(part);
        self.declared.iter().filter(new).cloned().collect()
    }
}

fn list(text: &str) -> Result<Vec<String>, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::Corrupt("a list of a node's parts".into()))
}

fn text(list: &[String]) -> String {
    // A list of strings always encodes.
    serde_json::to_string(list).unwrap_or_else(|_| "[]".into())
}

pub(super) fn row(connection: &Connection, device: &DeviceId) -> Result<NodeRow, StoreError> {
    let approved = connection
        .prepare_cached("SELECT surface FROM devices WHERE id = ?1")?
        .query_row([device.0], |r| r.get::<_, String>(0))
        .optional()?;
    let mut row = NodeRow { approved: list(approved.as_deref().unwrap_or("[]"))?, ..NodeRow::default() };
    type Stored = (Option<Vec<u8>>, String, String, Vec<u8>, String, Option<String>, Option<i64>, String);
    let stored: Option<Stored> = connection
        .prepare_cached(
            "SELECT declaration, declared, caps, approvers, version, pending_request, pending_ms, refused \
             FROM nodes WHERE device = ?1",
        )?
        .query_row([device.0], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?, r.get(6)?, r.get(7)?))
        })
        .optional()?;
    if let Some((declaration, declared, caps, approvers, version, request, pending_ms, refused)) = stored {
        // A declaration of another version of this program is read again when the node connects.
        row.declaration = declaration.and_then(|bytes| Declaration::decode(&bytes).ok());
        row.declared = list(&declared)?;
        row.caps = list(&caps)?;
        row.approvers = postcard::from_bytes(&approvers).unwrap_or_default();
        row.version = version;
        row.pending_request = request;
        row.pending_ms = pending_ms.map(|ms| ms as u64);
        row.refused = list(&refused)?;
    }
    Ok(row)
}

/// What storing a declaration changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The device is still known.
    pub known: bool,
    /// A request that a person has not seen yet.
    pub new_request: Option<String>,
    /// A request that is void now.
    pub void_request: Option<String>,
}

pub(super) async fn store_arrival(store: &Store, arrival: &Arrival) -> Result<Changed, NodeError> {
    let device = arrival.device.id;
    let declaration = arrival.declaration.as_ref().map(Declaration::encode);
    let (declared, caps) = (arrival.declared.clone(), text(&arrival.caps));
    let approvers = postcard::to_allocvec(&arrival.approvers).unwrap_or_default();
    let version = arrival.version.clone();
    let request_id = hex::encode(random::<16>().map_err(DeviceError::from)?);
    let changed = store
        .write(move |t| {
            if devices::get(t, &device)?.is_none() {
                return Ok(Changed::default());
            }
            t.prepare_cached(
                "INSERT INTO nodes (device, declaration, declared, caps, approvers, version) \
                 VALUES (?1, ?2, '[]', ?3, ?4, ?5) ON CONFLICT (device) \
                 DO UPDATE SET declaration = ?2, caps = ?3, approvers = ?4, version = ?5",
            )?
            .execute(params![device.0, declaration, caps, approvers, version])?;
            declare(t, &device, declared, request_id)
        })
        .await?;
    Ok(changed)
}

/// Puts down what is declared now, and finds out what of it must wait.
fn declare(
    t: &Transaction<'_>,
    device: &DeviceId,
    mut declared: Vec<String>,
    request_id: String,
) -> Result<Changed, StoreError> {
    declared.sort();
    declared.dedup();
    let mut row = row(t, device)?;
    let before = row.pending();
    if row.declared != declared {
        let body = json!({ "device": device, "declared": declared });
        Audit::append_in(t, "node.declared", &body)?;
    }
    row.declared = declared;
    let pending = row.pending();
    let mut changed = Changed { known: true, ..Changed::default() };
    let request = match row.pending_request.take() {
        Some(request) if !pending.is_empty() && pending == before => Some((request, row.pending_ms)),
        old => {
            changed.void_request = old;
            if pending.is_empty() {
                None
            } else {
                let body = json!({ "device": device, "request": request_id, "parts": pending });
                Audit::append_in(t, "node.surface.requested", &body)?;
                changed.new_request = Some(request_id.clone());
                Some((request_id, Some(now_ms())))
            }
        }
    };
    let (request, since) = request.unzip();
    t.prepare_cached(
        "UPDATE nodes SET declared = ?2, pending_request = ?3, pending_ms = ?4 WHERE device = ?1",
    )?
    .execute(params![device.0, text(&row.declared), request, since.flatten().map(|ms| ms as i64)])?;
    Ok(changed)
}

/// Within this time changes of one node are counted.
const CHANGES_COUNT_FOR: Duration = Duration::from_secs(3600);

impl Nodes {
    /// Counts a change of what a node says of itself.
    fn count_change(&self, device: DeviceId) -> Result<(), NodeError> {
        let mut changes = self.inner.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.retain(|_, times| {
            while times.front().is_some_and(|at| at.elapsed() > CHANGES_COUNT_FOR) {
                times.pop_front();
            }
            !times.is_empty()
        });
        let times = changes.entry(device).or_default();
        if times.len() >= MAX_NODE_CHANGES_AN_HOUR {
            return Err(NodeError::Restless);
        }
        times.push_back(Instant::now());
        Ok(())
    }

    /// Counts an arrival that declares something else than the last one.
    pub(super) async fn count_arrival(&self, arrival: &Arrival) -> Result<(), NodeError> {
        let device = arrival.device.id;
        let mut declared = arrival.declared.clone();
        declared.sort();
        declared.dedup();
        let before = self.inner.store.read(move |c| Ok(row(c, &device)?.declared)).await?;
        if before == declared { Ok(()) } else { self.count_change(device) }
    }

    /// A connected node's board changed: stores the new declaration; what is new in it waits.
    ///
    /// # Errors
    /// [`NodeError::Restless`], [`NodeError::Store`].
    pub async fn redeclare(
        &self,
        device: DeviceId,
        declaration: Option<Declaration>,
        declared: Vec<String>,
    ) -> Result<(), NodeError> {
        self.count_change(device)?;
        let request_id = hex::encode(random::<16>().map_err(DeviceError::from)?);
        let changed = self
            .inner
            .store
            .write(move |t| {
                let bytes = declaration.as_ref().map(Declaration::encode);
                let known = t.execute(
                    "UPDATE nodes SET declaration = ?2, version = coalesce(?3, version) WHERE device = ?1",
                    params![device.0, bytes, declaration.as_ref().map(|d| d.version.clone())],
                )?;
                if known == 0 {
                    return Ok(Changed::default());
                }
                declare(t, &device, declared, request_id)
            })
            .await?;
        if let Some(request_id) = changed.void_request {
            self.inner.bus.emit(Event::SurfaceResolved { node: device, request_id, decision: "removed" });
        }
        if let Some(request_id) = changed.new_request {
            self.inner.bus.emit(Event::SurfaceRequested { node: device, request_id });
        }
        self.inner.bus.emit(Event::PresenceChanged);
        Ok(())
    }

    /// The node's list of approvers, as it reported it.
    pub(super) async fn store_approvers(&self, device: DeviceId, set: ApproverSet) -> Result<(), NodeError> {
        self.count_change(device)?;
        let bytes = postcard::to_allocvec(&set).unwrap_or_default();
        self.inner
            .store
            .write(move |t| {
                let changed = t.execute(
                    "UPDATE nodes SET approvers = ?2 WHERE device = ?1 AND approvers <> ?2",
                    params![device.0, bytes],
                )?;
                if changed > 0 {
                    let ids: Vec<_> =
                        set.approvers.iter().map(hearth_shared::approver::Approver::id).collect();
                    let body = json!({ "device": device, "epoch": set.epoch, "approvers": ids });
                    Audit::append_in(t, "node.approvers", &body)?;
                }
                Ok(())
            })
            .await?;
        Ok(())
    }

    async fn pick_pending(&self, which: &str) -> Result<NodeView, NodeError> {
        let all = self.list().await?;
        let found = devices::pick(all, which, "node", |v| {
            let mut ids = vec![v.device.id.to_string()];
            ids.extend(v.pending_request.clone());
            (ids, v.device.name.clone())
        });
        found.map_err(|error| match error {
            DeviceError::Unknown { id, .. } => NodeError::Unknown(id),
            DeviceError::Ambiguous(which) => NodeError::Ambiguous(which),
            other => NodeError::Device(other),
        })
    }

    /// A person approves what waits of a node (request id, or the node). When nothing waits, naming the
    /// node takes in what was refused before.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn approve_surface(&self, which: &str, by: &str) -> Result<NodeView, NodeError> {
        let view = self.pick_pending(which).await?;
        let (device, seen, by) = (view.device.id, view.pending_request.clone(), by.to_owned());
        let approved = self
            .inner
            .store
            .write(move |t| {
                let row = row(t, &device)?;
                if row.pending_request != seen {
                    // It changed since it was looked at: nobody has seen what waits now.
                    return Ok(None);
                }
                let mut parts = row.pending();
                if parts.is_empty() {
                    parts = row.declared.iter().filter(|d| row.refused.contains(d)).cloned().collect();
                }
                if parts.is_empty() {
                    return Ok(None);
                }
                let mut approved = row.approved.clone();
                approved.extend(parts.iter().cloned());
                approved.sort();
                approved.dedup();
                let refused: Vec<_> = row.refused.iter().filter(|r| !parts.contains(r)).cloned().collect();
                t.execute("UPDATE devices SET surface = ?2 WHERE id = ?1", params![device.0, text(&approved)])?;
                t.execute(
                    "UPDATE nodes SET pending_request = NULL, pending_ms = NULL, refused = ?2 WHERE device = ?1",
                    params![device.0, text(&refused)],
                )?;
                let body = json!({ "device": device, "request": row.pending_request, "parts": parts, "by": by });
                Audit::append_in(t, "node.surface.approved", &body)?;
                Ok(Some(approved))
            })
            .await?;
        let Some(approved) = approved else { return Err(NodeError::NothingPending(view.device.name)) };
        self.surface_settled(device, view.pending_request, "approved");
        if let Some(connection) = self.connection(&device) {
            connection.surface(approved);
        }
        self.get(device).await
    }

    /// A person refuses what waits: it is not asked again, and `approve_surface` on the node undoes it.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn reject_surface(&self, which: &str, by: &str) -> Result<DeviceId, NodeError> {
        let view = self.pick_pending(which).await?;
        let (device, seen, by) = (view.device.id, view.pending_request.clone(), by.to_owned());
        let done = self
            .inner
            .store
            .write(move |t| {
                let row = row(t, &device)?;
                let parts = row.pending();
                if parts.is_empty() || row.pending_request != seen {
                    return Ok(false);
                }
                let mut refused = row.refused.clone();
                refused.extend(parts.iter().cloned());
                t.execute(
                    "UPDATE nodes SET pending_request = NULL, pending_ms = NULL, refused = ?2 WHERE device = ?1",
                    params![device.0, text(&refused)],
                )?;
                let body = json!({ "device": device, "request": row.pending_request, "parts": parts, "by": by });
                Audit::append_in(t, "node.surface.rejected", &body)?;
                Ok(true)
            })
            .await?;
        if !done {
            return Err(NodeError::NothingPending(view.device.name));
        }
        self.surface_settled(device, view.pending_request, "rejected");
        Ok(device)
    }

    fn surface_settled(&self, node: DeviceId, request_id: Option<String>, decision: &'static str) {
        let request_id = request_id.unwrap_or_default();
        self.inner.bus.emit(Event::SurfaceResolved { node, request_id, decision });
        self.inner.bus.emit(Event::PresenceChanged);
    }
}
