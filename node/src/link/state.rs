//! When to try again: pure, time and randomness come from outside.

use hearth_shared::backoff::Backoff;
use hearth_shared::limits::BACKOFF_CAP_MS;
use hearth_shared::link::{Refused, RefusedCode};
use std::time::Duration;

/// Why a connection, or an attempt at one, ended. One line for people each, with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// No TCP connection.
    #[error("cannot reach the hub at {address}: {why}; check that it runs and that the address is right")]
    Unreachable { address: String, why: String },
    /// TLS works, with another key than the pinned one.
    #[error(
        "{address} shows another TLS key than the paired hub; it is another machine, or somebody is in between: \
         pair again only if you changed the hub"
    )]
    WrongKey { address: String },
    /// No TLS or no WebSocket with our sub-protocol.
    #[error("{address} does not answer as a Hearth hub: {why}")]
    NotAHub { address: String, why: String },
    /// The hello names another identity than the paired one.
    #[error("the hub has another identity than the one this node is paired with; nothing was sent to it")]
    WrongHub,
    /// The hub did not prove its identity.
    #[error("the hub could not prove its identity (its signature does not verify)")]
    BadSignature,
    /// No common version.
    #[error("the hub speaks link versions {min} to {max}, this node {ours}; update the older of the two")]
    Version { min: u16, max: u16, ours: String },
    /// The hub said no.
    #[error("refused by the hub: {}", hearth_shared::identity::display_safe(&.0.message, 300))]
    Refused(Refused),
    /// The hub stops.
    #[error("the hub said goodbye: {}", hearth_shared::identity::display_safe(.0, 200))]
    Goodbye(String),
    /// Nothing was heard for two heartbeats.
    #[error("heartbeat timeout: the hub was silent for {0} ms")]
    Silent(u64),
    /// The other side took too long.
    #[error("the hub did not answer in time ({0})")]
    Deadline(&'static str),
    /// The connection broke.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The hub sent something that does not belong here.
    #[error("link protocol: {0}")]
    Protocol(String),
    /// The person said no, or this program stops.
    #[error("stopped")]
    Stopped,
}

/// Reconnect state.
#[derive(Debug, Clone)]
pub struct Machine {
    backoff: Backoff,
    addresses: usize,
    preferred: usize,
}

impl Machine {
    /// For a hub with this many addresses.
    #[must_use]
    pub fn new(addresses: usize) -> Self {
        Self { backoff: Backoff::default(), addresses, preferred: 0 }
    }

    /// The order in which to try addresses: the one that worked last, then the others.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let rest = (0..self.addresses).filter(|i| *i != self.preferred);
        std::iter::once(self.preferred).chain(rest).collect()
    }

    /// This address worked.
    pub fn connected(&mut self, address: usize) {
        self.preferred = address;
    }

    /// How long to wait. `lived_ms`: how long the connection was up, 0 for an
    /// attempt that failed; `random`: any number.
    pub fn ended(&mut self, end: &End, lived_ms: u64, random: u64) -> Duration {
        self.backoff.connection_ended(lived_ms);
        let jittered = self.backoff.next_delay_ms(random);
        // Where only a person can change the answer, asking often helps nobody.
        let patient = BACKOFF_CAP_MS / 2 + random % (BACKOFF_CAP_MS / 2 + 1);
        let ms = match end {
            End::Refused(refused) => {
                let wait = match refused.code {
                    RefusedCode::Duplicate | RefusedCode::RateLimited | RefusedCode::TooManyPending => {
                        jittered
                    }
                    // A proof that failed once may fail by a race with the hub's restart.
                    RefusedCode::Signature | RefusedCode::Protocol => jittered,
                    RefusedCode::Version
                    | RefusedCode::NotPaired
                    | RefusedCode::PairingClosed
                    | RefusedCode::BadCode
                    | RefusedCode::Rejected
                    | RefusedCode::Revoked
                    | RefusedCode::BadDeclaration
                    | RefusedCode::WrongKind => patient,
                };
                // Never sooner than told, with jitter on top; and never so late that a mistaken hub could
                // send a node away for good.
                wait.max(refused.retry_after_ms.saturating_add(jittered)).min(2 * BACKOFF_CAP_MS)
            }
            End::WrongKey { .. } | End::WrongHub | End::BadSignature | End::Version { .. } => patient,
            _ => jittered,
        };
        Duration::from_millis(ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: RefusedCode, retry_after_ms: u64) -> End {
        End::Refused(Refused { code, message: "no".into(), retry_after_ms })
    }

    #[test]
    fn a_lost_connection_backs_off_with_full_jitter_and_health_resets_it() {
        let lost = End::Lost("x".into());
        let mut machine = Machine::new(1);
        for ceiling in [1_000, 2_000, 4_000, 8_000] {
            let mut twin = machine.clone();
            assert_eq!(twin.ended(&lost, 0, ceiling), Duration::from_millis(ceiling), "up to the ceiling");
            assert_eq!(machine.ended(&lost, 0, 0), Duration::ZERO, "down to nothing");
        }
        assert_eq!(machine.ended(&lost, 60_000, 1_000), Duration::from_millis(1_000), "healthy: afresh");
    }

    #[test]
    fn where_a_person_must_act_the_node_waits_long_but_not_for_ever() {
        for code in
            [RefusedCode::NotPaired, RefusedCode::Revoked, RefusedCode::WrongKind, RefusedCode::Version]
        {
            for random in [0, 7, u64::MAX] {
                let wait = Machine::new(1).ended(&refused(code, 0), 5, random);
                assert!((150_000..=300_000).contains(&(wait.as_millis() as u64)), "{code:?} {wait:?}");
            }
        }
    }

    #[test]
    fn retry_after_is_obeyed_and_bounded() {
        let wait = Machine::new(1).ended(&refused(RefusedCode::RateLimited, 20_000), 5, 0);
        assert_eq!(wait, Duration::from_secs(20));
        let wait = Machine::new(1).ended(&refused(RefusedCode::RateLimited, u64::MAX), 5, 0);
        assert_eq!(wait, Duration::from_millis(2 * BACKOFF_CAP_MS));
        let wait = Machine::new(1).ended(&refused(RefusedCode::Duplicate, 0), 5, 500);
        assert_eq!(wait, Duration::from_millis(500), "our own half-open connection is gone soon");
    }

    #[test]
    fn the_address_that_worked_is_tried_first() {
        let mut machine = Machine::new(3);
        assert_eq!(machine.order(), [0, 1, 2]);
        machine.connected(2);
        assert_eq!(machine.order(), [2, 0, 1]);
    }

    #[test]
    fn what_the_hub_says_cannot_fake_a_terminal_line() {
        let end = refused(RefusedCode::Rejected, 0);
        assert!(end.to_string().contains("refused by the hub"));
        let evil = End::Goodbye("x\u{1b}[2J\n".into());
        assert!(!evil.to_string().contains('\u{1b}'));
    }
}
