//! The steps of one request over the guard's parts. The dispatcher calls them in order; each is one
//! commit at most.

mod asking;
mod outcome;

pub(crate) use outcome::Recall;

use super::always::{self, StoredRule};
use super::policy::Verdict;
use super::store::{self, Store, USES, failed};
use super::uses::Counter;
use super::{Guard, GuardError, clock, journal};
use crate::capability::Prepared;
use hearth_shared::chain::Head;
use hearth_shared::challenge::AlwaysRule;
use hearth_shared::command::{Invocation, Need};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::grant::Grant;
use hearth_shared::identity::Digest;
use hearth_shared::link::Invoke;
use hearth_shared::reading::RequestId;
use serde_json::json;
use std::sync::PoisonError;

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
