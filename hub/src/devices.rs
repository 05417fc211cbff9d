//! Identities: who is known, in which role, with which rights, and how one becomes known.

use crate::approvals::audit::Audit;
use crate::bus::Bus;
use crate::keys::HubKeys;
use crate::store::{Store, StoreError};
use hearth_shared::approver::Approver;
use hearth_shared::connect::Role;
use hearth_shared::identity::{DeviceId, PublicKey, SecretText};
use hearth_shared::pairing::{CodeSecret, SetupCode};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// What an operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// See.
    Read,
    /// Chat and invoke.
    Write,
    /// Decide approvals.
    Approvals,
    /// Answer the agent's questions.
    Questions,
    /// Let devices in.
    Pairing,
    /// Everything.
    Admin,
}

impl Scope {
    /// `operator.read` and so on.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "operator.read",
            Self::Write => "operator.write",
            Self::Approvals => "operator.approvals",
            Self::Questions => "operator.questions",
            Self::Pairing => "operator.pairing",
            Self::Admin => "operator.admin",
        }
    }

    /// Reads the wire form; scopes this hub does not know are `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::Approvals, Self::Questions, Self::Pairing, Self::Admin]
            .into_iter()
            .find(|s| s.as_str() == text)
    }

    /// Whether holding `held` is enough for `self`: admin satisfies all, write satisfies read.
    #[must_use]
    pub fn satisfied_by(self, held: &[Self]) -> bool {
        held.contains(&self)
            || held.contains(&Self::Admin)
            || (self == Self::Read && held.contains(&Self::Write))
    }
}

/// Which protocol a device was paired for; fixed for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// `hearth.link.v1`.
    Hearth,
    /// JSON protocol.
    Json,
}

/// One step, one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// May connect.
    Accepted,
    /// A person said no.
    Rejected,
    /// Was accepted once; its tokens and link are void.
    Revoked,
}

/// A known device.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// SHA-256 of the key.
    pub id: DeviceId,
    /// Its key.
    pub key: PublicKey,
    /// Name for people: the operator's label, else what it calls itself.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Protocol.
    pub kind: LinkKind,
    /// State.
    pub state: DeviceState,
    /// Platform as told, for example `linux`.
    pub platform: String,
    /// Family as told.
    pub device_family: String,
    /// `client.id` of JSON clients.
    pub client_id: String,
    /// `client.mode` of JSON clients.
    pub client_mode: String,
    /// Approved rights (operators).
    #[serde(skip)]
    pub scopes: Vec<Scope>,
    /// `code`, `words`, `owner`, `silent`, `bootstrap`.
    pub approved_via: String,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// Unix milliseconds.
    pub approved_ms: u64,
    /// Unix milliseconds.
    pub last_seen_ms: Option<u64>,
    /// Why it was last seen leaving.
    pub last_seen_reason: Option<String>,
}

/// A device that waits for a person. The one pending list there is.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingDevice {
    /// Stable over retries with the same content.
    pub request_id: String,
    /// The key.
    pub key: PublicKey,
    /// The id.
    pub device_id: DeviceId,
    /// As it calls itself; escaped and cut.
    pub name: String,
    /// Role asked for.
    pub role: Role,
    /// Protocol.
    pub kind: LinkKind,
    /// As told.
    pub platform: String,
    /// As told.
    pub device_family: String,
    /// JSON clients.
    pub client_id: String,
    /// JSON clients.
    pub client_mode: String,
    /// Rights asked for.
    #[serde(skip)]
    pub scopes: Vec<Scope>,
    /// What a node declares: approved together with the device, in the same step.
    pub surface: Vec<String>,
    /// The words to compare, when it pairs by words.
    pub words: Option<String>,
    /// Peer address.
    pub remote_ip: String,
    /// First knock, Unix milliseconds.
    pub created_ms: u64,
}

/// Why a device operation fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No such request or device.
    #[error("no {what} `{id}`; see `hearth devices list`")]
    Unknown { what: &'static str, id: String },
    /// More than one fits a prefix.
    #[error("`{0}` fits more than one; give more of the id")]
    Ambiguous(String),
    /// The window is closed.
    #[error("no pairing window is open; run `hearth pair` on the hub")]
    WindowClosed,
    /// Three wait already.
    #[error("{0} devices wait already; approve or reject one with `hearth devices`")]
    TooMany(usize),
    /// Unknown, used or expired code.
    #[error("the setup code is unknown, used or expired; make a new one with `hearth pair`")]
    BadCode,
    /// Paired for the other protocol.
    #[error("the device is paired for the other protocol; remove it first")]
    WrongKind,
    /// Rejected or revoked before.
    #[error("the device was {0}; remove it to let it knock again")]
    Refused(&'static str),
    /// No randomness.
    #[error(transparent)]
    Identity(#[from] hearth_shared::identity::IdentityError),
}

/// What the operator sees when a window opens.
#[derive(Debug, Clone)]
pub struct PairingWindow {
    /// To be copied to the board or shown as a QR code.
    pub code: SecretText,
    /// What is in it.
    pub contents: SetupCode,
    /// Unix milliseconds.
    pub expires_ms: u64,
}

/// State of the window.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowStatus {
    /// Open now.
    pub open: bool,
    /// Unix milliseconds.
    pub expires_ms: Option<u64>,
    /// Knocks while closed since start.
    pub knocks_while_closed: u64,
}

/// How a knock ends.
#[derive(Debug, Clone)]
pub enum Knocked {
    /// Known and accepted.
    Accepted(Box<Device>),
    /// It waits; the same request on every retry.
    Pending(Arc<PendingDevice>),
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Devices {}

impl Devices {
    /// Reads nothing yet; windows are closed after a start.
    #[must_use]
    pub fn new(_store: Store, _bus: Bus, _audit: Audit, _keys: Arc<HubKeys>) -> Self {
        todo!()
    }

    /// A known device.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn get(&self, _id: DeviceId) -> Result<Option<Device>, DeviceError> {
        todo!()
    }

    /// All known devices, and all that wait.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn list(&self) -> Result<(Vec<Arc<PendingDevice>>, Vec<Device>), DeviceError> {
        todo!()
    }

    /// A device whose key was just proved asks to be let in (role, name, rights in `asks`).
    ///
    /// # Errors
    /// [`DeviceError::WindowClosed`], [`DeviceError::TooMany`], [`DeviceError::WrongKind`],
    /// [`DeviceError::Refused`], [`DeviceError::Store`].
    pub async fn knock(&self, _asks: PendingDevice) -> Result<Knocked, DeviceError> {
        todo!()
    }

    /// Admits a device without asking: a setup code, or a client of this machine's owner.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn admit(&self, _asks: PendingDevice, _via: &'static str) -> Result<Device, DeviceError> {
        todo!()
    }

    /// Uses up a setup code. A second use raises [`crate::bus::Event::Alarm`].
    ///
    /// # Errors
    /// [`DeviceError::BadCode`].
    pub async fn redeem(&self, _secret: &CodeSecret) -> Result<(), DeviceError> {
        todo!()
    }

    /// A person approves a waiting device (id or unique prefix of request id, device id, or its name).
    ///
    /// # Errors
    /// [`DeviceError::Unknown`], [`DeviceError::Ambiguous`], [`DeviceError::Store`].
    pub async fn approve(&self, _which: &str, _by: &str) -> Result<Device, DeviceError> {
        todo!()
    }

    /// A person rejects a waiting device.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn reject(&self, _which: &str, _by: &str) -> Result<DeviceId, DeviceError> {
        todo!()
    }

    /// Forgets a device and closes its sockets.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn remove(&self, _which: &str, _by: &str) -> Result<DeviceId, DeviceError> {
        todo!()
    }

    /// Voids a device's tokens and closes its sockets; it may not come back until removed.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn revoke(&self, _which: &str, _by: &str) -> Result<DeviceId, DeviceError> {
        todo!()
    }

    /// Gives a device a new name.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn rename(&self, _which: &str, _name: &str) -> Result<DeviceId, DeviceError> {
        todo!()
    }

    /// Notes that a device came or went.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn seen(&self, _id: DeviceId, _reason: &str) -> Result<(), DeviceError> {
        todo!()
    }

    /// The device token of a JSON client; made at the first call, afterwards only its digest is known and
    /// a fresh one replaces it.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn issue_token(&self, _id: DeviceId, _role: Role) -> Result<SecretText, DeviceError> {
        todo!()
    }

    /// Whether this is the device's token.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn check_token(&self, _id: DeviceId, _role: Role, _token: &str) -> Result<bool, DeviceError> {
        todo!()
    }

    /// Makes a new token and closes the device's sockets.
    ///
    /// # Errors
    /// As [`Devices::approve`].
    pub async fn rotate(
        &self,
        _which: &str,
        _role: Role,
        _by: &str,
    ) -> Result<(DeviceId, SecretText), DeviceError> {
        todo!()
    }

    /// Opens the window and makes a setup code with these addresses.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn open_window(
        &self,
        _ttl: Duration,
        _addresses: Vec<String>,
    ) -> Result<PairingWindow, DeviceError> {
        todo!()
    }

    /// Closes it; codes that were not used are void.
    pub async fn close_window(&self) {
        todo!()
    }

    /// See [`WindowStatus`].
    #[must_use]
    pub fn window(&self) -> WindowStatus {
        todo!()
    }

    /// Persons' approver keys known to the hub: they go into setup codes.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn known_approvers(&self) -> Result<Vec<Approver>, DeviceError> {
        todo!()
    }

    /// Makes an approver key known. It counts on a node only once the node has it.
    ///
    /// # Errors
    /// [`DeviceError::Store`].
    pub async fn add_known_approver(&self, _approver: Approver, _by: &str) -> Result<(), DeviceError> {
        todo!()
    }
}
