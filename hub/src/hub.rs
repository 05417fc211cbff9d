//! A running hub: its parts, put together in the order of their dependencies.

use crate::actions::Actions;
use crate::agent::Agent;
use crate::approvals::audit::Audit;
use crate::bus::{Bus, Event};
use crate::cert::{CertError, Certificates};
use crate::channels::adapter::Ground;
use crate::channels::host::Below;
use crate::channels::{self, Channels, ChannelsConfig, Opened};
use crate::config::Config;
use crate::devices::Devices;
use crate::home::{Home, HomeError};
use crate::keys::{HubKeys, KeyError};
use crate::nodes::Nodes;
use crate::notify::Notify;
use crate::routing::Router;
use crate::sessions::Sessions;
use crate::store::{Store, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the work that goes on may take to end when the hub stops.
const GRACE: Duration = Duration::from_secs(5);

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
    /// What TLS shows to browsers.
    pub cert: Arc<Certificates>,
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
    /// Chats.
    pub channels: Channels,
    /// Telling people who are not looking.
    pub notify: Notify,
    /// Background work.
    pub tasks: Tasks,
    /// When it started.
    pub started: Instant,
}

/// A hub that cannot be put together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The state directory.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The certificates.
    #[error(transparent)]
    Cert(#[from] CertError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Hub {
    /// Opens everything below the sockets and takes up what waited when the hub last ended. Nothing
    /// listens yet. The caller holds the home's lock.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn open(home: Home, config: Config) -> Result<Arc<Self>, HubError> {
        Self::open_with(home, config, channels::open_all).await
    }

    /// As [`Hub::open`], with the channels that `open` gives.
    pub(crate) async fn open_with(
        home: Home,
        config: Config,
        open: impl FnOnce(&ChannelsConfig, &Ground) -> Vec<Opened>,
    ) -> Result<Arc<Self>, HubError> {
        let started = Instant::now();
        home.create()?;
        home.clear_leftovers()?;
        let config = Arc::new(config);
        let tasks = Tasks::default();
        let bus = Bus::default();
        let missing: Vec<_> = [home.hub_key(), home.tls()].into_iter().filter(|p| !p.exists()).collect();
        let keys = Arc::new(HubKeys::open(&home)?);
        let cert = Certificates::open(&home, keys.clone(), &config.gateway)?;
        let store = Store::open(&home.database())?;
        let audit = Audit::open(store.clone()).await?;
        let devices = Devices::new(store.clone(), bus.clone(), audit.clone(), keys.clone());
        warn_of_new_keys(&devices, &missing).await;
        let nodes = Nodes::new(
            store.clone(),
            bus.clone(),
            audit.clone(),
            devices.clone(),
            keys.clone(),
            home.clone(),
            config.clone(),
            tasks.clone(),
        );
        let actions = Actions::new(
            store.clone(),
            bus.clone(),
            audit.clone(),
            nodes.clone(),
            keys.clone(),
            config.clone(),
            tasks.clone(),
        );
        let sessions = Sessions::open(home.clone(), store.clone()).await?;
        let agent = Agent::new(
            store.clone(),
            bus.clone(),
            config.clone(),
            nodes.clone(),
            actions.clone(),
            sessions.clone(),
            tasks.clone(),
        );
        let router = Router::new(sessions.clone(), agent.clone());
        cert.watch(&tasks);
        let notify = Notify::open(
            &home,
            store.clone(),
            bus.clone(),
            config.clone(),
            devices.clone(),
            actions.clone(),
            tasks.clone(),
        )?;
        nodes.start();
        actions.resume().await?;
        agent.resume().await?;
        let opened = open(&config.channels, &Ground { bus: bus.clone(), sessions: sessions.clone() });
        let below = Below {
            store: store.clone(),
            bus: bus.clone(),
            actions: actions.clone(),
            nodes: nodes.clone(),
            router: router.clone(),
            tasks: tasks.clone(),
            hub: keys.identity.device_id(),
        };
        let channels = Channels::start(below, opened).await?;
        notify.start().await?;
        Ok(Arc::new(Self {
            home,
            config,
            keys,
            cert,
            store,
            bus,
            audit,
            devices,
            nodes,
            actions,
            sessions,
            agent,
            router,
            channels,
            notify,
            tasks,
            started,
        }))
    }

    /// Stops: tells everybody, lets what runs come to its end within 5 seconds, and returns. What is
    /// durable goes on at the next start.
    pub async fn drain(&self, reason: &str) {
        tracing::info!(reason, "stopping");
        self.bus.emit(Event::Shutdown { reason: reason.into() });
        self.tasks.stop.cancel();
        self.tasks.tracker.close();
        if tokio::time::timeout(GRACE, self.tasks.tracker.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.tracker.len(), "work did not end in time and is cut off");
        }
    }
}

/// A hub whose key is another than the one its nodes know is refused by all of them; its owner should
/// not have to find that out node by node.
async fn warn_of_new_keys(devices: &Devices, made: &[std::path::PathBuf]) {
    let known = devices.list().await.map_or(0, |(_, known)| known.len());
    if known == 0 {
        return;
    }
    for path in made {
        tracing::warn!(
            "{} was not there and was made anew: what was paired before ({known} devices) refuses this hub until \
             the old file is back or it is paired again",
            path.display()
        );
    }
}
