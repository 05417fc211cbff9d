//! The walk over the whole log.

use super::{AuditReport, HeldHead, NodeHead, heads, records_in};
use crate::store::{Store, StoreError};
use hearth_shared::chain::Verifier;

/// Records a step: the database thread serves others between two steps.
const STEP: usize = 500;

pub(super) async fn verify(store: &Store) -> Result<AuditReport, StoreError> {
    let (held, nodes) = store.read(|c| Ok((heads::held(c)?, heads::nodes(c)?))).await?;
    let mut verifier = Verifier::default();
    let mut records = 0;
    let mut fault = None;
    'walk: loop {
        let after = verifier.head().seq;
        let step = match store.read(move |c| records_in(c, after, STEP)).await {
            Ok(step) => step,
            // A hash that is no hash, for example: somebody wrote into the file.
            Err(StoreError::Sqlite(
                error @ (rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)),
            )) => {
                fault = Some(format!("a record after {after} cannot be read: {error}"));
                break;
            }
            Err(error) => return Err(error),
        };
        if step.is_empty() {
            break;
        }
        for record in &step {
            records += 1;
            if let Err(error) = verifier.check(record) {
                fault = Some(error.to_string());
                break 'walk;
            }
        }
    }
    let head = verifier.head();
    let mut holders = Vec::with_capacity(held.len());
    for (holder, held_head) in held {
        let fault = store.read(move |c| heads::compare(c, held_head)).await?;
        holders.push(HeldHead { holder, head: held_head, fault });
    }
    let anchored = holders.iter().filter(|h| h.fault.is_none()).map(|h| h.head.seq).max().unwrap_or(0);
    let nodes = nodes.into_iter().map(|(node, head, fault)| NodeHead { node, head, fault }).collect();
    Ok(AuditReport { records, head, fault, nodes, holders, unanchored: head.seq.saturating_sub(anchored) })
}
