//! How a request ended: stored, recalled, signed.

use crate::capability::Bytes;
use crate::guard::journal::{self, Finished, MAX_INLINE, StoredOutcome};
use crate::guard::store::{self, failed};
use crate::guard::{Guard, GuardError};
use hearth_shared::chain::Head;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::identity::Digest;
use hearth_shared::link::{Outcome, ResultFrame};
use hearth_shared::reading::RequestId;
use serde_json::json;

/// What the journal knows of a request.
#[derive(Debug)]
pub(crate) enum Recall {
    /// Nothing: it may go on.
    New,
    /// It finished; this is its stored outcome.
    Finished(Outcome, Vec<Bytes>),
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
