//! The hash chain of the audit logs.
//!
//! A record's hash covers all its fields and the hash before it:
//! `SHA-256("hearth-audit-v1\0" ‖ seq u64 ‖ at_ms u64 ‖ len(kind) u32 ‖ kind ‖ len(body) u32 ‖ body ‖ prev32)`,
//! integers big-endian. Changing, removing or inserting a record breaks every later hash; a tail that
//! was cut shows against a [`Head`] that the other side holds.

use crate::identity::Digest;
use serde::{Deserialize, Serialize};

const DOMAIN: &[u8] = b"hearth-audit-v1\0";

/// One line of an audit log. Secrets stand in it as digests only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// From 1, without gaps.
    pub seq: u64,
    /// Unix milliseconds by the writer's clock; a node's may be wrong, the order never is.
    pub at_ms: u64,
    /// What happened, for example `grant.accepted`.
    pub kind: String,
    /// Details as JSON text.
    pub body: String,
    /// Hash of the record before; zeros for the first.
    pub prev: Digest,
    /// Hash of this one.
    pub hash: Digest,
}

/// The end of a chain: what one side tells the other so that a cut tail shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// Number of the last record; 0 when there is none.
    pub seq: u64,
    /// Its hash; zeros when there is none.
    pub hash: Digest,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: 0, hash: Digest([0; 32]) }
    }
}

impl Head {
    /// The record that follows this head.
    #[must_use]
    pub fn next(&self, at_ms: u64, kind: &str, body: String) -> Record {
        let mut record = Record {
            seq: self.seq + 1,
            at_ms,
            kind: kind.into(),
            body,
            prev: self.hash,
            hash: Digest([0; 32]),
        };
        record.hash = record.compute_hash();
        record
    }
}

impl Record {
    fn compute_hash(&self) -> Digest {
        let mut bytes = Vec::with_capacity(128 + self.kind.len() + self.body.len());
        bytes.extend(DOMAIN);
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.at_ms.to_be_bytes());
        for text in [&self.kind, &self.body] {
            bytes.extend((text.len() as u32).to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend(self.prev.0);
        Digest::of(&bytes)
    }

    /// The head after this record.
    #[must_use]
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash }
    }
}

/// Where a chain breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// A number is missing or doubled.
    #[error("record {expected} is missing (found {found})")]
    Gap { expected: u64, found: u64 },
    /// The link to the record before does not fit.
    #[error("record {seq} does not follow the one before it")]
    Broken { seq: u64 },
    /// The record was changed.
    #[error("record {seq} was changed: its hash does not fit")]
    Changed { seq: u64 },
}

/// Walks a chain record by record.
#[derive(Debug, Default)]
pub struct Verifier {
    head: Head,
}

impl Verifier {
    /// Starts after `head`, which was verified before.
    #[must_use]
    pub fn after(head: Head) -> Self {
        Self { head }
    }

    /// Checks the next record.
    ///
    /// # Errors
    /// The first fault found; the walk should end there.
    pub fn check(&mut self, record: &Record) -> Result<(), ChainError> {
        let expected = self.head.seq + 1;
        if record.seq != expected {
            return Err(ChainError::Gap { expected, found: record.seq });
        }
        if record.prev != self.head.hash {
            return Err(ChainError::Broken { seq: record.seq });
        }
        if record.hash != record.compute_hash() {
            return Err(ChainError::Changed { seq: record.seq });
        }
        self.head = record.head();
        Ok(())
    }

    /// The head so far.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Vec<Record> {
        let mut head = Head::default();
        (0..5u64)
            .map(|i| {
                let record = head.next(i, "test", format!("{{\"i\":{i}}}"));
                head = record.head();
                record
            })
            .collect()
    }

    fn verify(records: &[Record]) -> Result<Head, ChainError> {
        let mut verifier = Verifier::default();
        for record in records {
            verifier.check(record)?;
        }
        Ok(verifier.head())
    }

    #[test]
    fn whole_chain_verifies_and_every_change_shows() {
        let good = chain();
        assert_eq!(verify(&good), Ok(good[4].head()));
        for i in 0..5 {
            let changes: [fn(&mut Record); 5] = [
                |r| r.at_ms += 1,
                |r| r.kind.push('x'),
                |r| r.body.push(' '),
                |r| r.prev.0[0] ^= 1,
                |r| r.hash.0[0] ^= 1,
            ];
            for change in changes {
                let mut bad = good.clone();
                change(&mut bad[i]);
                assert!(verify(&bad).is_err());
            }
        }
        let mut cut = good.clone();
        cut.remove(2);
        assert_eq!(verify(&cut), Err(ChainError::Gap { expected: 3, found: 4 }));
    }

    #[test]
    fn moving_bytes_between_kind_and_body_changes_the_hash() {
        let head = Head::default();
        assert_ne!(head.next(0, "ab", "c".into()).hash, head.next(0, "a", "bc".into()).hash);
    }
}
