//! The link between our node and our hub: version 1 of `hearth.link.v1`.
//!
//! One TLS 1.3 connection, a WebSocket with this sub-protocol on path [`PATH`], one postcard-encoded enum
//! per binary message: [`ToNode`] from the hub, [`ToHub`] from the node. `shared/LINK.md` describes the
//! bytes; golden tests below hold them. Variants and fields are only ever appended, and a side never
//! sends what the negotiated version does not know.
//!
//! ```text
//!  hub                                              node
//!   │ Hello{versions, hub key, hub_nonce}            │
//!   ├───────────────────────────────────────────────►│
//!   │        Hello{version, key, node_nonce, boot,   │
//!   │◄─────── knock, declaration, signature} ────────┤   knock: paired | code secret | words commitment
//!   │ (words only: WordsNonce ─► , ◄─ WordsReveal, a person on each end, ◄─ WordsConfirmed)
//!   │ Welcome{signature, approved surface, mark} or Refused{code}
//!   ├───────────────────────────────────────────────►│
//!   │ Invoke / Cancel / AskChallenge / Grant         │
//!   │ Challenge / Attachment, Chunk… / Result        │   many at once, told apart by request id
//!   │ Credit                    Outbox / OutboxAck   │
//!   │ Ping / Pong every 30 s                         │
//! ```
//!
//! Attachments are announced, then sent in chunks of at most 16 KiB while the receiver's credit lasts
//! ([`flow`]); every other frame goes first, so a stalled picture never delays a heartbeat.

pub mod flow;

use crate::approver::{ApproverSet, ApproversChange};
use crate::chain::Head;
use crate::challenge::SignedChallenge;
use crate::command::{Class, Need};
use crate::error::CommandError;
use crate::grant::Grant;
use crate::identity::{Digest, Nonce, PublicKey, SecretKey, Signature};
use crate::limits::{CHUNK_SIZE, MAX_LINK_FRAME};
use crate::pairing::CodeSecret;
use crate::reading::{BootId, Correlation, Epoch, Item, Mark, RequestId};
use serde::{Deserialize, Serialize};

/// WebSocket path of node links.
pub const PATH: &str = "/link";
/// WebSocket sub-protocol.
pub const SUBPROTOCOL: &str = "hearth.link.v1";
/// Oldest and newest version this program speaks.
pub const VERSIONS: std::ops::RangeInclusive<u16> = 1..=1;

/// The version two sides speak: the newest both know.
#[must_use]
pub fn negotiate(
    ours: &std::ops::RangeInclusive<u16>,
    theirs: &std::ops::RangeInclusive<u16>,
) -> Option<u16> {
    let newest = *ours.end().min(theirs.end());
    (newest >= *ours.start() && newest >= *theirs.start()).then_some(newest)
}

/// From hub to node. Append only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToNode {
    /// First frame on the connection.
    Hello(HubHello),
    /// The node is admitted.
    Welcome(Box<Welcome>),
    /// The node is not admitted, or no longer; the connection ends.
    Refused(Refused),
    /// Pairing by words: the hub's nonce, after the node committed to its own.
    WordsNonce { nonce: Nonce },
    /// Run this. Answered by [`ToHub::Result`].
    Invoke(Invoke),
    /// Withdraw a request; answered by its result, which may still be a success.
    Cancel { request: RequestId },
    /// A person opened the card: answer with a fresh [`ToHub::Challenge`], or a result that refuses.
    AskChallenge(Invoke),
    /// The decision over an open challenge. Answered by the request's result.
    Grant { request: RequestId, grant: Grant },
    /// The node may send this many more bytes of a transfer.
    Credit { transfer: u32, bytes: u32 },
    /// Items up to this one are in the hub's database.
    OutboxAck(Mark),
    /// Change the list of approvers. Answered by [`ToHub::Approvers`] or [`ToHub::ApproversRefused`].
    ChangeApprovers(ApproversChange),
    /// What of the declaration a person approved: `command` or `kind:id`.
    Surface { approved: Vec<String> },
    /// Heartbeat; answer with [`ToHub::Pong`].
    Ping { id: u64, hub_time_ms: u64 },
    /// The hub stops or restarts; reconnect by the backoff.
    Goodbye { reason: String },
}

/// From node to hub. Append only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToHub {
    /// First frame of the node.
    Hello(Box<NodeHello>),
    /// Pairing by words: the nonce behind the commitment.
    WordsReveal { nonce: Nonce },
    /// Pairing by words: the person at the node compared them.
    WordsConfirmed,
    /// Outcome of a request.
    Result(Box<ResultFrame>),
    /// Answer to [`ToNode::AskChallenge`].
    Challenge { request: RequestId, challenge: SignedChallenge },
    /// An attachment of a request follows in chunks; its result comes after the last chunk.
    Attachment(Attachment),
    /// Bytes of an attachment, in order.
    Chunk {
        transfer: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The attachment ends early; the request's result says why.
    AbortTransfer { transfer: u32 },
    /// Committed readings and events, rising numbers without gaps.
    Outbox { epoch: Epoch, items: Vec<Item> },
    /// The board changed while connected (a camera was plugged in, the policy was edited): the new
    /// [`Declaration`], encoded.
    Declare {
        #[serde(with = "serde_bytes")]
        declaration: Vec<u8>,
    },
    /// The list of approvers as it is now.
    Approvers(ApproverSet),
    /// A change of the list was refused.
    ApproversRefused { message: String },
    /// Answer to a ping: the node's clocks, so that the hub can date readings.
    Pong { id: u64, mono_ms: u64, wall_ms: Option<u64> },
    /// The node stops.
    Goodbye { reason: String },
}

/// The hub's first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubHello {
    /// Oldest version it speaks.
    pub min_version: u16,
    /// Newest.
    pub max_version: u16,
    /// Its identity.
    pub hub: PublicKey,
    /// Fresh.
    pub nonce: Nonce,
    /// The hub's clock, Unix milliseconds. A hint until the hub has proved itself.
    pub time_ms: u64,
    /// Its name for people.
    pub name: String,
}

/// How a node asks to be let in. Append only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Knock {
    /// It is paired.
    Paired,
    /// It holds a setup code.
    Code { secret: CodeSecret },
    /// It found the hub by address; the commitment to its nonce for the words.
    Words { commitment: Digest },
}

/// The node's first frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeHello {
    /// The version it chose.
    pub version: u16,
    /// Its identity.
    pub key: PublicKey,
    /// Fresh.
    pub nonce: Nonce,
    /// This start.
    pub boot: BootId,
    /// How it asks.
    pub knock: Knock,
    /// The [`Declaration`], encoded; signed by its digest.
    #[serde(with = "serde_bytes")]
    pub declaration: Vec<u8>,
    /// Over [`crate::connect::LinkTranscript`].
    pub signature: Signature,
    /// The list of approvers the node keeps (empty before pairing).
    pub approvers: ApproverSet,
    /// Head of the node's audit log.
    pub head: Head,
    /// Newest head of the hub's audit log that the node holds: a hub whose database was set back finds
    /// out by it.
    pub hub_head: Head,
    /// The outbox: its epoch and the number its next item will have.
    pub outbox_epoch: Epoch,
    /// See `outbox_epoch`.
    pub outbox_next: u64,
    /// Milliseconds since this start.
    pub mono_ms: u64,
    /// Unix milliseconds when the clock is set by the network.
    pub wall_ms: Option<u64>,
}

/// The node is in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The hub's signature over the same transcript.
    pub signature: Signature,
    /// True when this connection paired the node just now: the node stores hub and approvers.
    pub newly_paired: bool,
    /// What of the declaration is approved.
    pub approved: Vec<String>,
    /// How far the hub's database has this node's outbox.
    pub mark: Option<Mark>,
    /// Interval of pings.
    pub tick_ms: u64,
    /// The hub's clock, Unix milliseconds.
    pub time_ms: u64,
    /// Head of the hub's audit log.
    pub head: Head,
}

/// Why a node is not let in. Append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedCode {
    /// No common link version.
    Version,
    /// The signature does not verify.
    Signature,
    /// Not paired; run `hearth-node pair`.
    NotPaired,
    /// No pairing window is open; run `hearth pair` on the hub.
    PairingClosed,
    /// The setup code is unknown, used or expired.
    BadCode,
    /// A person said no.
    Rejected,
    /// Revoked or removed.
    Revoked,
    /// Another connection with the same key is open: somebody may have copied it.
    Duplicate,
    /// Too many requests; wait.
    RateLimited,
    /// The declaration cannot be read or is over a limit.
    BadDeclaration,
    /// Too many nodes wait in the pairing window.
    TooManyPending,
    /// The frame was not expected here.
    Protocol,
    /// The device was paired for the JSON protocol; there is no change from one to the other.
    WrongKind,
}

/// See [`RefusedCode`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// For programs.
    pub code: RefusedCode,
    /// For people, with the next step.
    pub message: String,
    /// Earliest useful retry; 0 when only a person can change it.
    pub retry_after_ms: u64,
}

/// What a node is and can do. Lists are sorted by id, so that the same board declares the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Declaration {
    /// The node's own name, for example `garage`.
    pub name: String,
    /// Program version.
    pub version: String,
    /// `linux`.
    pub platform: String,
    /// For example `aarch64`.
    pub arch: String,
    /// Board model, or empty.
    pub model: String,
    /// True for a simulated board.
    pub simulated: bool,
    /// What it runs.
    pub commands: Vec<CommandDecl>,
    /// Its cameras.
    pub cameras: Vec<PartDecl>,
    /// Its pins; `detail` is `input` or `output`.
    pub pins: Vec<PartDecl>,
    /// Its sensors; `detail` is the unit.
    pub sensors: Vec<SensorDecl>,
    /// Hash of policy and device configuration.
    pub policy: Digest,
    /// Whether need `person` is in force; see [`ApproverSet::person_ready`].
    pub person_ready: bool,
}

/// A declared command and what it needs here and now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandDecl {
    /// Name.
    pub name: String,
    /// Class.
    pub class: Class,
    /// Need by the node's rules; parameters may raise it.
    pub need: Need,
}

/// A camera or pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartDecl {
    /// Stable id.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// See the field's owner.
    pub detail: String,
}

/// A sensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SensorDecl {
    /// Stable id.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it measures.
    pub quantity: crate::command::sensor::Quantity,
    /// Unit symbol.
    pub unit: String,
}

impl Declaration {
    /// The surface a person approves: every command, and every part as `camera:id`, `pin:id`, `sensor:id`.
    #[must_use]
    pub fn surface(&self) -> Vec<String> {
        let mut surface: Vec<String> = self.commands.iter().map(|c| c.name.clone()).collect();
        surface.extend(self.cameras.iter().map(|c| format!("camera:{}", c.id)));
        surface.extend(self.pins.iter().map(|p| format!("pin:{}", p.id)));
        surface.extend(self.sensors.iter().map(|s| format!("sensor:{}", s.id)));
        surface.sort();
        surface
    }

    /// Bytes to send and sign.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Plain structs always encode.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads and checks limits: counts, name lengths, no doubled ids. Texts for people come out safe to
    /// show: characters that hide or reorder others are replaced, and all but names are cut to 64 characters.
    ///
    /// # Errors
    /// One line on what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        use crate::limits::{MAX_DECLARED, MAX_NAME_CHARS};
        let (mut it, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| LinkError::Malformed)?;
        if !rest.is_empty() {
            return Err(LinkError::Malformed);
        }
        let counts = [it.commands.len(), it.cameras.len(), it.pins.len(), it.sensors.len()];
        if counts.iter().any(|n| *n > MAX_DECLARED) {
            return Err(LinkError::BadDeclaration("more than 256 entries of a kind"));
        }
        let mut surface = it.surface();
        let total = surface.len();
        surface.dedup();
        if surface.len() != total {
            return Err(LinkError::BadDeclaration("an id stands twice"));
        }
        let ids_ok = surface.iter().all(|s| {
            s.len() <= 7 + MAX_NAME_CHARS
                && s.chars().all(|c| c.is_ascii_alphanumeric() || "._-:".contains(c))
        });
        if !ids_ok {
            return Err(LinkError::BadDeclaration("an id holds more than letters, digits, `.`, `_`, `-`"));
        }
        let names =
            it.cameras.iter().chain(&it.pins).map(|p| &p.name).chain(it.sensors.iter().map(|s| &s.name));
        if names.chain([&it.name]).any(|n| n.is_empty() || n.chars().count() > MAX_NAME_CHARS) {
            return Err(LinkError::BadDeclaration("a name is empty or longer than 64 characters"));
        }
        it.texts().for_each(make_plain);
        Ok(it)
    }

    /// What is shown to people, apart from the name: that becomes the device's, and is made safe there.
    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let head = [&mut self.version, &mut self.platform, &mut self.arch, &mut self.model];
        let parts = self.cameras.iter_mut().chain(&mut self.pins).flat_map(|p| [&mut p.name, &mut p.detail]);
        head.into_iter().chain(parts).chain(self.sensors.iter_mut().flat_map(|s| [&mut s.name, &mut s.unit]))
    }
}

/// Unlike [`crate::identity::display_safe`] it changes nothing when it is done again: a declaration is
/// stored and read back.
fn make_plain(text: &mut String) {
    use crate::identity::is_deceptive;
    use crate::limits::MAX_NAME_CHARS;
    if text.chars().count() > MAX_NAME_CHARS || text.chars().any(is_deceptive) {
        let plain = |c| if is_deceptive(c) { char::REPLACEMENT_CHARACTER } else { c };
        *text = text.chars().take(MAX_NAME_CHARS).map(plain).collect();
    }
}

/// A request to run a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoke {
    /// Journal key: the same id is never run twice.
    pub request: RequestId,
    /// For example `camera.snap`.
    pub command: String,
    /// Parameters as JSON text; see [`crate::command::Invocation::parse`].
    pub params: String,
    /// What is left of the caller's time.
    pub timeout_ms: u64,
    /// The hub's own rules may raise the need, never lower it.
    pub raise: Need,
    /// Ties the log lines of both sides together.
    pub correlation: Correlation,
    /// Head of the hub's audit log.
    pub head: Head,
}

/// How a request ended. Append only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// It ran. The command's result as JSON text.
    Done { result: String },
    /// It did not, or failed.
    Failed(CommandError),
    /// A person must decide first: ask for a challenge and grant it.
    ApprovalRequired {
        /// Whose yes.
        need: Need,
        /// The command's class.
        class: Class,
        /// The rule that says so, and where it is.
        rule: String,
    },
}

/// Outcome and proof.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFrame {
    /// Of the request.
    pub request: RequestId,
    /// How it ended.
    pub outcome: Outcome,
    /// Attachments sent before this frame for this request.
    pub attachments: u32,
    /// Head of the node's audit log, this outcome included.
    pub head: Head,
    /// `"hearth-receipt-v1\0" ‖ request16 ‖ SHA-256(postcard(outcome)) ‖ head.seq u64 ‖ head.hash32`, signed by
    /// the node: it cannot later deny what it reported.
    pub receipt: Signature,
}

const RECEIPT_DOMAIN: &[u8] = b"hearth-receipt-v1\0";

impl ResultFrame {
    fn receipt_bytes(request: &RequestId, outcome: &Outcome, head: &Head) -> Vec<u8> {
        let mut bytes = RECEIPT_DOMAIN.to_vec();
        bytes.extend(request.0);
        // Strings, enums and numbers always encode.
        bytes.extend(Digest::of(&postcard::to_allocvec(outcome).unwrap_or_default()).0);
        bytes.extend(head.seq.to_be_bytes());
        bytes.extend(head.hash.0);
        bytes
    }

    /// Makes and signs the frame on the node.
    #[must_use]
    pub fn sign(key: &SecretKey, request: RequestId, outcome: Outcome, attachments: u32, head: Head) -> Self {
        let receipt = key.sign(&Self::receipt_bytes(&request, &outcome, &head));
        Self { request, outcome, attachments, head, receipt }
    }

    /// Checks the receipt on the hub.
    ///
    /// # Errors
    /// When it does not verify.
    pub fn verify(&self, node: &PublicKey) -> Result<(), crate::identity::IdentityError> {
        node.verify(&Self::receipt_bytes(&self.request, &self.outcome, &self.head), &self.receipt)
    }
}

/// Announces bytes that follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Number of this transfer, unique on the connection.
    pub transfer: u32,
    /// The request it belongs to.
    pub request: RequestId,
    /// `image/jpeg` and the like.
    pub mime: String,
    /// Bytes in all.
    pub size: u64,
    /// Of the bytes.
    pub sha256: Digest,
}

/// A frame that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Over the size limit; checked before decoding.
    #[error("link frame of {0} bytes, the limit is {MAX_LINK_FRAME}")]
    TooLong(usize),
    /// Not a frame of this version.
    #[error("not a link frame of this version")]
    Malformed,
    /// See the text.
    #[error("declaration refused: {0}")]
    BadDeclaration(&'static str),
    /// A chunk over 16 KiB, over its credit, or over its announced size.
    #[error("transfer {transfer}: {why}")]
    Transfer { transfer: u32, why: &'static str },
}

/// Frames of one direction.
pub trait LinkFrame: Serialize + serde::de::DeserializeOwned {
    /// The bytes of one WebSocket message.
    ///
    /// # Errors
    /// [`LinkError::TooLong`] when the frame is over the limit.
    fn encode(&self) -> Result<Vec<u8>, LinkError> {
        let bytes = postcard::to_allocvec(self).map_err(|_| LinkError::Malformed)?;
        if bytes.len() > MAX_LINK_FRAME {
            return Err(LinkError::TooLong(bytes.len()));
        }
        Ok(bytes)
    }

    /// Reads one message; bytes left over are an error.
    ///
    /// # Errors
    /// [`LinkError::TooLong`] or [`LinkError::Malformed`].
    fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        if bytes.len() > MAX_LINK_FRAME {
            return Err(LinkError::TooLong(bytes.len()));
        }
        match postcard::take_from_bytes(bytes) {
            Ok((frame, [])) => Ok(frame),
            _ => Err(LinkError::Malformed),
        }
    }
}
impl LinkFrame for ToNode {}
impl LinkFrame for ToHub {}

const _: () = assert!(CHUNK_SIZE < MAX_LINK_FRAME);

#[cfg(test)]
mod tests;
