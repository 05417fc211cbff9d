//! Open challenges: in memory only, at most eight, a minute each, one per request.

use hearth_shared::approver::ApproverSet;
use hearth_shared::challenge::Challenge;
use hearth_shared::command::{Class, Invocation};
use hearth_shared::grant::{Decision, Grant, GrantError};
use hearth_shared::identity::Digest;
use hearth_shared::limits::MAX_OPEN_CHALLENGES;
use hearth_shared::link::Invoke;
use hearth_shared::reading::{BootId, RequestId};

/// A challenge the node waits for an answer to.
#[derive(Debug, Clone)]
pub(crate) struct OpenChallenge {
    /// Its fields, as the node wrote them.
    pub(crate) challenge: Challenge,
    /// Hash of its text.
    pub(crate) digest: Digest,
    /// The command that will run: the node acts from this, not from anything that comes with the grant.
    pub(crate) invocation: Invocation,
    /// Hash of command and parameters as the hub sent them; the journal's.
    pub(crate) fingerprint: Digest,
    /// The request as it came.
    pub(crate) invoke: Invoke,
    /// End of its validity, on the boot clock.
    pub(crate) expires_ms: u64,
}

/// Why a grant does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Refusal {
    /// No challenge is open for the request.
    #[error("no challenge is open for this request: it was used, withdrawn, replaced, or the node restarted")]
    NotOpen,
    /// It was open too long.
    #[error("the challenge expired; open the request again")]
    Expired,
    /// Made in another start of the node.
    #[error("the challenge is from another start of the node")]
    OtherBoot,
    /// The policy or the configuration of devices changed since.
    #[error("the node's policy or devices changed since the challenge; open the request again")]
    PolicyChanged,
    /// Signer or signature.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// "Always" where the challenge offered none.
    #[error("`always` is not possible for this request; allow it once")]
    NoAlways,
    /// The hub's key may store "always" for pictures only.
    #[error("the hub's key may say `always` only for pictures; sign with a person's key, or allow it once")]
    AlwaysNeedsPerson,
}

/// The open ones.
#[derive(Debug, Default)]
pub(crate) struct Challenges(Vec<OpenChallenge>);

/// Eight are open and none has expired.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Challenges {
    /// Whether another one fits for `request` at `now_ms`.
    pub(crate) fn check_room(&mut self, request: &RequestId, now_ms: u64) -> Result<(), Full> {
        if self.0.len() >= MAX_OPEN_CHALLENGES {
            self.0.retain(|c| c.expires_ms > now_ms);
        }
        let others = self.0.iter().filter(|c| c.challenge.request != *request).count();
        if others >= MAX_OPEN_CHALLENGES { Err(Full) } else { Ok(()) }
    }

    /// Adds one; an earlier one for the same request is void.
    pub(crate) fn put(&mut self, open: OpenChallenge, now_ms: u64) -> Result<(), Full> {
        self.check_room(&open.challenge.request, now_ms)?;
        self.0.retain(|c| c.challenge.request != open.challenge.request);
        self.0.push(open);
        Ok(())
    }

    /// Drops the one of a request.
    pub(crate) fn drop_request(&mut self, request: &RequestId) -> bool {
        let before = self.0.len();
        self.0.retain(|c| c.challenge.request != *request);
        before != self.0.len()
    }

    /// Checks a grant against the open challenge of its request, in the order of the rules: own, open,
    /// of this boot, in time; policy unchanged; signer satisfies the need. Takes the challenge out only
    /// when all hold: a grant that does not verify leaves it for the one that does.
    pub(crate) fn claim(
        &mut self,
        request: &RequestId,
        grant: &Grant,
        boot: &BootId,
        now_ms: u64,
        policy: &Digest,
        approvers: &ApproverSet,
    ) -> Result<OpenChallenge, Refusal> {
        let at = self.0.iter().position(|c| c.challenge.request == *request).ok_or(Refusal::NotOpen)?;
        let open = &self.0[at];
        if open.challenge.boot != *boot {
            return Err(Refusal::OtherBoot);
        }
        if open.expires_ms <= now_ms {
            self.0.remove(at);
            return Err(Refusal::Expired);
        }
        if open.challenge.policy != *policy {
            self.0.remove(at);
            return Err(Refusal::PolicyChanged);
        }
        grant.verify(&open.digest, open.challenge.need, approvers)?;
        if grant.decision == Decision::AllowAlways {
            if open.challenge.always.is_none() {
                return Err(Refusal::NoAlways);
            }
            let person = approvers.get(&grant.signer).is_some_and(|a| a.is_person());
            if !person && open.challenge.class != Class::Capture {
                return Err(Refusal::AlwaysNeedsPerson);
            }
        }
        Ok(self.0.remove(at))
    }
}
