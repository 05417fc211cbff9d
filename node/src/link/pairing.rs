//! The first handshake: by a setup code, or by words that two screens show.

use super::handshake::{Greeted, greet};
use super::socket::connect;
use super::state::End;
use super::{Context, SETUP_DEADLINE};
use crate::identity::HubRecord;
use hearth_shared::approver::{Approver, ApproverKind, ApproverSet};
use hearth_shared::identity::{DeviceId, Nonce};
use hearth_shared::limits::PAIRING_WINDOW_MS;
use hearth_shared::link::{Knock, RefusedCode, ToHub, ToNode, Welcome};
use hearth_shared::pairing::{SetupCode, WordsInput, commit};
use hearth_shared::pin::PinVerifier;
use std::time::Duration;

/// How long a person at the hub may take: the length of a pairing window.
const PERSON_DEADLINE: Duration = Duration::from_millis(PAIRING_WINDOW_MS);

/// A pairing that the hub has made; to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paired {
    /// The hub.
    pub hub: HubRecord,
    /// The first list of approvers, epoch 1.
    pub approvers: ApproverSet,
    /// How much of the declaration is approved.
    pub approved: usize,
}

/// The person at the node.
pub trait Person {
    /// Shows the words and asks whether the hub shows the same.
    fn same_words(&self, hub: &HubRecord, words: &str, approvers: &[Approver]) -> super::Pending<'_, bool>;
    /// Says that the hub is waited for.
    fn waiting(&self, hub: &str);
}

/// Pairs by a setup code; the person has confirmed its list of approvers. Tries its addresses in order.
///
/// # Errors
/// [`End`].
pub async fn with_code(context: &Context, code: &SetupCode, person: &dyn Person) -> Result<Paired, End> {
    let mut last = End::Protocol("the setup code has no address".into());
    for address in &code.addresses {
        let setup = async {
            let socket = Box::pin(connect(address, PinVerifier::pinned(code.spki))).await?;
            let knock = Knock::Code { secret: code.secret.clone() };
            greet(socket, context, knock, Some(code.hub.device_id())).await
        };
        match tokio::time::timeout(SETUP_DEADLINE, setup).await.unwrap_or(Err(End::Deadline("connecting"))) {
            Ok(greeted) => return finish_code(context, code, greeted, person).await,
            Err(
                end @ (End::Unreachable { .. }
                | End::NotAHub { .. }
                | End::WrongKey { .. }
                | End::Deadline(_)),
            ) => {
                tracing::debug!(%address, reason = %end, "address failed");
                last = end;
            }
            Err(end) => return Err(end),
        }
    }
    Err(last)
}

async fn finish_code(
    context: &Context,
    code: &SetupCode,
    mut greeted: Greeted,
    person: &dyn Person,
) -> Result<Paired, End> {
    let welcome = match admitted(&mut greeted, person).await {
        // The code was used, maybe by this node: power went after the hub had stored the pairing and before
        // the node had. Then the hub knows this key already.
        Err(End::Refused(refused)) if refused.code == RefusedCode::BadCode => {
            let again = async {
                let socket =
                    Box::pin(connect(&greeted.socket.address, PinVerifier::pinned(code.spki))).await?;
                let mut again = greet(socket, context, Knock::Paired, Some(code.hub.device_id())).await?;
                let welcome = again.welcome().await?;
                Ok::<_, End>((again, welcome))
            };
            match tokio::time::timeout(SETUP_DEADLINE, again).await {
                Ok(Ok((known, welcome))) => {
                    greeted = known;
                    welcome
                }
                _ => return Err(End::Refused(refused)),
            }
        }
        other => other?,
    };
    // The address that worked first, the rest behind it.
    let mut addresses = vec![greeted.socket.address.clone()];
    addresses.extend(code.addresses.iter().filter(|a| **a != greeted.socket.address).cloned());
    let hub = HubRecord { key: code.hub, spki: code.spki, addresses, name: greeted.hub_name() };
    let approvers = ApproverSet { epoch: 1, approvers: code.approvers.clone(), recovery: None };
    greeted.socket.goodbye("paired").await;
    Ok(Paired { hub, approvers, approved: welcome.approved.len() })
}

/// Pairs by words with the hub at `address`; with `expected`, with this one only.
///
/// # Errors
/// [`End`]; [`End::Stopped`] when the person says that the words differ.
pub async fn with_words(
    context: &Context,
    address: &str,
    expected: Option<DeviceId>,
    person: &dyn Person,
) -> Result<Paired, End> {
    let fresh = Nonce::fresh().map_err(|e| End::Protocol(e.to_string()))?;
    let setup = async {
        let socket = Box::pin(connect(address, PinVerifier::unpinned())).await?;
        let mut greeted =
            greet(socket, context, Knock::Words { commitment: commit(&fresh) }, expected).await?;
        let nonce_h = match greeted.socket.receive().await? {
            ToNode::WordsNonce { nonce } => nonce,
            ToNode::Refused(refused) => return Err(End::Refused(refused)),
            ToNode::Goodbye { reason } => return Err(End::Goodbye(reason)),
            _ => return Err(End::Protocol("a frame before the words".into())),
        };
        greeted.socket.send(&ToHub::WordsReveal { nonce: fresh }).await?;
        Ok((greeted, nonce_h))
    };
    let (mut greeted, nonce_h) =
        tokio::time::timeout(SETUP_DEADLINE, setup).await.unwrap_or(Err(End::Deadline("connecting")))?;
    let words = WordsInput {
        hub_id: greeted.hub.hub.device_id(),
        spki: greeted.socket.spki,
        node_id: context.key.device_id(),
        nonce_h,
        nonce_n: fresh,
    }
    .words();
    let hub = HubRecord {
        key: greeted.hub.hub,
        spki: greeted.socket.spki,
        addresses: vec![address.into()],
        name: greeted.hub_name(),
    };
    let first = Approver { key: hub.key, kind: ApproverKind::Hub, admin: false, name: greeted.hub_name() };
    let approvers = ApproverSet { epoch: 1, approvers: vec![first], recovery: None };
    let mut early = None;
    let same = {
        let asked = person.same_words(&hub, &words, &approvers.approvers);
        tokio::pin!(asked);
        loop {
            tokio::select! {
                same = &mut asked => break same,
                frame = greeted.next(), if early.is_none() => match frame? {
                    // The person at the hub was faster. The welcome counts when this one agrees.
                    ToNode::Welcome(welcome) => early = Some(welcome),
                    ToNode::Refused(refused) => return Err(End::Refused(refused)),
                    ToNode::Goodbye { reason } => return Err(End::Goodbye(reason)),
                    _ => return Err(End::Protocol("a frame while the words are compared".into())),
                },
            }
        }
    };
    if !same {
        greeted.socket.goodbye("the words differ").await;
        return Err(End::Stopped);
    }
    greeted.socket.send(&ToHub::WordsConfirmed).await?;
    let welcome = match early {
        Some(welcome) => {
            greeted.verify(&welcome)?;
            welcome
        }
        None => admitted(&mut greeted, person).await?,
    };
    greeted.socket.goodbye("paired").await;
    Ok(Paired { hub, approvers, approved: welcome.approved.len() })
}

/// Waits for the welcome; a person at the hub may have to decide, so first briefly, then with a line
/// that says so, as long as a pairing window is open.
async fn admitted(greeted: &mut Greeted, person: &dyn Person) -> Result<Box<Welcome>, End> {
    let name = greeted.hub_name();
    let welcome = greeted.welcome();
    tokio::pin!(welcome);
    if let Ok(result) = tokio::time::timeout(Duration::from_secs(1), &mut welcome).await {
        return result;
    }
    person.waiting(&name);
    tokio::time::timeout(PERSON_DEADLINE, welcome).await.unwrap_or(Err(End::Deadline("approval at the hub")))
}
