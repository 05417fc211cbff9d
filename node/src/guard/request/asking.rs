//! Asking a person: the challenge, and the grant that answers it.

use super::grant_body;
use crate::capability::Prepared;
use crate::guard::Guard;
use crate::guard::challenge::OpenChallenge;
use crate::guard::journal::{self, Finished, StoredOutcome};
use hearth_shared::chain::Head;
use hearth_shared::challenge::{AlwaysRule, Challenge, SignedChallenge, VERSION};
use hearth_shared::command::{Class, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::{Digest, Nonce};
use hearth_shared::limits::CHALLENGE_VALID_MS;
use hearth_shared::link::{Invoke, Outcome};
use hearth_shared::reading::RequestId;
use serde_json::json;

impl Guard {
    /// Makes, signs and keeps a challenge.
    ///
    /// # Errors
    /// `BUSY` when eight are open; `TOO_LARGE` when it cannot be shown; otherwise as [`Guard::rule`].
    pub(crate) fn issue(
        &self,
        invoke: Invoke,
        fingerprint: Digest,
        prepared: Prepared,
    ) -> Result<SignedChallenge, CommandError> {
        let invocation = prepared.invocation;
        // What needs nobody's yes by now is still asked for: somebody is looking at the card.
        let (need, _) = self.demand(&invocation, invoke.raise.max(Need::Hub))?;
        let view = self.view();
        let hub = view.hub.ok_or_else(|| {
            CommandError::new(ErrorCode::NobodyToAsk, "this node is not paired; run `hearth-node pair`")
        })?;
        let class = invocation.class();
        let params = invocation.params_json();
        // The hub's key may store "always" for pictures only; without a person's key nobody else could.
        let anyone = class == Class::Capture || view.approvers.approvers.iter().any(|a| a.is_person());
        let always = (prepared.always_possible && anyone).then(|| AlwaysRule {
            command: invocation.name().to_owned(),
            params: params.clone(),
            facts: prepared.facts.clone(),
        });
        let challenge = Challenge {
            v: VERSION,
            hub,
            node: self.key.device_id(),
            name: view.name,
            request: invoke.request,
            boot: self.boot,
            nonce: Nonce::fresh().map_err(|e| CommandError::new(ErrorCode::Internal, e.to_string()))?,
            policy: view.policy.digest(),
            class,
            need,
            command: invocation.name().to_owned(),
            params,
            facts: prepared.facts,
            always,
            valid_ms: CHALLENGE_VALID_MS,
        };
        let signed = SignedChallenge::issue(&challenge, &self.key).map_err(|e| {
            CommandError::new(ErrorCode::TooLarge, format!("{e}: too long for a person to read; shorten it"))
        })?;
        let full = |_| {
            CommandError::new(
                ErrorCode::Busy,
                "eight approvals are open on this node; decide one, or wait a minute",
            )
        };
        self.challenges().check_room(&invoke.request, self.clock.since_start_ms()).map_err(full)?;
        self.audit(
            "challenge.issued",
            json!({
                "request": invoke.request,
                "command": challenge.command,
                "need": need,
                "challenge": signed.digest(),
                "hub": invoke.head,
            }),
        )?;
        // The minute begins when the challenge is ready to leave, not before the disk was slow.
        let now_ms = self.clock.since_start_ms();
        let open = OpenChallenge {
            expires_ms: now_ms + u64::from(CHALLENGE_VALID_MS),
            challenge,
            digest: signed.digest(),
            invocation,
            fingerprint,
            invoke,
        };
        self.challenges().put(open, now_ms).map_err(full)?;
        Ok(signed)
    }

    /// Checks a grant and takes its challenge out; see `challenge::Challenges::claim`.
    ///
    /// # Errors
    /// `GRANT_REFUSED` with the reason.
    pub(crate) fn claim(&self, request: &RequestId, grant: &Grant) -> Result<OpenChallenge, CommandError> {
        let view = self.view();
        let now_ms = self.clock.since_start_ms();
        let claimed = self.challenges().claim(
            request,
            grant,
            &self.boot,
            now_ms,
            &view.policy.digest(),
            &view.approvers,
        );
        claimed.map_err(|why| self.refuse_grant(request, grant, &why.to_string()))
    }

    /// Notes why a grant did not hold.
    pub(crate) fn refuse_grant(&self, request: &RequestId, grant: &Grant, why: &str) -> CommandError {
        let body = json!({
            "request": request,
            "signer": grant.signer,
            "decision": grant.decision,
            "challenge": grant.challenge,
            "why": why,
        });
        if let Err(error) = self.audit("grant.refused", body) {
            tracing::error!(%error, "the audit log cannot be written");
        }
        CommandError::new(ErrorCode::GrantRefused, why)
    }

    /// Whether the board still comes to what was shown.
    ///
    /// # Errors
    /// `GRANT_REFUSED` when it does not.
    pub(crate) fn same_facts(
        &self,
        open: &OpenChallenge,
        grant: &Grant,
        prepared: &Prepared,
    ) -> Result<(), CommandError> {
        let always_lost = grant.decision == Decision::AllowAlways && !prepared.always_possible;
        if prepared.facts == open.challenge.facts && prepared.invocation == open.invocation && !always_lost {
            return Ok(());
        }
        let why =
            "what the command comes to on this board changed since it was shown; open the request again";
        Err(self.refuse_grant(&open.challenge.request, grant, why))
    }

    /// A person said no: the request is finished with `APPROVAL_DENIED`.
    pub(crate) fn deny(&self, open: &OpenChallenge, grant: &Grant) -> (Outcome, Head) {
        let outcome = Outcome::Failed(CommandError::new(
            ErrorCode::ApprovalDenied,
            format!("approver {} said no", grant.signer.short()),
        ));
        let request = open.challenge.request;
        let stored = self.commit(
            |change| {
                journal::start(change.txn, &request, open.fingerprint, self.clock.powered_ms())?;
                let finished =
                    Finished { outcome: StoredOutcome::Inline(outcome.clone()), attachments: Vec::new() };
                journal::finish(change.txn, &request, finished)?;
                change.audit("grant.denied", &grant_body(&request, grant))
            },
            |_, ()| (),
        );
        if let Err(error) = stored {
            tracing::error!(%error, %request, "a denial could not be stored; its challenge is void all the same");
        }
        (outcome, self.head())
    }

    /// Drops the open challenge of a request that was withdrawn; true when there was one.
    pub(crate) fn withdraw(&self, request: &RequestId) -> bool {
        self.challenges().drop_request(request)
    }
}
