//! The pairing window and the one list of what waits for a person, in memory.

use super::{Device, PendingDevice};
use hearth_shared::limits::MAX_PENDING_PAIRINGS;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A JSON client's request is forgotten this long after its last retry.
const PENDING_TTL: Duration = Duration::from_secs(5 * 60);
/// Requests from this machine that may wait: whoever can make them has an account here already.
const MAX_LOCAL_PENDING: usize = 16;

/// How a request that waited ended.
#[derive(Debug, Clone, Default)]
pub enum Settled {
    /// Not yet.
    #[default]
    Waiting,
    /// Admitted.
    Accepted(Arc<Device>),
    /// A person said no.
    Rejected,
    /// Nobody decided in time, or a newer request of the same device took its place.
    Ended,
}

/// An open window. Codes carry its id, so that they end with it, by a restart as well.
#[derive(Debug, Clone)]
pub(super) struct Window {
    pub id: [u8; 16],
    pub closes: Instant,
    pub expires_ms: u64,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub asks: Arc<PendingDevice>,
    /// `None`: as long as the window.
    expires: Option<Instant>,
    local: bool,
    /// The person at the node compared the words.
    pub confirmed: bool,
    /// Who said yes here.
    pub approved_by: Option<String>,
    /// A decision is on its way to the database.
    pub deciding: bool,
    pub settled: watch::Sender<Settled>,
}

#[derive(Debug, Default)]
pub(super) struct Desk {
    window: Option<Window>,
    list: Vec<Waiting>,
    pub knocks_while_closed: u64,
    logged: Option<Instant>,
}

/// What a knock comes to at the desk.
pub(super) enum Desked {
    /// The same request as before.
    Known(Arc<PendingDevice>),
    /// A new one, and the older one of the same device that it replaces.
    New(Arc<PendingDevice>, Option<Arc<PendingDevice>>),
    Closed,
    TooMany(usize),
}

impl Desk {
    /// The window, if it is open now.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref().filter(|w| w.closes > Instant::now())
    }

    pub fn open(&mut self, id: [u8; 16], ttl: Duration, expires_ms: u64) -> Window {
        let id = self.window().map_or(id, |w| w.id);
        let window = Window { id, closes: Instant::now() + ttl, expires_ms };
        self.window = Some(window.clone());
        window
    }

    pub fn close(&mut self) -> bool {
        let was = self.window().is_some();
        self.window = None;
        was
    }

    /// Takes off what has waited too long.
    pub fn sweep(&mut self) -> Vec<Arc<PendingDevice>> {
        let (now, open) = (Instant::now(), self.window().is_some());
        let mut gone = Vec::new();
        self.list.retain(|w| {
            let stays = w.deciding || w.expires.map_or(open, |e| e > now);
            if !stays {
                w.settled.send_replace(Settled::Ended);
                gone.push(w.asks.clone());
            }
            stays
        });
        gone
    }

    /// Counts a knock at the closed window; true when it is time for a line in the log.
    pub fn count_closed(&mut self) -> bool {
        self.knocks_while_closed += 1;
        let due = self.logged.is_none_or(|at| at.elapsed() > Duration::from_secs(60));
        if due {
            self.logged = Some(Instant::now());
        }
        due
    }

    pub fn knock(&mut self, asks: PendingDevice) -> Desked {
        let local = asks.words.is_none() && is_loopback(&asks.remote_ip);
        if self.window().is_none() && !local {
            return Desked::Closed;
        }
        let mut replaced = None;
        if let Some(at) = self.list.iter().position(|w| w.asks.device_id == asks.device_id) {
            let old = &mut self.list[at];
            if old.deciding || same_content(&old.asks, &asks) {
                old.expires = old.expires.map(|_| Instant::now() + PENDING_TTL);
                return Desked::Known(old.asks.clone());
            }
            let old = self.list.remove(at);
            old.settled.send_replace(Settled::Ended);
            replaced = Some(old.asks);
        }
        let limit = if local { MAX_LOCAL_PENDING } else { MAX_PENDING_PAIRINGS };
        let count = self.list.iter().filter(|w| w.local == local).count();
        if count >= limit {
            return Desked::TooMany(count);
        }
        let expires = asks.words.is_none().then(|| Instant::now() + PENDING_TTL);
        let asks = Arc::new(asks);
        self.list.push(Waiting {
            asks: asks.clone(),
            expires,
            local,
            confirmed: false,
            approved_by: None,
            deciding: false,
            settled: watch::Sender::new(Settled::Waiting),
        });
        Desked::New(asks, replaced)
    }

    pub fn all(&self) -> Vec<Arc<PendingDevice>> {
        self.list.iter().map(|w| w.asks.clone()).collect()
    }

    pub fn get(&mut self, request_id: &str) -> Option<&mut Waiting> {
        self.list.iter_mut().find(|w| w.asks.request_id == request_id)
    }

    pub fn take(&mut self, request_id: &str) -> Option<Waiting> {
        let at = self.list.iter().position(|w| w.asks.request_id == request_id)?;
        Some(self.list.remove(at))
    }
}

/// Retries with the same content keep their request; words are fresh each time and make a new one.
fn same_content(a: &PendingDevice, b: &PendingDevice) -> bool {
    a.words.is_none()
        && b.words.is_none()
        && (a.role, &a.name, &a.platform, &a.device_family, &a.client_id, &a.client_mode)
            == (b.role, &b.name, &b.platform, &b.device_family, &b.client_id, &b.client_mode)
        && a.scopes == b.scopes
        && a.surface == b.surface
}

fn is_loopback(ip: &str) -> bool {
    ip.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}
