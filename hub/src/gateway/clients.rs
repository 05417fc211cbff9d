//! Clients that are in, and how to reach them.

use super::handshake::params::{ClientInfo, ClientMode};
use super::json_node::JsonNode;
use super::rate::Who;
use super::session::{Outbound, OutboundQueue};
use crate::devices::{Device, Scope};
use hearth_shared::connect::Role;
use hearth_shared::frame::{StateVersion, close};
use hearth_shared::identity::DeviceId;
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Who a client is; fixed for the connection.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) conn_id: String,
    pub(crate) peer: SocketAddr,
    pub(crate) role: Role,
    pub(crate) scopes: Vec<Scope>,
    /// The device whose key it proved; `None` for programs of this machine's owner without one.
    pub(crate) device: Option<Device>,
    pub(crate) local: bool,
    pub(crate) client: ClientInfo,
    /// Unix milliseconds.
    pub(crate) connected_ms: u64,
    pub(crate) caps: Vec<String>,
}

/// A client that is in.
#[derive(Debug)]
pub(crate) struct Client {
    identity: Identity,
    /// To it.
    pub(crate) outbound: Outbound,
    /// Of a JSON node, once it is attached.
    pub(crate) node: OnceLock<Arc<JsonNode>>,
    /// Told of everything that comes from the client.
    heard: Notify,
}

impl std::ops::Deref for Client {
    type Target = Identity;
    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl Client {
    pub(crate) fn new(identity: Identity) -> (Self, OutboundQueue) {
        let (outbound, queue) = Outbound::new();
        (Self { identity, outbound, node: OnceLock::new(), heard: Notify::new() }, queue)
    }

    /// Something came from the client.
    pub(crate) fn heard(&self) {
        self.heard.notify_waiters();
    }

    /// Whether the other end answers a ping in time.
    pub(crate) async fn probe(&self, limit: Duration) -> bool {
        let heard = self.heard.notified();
        self.outbound.ping();
        tokio::select! {
            heard = tokio::time::timeout(limit, heard) => heard.is_ok(),
            () = self.outbound.closed() => false,
        }
    }

    /// Whether it holds a right.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.role == Role::Operator && scope.satisfied_by(&self.scopes)
    }

    /// Whether it may decide approvals: it takes the right *and* a device whose key was proved, so that
    /// the token file alone moves nothing.
    pub(crate) fn may_decide(&self) -> bool {
        self.device.is_some() && self.may(Scope::Approvals)
    }

    /// Whether an approval request can be shown to somebody there.
    pub(crate) fn shows_approvals(&self) -> bool {
        self.may_decide() && self.caps.iter().any(|c| c == "approvals" || c == "exec-approvals")
    }

    pub(crate) fn device_id(&self) -> Option<DeviceId> {
        self.device.as_ref().map(|d| d.id)
    }

    /// Whose rate its requests count against.
    pub(crate) fn who(&self) -> Who {
        self.device_id().map_or(Who::Address(self.peer.ip()), Who::Device)
    }

    /// Name for the audit log and for cards, for example `cli: laptop`.
    pub(crate) fn label(&self) -> String {
        let program = self.client.id.as_str();
        match &self.device {
            Some(device) => format!("{program}: {}", device.name),
            None if self.local => format!("{program}: owner"),
            None => format!("{program}: {}", self.peer.ip()),
        }
    }

    /// Short-lived helpers are not listed as present.
    pub(crate) fn is_listed(&self) -> bool {
        self.role == Role::Operator
            && !matches!(self.client.mode, ClientMode::Cli | ClientMode::Backend | ClientMode::Probe)
    }
}

/// All clients, by connection.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Mutex<HashMap<String, Arc<Client>>>,
    gone: Notify,
    stopping: AtomicBool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, client: &Arc<Client>) {
        self.lock().insert(client.conn_id.clone(), Arc::clone(client));
    }

    pub(crate) fn remove(&self, client: &Client) {
        self.lock().remove(&client.conn_id);
        self.gone.notify_waiters();
    }

    pub(crate) fn snapshot(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// How many approvers could be shown a request now.
    pub(crate) fn approvers(&self) -> usize {
        self.lock().values().filter(|c| c.shows_approvals()).count()
    }

    /// The same without one of them and the other connections of its device.
    pub(crate) fn approvers_besides(&self, one: &Client) -> usize {
        let same = |c: &Client| {
            c.conn_id == one.conn_id || (c.device_id().is_some() && c.device_id() == one.device_id())
        };
        self.lock().values().filter(|c| c.shows_approvals() && !same(c)).count()
    }

    /// Sends an event to every client that `wants` it.
    pub(crate) fn broadcast(
        &self,
        event: &str,
        payload: &Value,
        version: Option<StateVersion>,
        wants: impl Fn(&Client) -> bool,
    ) {
        let receivers: Vec<Arc<Client>> = self.lock().values().filter(|c| wants(c)).cloned().collect();
        if receivers.is_empty() {
            return;
        }
        let payload = payload.to_string();
        for client in receivers {
            client.outbound.event(event, &payload, version);
        }
    }

    /// Closes the sockets of a device.
    pub(crate) fn close_device(&self, device: &DeviceId, code: u16, reason: &str) {
        for client in self.lock().values().filter(|c| c.device_id() == Some(*device)) {
            client.outbound.close(code, reason);
        }
    }

    /// Closes every client that is bound to a device: events were lost, one of them may have said so.
    pub(crate) fn close_all_devices(&self) {
        for client in self.lock().values().filter(|c| c.device.is_some()) {
            client.outbound.close(close::RESTART, "events lost; reconnect");
        }
    }

    /// Tells everybody, once, that the hub stops.
    pub(crate) fn say_shutdown(&self, reason: &str) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.broadcast("shutdown", &serde_json::json!({ "reason": reason }), None, |_| true);
        }
    }

    /// Says goodbye to everybody and closes.
    pub(crate) fn shut_down(&self, reason: &str) {
        self.say_shutdown(reason);
        for client in self.lock().values() {
            client.outbound.close(close::RESTART, "service restart");
        }
    }

    /// Waits until all are gone, at most this long.
    pub(crate) async fn wait_gone(&self, at_most: Duration) {
        let all_gone = async {
            loop {
                let changed = self.gone.notified();
                if self.count() == 0 {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(at_most, all_gone).await;
    }
}
