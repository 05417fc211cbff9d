//! Who may ask: Host, Origin, and the headers of proxies.
//!
//! A web page in the owner's browser can reach 127.0.0.1, and a name it controls can be made to resolve
//! there. So the Host must be one this hub is known by, and an upgrade or a POST that a page makes (it cannot
//! hide its Origin) must come from the hub's own page. What came through a proxy may come from anywhere and is
//! never taken for local.

use super::{Conn, error_body, is_mutation, is_upgrade, json_response};
use axum::body::Body;
use axum::http::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Request, Response, StatusCode};
use hearth_shared::link;
use std::net::IpAddr;

/// Headers that a proxy adds for the address it speaks for.
const FORWARDING: [&str; 9] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-forwarded-server",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
];

/// What the headers say about where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// From this machine, under a loopback name, by no page and no proxy.
    pub(crate) local_trust: bool,
}

/// Whether a path is that of node links.
pub(crate) fn is_link(path: &str) -> bool {
    path == link::PATH
}

/// Lets a request pass, or gives the refusal.
pub(crate) fn check<B>(request: &Request<B>, conn: &Conn) -> Result<Origin, Box<Response<Body>>> {
    let refuse =
        |status, kind, message: &str| Err(Box::new(json_response(status, &error_body(kind, message))));
    let headers = request.headers();
    let upgrade = is_upgrade(headers);
    let forwarded = FORWARDING.iter().any(|name| headers.contains_key(HeaderName::from_static(name)));
    // What opens or feeds a session: a socket, or a request that changes something.
    let session = upgrade || is_mutation(request.method());
    if session && forwarded {
        let message = "forwarding headers are not accepted: connect to the hub directly";
        return refuse(StatusCode::FORBIDDEN, "proxy_attribution_required", message);
    }
    // Nodes reach the hub under whatever address their setup code had; they pin its key instead.
    if upgrade && is_link(request.uri().path()) {
        return Ok(Origin { local_trust: false });
    }
    let Some(host) = host(headers) else {
        return refuse(StatusCode::BAD_REQUEST, "host_required", "the Host header is missing or malformed");
    };
    let Some(kind) = known_host(host.host(), conn) else {
        let message = "this hub is not known by that name; add it to `gateway.hosts`";
        return refuse(StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", message);
    };
    let origin = headers.get(ORIGIN);
    if let (true, Some(origin)) = (session, origin) {
        let scheme = if conn.exporter.is_some() { "https" } else { "http" };
        if !origin.to_str().is_ok_and(|o| same_origin(o, scheme, &host)) {
            let message = "a page of another origin may not connect";
            return refuse(StatusCode::FORBIDDEN, "origin_not_allowed", message);
        }
    }
    let local_trust =
        conn.peer.ip().is_loopback() && kind == Known::Loopback && origin.is_none() && !forwarded;
    Ok(Origin { local_trust })
}

/// Exactly one well-formed Host.
fn host(headers: &HeaderMap) -> Option<Authority> {
    let mut all = headers.get_all(HOST).iter();
    let host: Authority = all.next()?.to_str().ok()?.parse().ok()?;
    (all.next().is_none() && !host.as_str().contains('@')).then_some(host)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Loopback,
    Other,
}

fn known_host(host: &str, conn: &Conn) -> Option<Known> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        let ip = ip.to_canonical();
        return if ip.is_loopback() {
            Some(Known::Loopback)
        } else if ip == conn.local.ip().to_canonical() || conn.gateway.listens_on(ip) {
            Some(Known::Other)
        } else {
            None
        };
    }
    let bare = bare.trim_end_matches('.');
    if bare.eq_ignore_ascii_case("localhost") {
        return Some(Known::Loopback);
    }
    conn.gateway.hub.cert.host_names().iter().any(|n| n.eq_ignore_ascii_case(bare)).then_some(Known::Other)
}

/// Exact scheme, host and port; the default port may be left out on either side.
fn same_origin(origin: &str, scheme: &str, host: &Authority) -> bool {
    let Some((its_scheme, rest)) = origin.split_once("://") else { return false };
    let Ok(authority) = rest.parse::<Authority>() else { return false };
    let default = if scheme == "https" { 443 } else { 80 };
    its_scheme == scheme
        && authority.host().eq_ignore_ascii_case(host.host())
        && authority.port_u16().unwrap_or(default) == host.port_u16().unwrap_or(default)
        && !rest.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_must_match_exactly() {
        let host: Authority = "localhost:18789".parse().unwrap();
        assert!(same_origin("http://localhost:18789", "http", &host));
        for other in [
            "null",
            "https://localhost:18789",
            "http://localhost",
            "http://localhost:18790",
            "http://localhost.evil.example:18789",
            "http://localhost:18789@evil.example",
            "http://user@localhost:18789",
            "",
        ] {
            assert!(!same_origin(other, "http", &host), "{other}");
        }
        let plain: Authority = "hub.example".parse().unwrap();
        assert!(same_origin("https://hub.example:443", "https", &plain));
    }
}
