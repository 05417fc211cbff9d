//! The steps of one request over the guard's parts. The dispatcher calls them in order; each is one
//! commit at most.

use super::always::{self, StoredRule};
use super::challenge::OpenChallenge;
use super::journal::{self, Finished, MAX_INLINE, StoredOutcome};
use super::policy::Verdict;
use super::store::{self, Store, USES, failed};
use super::uses::Counter;
use super::{Guard, GuardError, clock};
use crate::capability::{Bytes, Prepared};
use hearth_shared::chain::Head;
use hearth_shared::challenge::{AlwaysRule, Challenge, SignedChallenge, VERSION};
use hearth_shared::command::{Class, Invocation, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::{Decision, Grant};
use hearth_shared::identity::{Digest, Nonce};
use hearth_shared::limits::CHALLENGE_VALID_MS;
use hearth_shared::link::{Invoke, Outcome, ResultFrame};
use hearth_shared::reading::RequestId;
use serde_json::json;
use std::sync::PoisonError;

/// What the journal knows of a request.
#[derive(Debug)]
pub(crate) enum Recall {
    /// Nothing: it may go on.
    New,
    /// It finished; this is its stored outcome.
    Finished(Outcome, Vec<Bytes>),
}

/// On whose word a request starts.
#[derive(Debug, Clone)]
pub(crate) enum Authority {
    /// A rule allows it.
    Policy,
    /// A stored always-rule.
    Always { number: u64, need: Need },
    /// A grant over a challenge.
    Grant { grant: Box<Grant>, need: Need, remember: Option<Box<AlwaysRule>> },
}

/// What the rules say of a prepared request.
#[derive(Debug)]
pub(crate) enum Ruling {
    /// Go on.
    Run(Authority),
    /// Somebody must say yes.
    Ask { need: Need, rule: String },
}

/// Hash of a command and its complete parameters: what makes a request the same request.
pub(crate) fn fingerprint(invocation: &Invocation) -> Digest {
    Digest::of(format!("{}\0{}", invocation.name(), invocation.params_json()).as_bytes())
}

pub(super) fn stored_uses(store: &Store) -> Result<Vec<(Digest, Counter)>, GuardError> {
    let table = store.read()?.open_table(USES).map_err(failed)?;
    let all = table.range::<&[u8]>(..).map_err(failed)?;
    all.map(|item| {
        let (key, value) = item.map_err(failed)?;
        let key = key.value().try_into().map_err(|_| store::damaged("counter"))?;
        Ok((Digest(key), store::decode(value.value(), "counter")?))
    })
    .collect()
}

impl From<GuardError> for CommandError {
    fn from(error: GuardError) -> Self {
        Self::new(ErrorCode::Internal, error.to_string())
    }
}

impl Guard {
    /// Looks a request up. A fingerprint that differs from the journal's is another command under the
    /// same id.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for another command, `OUTCOME_UNKNOWN` when it only started, `NOT_FOUND` when its
    /// result is no longer kept.
    pub(crate) fn recall(
        &self,
        request: &RequestId,
        fingerprint: Option<&Digest>,
    ) -> Result<Recall, CommandError> {
        let Some(entry) = journal::lookup(&self.store, request)? else { return Ok(Recall::New) };
        if fingerprint.is_some_and(|f| *f != entry.fingerprint) {
            return Err(CommandError::new(
                ErrorCode::InvalidParams,
                format!("request {request} was used for another command or other parameters; use a new id"),
            ));
        }
        let Some(Finished { outcome, attachments }) = entry.finished else {
            return Err(CommandError::new(
                ErrorCode::OutcomeUnknown,
                "it was started, then the node stopped; whether it had its effect is not known. \
                 Look at the board, then ask anew if it is still wanted",
            ));
        };
        let gone = || {
            CommandError::new(
                ErrorCode::NotFound,
                "it finished, but its result is no longer kept on the node; ask anew",
            )
        };
        let outcome = match outcome {
            StoredOutcome::Inline(outcome) => outcome,
            StoredOutcome::File(file) => {
                let bytes = self.kept.load(&file).ok_or_else(gone)?;
                postcard::from_bytes(&bytes).map_err(|_| gone())?
            }
        };
        let attachments = attachments
            .into_iter()
            .map(|file| self.kept.load(&file).map(|data| Bytes { mime: file.mime, data }).ok_or_else(gone))
            .collect::<Result<_, _>>()?;
        Ok(Recall::Finished(outcome, attachments))
    }

    /// Asks policy and always-rules.
    ///
    /// # Errors
    /// `DENIED` or `RATE_LIMITED` with the rule; `NOBODY_TO_ASK` when no approver on the node's list could
    /// say yes.
    pub(crate) fn rule(
        &self,
        invocation: &Invocation,
        raise: Need,
        prepared: &Prepared,
    ) -> Result<Ruling, CommandError> {
        let (need, rule) = self.demand(invocation, raise)?;
        if need == Need::None {
            return Ok(Ruling::Run(Authority::Policy));
        }
        let approvers = self.approvers();
        let asked = AlwaysRule {
            command: invocation.name().to_owned(),
            params: invocation.params_json(),
            facts: prepared.facts.clone(),
        };
        if prepared.always_possible
            && let Some(found) =
                always::list(&self.store)?.into_iter().find(|r| r.answers(&asked, need, &approvers))
        {
            return Ok(Ruling::Run(Authority::Always { number: found.number, need: found.need }));
        }
        let able = approvers.approvers.iter().any(|a| need == Need::Hub || a.is_person());
        if !able {
            return Err(CommandError::new(
                ErrorCode::NobodyToAsk,
                format!(
                    "it needs `{}`, and no approver on this node's list can give it ({rule}); \
                     see `hearth-node approvers`",
                    need.as_str()
                ),
            ));
        }
        Ok(Ruling::Ask { need, rule })
    }

    /// The need of a command under policy and the hub's own wish, and the rule it comes from.
    fn demand(&self, invocation: &Invocation, raise: Need) -> Result<(Need, String), CommandError> {
        let (need, rule) = match self.judge(invocation).verdict {
            Verdict::Allow { rule } => (Need::None, rule),
            Verdict::Ask { need, rule } => (need, rule),
            Verdict::Deny { code, rule } => {
                return Err(CommandError::new(code, format!("refused by {rule}")));
            }
        };
        if raise > need {
            return Ok((raise, format!("the hub's own rules ask for `{}` here; {rule}", raise.as_str())));
        }
        Ok((need, rule))
    }

    /// Notes a request that was refused or must be asked for, and gives the head that covers it.
    pub(crate) fn note(&self, kind: &str, invoke: &Invoke, why: &serde_json::Value) -> Head {
        let body = json!({
            "request": invoke.request,
            "command": hearth_shared::identity::display_safe(&invoke.command, 64),
            "params": Digest::of(invoke.params.as_bytes()),
            "hub": invoke.head,
            "why": why,
        });
        self.audit(kind, body).unwrap_or_else(|error| {
            tracing::error!(%error, kind, "the audit log cannot be written");
            self.head()
        })
    }

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

    /// Commits that a request starts: the journal, the counted use, a remembered "always" and the audit
    /// record, all or nothing. When this returns, the effect may begin.
    ///
    /// # Errors
    /// When the rules no longer carry it, the request is known already, or the disk does not take it;
    /// then nothing may begin.
    pub(crate) fn begin(
        &self,
        invoke: &Invoke,
        fingerprint: Digest,
        invocation: &Invocation,
        authority: &Authority,
    ) -> Result<(), CommandError> {
        let request = invoke.request;
        let begun = self.commit(
            |change| {
                // Under the write lock, so that two requests cannot share a rule's last use.
                let judgement = self.judge(invocation);
                self.still_carried(&judgement.verdict, invoke.raise, authority)?;
                let now_ms = self.clock.powered_ms();
                if !journal::start(change.txn, &request, fingerprint, now_ms)? {
                    return Err(GuardError::Refused(format!("request {request} was started before")));
                }
                let used = match judgement.counts {
                    Some(key) => {
                        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
                        let counter = uses.after_use(&key, now_ms);
                        let mut table = change.txn.open_table(USES).map_err(failed)?;
                        let bytes = store::encode(&counter)?;
                        table.insert(key.0.as_slice(), bytes.as_slice()).map_err(failed)?;
                        Some((key, counter))
                    }
                    None => None,
                };
                let by = match authority {
                    Authority::Policy => json!({ "policy": self.policy().digest() }),
                    Authority::Always { number, .. } => json!({ "always": number }),
                    Authority::Grant { grant, need, remember } => {
                        change.audit("grant.accepted", &grant_body(&request, grant))?;
                        if let Some(rule) = remember {
                            let number = always::store(
                                change.txn,
                                StoredRule {
                                    number: 0,
                                    rule: (**rule).clone(),
                                    need: *need,
                                    signer: grant.signer,
                                    at_ms: clock::wall_ms(),
                                },
                            )?;
                            change
                                .audit("always.stored", &json!({ "number": number, "request": request }))?;
                        }
                        json!({ "grant": grant.challenge })
                    }
                };
                change.audit(
                    "request.started",
                    &json!({
                        "request": request,
                        "command": invocation.name(),
                        "params": fingerprint,
                        "target": invocation.target().map(|t| t.to_string()),
                        "by": by,
                        "hub": invoke.head,
                    }),
                )?;
                Ok(used)
            },
            |_, used| {
                if let Some((key, counter)) = used {
                    let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
                    uses.put(*key, counter.clone());
                }
            },
        );
        begun.map(drop).map_err(|error| match error {
            GuardError::Refused(why) => CommandError::new(ErrorCode::GrantRefused, why),
            GuardError::Limited(why) => CommandError::new(ErrorCode::RateLimited, why),
            GuardError::Policy(why) => CommandError::new(ErrorCode::Denied, why),
            other => CommandError::new(ErrorCode::Internal, format!("{other}; nothing was done")),
        })
    }

    /// Whether the rules as they are at the start still let `authority` carry the request.
    fn still_carried(&self, verdict: &Verdict, raise: Need, authority: &Authority) -> Result<(), GuardError> {
        let need = match verdict {
            Verdict::Deny { code: ErrorCode::RateLimited, rule } => {
                return Err(GuardError::Limited(format!("refused by {rule}")));
            }
            Verdict::Deny { rule, .. } => return Err(GuardError::Policy(format!("refused by {rule}"))),
            Verdict::Allow { .. } => raise,
            Verdict::Ask { need, .. } => (*need).max(raise),
        };
        let approvers = self.approvers();
        let carries = match authority {
            Authority::Policy => Need::None,
            Authority::Always { need, .. } => *need,
            Authority::Grant { grant, need, .. } if approvers.get(&grant.signer).is_some() => *need,
            Authority::Grant { .. } => Need::None,
        };
        if need > carries {
            return Err(GuardError::Refused(format!(
                "it needs `{}` by now; open the request again",
                need.as_str()
            )));
        }
        Ok(())
    }

    /// Commits how a request ended.
    pub(crate) fn finish(
        &self,
        request: &RequestId,
        outcome: &Outcome,
        attachments: &[Bytes],
        elapsed_ms: u64,
    ) -> Head {
        let finished = self.store_outcome(request, outcome, attachments);
        let encoded = postcard::to_allocvec(outcome).unwrap_or_default();
        let stored = finished.and_then(|finished| {
            self.commit(
                |change| {
                    journal::finish(change.txn, request, finished)?;
                    change.audit(
                        "request.finished",
                        &json!({
                            "request": request,
                            "code": match outcome {
                                Outcome::Failed(error) => error.code.as_str(),
                                _ => "OK",
                            },
                            "outcome": Digest::of(&encoded),
                            "attachments": attachments.iter().map(|a| Digest::of(&a.data)).collect::<Vec<_>>(),
                            "ms": elapsed_ms,
                        }),
                    )
                },
                |_, ()| (),
            )
        });
        if let Err(error) = stored {
            // The effect happened and the hub hears of it; asked again, the node will say that it
            // does not know.
            tracing::error!(%error, %request, "a result could not be stored");
        }
        self.head()
    }

    fn store_outcome(
        &self,
        request: &RequestId,
        outcome: &Outcome,
        attachments: &[Bytes],
    ) -> Result<Finished, GuardError> {
        let encoded = store::encode(outcome)?;
        let save = |mime: &str, bytes: &[u8]| {
            self.kept.save(request, mime, bytes).map_err(|e| failed(format!("cannot keep a result: {e}")))
        };
        let outcome = if encoded.len() <= MAX_INLINE {
            StoredOutcome::Inline(outcome.clone())
        } else {
            StoredOutcome::File(save("", &encoded)?)
        };
        let attachments = attachments.iter().map(|a| save(&a.mime, &a.data)).collect::<Result<_, _>>()?;
        Ok(Finished { outcome, attachments })
    }

    /// Drops the open challenge of a request that was withdrawn; true when there was one.
    pub(crate) fn withdraw(&self, request: &RequestId) -> bool {
        self.challenges().drop_request(request)
    }

    /// Signs an outcome.
    pub(crate) fn receipt(
        &self,
        request: RequestId,
        outcome: Outcome,
        attachments: u32,
        head: Head,
    ) -> ResultFrame {
        ResultFrame::sign(&self.key, request, outcome, attachments, head)
    }
}

fn grant_body(request: &RequestId, grant: &Grant) -> serde_json::Value {
    json!({
        "request": request,
        "signer": grant.signer,
        "decision": grant.decision,
        "challenge": grant.challenge,
        "signedAtMs": grant.signed_at_ms,
    })
}
