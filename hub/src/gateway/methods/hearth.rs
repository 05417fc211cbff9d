//! `hearth.*`: what our own programs need beyond the protocol: pairing windows, links for pages, the audit log,
//! readings, pictures, approvers, what is kept, chat channels.

mod audit;
mod cert;
mod channels;
mod notify;
mod page;
mod pairing;
mod people;
mod readings;

use super::Method;

pub(super) const METHODS: &[Method] = &[
    pairing::OPEN,
    pairing::CLOSE,
    pairing::STATUS,
    pairing::REVOKE,
    page::LINK,
    page::PICTURES,
    audit::LIST,
    audit::VERIFY,
    audit::COMPARE,
    audit::HELD,
    readings::STATS,
    readings::SERIES,
    readings::PAGE,
    readings::SENSORS,
    readings::USAGE,
    cert::STATUS,
    cert::RENEW,
    notify::STATUS,
    notify::TEST,
    people::KNOWN,
    people::ADD,
    people::REMOVE,
    people::LIST,
    people::CHANGE,
    people::ACTION,
    people::CANCEL,
    channels::LIST,
    channels::TEST,
    channels::ALLOW,
    channels::REMOVE,
];
