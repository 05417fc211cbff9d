//! Hello, proof, welcome: see the drawing in `hearth_shared::link`.

use super::Context;
use super::socket::Socket;
use super::state::End;
use crate::identity::Clock;
use hearth_shared::approver::ApproverSet;
use hearth_shared::connect::{LinkTranscript, Role};
use hearth_shared::identity::{DeviceId, Digest, Nonce, display_safe};
use hearth_shared::limits::MAX_NAME_CHARS;
use hearth_shared::link::{HubHello, Knock, NodeHello, ToHub, ToNode, VERSIONS, Welcome, negotiate};

/// A connection on which both hellos were sent.
#[derive(Debug)]
pub struct Greeted {
    /// The connection.
    pub socket: Socket,
    /// The hub's hello; its claims count once [`Greeted::welcome`] has verified the signature.
    pub hub: HubHello,
    /// Digest of the declaration that was sent.
    pub declared: Digest,
    /// The list of approvers that was sent.
    pub approvers: ApproverSet,
    transcript: LinkTranscript,
    clock: Clock,
}

/// Waits for the hub's hello and answers it. With `expected`, nothing is sent to a hub of another identity.
///
/// # Errors
/// [`End`].
pub async fn greet(
    mut socket: Socket,
    context: &Context,
    knock: Knock,
    expected: Option<DeviceId>,
) -> Result<Greeted, End> {
    let hub = match socket.receive().await? {
        ToNode::Hello(hello) => hello,
        ToNode::Refused(refused) => return Err(End::Refused(refused)),
        ToNode::Goodbye { reason } => return Err(End::Goodbye(reason)),
        _ => return Err(End::Protocol("the first frame is no hello".into())),
    };
    if expected.is_some_and(|id| id != hub.hub.device_id()) {
        return Err(End::WrongHub);
    }
    let version = negotiate(&VERSIONS, &(hub.min_version..=hub.max_version)).ok_or_else(|| End::Version {
        min: hub.min_version,
        max: hub.max_version,
        ours: format!("{} to {}", VERSIONS.start(), VERSIONS.end()),
    })?;
    let declaration = context.local.declaration().encode();
    let declared = Digest::of(&declaration);
    let nonce = Nonce::fresh().map_err(|e| End::Protocol(e.to_string()))?;
    let transcript = LinkTranscript {
        hub_id: hub.hub.device_id(),
        hub_nonce: hub.nonce,
        node_nonce: nonce,
        tls_exporter: socket.exporter,
        role: Role::Node,
        declaration: declared,
        link_version: version,
        boot_id: context.clock.boot(),
    };
    let (outbox_epoch, outbox_next) = context.outbox.position();
    let approvers = context.local.approvers();
    let hello = NodeHello {
        version,
        key: context.key.public(),
        nonce,
        boot: context.clock.boot(),
        knock,
        declaration,
        signature: transcript.sign_as_node(&context.key),
        approvers: approvers.clone(),
        head: context.local.head(),
        hub_head: context.local.hub_head(),
        outbox_epoch,
        outbox_next,
        mono_ms: context.clock.mono_ms(),
        wall_ms: context.clock.wall_ms(),
    };
    socket.send(&ToHub::Hello(Box::new(hello))).await?;
    Ok(Greeted { socket, hub, declared, approvers, transcript, clock: context.clock })
}

impl Greeted {
    /// Waits for the welcome and checks that the hub proved its identity on this connection. The caller
    /// has a deadline.
    ///
    /// # Errors
    /// [`End`]
    pub async fn welcome(&mut self) -> Result<Box<Welcome>, End> {
        match self.next().await? {
            ToNode::Welcome(welcome) => {
                self.verify(&welcome)?;
                Ok(welcome)
            }
            ToNode::Refused(refused) => Err(End::Refused(refused)),
            ToNode::Goodbye { reason } => Err(End::Goodbye(reason)),
            _ => Err(End::Protocol("a frame before the welcome".into())),
        }
    }

    /// The next frame that is no heartbeat: while a person is asked, a hub may keep the connection warm.
    ///
    /// # Errors
    /// [`End`].
    pub async fn next(&mut self) -> Result<ToNode, End> {
        loop {
            match self.socket.receive().await? {
                ToNode::Ping { id, .. } => {
                    let (mono_ms, wall_ms) = (self.clock.mono_ms(), self.clock.wall_ms());
                    self.socket.send(&ToHub::Pong { id, mono_ms, wall_ms }).await?;
                }
                frame => return Ok(frame),
            }
        }
    }

    /// Checks the hub's signature over both hellos and this connection.
    ///
    /// # Errors
    /// [`End::BadSignature`].
    pub fn verify(&self, welcome: &Welcome) -> Result<(), End> {
        self.transcript.verify_hub(&self.hub.hub, &welcome.signature).map_err(|_| End::BadSignature)
    }

    /// The hub's name, safe to show.
    #[must_use]
    pub fn hub_name(&self) -> String {
        let name = display_safe(&self.hub.name, MAX_NAME_CHARS - 1);
        if name.is_empty() { "hub".into() } else { name }
    }
}
