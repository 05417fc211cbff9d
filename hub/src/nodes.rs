//! Nodes: what they declare, who is connected, and the calls down to them.

pub mod readings;

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
use hearth_shared::link::{Declaration, Invoke, Outcome};
use hearth_shared::reading::RequestId;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

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
        timeout: std::time::Duration,
    ) -> BoxFuture<'_, Result<NodeReply, CommandError>>;
    /// Withdraws a request.
    fn cancel(&self, request: RequestId);
    /// Changes the node's list of approvers.
    fn change_approvers(&self, change: ApproversChange) -> BoxFuture<'_, Result<ApproverSet, CommandError>>;
    /// Tells the node what of its declaration is approved.
    fn surface(&self, approved: Vec<String>);
    /// Ends the connection.
    fn close(&self, code: u16, reason: &str);
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
    /// Request id of what waits.
    pub pending_request: Option<String>,
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
pub struct Nodes {}

/// Keeps a node listed as connected; dropping it takes the node off and tells the bus.
#[derive(Debug)]
pub struct Attached {}

impl Nodes {
    /// Puts the parts together.
    #[must_use]
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        _store: Store,
        _bus: Bus,
        _audit: Audit,
        _devices: Devices,
        _keys: Arc<HubKeys>,
        _home: Home,
        _config: Arc<Config>,
        _tasks: Tasks,
    ) -> Self {
        todo!()
    }

    /// All nodes, connected or not.
    ///
    /// # Errors
    /// [`NodeError::Store`].
    pub async fn list(&self) -> Result<Vec<NodeView>, NodeError> {
        todo!()
    }

    /// One node by id, unique prefix of the id, or name (case ignored).
    ///
    /// # Errors
    /// [`NodeError::Unknown`], [`NodeError::Ambiguous`].
    pub async fn find(&self, _which: &str) -> Result<NodeView, NodeError> {
        todo!()
    }

    /// History of sensor readings.
    #[must_use]
    pub fn readings(&self) -> &readings::Readings {
        todo!()
    }

    /// The connection of a node, if there is one.
    #[must_use]
    pub fn connection(&self, _node: &DeviceId) -> Option<Arc<dyn NodeConnection>> {
        todo!()
    }

    /// A node was admitted: stores what it declares, compares it with what is approved (new parts wait,
    /// the approved part works on), and lists it as connected.
    ///
    /// # Errors
    /// [`NodeError::Duplicate`] (and an alarm), [`NodeError::Store`].
    pub async fn attach(&self, _arrival: Arrival) -> Result<Attached, NodeError> {
        todo!()
    }

    /// A person approves what waits of a node (request id, or the node).
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn approve_surface(&self, _which: &str, _by: &str) -> Result<NodeView, NodeError> {
        todo!()
    }

    /// A person refuses what waits.
    ///
    /// # Errors
    /// [`NodeError`].
    pub async fn reject_surface(&self, _which: &str, _by: &str) -> Result<DeviceId, NodeError> {
        todo!()
    }

    /// Serves one node link: called by the gateway after the upgrade on the link's path. `exporter` is
    /// the TLS exporter of this connection. Ends when the link ends.
    pub async fn serve_link<S>(
        &self,
        _socket: tokio_tungstenite::WebSocketStream<S>,
        _peer: SocketAddr,
        _exporter: [u8; 32],
    ) where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        todo!()
    }
}
