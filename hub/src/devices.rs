//! Identities: who is known, in which role, with which rights, and how one becomes known.
//!
//! ```text
//!              ┌── setup code ─────────────────────────► accepted ──► revoked ─┐
//! knock ───────┤                                          ▲                    ├─► removed ─► (may knock again)
//!   window     └── pending ── approve ─┬──────────────────┘                    │
//!   open?            │                 └─ preauthorised ── node confirms ──┘   │
//!                    └──────── reject ────────────────────────────► rejected ──┘
//! ```
//!
//! What waits lives in memory: whoever still wants in knocks again. What was decided is in the
//! database, together with its audit record in the same transaction. Secrets (tokens, setup codes) are
//! stored as digests only.

mod codes;
mod known;
mod pairing;
mod records;
mod tokens;
mod waiting;

pub(crate) use pairing::check_known;
pub(crate) use records::{all, get, pick};
pub use tokens::TokenInfo;
pub use waiting::Settled;

use crate::approvals::audit::Audit;
use crate::bus::Bus;
use crate::keys::HubKeys;
use crate::store::{Store, StoreError};
use hearth_shared::connect::Role;
use hearth_shared::identity::{DeviceId, PublicKey, SecretText};
use hearth_shared::pairing::SetupCode;
use serde::Serialize;
use std::sync::{Arc, Mutex};

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
    /// A person here said yes; the person at the node has not confirmed the words yet. Never stored.
    Preauthorised,
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
    /// The role it was paired with.
    pub role: Role,
    /// Every role it may connect in (a phone may be operator and node with one key).
    pub roles: Vec<Role>,
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
    #[error(
        "the setup code is unknown, used or expired; make a new one with `hearth pair` (for a page: `hearth page`)"
    )]
    BadCode,
    /// Paired for the other protocol.
    #[error("the device is paired for the other protocol; remove it first")]
    WrongKind,
    /// Rejected or revoked before.
    #[error("the device was {0}; `hearth devices remove` on the hub lets it knock again")]
    Refused(&'static str),
    /// Our own nodes prove their key and have no token.
    #[error(
        "`{0}` is a node of the link: it proves its key and has no token to rotate; use revoke or remove"
    )]
    NoToken(String),
    /// Too many codes of this window wait to be used.
    #[error("{0} setup codes of this window are not used yet; use one, or wait until the window closes")]
    TooManyCodes(usize),
    /// Too many links for pages wait to be used.
    #[error("{0} links for pages are not used yet; open one of them, or wait until they end")]
    TooManyLinks(usize),
    /// A hub's key is no person's.
    #[error("the hub's own key is no person's approver")]
    NotAPerson,
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

/// The secret of a one-time link that lets a page in.
#[derive(Debug, Clone)]
pub struct PageLink {
    /// To be put into the link's fragment.
    pub secret: hearth_shared::pairing::CodeSecret,
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
pub struct Devices {
    store: Store,
    bus: Bus,
    keys: Arc<HubKeys>,
    desk: Arc<Mutex<waiting::Desk>>,
}

impl Devices {
    /// Reads nothing yet; windows are closed after a start.
    #[must_use]
    pub fn new(store: Store, bus: Bus, _audit: Audit, keys: Arc<HubKeys>) -> Self {
        Self { store, bus, keys, desk: Arc::default() }
    }
}

#[cfg(test)]
mod tests;
