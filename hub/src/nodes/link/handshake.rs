//! Who comes in, and how.

use super::{Failed, receive, refused, send};
use crate::devices::{
    Device, DeviceError, DeviceState, Knocked, LinkKind, PendingDevice, Settled, check_known,
};
use crate::nodes::Nodes;
use crate::store::now_ms;
use hearth_shared::connect::{LinkTranscript, Role};
use hearth_shared::identity::{Digest, Nonce};
use hearth_shared::limits::HANDSHAKE_TIMEOUT_MS;
use hearth_shared::link::{
    Declaration, HubHello, Knock, LinkError, NodeHello, RefusedCode, ToHub, ToNode, VERSIONS,
};
use hearth_shared::pairing::{WordsInput, commit};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;

const DEADLINE: Duration = Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
/// When a refusal has to do with the hub's own trouble.
const RETRY_SOON_MS: u64 = 5_000;
const RETRY_LATER_MS: u64 = 60_000;

/// A node that proved its key and is let in.
#[derive(Debug)]
pub(super) struct Admitted {
    pub device: Device,
    pub hello: Box<NodeHello>,
    pub declaration: Declaration,
    pub transcript: LinkTranscript,
    pub newly_paired: bool,
    /// When the node's hello was here: its clocks are from this moment. Unix milliseconds.
    pub heard_ms: u64,
}

fn of_device(error: DeviceError) -> Failed {
    let message = error.to_string();
    match error {
        DeviceError::WindowClosed => refused(RefusedCode::PairingClosed, message, RETRY_LATER_MS),
        DeviceError::TooMany(_) => refused(RefusedCode::TooManyPending, message, RETRY_LATER_MS),
        DeviceError::BadCode => refused(RefusedCode::BadCode, message, 0),
        DeviceError::WrongKind => refused(RefusedCode::WrongKind, message, 0),
        DeviceError::Refused("revoked") => refused(RefusedCode::Revoked, message, 0),
        DeviceError::Refused(_) => refused(RefusedCode::Rejected, message, 0),
        other => {
            tracing::error!(error = %other, "a node cannot be admitted");
            refused(
                RefusedCode::RateLimited,
                "the hub cannot admit nodes at the moment; see its log",
                RETRY_SOON_MS,
            )
        }
    }
}

impl Nodes {
    pub(super) async fn handshake<S>(
        &self,
        socket: &mut WebSocketStream<S>,
        peer: SocketAddr,
        exporter: [u8; 32],
    ) -> Result<Admitted, Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let greeted = timeout(DEADLINE, self.greet(socket, exporter));
        let (hello, transcript, declaration) =
            greeted.await.map_err(|_| Failed::Gone("the handshake took too long"))??;
        let heard_ms = now_ms();
        let asks = self.asks(&hello, &declaration, peer);
        let (device, newly_paired) = match &hello.knock {
            Knock::Paired => (self.known(&hello).await?, false),
            Knock::Code { secret } => {
                let redeemed = self.inner.devices.redeem(secret, asks, "code").await;
                (redeemed.map_err(of_device)?, true)
            }
            Knock::Words { commitment } => (Box::pin(self.by_words(socket, asks, *commitment)).await?, true),
        };
        Ok(Admitted { device, hello, declaration, transcript, newly_paired, heard_ms })
    }

    /// Both hellos: version, signature over the transcript of this very connection, declaration.
    async fn greet<S>(
        &self,
        socket: &mut WebSocketStream<S>,
        exporter: [u8; 32],
    ) -> Result<(Box<NodeHello>, LinkTranscript, Declaration), Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let keys = &self.inner.keys;
        let no_entropy = |_| refused(RefusedCode::RateLimited, "the hub has no randomness", RETRY_SOON_MS);
        let hub_nonce = Nonce::fresh().map_err(no_entropy)?;
        let hub_hello = HubHello {
            min_version: *VERSIONS.start(),
            max_version: *VERSIONS.end(),
            hub: keys.identity.public(),
            nonce: hub_nonce,
            time_ms: now_ms(),
            name: self.hub_name(),
        };
        send(socket, &ToNode::Hello(hub_hello)).await?;
        let ToHub::Hello(hello) = receive(socket).await? else {
            return Err(refused(RefusedCode::Protocol, "the first frame must be a hello", 0));
        };
        if !VERSIONS.contains(&hello.version) {
            let message = format!(
                "link version {} is not spoken here ({} to {}); update hearth on the older side",
                hello.version,
                VERSIONS.start(),
                VERSIONS.end()
            );
            return Err(refused(RefusedCode::Version, message, 0));
        }
        let transcript = LinkTranscript {
            hub_id: keys.identity.device_id(),
            hub_nonce,
            node_nonce: hello.nonce,
            tls_exporter: exporter,
            role: Role::Node,
            declaration: Digest::of(&hello.declaration),
            link_version: hello.version,
            boot_id: hello.boot,
        };
        if transcript.verify_node(&hello.key, &hello.signature).is_err() {
            let message = "the signature does not fit this connection, key and declaration";
            return Err(refused(RefusedCode::Signature, message, 0));
        }
        let declaration = Declaration::decode(&hello.declaration).map_err(|error| match error {
            LinkError::BadDeclaration(_) => refused(RefusedCode::BadDeclaration, error.to_string(), 0),
            _ => refused(RefusedCode::BadDeclaration, "the declaration cannot be read", 0),
        })?;
        hello
            .approvers
            .check()
            .map_err(|error| refused(RefusedCode::BadDeclaration, error.to_string(), 0))?;
        Ok((hello, transcript, declaration))
    }

    fn hub_name(&self) -> String {
        self.inner.config.gateway.display_name()
    }

    fn asks(&self, hello: &NodeHello, declaration: &Declaration, peer: SocketAddr) -> PendingDevice {
        PendingDevice {
            request_id: String::new(),
            key: hello.key,
            device_id: hello.key.device_id(),
            name: declaration.name.clone(),
            role: Role::Node,
            kind: LinkKind::Hearth,
            platform: declaration.platform.clone(),
            device_family: declaration.model.clone(),
            client_id: String::new(),
            client_mode: String::new(),
            scopes: Vec::new(),
            surface: declaration.surface(),
            words: None,
            remote_ip: peer.ip().to_canonical().to_string(),
            created_ms: now_ms(),
        }
    }

    async fn known(&self, hello: &NodeHello) -> Result<Device, Failed> {
        let found = self.inner.devices.get(hello.key.device_id()).await.map_err(of_device)?;
        let Some(device) = found else {
            self.inner.devices.count_closed_knock();
            let message = "this hub does not know the node (any more); pair it: `hearth pair` on the hub, then \
                           `hearth-node pair CODE`";
            return Err(refused(RefusedCode::NotPaired, message, 0));
        };
        check_known(&device, LinkKind::Hearth).map_err(of_device)?;
        Ok(device)
    }

    /// Pairing by words: commit, reveal, and a person on each end. Neither yes alone is enough.
    async fn by_words<S>(
        &self,
        socket: &mut WebSocketStream<S>,
        mut asks: PendingDevice,
        commitment: Digest,
    ) -> Result<Device, Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let devices = &self.inner.devices;
        if devices.window_closes().is_none() {
            devices.count_closed_knock();
            return Err(of_device(DeviceError::WindowClosed));
        }
        let no_entropy = |_| refused(RefusedCode::RateLimited, "the hub has no randomness", RETRY_SOON_MS);
        let nonce_h = Nonce::fresh().map_err(no_entropy)?;
        send(socket, &ToNode::WordsNonce { nonce: nonce_h }).await?;
        let revealed = timeout(DEADLINE, receive(socket));
        let ToHub::WordsReveal { nonce: nonce_n } =
            revealed.await.map_err(|_| Failed::Gone("the handshake took too long"))??
        else {
            return Err(refused(RefusedCode::Protocol, "the nonce behind the commitment must follow", 0));
        };
        if commit(&nonce_n) != commitment {
            let message = "the nonce is not the one that was committed to; somebody may be in between";
            return Err(refused(RefusedCode::Protocol, message, 0));
        }
        let words = WordsInput {
            hub_id: self.inner.keys.identity.device_id(),
            spki: self.inner.keys.spki,
            node_id: asks.device_id,
            nonce_h,
            nonce_n,
        };
        asks.words = Some(words.words());
        let pending = match devices.knock(asks).await.map_err(of_device)? {
            Knocked::Pending(pending) => pending,
            Knocked::Accepted(_) => {
                return Err(refused(RefusedCode::Protocol, "words are always compared", 0));
            }
        };
        let request = Withdrawn { nodes: self, request_id: pending.request_id.clone() };
        self.both_say_yes(socket, &request.request_id).await
    }

    async fn both_say_yes<S>(
        &self,
        socket: &mut WebSocketStream<S>,
        request_id: &str,
    ) -> Result<Device, Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let devices = &self.inner.devices;
        let mut settled = devices.settled(request_id).ok_or(Failed::Gone("withdrawn"))?;
        let mut confirmed = false;
        loop {
            let now = settled.borrow_and_update().clone();
            match now {
                Settled::Waiting => {}
                Settled::Accepted(device) if device.state == DeviceState::Accepted => {
                    return Ok(Arc::unwrap_or_clone(device));
                }
                Settled::Accepted(_) | Settled::Ended => {
                    return Err(of_device(DeviceError::WindowClosed));
                }
                Settled::Rejected => return Err(of_device(DeviceError::Refused("rejected"))),
            }
            // The window may be opened for longer meanwhile: look again each time.
            let closes = devices.window_closes().ok_or_else(|| of_device(DeviceError::WindowClosed))?;
            tokio::select! {
                changed = settled.changed() => {
                    if changed.is_err() {
                        return Err(of_device(DeviceError::WindowClosed));
                    }
                }
                frame = receive(socket) => match frame? {
                    ToHub::WordsConfirmed if !confirmed => {
                        confirmed = true;
                        devices.confirm_words(request_id).await.map_err(of_device)?;
                    }
                    ToHub::Goodbye { .. } => return Err(Failed::Gone("the node said goodbye")),
                    _ => return Err(refused(RefusedCode::Protocol, "only the confirmation of the words may follow", 0)),
                },
                () = tokio::time::sleep_until(closes) => {}
            }
        }
    }
}

/// Takes a waiting request off the list when its connection ends undecided: its words are void.
struct Withdrawn<'a> {
    nodes: &'a Nodes,
    request_id: String,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.nodes.inner.devices.withdraw(&self.request_id);
    }
}
