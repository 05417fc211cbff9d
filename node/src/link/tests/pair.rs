//! Pairing by code and by words.

use super::super::pairing::{Paired, Person, with_code, with_words};
use super::hub::Peer;
use super::*;
use hearth_shared::approver::{Approver, ApproverKind};
use hearth_shared::identity::Nonce;
use hearth_shared::link::{NodeHello, Refused, RefusedCode, ToHub, ToNode};
use hearth_shared::pairing::{CodeSecret, SetupCode, WordsInput, commit};
use std::sync::Mutex;

/// Sees the words and answers.
#[derive(Default)]
struct Test {
    words: Mutex<Option<String>>,
    yes: bool,
    waits: Mutex<u32>,
    /// The person at the hub is asked first.
    slow: Option<CancellationToken>,
}

impl Person for Test {
    fn same_words(&self, _: &HubRecord, words: &str, approvers: &[Approver]) -> Pending<'_, bool> {
        assert_eq!(approvers.len(), 1);
        *self.words.lock().unwrap() = Some(words.into());
        Box::pin(async {
            if let Some(slow) = &self.slow {
                slow.cancelled().await;
            }
            self.yes
        })
    }
    fn waiting(&self, _: &str) {
        *self.waits.lock().unwrap() += 1;
    }
}

fn code(rig: &Rig) -> SetupCode {
    let hub =
        Approver { key: rig.hub.key.public(), kind: ApproverKind::Hub, admin: false, name: "home".into() };
    SetupCode {
        addresses: vec!["127.0.0.1:1".into(), rig.hub.address.clone()],
        hub: rig.hub.key.public(),
        spki: rig.hub.spki,
        secret: CodeSecret([7; 32]),
        approvers: vec![hub],
    }
}

async fn both<T>(
    node: impl Future<Output = Result<Paired, End>>,
    hub: impl Future<Output = T>,
) -> Result<Paired, End> {
    tokio::time::timeout(SCRIPT_DEADLINE, async { tokio::join!(node, hub) }).await.unwrap().0
}

async fn knock(rig: &Rig) -> (Peer, NodeHello) {
    let mut peer = rig.hub.accept().await;
    let hello = peer.hello(&rig.hub).await;
    peer.transcript(&rig.hub, &hello).verify_node(&hello.key, &hello.signature).unwrap();
    (peer, hello)
}

fn refused(code: RefusedCode) -> ToNode {
    ToNode::Refused(Refused { code, message: "no".into(), retry_after_ms: 0 })
}

#[tokio::test]
async fn a_code_pairs_in_one_step() {
    let rig = Rig::new().await;
    let (code, person) = (code(&rig), Test::default());
    let paired = both(with_code(&rig.context, &code, &person), async {
        let (mut peer, hello) = knock(&rig).await;
        assert_eq!(hello.knock, Knock::Code { secret: CodeSecret([7; 32]) });
        peer.welcome(&rig.hub, &hello, |w| w.newly_paired = true).await;
        assert!(matches!(peer.receive().await, Some(ToHub::Goodbye { .. })));
    })
    .await
    .unwrap();
    assert_eq!(paired.hub.key, code.hub);
    assert_eq!(paired.hub.addresses, [code.addresses[1].clone(), code.addresses[0].clone()]);
    assert_eq!(paired.hub.name, "home\\u{202e}", "safe to show");
    assert_eq!((paired.approvers.epoch, &paired.approvers.approvers), (1, &code.approvers));
    assert_eq!(*person.waits.lock().unwrap(), 0);
}

#[tokio::test]
async fn a_code_is_not_given_to_a_hub_that_is_not_the_one_in_it() {
    let rig = Rig::new().await;
    let person = Test::default();
    let mut wrong_tls = code(&rig);
    wrong_tls.spki.0[0] ^= 1;
    let end = both(with_code(&rig.context, &wrong_tls, &person), async {
        assert!(rig.hub.accept_tls().await.is_none());
    });
    assert!(matches!(end.await, Err(End::WrongKey { .. })));
    let mut wrong_key = code(&rig);
    wrong_key.hub = SecretKey::generate().unwrap().public();
    let end = both(with_code(&rig.context, &wrong_key, &person), async {
        let mut peer = rig.hub.accept().await;
        peer.send_hello(&rig.hub).await;
        assert_eq!(peer.receive().await, None, "the secret was not sent");
    });
    assert_eq!(end.await, Err(End::WrongHub));
    let good = code(&rig);
    let end = both(with_code(&rig.context, &good, &person), async {
        let (mut peer, hello) = knock(&rig).await;
        peer.welcome(&rig.hub, &hello, |w| w.signature.0[0] ^= 1).await;
    });
    assert_eq!(end.await, Err(End::BadSignature), "what the hub cannot sign is not stored");
}

#[tokio::test]
async fn a_used_code_is_refused_unless_the_hub_knows_this_node_already() {
    let rig = Rig::new().await;
    let (person, code) = (Test::default(), code(&rig));
    let end = both(with_code(&rig.context, &code, &person), async {
        let (mut peer, _) = knock(&rig).await;
        peer.send(refused(RefusedCode::BadCode)).await;
        let (mut peer, hello) = knock(&rig).await;
        assert_eq!(hello.knock, Knock::Paired);
        peer.send(refused(RefusedCode::NotPaired)).await;
    });
    assert!(matches!(end.await, Err(End::Refused(r)) if r.code == RefusedCode::BadCode));
    // Power went between the hub's commit and the node's.
    let paired = both(with_code(&rig.context, &code, &person), async {
        let (mut peer, _) = knock(&rig).await;
        peer.send(refused(RefusedCode::BadCode)).await;
        let (mut peer, hello) = knock(&rig).await;
        peer.welcome(&rig.hub, &hello, |_| {}).await;
        peer.receive().await;
    });
    paired.await.unwrap();
}

/// Hub's side up to the reveal; gives the words it shows.
async fn words(rig: &Rig) -> (Peer, NodeHello, String) {
    let (mut peer, hello) = knock(rig).await;
    let Knock::Words { commitment } = hello.knock else { panic!("{:?}", hello.knock) };
    let nonce_h = Nonce::fresh().unwrap();
    peer.send(ToNode::WordsNonce { nonce: nonce_h }).await;
    let Some(ToHub::WordsReveal { nonce }) = peer.receive().await else { panic!("no reveal") };
    assert_eq!(commit(&nonce), commitment, "what was committed to");
    let input = WordsInput {
        hub_id: rig.hub.key.device_id(),
        spki: rig.hub.spki,
        node_id: hello.key.device_id(),
        nonce_h,
        nonce_n: nonce,
    };
    (peer, hello, input.words())
}

#[tokio::test]
async fn both_sides_show_the_same_words_and_a_slow_person_is_waited_for() {
    let rig = Rig::new().await;
    let person = Test { yes: true, ..Test::default() };
    let paired = both(with_words(&rig.context, &rig.hub.address, None, &person), async {
        let (mut peer, hello, words) = words(&rig).await;
        assert_eq!(peer.receive().await, Some(ToHub::WordsConfirmed));
        assert_eq!(person.words.lock().unwrap().as_ref(), Some(&words));
        // The hub keeps the connection warm while its person thinks.
        peer.ping(1).await;
        assert!(matches!(peer.receive().await, Some(ToHub::Pong { id: 1, .. })));
        while *person.waits.lock().unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        peer.welcome(&rig.hub, &hello, |w| w.newly_paired = true).await;
        peer.receive().await;
    })
    .await
    .unwrap();
    assert_eq!(paired.hub.spki, rig.hub.spki);
    let set = paired.approvers;
    assert_eq!((set.approvers.len(), set.approvers[0].kind), (1, ApproverKind::Hub));
    set.check().unwrap();
}

#[tokio::test]
async fn words_that_differ_end_the_pairing_and_an_early_welcome_does_not_decide() {
    let rig = Rig::new().await;
    let slow = CancellationToken::new();
    let person = Test { yes: false, slow: Some(slow.clone()), ..Test::default() };
    let end = both(with_words(&rig.context, &rig.hub.address, None, &person), async {
        let (mut peer, hello, _) = words(&rig).await;
        peer.welcome(&rig.hub, &hello, |w| w.newly_paired = true).await;
        slow.cancel();
        assert!(matches!(peer.receive().await, Some(ToHub::Goodbye { .. })));
    });
    assert_eq!(end.await, Err(End::Stopped));
    let person = Test { yes: true, slow: Some(CancellationToken::new()), ..Test::default() };
    let end = both(with_words(&rig.context, &rig.hub.address, None, &person), async {
        let (mut peer, ..) = words(&rig).await;
        peer.send(refused(RefusedCode::Rejected)).await;
    });
    assert!(matches!(end.await, Err(End::Refused(_))), "a no at the hub ends the question here");
}

#[tokio::test]
async fn a_node_that_has_a_hub_compares_words_with_no_other() {
    let rig = Rig::new().await;
    let (person, other) = (Test::default(), SecretKey::generate().unwrap().device_id());
    let end = both(with_words(&rig.context, &rig.hub.address, Some(other), &person), async {
        let mut peer = rig.hub.accept().await;
        peer.send_hello(&rig.hub).await;
        assert_eq!(peer.receive().await, None);
    });
    assert_eq!(end.await, Err(End::WrongHub));
}

#[tokio::test]
async fn a_closed_window_is_said_at_once() {
    let rig = Rig::new().await;
    let person = Test::default();
    let end = both(with_words(&rig.context, &rig.hub.address, None, &person), async {
        let (mut peer, _) = knock(&rig).await;
        peer.send(refused(RefusedCode::PairingClosed)).await;
    });
    assert!(matches!(end.await, Err(End::Refused(r)) if r.code == RefusedCode::PairingClosed));
}
