//! `hearth.*`: what our own programs need beyond the protocol: pairing windows, the audit log, readings,
//! approvers, what is kept.

mod audit;
mod cert;
mod pairing;
mod people;
mod readings;

use super::Method;

pub(super) const METHODS: &[Method] = &[
    pairing::OPEN,
    pairing::CLOSE,
    pairing::STATUS,
    pairing::REVOKE,
    audit::LIST,
    audit::VERIFY,
    audit::COMPARE,
    audit::HELD,
    readings::STATS,
    readings::SERIES,
    readings::SENSORS,
    readings::USAGE,
    cert::STATUS,
    cert::RENEW,
    people::KNOWN,
    people::ADD,
    people::REMOVE,
    people::LIST,
    people::CHANGE,
    people::ACTION,
    people::CANCEL,
];
