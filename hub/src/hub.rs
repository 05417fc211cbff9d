//! A running hub: its parts, put together in the order of their dependencies.

use crate::actions::Actions;
use crate::agent::Agent;
use crate::approvals::audit::Audit;
use crate::bus::Bus;
use crate::config::Config;
use crate::devices::Devices;
use crate::home::Home;
use crate::keys::HubKeys;
use crate::nodes::Nodes;
use crate::routing::Router;
use crate::sessions::Sessions;
use crate::store::Store;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks of a hub: every one is tracked and ends when `stop` is cancelled.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    /// Counts them.
    pub tracker: TaskTracker,
    /// Tells them to end.
    pub stop: CancellationToken,
}

impl Tasks {
    /// Starts a task. It must watch `stop` itself, or end soon by nature.
    pub fn spawn<F>(&self, future: F)
    where
        F: std::future::Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(future);
    }
}

/// The parts. Higher layers get an `Arc<Hub>`; lower ones only what they need.
#[derive(Debug)]
pub struct Hub {
    /// Paths.
    pub home: Home,
    /// Configuration as loaded at start.
    pub config: Arc<Config>,
    /// Identity, TLS, token.
    pub keys: Arc<HubKeys>,
    /// Database.
    pub store: Store,
    /// Events.
    pub bus: Bus,
    /// Audit log.
    pub audit: Audit,
    /// Identities and pairing.
    pub devices: Devices,
    /// Nodes.
    pub nodes: Nodes,
    /// Durable requests to nodes, and approvals.
    pub actions: Actions,
    /// Transcripts.
    pub sessions: Sessions,
    /// Runs.
    pub agent: Agent,
    /// From message to run.
    pub router: Router,
    /// Background work.
    pub tasks: Tasks,
    /// When it started.
    pub started: Instant,
}
