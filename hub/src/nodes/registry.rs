//! Which nodes there are and which are connected.

use super::surface::{self, NodeRow};
use super::{Arrival, NodeConnection, NodeError, NodeView, Nodes};
use crate::bus::Event;
use crate::devices::{self, DeviceError, DeviceState};
use crate::store::{StoreError, now_ms};
use hearth_shared::connect::Role;
use hearth_shared::frame::close;
use hearth_shared::identity::DeviceId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Times a newcomer may find yet another connection in the place it wants.
const MAX_PROBES: usize = 3;

/// The same alarm about the same node is given once in this time.
const ALARM_EVERY: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
pub(super) struct Live {
    pub connection: Arc<dyn NodeConnection>,
    connected_ms: u64,
    remote: SocketAddr,
    /// It was announced: calls may go to it. Before that the place is only taken.
    pub ready: bool,
}

/// Keeps a node's place for one connection; dropping it takes the node off and tells the bus.
#[derive(Debug)]
#[must_use = "the node is taken off when this is dropped"]
pub struct Attached {
    nodes: Nodes,
    device: DeviceId,
    connection: Arc<dyn NodeConnection>,
    reason: String,
    announced: bool,
    /// A request about its surface that a person has not seen yet.
    new_request: Option<String>,
}

impl Attached {
    /// Lists the node as connected: from here on what waited for it goes to it. To be called when the
    /// connection can take calls and knows what is approved; a call that came earlier would be refused.
    pub async fn announce(&mut self) {
        {
            let mut live = self.nodes.live();
            let mine = live.get_mut(&self.device).filter(|l| Arc::ptr_eq(&l.connection, &self.connection));
            // Another connection has its place.
            let Some(mine) = mine else { return };
            mine.ready = true;
        }
        self.announced = true;
        let inner = &self.nodes.inner;
        inner.bus.emit(Event::NodeConnected { node: self.device });
        inner.bus.emit(Event::PresenceChanged);
        if let Some(request_id) = self.new_request.take() {
            inner.bus.emit(Event::SurfaceRequested { node: self.device, request_id });
        }
        if let Err(error) = inner.devices.seen(self.device, "connected").await {
            tracing::debug!(%error, "cannot note when the node was last seen");
        }
    }

    /// Why it ends, for the lists: `heartbeat_timeout`, `goodbye` and the like.
    pub fn set_reason(&mut self, reason: &str) {
        reason.clone_into(&mut self.reason);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mine = {
            let mut live = self.nodes.live();
            let mine = live.get(&self.device).is_some_and(|l| Arc::ptr_eq(&l.connection, &self.connection));
            if mine {
                live.remove(&self.device);
            }
            mine
        };
        // A connection that was replaced is gone without a word: the node is still there.
        if !mine || !self.announced {
            return;
        }
        let bus = &self.nodes.inner.bus;
        bus.emit(Event::NodeDisconnected { node: self.device, reason: self.reason.clone() });
        bus.emit(Event::PresenceChanged);
        if tokio::runtime::Handle::try_current().is_ok() {
            let (devices, id, reason) =
                (self.nodes.inner.devices.clone(), self.device, std::mem::take(&mut self.reason));
            self.nodes.inner.tasks.spawn(async move {
                if let Err(error) = devices.seen(id, &reason).await {
                    tracing::debug!(%error, "cannot note when the node was last seen");
                }
            });
        }
    }
}

impl Nodes {
    /// All nodes, connected or not, by name.
    ///
    /// # Errors
    /// [`NodeError::Store`].
    pub async fn list(&self) -> Result<Vec<NodeView>, NodeError> {
        let rows = self
            .inner
            .store
            .read(|c| {
                let mut rows = Vec::new();
                for device in devices::all(c)? {
                    if device.roles.contains(&Role::Node) && device.state == DeviceState::Accepted {
                        let row = surface::row(c, &device.id)?;
                        rows.push((device, row));
                    }
                }
                Ok(rows)
            })
            .await?;
        Ok(rows.into_iter().map(|(device, row)| self.view(device, row)).collect())
    }

    pub(super) fn view(&self, device: devices::Device, row: NodeRow) -> NodeView {
        let (connected_ms, remote_ip) = match self.live().get(&device.id).filter(|l| l.ready) {
            Some(live) => (Some(live.connected_ms), Some(live.remote.ip().to_canonical().to_string())),
            None => (None, None),
        };
        let pending = row.pending();
        let waits = !pending.is_empty();
        NodeView {
            pending_request: row.pending_request.filter(|_| waits),
            pending_ms: row.pending_ms.filter(|_| waits),
            pending,
            device,
            declaration: row.declaration,
            declared: row.declared,
            approved: row.approved,
            refused: row.refused,
            caps: row.caps,
            approvers: row.approvers,
            connected: connected_ms.is_some(),
            connected_ms,
            remote_ip,
            version: row.version,
        }
    }

    /// One node by id, unique prefix of the id, or name (case ignored in every alphabet).
    ///
    /// # Errors
    /// [`NodeError::Unknown`], [`NodeError::Ambiguous`].
    pub async fn find(&self, which: &str) -> Result<NodeView, NodeError> {
        let all = self.list().await?;
        devices::pick(all, which, "node", |v| (vec![v.device.id.to_string()], v.device.name.clone())).map_err(
            |error| match error {
                DeviceError::Unknown { id, .. } => NodeError::Unknown(id),
                DeviceError::Ambiguous(which) => NodeError::Ambiguous(which),
                other => NodeError::Device(other),
            },
        )
    }

    /// One node by its whole id.
    ///
    /// # Errors
    /// [`NodeError::Unknown`], [`NodeError::Store`].
    pub async fn get(&self, id: DeviceId) -> Result<NodeView, NodeError> {
        let found = self
            .inner
            .store
            .read(move |c| {
                let Some(device) = devices::get(c, &id)? else { return Ok(None) };
                let row = surface::row(c, &id)?;
                Ok(Some((device, row)))
            })
            .await?;
        let is_node = |d: &devices::Device| d.roles.contains(&Role::Node) && d.state == DeviceState::Accepted;
        match found {
            Some((device, row)) if is_node(&device) => Ok(self.view(device, row)),
            _ => Err(NodeError::Unknown(id.short())),
        }
    }

    /// A node was admitted: stores what it declares, compares it with what is approved (new parts wait,
    /// the approved part works on), and takes its place; [`Attached::announce`] lists it as connected.
    ///
    /// When the same key is connected already, that connection is asked for a sign of life first: after a
    /// power cut the old one is dead without knowing it, and must not keep the node out.
    ///
    /// # Errors
    /// [`NodeError::Duplicate`] (and an alarm), [`NodeError::Restless`], [`NodeError::Store`].
    pub async fn attach(&self, arrival: Arrival) -> Result<Attached, NodeError> {
        let device = arrival.device.id;
        let mut attached = self.claim(&arrival).await?;
        self.count_arrival(&arrival).await?;
        let changed = match surface::store_arrival(&self.inner.store, &arrival).await {
            // A full card keeps nobody out: what is approved is known already.
            Err(NodeError::Store(StoreError::Full)) => {
                self.inner.media.ask_room();
                let known = self.inner.devices.get(device).await?.is_some();
                surface::Changed { known, ..surface::Changed::default() }
            }
            other => other?,
        };
        // Between admission and here the device may have been removed: its row is the truth.
        if !changed.known {
            return Err(NodeError::Unknown(device.short()));
        }
        attached.new_request = changed.new_request;
        Ok(attached)
    }

    async fn claim(&self, arrival: &Arrival) -> Result<Attached, NodeError> {
        let device = arrival.device.id;
        for _ in 0..MAX_PROBES {
            let old = {
                let mut live = self.live();
                match live.get(&device) {
                    None => {
                        self.list_live(&mut live, arrival);
                        return Ok(self.attached(arrival));
                    }
                    Some(old) => old.connection.clone(),
                }
            };
            if old.probe().await {
                self.alarm_duplicate(arrival).await;
                return Err(NodeError::Duplicate);
            }
            tracing::info!(node = %arrival.device.name, "the node's old connection is dead; the new one takes its place");
            let mut live = self.live();
            if live.get(&device).is_some_and(|l| Arc::ptr_eq(&l.connection, &old)) {
                self.list_live(&mut live, arrival);
                drop(live);
                old.close(close::NORMAL, "replaced by a new connection");
                return Ok(self.attached(arrival));
            }
        }
        Err(NodeError::Duplicate)
    }

    fn list_live(&self, live: &mut std::collections::HashMap<DeviceId, Live>, arrival: &Arrival) {
        let entry = Live {
            connection: arrival.connection.clone(),
            connected_ms: now_ms(),
            remote: arrival.remote,
            ready: false,
        };
        live.insert(arrival.device.id, entry);
    }

    fn attached(&self, arrival: &Arrival) -> Attached {
        Attached {
            nodes: self.clone(),
            device: arrival.device.id,
            connection: arrival.connection.clone(),
            reason: "connection closed".into(),
            announced: false,
            new_request: None,
        }
    }

    async fn alarm_duplicate(&self, arrival: &Arrival) {
        let message = format!(
            "a second connection with the key of node `{}` came from {} while the first is alive; it was refused. \
             If you did not start the node twice, somebody has copied its key: `hearth nodes remove {}`, then \
             `hearth-node reset` on the board",
            arrival.device.name,
            arrival.remote.ip(),
            arrival.device.id.short()
        );
        let body =
            serde_json::json!({ "device": arrival.device.id, "remoteIp": arrival.remote.ip().to_string() });
        self.alarm(arrival.device.id, "node.duplicate", body, message).await;
    }

    /// Tells the owner, and the audit log: of each kind and node once in a while, so that a node gone mad
    /// fills neither.
    pub(super) async fn alarm(
        &self,
        device: DeviceId,
        kind: &'static str,
        body: serde_json::Value,
        message: String,
    ) {
        let told = {
            let mut alarms = self.inner.alarms.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            alarms.retain(|_, at: &mut Instant| at.elapsed() < ALARM_EVERY);
            let told = alarms.contains_key(&(device, kind));
            alarms.entry((device, kind)).or_insert_with(Instant::now);
            told
        };
        if told {
            tracing::debug!("{message}");
            return;
        }
        tracing::warn!("{message}");
        if let Err(error) = self.inner.audit.append(kind, body).await {
            tracing::error!(%error, "an alarm could not be put into the audit log");
        }
        self.inner.bus.emit(Event::Alarm { message });
    }
}
