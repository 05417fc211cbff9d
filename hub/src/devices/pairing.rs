//! Becoming known: knocks, the window, decisions. Secrets that let somebody in are in [`super::codes`].

use super::waiting::{Desk, Desked, Settled};
use super::{
    Device, DeviceError, DeviceState, Devices, Knocked, LinkKind, PendingDevice, WindowStatus, records,
};
use crate::approvals::audit::Audit;
use crate::bus::Event;
use crate::store::{StoreError, now_ms};
use hearth_shared::identity::{DeviceId, display_safe, random};
use hearth_shared::limits::MAX_NAME_CHARS;
use serde_json::json;
use std::sync::{Arc, MutexGuard};
use tokio::sync::watch;

impl Devices {
    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        let mut desk = self.desk.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for gone in desk.sweep() {
            self.tell_resolved(&gone, "expired");
        }
        desk
    }

    pub(super) fn waiting(&self) -> Vec<Arc<PendingDevice>> {
        self.desk().all()
    }

    pub(super) fn tell_resolved(&self, asks: &PendingDevice, decision: &'static str) {
        let (request_id, device) = (asks.request_id.clone(), asks.device_id);
        self.bus.emit(Event::DevicePairResolved { request_id, device, decision });
    }

    /// A device whose key was just proved asks to be let in (role, name, rights in `asks`; its
    /// `request_id` is made here). A device that pairs by words always waits, known or not.
    ///
    /// # Errors
    /// [`DeviceError::WindowClosed`], [`DeviceError::TooMany`], [`DeviceError::WrongKind`],
    /// [`DeviceError::Refused`], [`DeviceError::Store`].
    pub async fn knock(&self, asks: PendingDevice) -> Result<Knocked, DeviceError> {
        if let Some(device) = self.get(asks.device_id).await? {
            check_known(&device, asks.kind)?;
            if asks.words.is_none() && device.roles.contains(&asks.role) {
                return Ok(Knocked::Accepted(Box::new(device)));
            }
        }
        self.wait_for_person(asks)
    }

    /// A known device asks for rights or a role that it does not hold: a person decides, the device
    /// stays as it is meanwhile.
    ///
    /// # Errors
    /// As [`Devices::knock`].
    pub async fn ask_upgrade(&self, asks: PendingDevice) -> Result<Arc<PendingDevice>, DeviceError> {
        if let Some(device) = self.get(asks.device_id).await? {
            check_known(&device, asks.kind)?;
        }
        match self.wait_for_person(asks)? {
            Knocked::Pending(pending) => Ok(pending),
            Knocked::Accepted(device) => Err(DeviceError::Unknown { what: "request", id: device.id.short() }),
        }
    }

    fn wait_for_person(&self, mut asks: PendingDevice) -> Result<Knocked, DeviceError> {
        asks.request_id = hex::encode(random::<16>()?);
        clean(&mut asks);
        let mut desk = self.desk();
        match desk.knock(asks) {
            Desked::Known(pending) => Ok(Knocked::Pending(pending)),
            Desked::New(pending, replaced) => {
                drop(desk);
                if let Some(old) = replaced {
                    self.tell_resolved(&old, "rejected");
                }
                self.bus.emit(Event::DevicePairRequested(pending.clone()));
                Ok(Knocked::Pending(pending))
            }
            Desked::Closed => {
                if desk.count_closed() {
                    tracing::info!(
                        knocks = desk.knocks_while_closed,
                        "knocks while no pairing window is open"
                    );
                }
                Err(DeviceError::WindowClosed)
            }
            Desked::TooMany(count) => Err(DeviceError::TooMany(count)),
        }
    }

    /// Admits a device without asking: a client of this machine's owner.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn admit(&self, mut asks: PendingDevice, via: &'static str) -> Result<Device, DeviceError> {
        clean(&mut asks);
        if let Some(device) = self.get(asks.device_id).await? {
            check_known(&device, asks.kind)?;
        }
        Ok(self.store.write(move |t| records::admit(t, &asks, via, via)).await?)
    }

    /// A person approves a waiting device (id or unique prefix of request id, device id, or its name).
    /// When it pairs by words and the person at the node has not confirmed them yet, the device comes
    /// back as [`DeviceState::Preauthorised`] and is admitted with that confirmation.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`], [`DeviceError::Ambiguous`], [`DeviceError::Store`].
    pub async fn approve(&self, which: &str, by: &str) -> Result<Device, DeviceError> {
        let asks = self.pick_waiting(which)?;
        {
            let mut desk = self.desk();
            let waiting = desk.get(&asks.request_id).ok_or_else(|| unknown(which))?;
            if asks.words.is_some() && !waiting.confirmed {
                waiting.approved_by = Some(by.to_owned());
                return Ok(preauthorised(&asks));
            }
        }
        self.settle_yes(&asks, by).await
    }

    /// The person at the node confirmed the words. Admits the device when somebody here said yes already.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`], [`DeviceError::Store`].
    pub async fn confirm_words(&self, request_id: &str) -> Result<(), DeviceError> {
        let (asks, by) = {
            let mut desk = self.desk();
            let waiting = desk.get(request_id).ok_or_else(|| unknown(request_id))?;
            waiting.confirmed = true;
            (waiting.asks.clone(), waiting.approved_by.clone())
        };
        if let Some(by) = by {
            self.settle_yes(&asks, &by).await?;
        }
        Ok(())
    }

    async fn settle_yes(&self, asks: &Arc<PendingDevice>, by: &str) -> Result<Device, DeviceError> {
        let _deciding = self.deciding(asks)?;
        let via = if asks.words.is_some() { "words" } else { "owner" };
        let (admitted, who) = (asks.clone(), by.to_owned());
        let device = self.store.write(move |t| records::admit(t, &admitted, via, &who)).await?;
        self.settle(asks, Settled::Accepted(Arc::new(device.clone())), "approved");
        Ok(device)
    }

    /// A person rejects a waiting device.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn reject(&self, which: &str, by: &str) -> Result<DeviceId, DeviceError> {
        let asks = self.pick_waiting(which)?;
        let _deciding = self.deciding(&asks)?;
        let (refused, who) = (asks.clone(), by.to_owned());
        self.store.write(move |t| records::reject(t, &refused, &who)).await?;
        self.settle(&asks, Settled::Rejected, "rejected");
        Ok(asks.device_id)
    }

    /// How a waiting request ends; `None` when it does not wait any more.
    #[must_use]
    pub fn settled(&self, request_id: &str) -> Option<watch::Receiver<Settled>> {
        self.desk().get(request_id).map(|w| w.settled.subscribe())
    }

    /// Whether the person at the node confirmed the words of a waiting request.
    #[must_use]
    pub fn is_confirmed(&self, request_id: &str) -> bool {
        self.desk().get(request_id).is_some_and(|w| w.confirmed)
    }

    /// The device that waited has gone; its words are void.
    pub fn withdraw(&self, request_id: &str) {
        let gone = self.desk().take(request_id);
        if let Some(gone) = gone {
            gone.settled.send_replace(Settled::Ended);
            self.tell_resolved(&gone.asks, "withdrawn");
        }
    }

    fn pick_waiting(&self, which: &str) -> Result<Arc<PendingDevice>, DeviceError> {
        let all = self.waiting();
        records::pick(all, which, "request", |p| {
            (vec![p.request_id.clone(), p.device_id.to_string()], p.name.clone())
        })
    }

    fn settle(&self, asks: &PendingDevice, how: Settled, decision: &'static str) {
        let waiting = self.desk().take(&asks.request_id);
        if let Some(waiting) = waiting {
            waiting.settled.send_replace(how);
        }
        self.tell_resolved(asks, decision);
    }

    fn deciding(&self, asks: &PendingDevice) -> Result<Deciding, DeviceError> {
        let mut desk = self.desk();
        let waiting =
            desk.get(&asks.request_id).filter(|w| !w.deciding).ok_or_else(|| unknown(&asks.request_id))?;
        waiting.deciding = true;
        Ok(Deciding { devices: self.clone(), request_id: asks.request_id.clone() })
    }

    /// Closes it; codes that were not used are void, and nodes that wait by words are turned away.
    pub async fn close_window(&self) {
        let was_open = self.desk().close();
        drop(self.desk());
        if was_open {
            let closed = self
                .store
                .write(|t| {
                    t.execute("DELETE FROM setup_codes WHERE used_ms IS NULL AND scopes IS NULL", [])?;
                    Audit::append_in(t, "pairing.window.closed", &json!({}))?;
                    Ok(())
                })
                .await;
            if let Err(error) = closed {
                // The window itself is closed; the codes of it are void without their rows being gone.
                tracing::warn!(%error, "cannot note that the pairing window was closed");
            }
        }
    }

    /// See [`WindowStatus`].
    #[must_use]
    pub fn window(&self) -> WindowStatus {
        let desk = self.desk();
        let window = desk.window();
        WindowStatus {
            open: window.is_some(),
            expires_ms: window.map(|w| w.expires_ms),
            knocks_while_closed: desk.knocks_while_closed,
        }
    }

    /// When the window closes, if it is open.
    pub(crate) fn window_closes(&self) -> Option<tokio::time::Instant> {
        self.desk().window().map(|w| w.closes)
    }

    /// Counts a knock at the closed window that was turned away before it had a name.
    pub(crate) fn count_closed_knock(&self) {
        let mut desk = self.desk();
        if desk.count_closed() {
            tracing::info!(knocks = desk.knocks_while_closed, "knocks while no pairing window is open");
        }
    }
}

/// Keeps a second decision out while the first is written.
struct Deciding {
    devices: Devices,
    request_id: String,
}

impl Drop for Deciding {
    fn drop(&mut self) {
        let mut desk = self.devices.desk.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(waiting) = desk.get(&self.request_id) {
            waiting.deciding = false;
        }
    }
}

fn unknown(which: &str) -> DeviceError {
    DeviceError::Unknown { what: "request", id: display_safe(which, 64) }
}

/// Whether a known device may come (again) by this protocol.
pub(crate) fn check_known(device: &Device, kind: LinkKind) -> Result<(), DeviceError> {
    match device.state {
        DeviceState::Rejected => Err(DeviceError::Refused("rejected")),
        DeviceState::Revoked => Err(DeviceError::Refused("revoked")),
        DeviceState::Accepted | DeviceState::Preauthorised if device.kind != kind => {
            Err(DeviceError::WrongKind)
        }
        DeviceState::Accepted | DeviceState::Preauthorised => Ok(()),
    }
}

/// Names come from outside: shown escaped and cut, never empty.
pub(super) fn clean(asks: &mut PendingDevice) {
    asks.name = display_safe(asks.name.trim(), MAX_NAME_CHARS);
    if asks.name.is_empty() {
        asks.name = asks.device_id.short();
    }
    for text in [&mut asks.platform, &mut asks.device_family, &mut asks.client_id, &mut asks.client_mode] {
        *text = display_safe(text, MAX_NAME_CHARS);
    }
    asks.scopes.sort_unstable();
    asks.scopes.dedup();
    asks.surface.sort();
    asks.surface.dedup();
}

fn preauthorised(asks: &PendingDevice) -> Device {
    Device {
        id: asks.device_id,
        key: asks.key,
        name: asks.name.clone(),
        role: asks.role,
        roles: vec![asks.role],
        kind: asks.kind,
        state: DeviceState::Preauthorised,
        platform: asks.platform.clone(),
        device_family: asks.device_family.clone(),
        client_id: asks.client_id.clone(),
        client_mode: asks.client_mode.clone(),
        scopes: asks.scopes.clone(),
        approved_via: "words".into(),
        created_ms: asks.created_ms,
        approved_ms: now_ms(),
        last_seen_ms: None,
        last_seen_reason: None,
    }
}

impl From<rusqlite::Error> for DeviceError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(StoreError::from(error))
    }
}
