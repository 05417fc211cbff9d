//! How many sockets may be open, and who is dropped first when there are too many.
//!
//! A stranger can open sockets without proving anything, so those are bounded on their own: beyond
//! [`MAX_UNAUTHENTICATED`] the oldest is dropped, which lets a real client in even while somebody floods.

use hearth_shared::limits::MAX_UNAUTHENTICATED;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Sockets of one remote address (a /64 of IPv6); this machine itself is bounded by the total only.
const MAX_PER_ADDRESS: usize = 256;
/// Of them such that have not authenticated.
const MAX_WAITING_PER_ADDRESS: usize = 16;

/// Counts sockets.
#[derive(Debug)]
pub(crate) struct Admission {
    max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Not authenticated yet, oldest first.
    waiting: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

impl Admission {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a new socket, dropping an older unauthenticated one where a limit is reached; `None` when
    /// there is no room at all.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Ticket> {
        let address = group(peer);
        let local = peer.to_canonical().is_loopback();
        let mut inner = self.lock();
        let inner = &mut *inner;
        let mine = inner.by_address.get(&address).copied().unwrap_or(0);
        if !local && mine >= MAX_PER_ADDRESS {
            return None;
        }
        if !local {
            let waiting = inner.waiting.iter().filter(|(_, (a, _))| *a == address);
            let oldest = waiting.clone().next().map(|(id, _)| *id);
            if waiting.count() >= MAX_WAITING_PER_ADDRESS {
                inner.drop_waiting(oldest);
            }
        }
        if inner.waiting.len() >= MAX_UNAUTHENTICATED || inner.total >= self.max {
            let oldest = inner.waiting.keys().next().copied();
            if !inner.drop_waiting(oldest) {
                return None;
            }
        }
        let id = inner.next;
        inner.next += 1;
        inner.total += 1;
        *inner.by_address.entry(address).or_default() += 1;
        let dropped = CancellationToken::new();
        inner.waiting.insert(id, (address, dropped.clone()));
        Some(Ticket { admission: Arc::clone(self), id, address, dropped })
    }

    /// Sockets open now, and how many of them have not authenticated.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.total, inner.waiting.len())
    }
}

impl Inner {
    fn drop_waiting(&mut self, id: Option<u64>) -> bool {
        match id.and_then(|id| self.waiting.remove(&id)) {
            Some((_, token)) => {
                token.cancel();
                true
            }
            None => false,
        }
    }
}

/// One neighbour may own a whole /64, so IPv6 is counted by it.
fn group(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let mut octets = v6.octets();
            octets[8..].fill(0);
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        other => other,
    }
}

/// A place for one socket, given back when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    admission: Arc<Admission>,
    id: u64,
    address: IpAddr,
    dropped: CancellationToken,
}

impl Ticket {
    /// The peer has proved itself: it is no longer the one to be dropped.
    pub(crate) fn authenticated(&self) {
        self.admission.lock().waiting.remove(&self.id);
    }

    /// Resolves when this socket must go to make room.
    pub(crate) async fn dropped(&self) {
        self.dropped.cancelled().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inner = self.admission.lock();
        inner.waiting.remove(&self.id);
        inner.total = inner.total.saturating_sub(1);
        if let Some(count) = inner.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                inner.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn the_oldest_stranger_makes_room() {
        let admission = Admission::new(1000);
        let mut tickets: Vec<Ticket> =
            (0..MAX_UNAUTHENTICATED).map(|_| admission.admit(LOCAL).unwrap()).collect();
        tickets[0].authenticated();
        tickets.push(admission.admit(LOCAL).unwrap());
        assert!(!tickets[1].dropped.is_cancelled(), "there was room again");
        tickets.push(admission.admit(LOCAL).unwrap());
        assert!(!tickets[0].dropped.is_cancelled(), "an authenticated one stays");
        assert!(tickets[1].dropped.is_cancelled(), "the oldest unauthenticated one goes");
        assert_eq!(admission.counts(), (MAX_UNAUTHENTICATED + 2, MAX_UNAUTHENTICATED));
        drop(tickets);
        assert_eq!(admission.counts(), (0, 0));
    }

    #[test]
    fn a_full_house_of_authenticated_clients_refuses() {
        let admission = Admission::new(2);
        let tickets: Vec<Ticket> = (0..2).map(|_| admission.admit(LOCAL).unwrap()).collect();
        for ticket in &tickets {
            ticket.authenticated();
        }
        assert!(admission.admit(LOCAL).is_none());
    }

    #[test]
    fn one_remote_address_drops_only_its_own() {
        let admission = Admission::new(1000);
        let other = admission.admit("192.0.2.9".parse().unwrap()).unwrap();
        let flood: Vec<Ticket> = (0..40u16)
            .map(|i| admission.admit(format!("2001:db8::{i:x}").parse().unwrap()).unwrap())
            .collect();
        assert!(!other.dropped.is_cancelled());
        let alive = flood.iter().filter(|t| !t.dropped.is_cancelled()).count();
        assert_eq!(alive, MAX_WAITING_PER_ADDRESS, "a /64 counts as one");
    }
}
