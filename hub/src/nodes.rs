//! Nodes: what they declare, who is connected, and the calls down to them.
//!
//! ```text
//! gateway ──► serve_link ──► handshake ──► attach ──► session ──► outbox ──► readings, events
//!                                            │            └─────► transfers ──► media
//! actions ──► connection(node) ──────────────┘ one trait, whatever protocol the node speaks
//! ```

mod link;
pub mod media;
mod outbox;
pub mod readings;
mod registry;
mod retention;
mod surface;

use crate::approvals::audit::Audit;
use crate::bus::Bus;
use crate::config::Config;
use crate::devices::{Device, Devices, LinkKind};
use crate::home::Home;
use crate::hub::Tasks;
use crate::keys::HubKeys;
use crate::store::{Store, StoreError};
use futures_util::future::BoxFuture;
use hearth_shared::approver::{ApproverSet, ApproversChange};
use hearth_shared::chain::Head;
use hearth_shared::challenge::SignedChallenge;
use hearth_shared::error::CommandError;
use hearth_shared::grant::Grant;
use hearth_shared::identity::{DeviceId, Digest};
use hearth_shared::limits::MAX_NODE_CHANGES_AN_HOUR;
use hearth_shared::link::{Declaration, Invoke, Outcome};
use hearth_shared::reading::RequestId;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A picture or other bytes a node sent, in `media/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Media {
    /// Random, part of its address.
    pub id: String,
    /// Where it lies.
    pub path: PathBuf,
    /// `image/jpeg` and the like.
    pub mime: String,
    /// Bytes.
    pub size: u64,
    /// Of the bytes.
    pub sha256: Digest,
}

/// What came back from a node.
#[derive(Debug, Clone)]
pub struct NodeReply {
    /// How the request ended.
    pub outcome: Outcome,
    /// Attachments, stored.
    pub media: Vec<Media>,
    /// Head of the node's audit log (our own nodes).
    pub head: Option<Head>,
}

/// A connected node, whatever protocol it speaks. Every call ends by itself: with the answer, with
/// `TIMEOUT`, or with `NOT_CONNECTED` when the connection ends.
pub trait NodeConnection: Send + Sync + std::fmt::Debug {
    /// Runs a command, or learns that a person must decide.
    fn invoke(&self, invoke: Invoke) -> BoxFuture<'_, Result<NodeReply, CommandError>>;
    /// A fresh challenge, or the reply that refuses.
    fn ask_challenge(
        &self,
        invoke: Invoke,
    ) -> BoxFuture<'_, Result<Result<SignedChallenge, NodeReply>, CommandError>>;
    /// Delivers a grant; the reply is the request's outcome.
    fn grant(
        &self,
        request: RequestId,
        grant: Grant,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<NodeReply, CommandError>>;
    /// Withdraws a request.
    fn cancel(&self, request: RequestId);
    /// Changes the node's list of approvers.
    fn change_approvers(&self, change: ApproversChange) -> BoxFuture<'_, Result<ApproverSet, CommandError>>;
    /// Tells the node what of its declaration is approved.
    fn surface(&self, approved: Vec<String>);
    /// Ends the connection.
    fn close(&self, code: u16, reason: &str);
    /// Whether the other end still answers, found out within a few seconds: asked when a second
    /// connection with the same key comes. A connection that cannot tell counts as alive.
    fn probe(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }
}

/// A node as people and the agent see it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// The device behind it.
    pub device: Device,
    /// What our own nodes declare; `None` for foreign JSON nodes.
    pub declaration: Option<Declaration>,
    /// Declared surface: commands and parts.
    pub declared: Vec<String>,
    /// What of it a person approved.
    pub approved: Vec<String>,
    /// What waits for approval.
    pub pending: Vec<String>,
    /// What a person refused; approving the node by name takes it in after all.
    pub refused: Vec<String>,
    /// Request id of what waits.
    pub pending_request: Option<String>,
    /// Since when, Unix milliseconds.
    pub pending_ms: Option<u64>,
    /// Capabilities of foreign nodes.
    pub caps: Vec<String>,
    /// Who may approve on it (our own nodes).
    pub approvers: ApproverSet,
    /// Connected now.
    pub connected: bool,
    /// Unix milliseconds.
    pub connected_ms: Option<u64>,
    /// Peer address.
    pub remote_ip: Option<String>,
    /// Program version.
    pub version: String,
}

impl NodeView {
    /// Commands that are declared and approved.
    #[must_use]
    pub fn commands(&self) -> Vec<&str> {
        self.approved
            .iter()
            .filter(|a| !a.contains(':') && self.declared.contains(*a))
            .map(String::as_str)
            .collect()
    }

    /// Whether the node itself checks grants.
    #[must_use]
    pub fn checks_grants(&self) -> bool {
        self.device.kind == LinkKind::Hearth
    }
}

/// Why a node operation fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Devices.
    #[error(transparent)]
    Device(#[from] crate::devices::DeviceError),
    /// No such node.
    #[error("no node `{0}`; see `hearth nodes list`")]
    Unknown(String),
    /// Two fit.
    #[error("`{0}` fits more than one node; give the id")]
    Ambiguous(String),
    /// The same key is connected already.
    #[error("a node with this key is connected already")]
    Duplicate,
    /// The declaration cannot be used.
    #[error("{0}")]
    BadDeclaration(String),
    /// It changes what it says of itself without end.
    #[error("it changed what it declares more than {MAX_NODE_CHANGES_AN_HOUR} times within an hour")]
    Restless,
    /// Nothing to decide.
    #[error("nothing of node `{0}` waits for approval")]
    NothingPending(String),
}

/// What a node brings when it connects.
#[derive(Debug)]
pub struct Arrival {
    /// Its device.
    pub device: Device,
    /// Our own nodes.
    pub declaration: Option<Declaration>,
    /// Declared surface.
    pub declared: Vec<String>,
    /// Foreign nodes.
    pub caps: Vec<String>,
    /// Our own nodes.
    pub approvers: ApproverSet,
    /// Program version.
    pub version: String,
    /// Peer.
    pub remote: SocketAddr,
    /// Calls go here.
    pub connection: Arc<dyn NodeConnection>,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Nodes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    bus: Bus,
    audit: Audit,
    devices: Devices,
    keys: Arc<HubKeys>,
    config: Arc<Config>,
    tasks: Tasks,
    readings: readings::Readings,
    media: media::MediaStore,
    /// Interval of heartbeats; told to nodes in the welcome.
    tick: Duration,
    live: Mutex<HashMap<DeviceId, registry::Live>>,
    /// What the owner was told lately.
    alarms: Mutex<HashMap<(DeviceId, &'static str), tokio::time::Instant>>,
    /// When nodes changed what they say of themselves, within the last hour.
    changes: Mutex<HashMap<DeviceId, VecDeque<tokio::time::Instant>>>,
    figures: Mutex<retention::Figures>,
}

pub use registry::Attached;
pub use retention::Usage;

impl Nodes {
    /// Puts the parts together; [`Nodes::start`] begins the background work.
    #[must_use]
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        store: Store,
        bus: Bus,
        audit: Audit,
        devices: Devices,
        keys: Arc<HubKeys>,
        home: Home,
        config: Arc<Config>,
        tasks: Tasks,
    ) -> Self {
        let tick = Duration::from_millis(hearth_shared::limits::TICK_INTERVAL_MS);
        let parts = Parts { store, bus, audit, devices, keys, config, tasks };
        Self::assemble(parts, &home, tick)
    }

    fn assemble(parts: Parts, home: &Home, tick: Duration) -> Self {
        let Parts { store, bus, audit, devices, keys, config, tasks } = parts;
        let readings = readings::Readings::new(store.clone());
        let media = media::MediaStore::new(store.clone(), home.media(), config.retention.media_mb);
        let (live, alarms, changes) = (Mutex::default(), Mutex::default(), Mutex::default());
        let inner = Inner {
            store,
            bus,
            audit,
            devices,
            keys,
            config,
            tasks,
            readings,
            media,
            tick,
            live,
            alarms,
            changes,
            figures: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// History of sensor readings.
    #[must_use]
    pub fn readings(&self) -> &readings::Readings {
        &self.inner.readings
    }

    /// Pictures and other attachments.
    #[must_use]
    pub fn media(&self) -> &media::MediaStore {
        &self.inner.media
    }

    /// The connection of a node, if there is one.
    #[must_use]
    pub fn connection(&self, node: &DeviceId) -> Option<Arc<dyn NodeConnection>> {
        self.live().get(node).filter(|l| l.ready).map(|l| l.connection.clone())
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<DeviceId, registry::Live>> {
        self.inner.live.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

struct Parts {
    store: Store,
    bus: Bus,
    audit: Audit,
    devices: Devices,
    keys: Arc<HubKeys>,
    config: Arc<Config>,
    tasks: Tasks,
}

#[cfg(test)]
mod tests;
