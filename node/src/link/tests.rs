//! The link against a hub that speaks it over real TLS sockets, honest or not.
#![allow(clippy::large_futures)] // scripts hold both ends of a connection

mod hub;
mod local;
mod pair;
mod serve;

use super::*;
use crate::outbox::store::Bounds;
use crate::state::Home;
use hub::Hub;
use local::Fake;

/// A node without a board, and a hub it is paired with.
struct Rig {
    _dir: tempfile::TempDir,
    hub: Hub,
    local: Arc<Fake>,
    context: Context,
    status: watch::Sender<LinkStatus>,
}

const SCRIPT_DEADLINE: Duration = Duration::from_secs(30);

impl Rig {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path().join("home")));
        home.prepare().unwrap();
        let key = Arc::new(SecretKey::generate().unwrap());
        let clock = Clock::start(true).unwrap();
        let outbox = Outbox::open(&home, Bounds { items: 50_000, bytes: 16 << 20 }, clock).unwrap();
        let local = Arc::new(Fake::new(key.clone()));
        let context = Context { jitter: || 0, ..Context::new(key, clock, local.clone(), outbox) };
        Self {
            _dir: dir,
            hub: Hub::new().await,
            local,
            context,
            status: watch::channel(LinkStatus::default()).0,
        }
    }

    fn record(&self) -> HubRecord {
        HubRecord {
            key: self.hub.key.public(),
            spki: self.hub.spki,
            addresses: vec![self.hub.address.clone()],
            name: "home".into(),
        }
    }

    /// Runs the node beside a script of the hub.
    async fn run<T>(&self, script: impl Future<Output = T>) -> T {
        self.run_with(self.record(), script).await
    }

    async fn run_with<T>(&self, record: HubRecord, script: impl Future<Output = T>) -> T {
        tokio::select! {
            () = keep(&self.context, &record, &self.status) => panic!("the node stopped"),
            result = tokio::time::timeout(SCRIPT_DEADLINE, script) => result.expect("the script is too slow"),
        }
    }

    /// Waits until the node says why it is not connected.
    async fn refusal(&self) -> String {
        let mut status = self.status.subscribe();
        let status = status.wait_for(|s| s.last_error.is_some()).await.unwrap();
        status.last_error.clone().unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.context.outbox.close();
    }
}
