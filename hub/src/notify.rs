//! Telling a person who is not looking: a program, an ntfy server, browsers through Web Push.
//!
//! ```text
//! bus ──► notice (what, without what must not leave the house) ──► command
//!                                                              ├─► ntfy
//!                                                              └─► each subscribed browser that may know
//! ```
//!
//! Best effort with retries: the request itself waits in the database and is told again after a restart.

mod command;
mod notice;
mod ntfy;
pub mod webpush;

pub use notice::{Kind, Notice};

use crate::actions::Actions;
use crate::approvals::Approval;
use crate::bus::{Bus, Event};
use crate::config::Config;
use crate::devices::{Device, DeviceState, Devices, Scope};
use crate::home::Home;
use crate::hub::Tasks;
use crate::keys::KeyError;
use crate::store::{Store, StoreError};
use hearth_shared::identity::DeviceId;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;
use webpush::{Keys, Sender, Subscription, subscriptions};

/// A request to a service.
const LIMIT: Duration = Duration::from_secs(20);
/// Pauses before each further try.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(15)];
/// Notices that may be on their way at once; more are dropped, since the person is being told already.
const UNDER_WAY: usize = 16;
/// Notices a minute; who asks for more is not to wake the house.
const A_MINUTE: usize = 30;
/// How long a push service keeps a notice that is no approval, in seconds.
const TTL_S: u64 = 24 * 3600;

/// Why a notice did not reach its way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No answer, or one that says "later".
    #[error("{0}")]
    Later(String),
    /// An answer that will not change.
    #[error("{0}")]
    Refused(String),
    /// The subscription is over.
    #[error("the browser has withdrawn its subscription")]
    Gone,
}

/// What an HTTP answer means.
fn judge(answer: reqwest::Result<reqwest::Response>) -> Result<(), SendError> {
    use reqwest::StatusCode;
    let answer = match answer {
        Ok(answer) => answer,
        // The address holds a secret.
        Err(error) => return Err(SendError::Later(error.without_url().to_string())),
    };
    match answer.status() {
        status if status.is_success() => Ok(()),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(SendError::Gone),
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(SendError::Later(format!("it answered {status}")))
        }
        status => Err(SendError::Refused(format!("it answered {status}"))),
    }
}

/// How a notice went out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// `command`, `ntfy`, `push`.
    pub way: &'static str,
    /// Of a browser: its device's name.
    pub device: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Notify {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    bus: Bus,
    config: Arc<Config>,
    devices: Devices,
    actions: Actions,
    tasks: Tasks,
    sender: Sender,
    /// Made when it is first needed: the roots of the system take memory.
    client: OnceLock<reqwest::Client>,
    under_way: Arc<Semaphore>,
}

impl Notify {
    /// Puts it together; nothing runs yet.
    ///
    /// # Errors
    /// [`KeyError`] of `push.pem`.
    pub fn open(
        home: &Home,
        store: Store,
        bus: Bus,
        config: Arc<Config>,
        devices: Devices,
        actions: Actions,
        tasks: Tasks,
    ) -> Result<Self, KeyError> {
        let notify = &config.notify;
        let sender = Sender::open(home, notify.contact.clone(), notify.push_services.clone())?;
        let inner = Inner {
            store,
            bus,
            devices,
            actions,
            tasks,
            sender,
            client: OnceLock::new(),
            under_way: Arc::new(Semaphore::new(UNDER_WAY)),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Listens until the hub stops, and tells at once what waits from before.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn start(&self) -> Result<(), StoreError> {
        self.count_ways().await?;
        let (notify, events) = (self.clone(), self.inner.bus.subscribe());
        self.inner.tasks.spawn(async move { notify.listen(events).await });
        Ok(())
    }

    /// Counts the ways that lead to a person who could decide: a request may wait for somebody who is told.
    async fn count_ways(&self) -> Result<(), StoreError> {
        let config = &self.inner.config.notify;
        let fixed = usize::from(!config.command.is_empty()) + usize::from(config.ntfy.is_some());
        let mut browsers = 0;
        for subscription in subscriptions::list(&self.inner.store).await? {
            browsers += usize::from(self.device_for(&subscription, Kind::Approval).await.is_some());
        }
        self.inner.actions.approvers_told(fixed + browsers);
        Ok(())
    }

    async fn listen(&self, mut events: tokio::sync::broadcast::Receiver<Event>) {
        self.tell_waiting().await;
        let mut lately: Vec<Instant> = Vec::new();
        loop {
            let event = tokio::select! {
                () = self.inner.tasks.stop.cancelled() => return,
                event = events.recv() => event,
            };
            let notice = match event {
                Ok(event) => self.notice(event).await,
                Err(RecvError::Lagged(_)) => {
                    self.tell_waiting().await;
                    continue;
                }
                Err(RecvError::Closed) => return,
            };
            let Some(notice) = notice else { continue };
            lately.retain(|at| at.elapsed() < Duration::from_secs(60));
            if lately.len() >= A_MINUTE {
                tracing::warn!(kind = notice.kind.as_str(), "too many notifications; this one is left out");
                continue;
            }
            lately.push(Instant::now());
            self.dispatch(notice);
        }
    }

    /// One notice for everything that waits: after a start, or when events were lost.
    async fn tell_waiting(&self) {
        match self.inner.actions.approvals(false).await {
            Ok(waiting) => {
                if let Some(first) = waiting.first() {
                    self.dispatch(waits(first));
                }
            }
            Err(error) => tracing::warn!(%error, "what waits cannot be read"),
        }
    }

    async fn notice(&self, event: Event) -> Option<Notice> {
        match event {
            Event::ApprovalRequested { id } => match self.inner.actions.approval(&id.to_string()).await {
                Ok(approval) => Some(waits(&approval)),
                Err(error) => {
                    tracing::warn!(%error, "an approval waits and cannot be read");
                    Some(Notice::new(Kind::Approval, id.to_string(), None))
                }
            },
            Event::DevicePairRequested(device) => Some(Notice::new(Kind::Pairing, "", Some(&device.name))),
            Event::SurfaceRequested { .. } => Some(Notice::new(Kind::Pairing, "", None)),
            Event::Alarm { message } => Some(Notice::new(Kind::Alarm, "", Some(&message))),
            // A subscription may have gone with its device.
            Event::DeviceClosed { .. } => {
                if let Err(error) = self.count_ways().await {
                    tracing::warn!(%error, "subscriptions cannot be counted");
                }
                None
            }
            _ => None,
        }
    }

    /// Sends in a task of its own, so that a slow service holds up nobody.
    fn dispatch(&self, notice: Notice) {
        let Ok(permit) = Arc::clone(&self.inner.under_way).try_acquire_owned() else {
            tracing::warn!("notifications are stuck; this one is left out");
            return;
        };
        let notify = self.clone();
        let stop = self.inner.tasks.stop.clone();
        self.inner.tasks.spawn(async move {
            let _permit = permit;
            tokio::select! {
                () = stop.cancelled() => {}
                sent = notify.send(notice, &PAUSES) => {
                    for failed in sent.iter().filter(|s| s.error.is_some()) {
                        tracing::warn!(way = failed.way, error = failed.error, "a notification did not go out");
                    }
                }
            }
        });
    }

    /// Sends a notice over every way, for a person who tries it: no second try.
    pub async fn test(&self) -> Vec<Sent> {
        self.send(Notice::new(Kind::Test, "", None), &[]).await
    }

    async fn send(&self, notice: Notice, pauses: &[Duration]) -> Vec<Sent> {
        let config = &self.inner.config.notify;
        let notice = notice.limited(config.details);
        let text = notice.text(config.language);
        let (kind, id) = (notice.kind, notice.id.as_str());
        let command = async {
            if config.command.is_empty() {
                return None;
            }
            let sent = command::run(&config.command, &text, kind.as_str(), id).await;
            Some(Sent { way: "command", device: None, error: sent.err().map(|e| e.to_string()) })
        };
        let ntfy = async {
            let ntfy = config.ntfy.as_ref()?;
            let text = text.as_str();
            let publish = || async move { ntfy::publish(self.client()?, ntfy, text, kind).await };
            let sent = retrying(pauses, publish).await;
            Some(Sent { way: "ntfy", device: None, error: sent.err().map(|e| e.to_string()) })
        };
        let (command, ntfy, pushed) = tokio::join!(command, ntfy, self.push(&notice, pauses));
        command.into_iter().chain(ntfy).chain(pushed).collect()
    }

    async fn push(&self, notice: &Notice, pauses: &[Duration]) -> Vec<Sent> {
        let all = match subscriptions::list(&self.inner.store).await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "subscriptions cannot be read");
                return Vec::new();
            }
        };
        let sending = all.into_iter().map(|to| self.push_one(to, notice, pauses));
        futures_util::future::join_all(sending).await.into_iter().flatten().collect()
    }

    async fn push_one(&self, to: Subscription, notice: &Notice, pauses: &[Duration]) -> Option<Sent> {
        let device = self.device_for(&to, notice.kind).await?;
        let ttl_s = match notice.kind {
            Kind::Approval => self.inner.config.approvals.lifetime_s,
            _ => TTL_S,
        };
        let text = serde_json::to_string(notice).unwrap_or_default();
        let (subscription, text) = (&to, text.as_str());
        let send = || async move { self.inner.sender.send(self.client()?, subscription, text, ttl_s).await };
        let sent = retrying(pauses, send).await;
        if matches!(sent, Err(SendError::Gone)) {
            let forgotten = subscriptions::remove(&self.inner.store, to.endpoint, None).await;
            if let Err(error) = forgotten.and(self.count_ways().await) {
                tracing::warn!(%error, "a subscription that is over cannot be forgotten");
            }
        }
        Some(Sent { way: "push", device: Some(device.name), error: sent.err().map(|e| e.to_string()) })
    }

    /// The device of a subscription, if its holder may know of this: by its rights as they are now, not as
    /// they were when the page subscribed.
    async fn device_for(&self, to: &Subscription, kind: Kind) -> Option<Device> {
        match self.inner.devices.get(to.device).await {
            Ok(found) => found.filter(|device| may_know(device, kind)),
            Err(error) => {
                tracing::warn!(%error, "a device cannot be read");
                None
            }
        }
    }

    fn client(&self) -> Result<&reqwest::Client, SendError> {
        if let Some(client) = self.inner.client.get() {
            return Ok(client);
        }
        // Whoever comes first installs the provider; the other call is refused and changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("hearth/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| SendError::Refused(format!("no HTTP client: {e}")))?;
        Ok(self.inner.client.get_or_init(|| client))
    }

    /// What a page subscribes with.
    #[must_use]
    pub fn public_key(&self) -> String {
        self.inner.sender.public_key()
    }

    /// Keeps a browser's subscription.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub async fn subscribe(
        &self,
        device: DeviceId,
        endpoint: String,
        keys: &Keys,
    ) -> Result<(), SubscribeError> {
        if self.inner.sender.allowed(&endpoint).is_none() {
            return Err(SubscribeError::Service);
        }
        let subscription = Subscription::read(device, endpoint, keys).ok_or(SubscribeError::Malformed)?;
        if !subscriptions::add(&self.inner.store, subscription).await? {
            return Err(SubscribeError::Full);
        }
        Ok(self.count_ways().await?)
    }

    /// Forgets a subscription of this device. True when it was there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unsubscribe(&self, device: DeviceId, endpoint: String) -> Result<bool, StoreError> {
        let removed = subscriptions::remove(&self.inner.store, endpoint, Some(device)).await?;
        self.count_ways().await?;
        Ok(removed)
    }

    /// Subscriptions in all, and of this device.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn subscriptions(&self, device: Option<DeviceId>) -> Result<(usize, usize), StoreError> {
        subscriptions::count(&self.inner.store, device).await
    }
}

/// A subscription that is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// Not one of the services that are known.
    #[error(
        "the endpoint is of no known push service; add its origin to `notify.push_services` if you trust it"
    )]
    Service,
    /// Keys or address.
    #[error("p256dh must be 65 bytes and auth 16, as base64url, and the endpoint at most 1024 characters")]
    Malformed,
    /// Too many.
    #[error("there are too many subscriptions; remove devices that are gone with `hearth devices remove`")]
    Full,
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// That a request waits: where, and what.
fn waits(approval: &Approval) -> Notice {
    let detail = format!("{}: {}", approval.node_name, approval.sentence);
    Notice::new(Kind::Approval, approval.id.to_string(), Some(&detail))
}

/// Whether a device's holder may know of this at all.
fn may_know(device: &Device, kind: Kind) -> bool {
    let may = |scope: Scope| scope.satisfied_by(&device.scopes);
    device.state == DeviceState::Accepted
        && match kind {
            Kind::Approval => may(Scope::Approvals),
            Kind::Pairing => may(Scope::Pairing),
            Kind::Alarm => may(Scope::Approvals) || may(Scope::Pairing),
            Kind::Test => may(Scope::Read),
        }
}

/// Tries again after each pause while the answer is "later".
async fn retrying<F>(pauses: &[Duration], attempt: impl Fn() -> F) -> Result<(), SendError>
where
    F: Future<Output = Result<(), SendError>>,
{
    for pause in pauses {
        match attempt().await {
            Err(SendError::Later(why)) => tracing::debug!(why, "a notification is tried again"),
            done => return done,
        }
        tokio::time::sleep(*pause).await;
    }
    attempt().await
}
