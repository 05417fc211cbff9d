//! Below `/trust`, the page that leads through trusting the hub's authority: what it tells, and the files to install.
//!
//! All of it is public: whoever opens it has no secret yet, and a certificate is none.

use super::{Conn, json_response};
use crate::cert::profile;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::routing::get;
use serde_json::json;

pub(super) fn routes() -> Router<Conn> {
    Router::new()
        .route("/trust/authority.json", get(describe))
        .route("/trust/hearth-authority.crt", get(certificate))
        .route("/trust/hearth-authority.mobileconfig", get(mobileconfig))
}

fn file(mime: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    response
}

async fn describe(State(conn): State<Conn>) -> Response<Body> {
    let cert = &conn.gateway.hub.cert;
    let authority = cert.authority();
    // What only this machine reaches is of no use to the device that asks.
    let names: Vec<String> =
        cert.served().names.into_iter().filter(|n| n != "localhost" && !n.starts_with("127.")).collect();
    let body = json!({ "name": authority.name, "fingerprint": authority.fingerprint(), "names": names });
    json_response(StatusCode::OK, &body)
}

async fn certificate(State(conn): State<Conn>) -> Response<Body> {
    let der = conn.gateway.hub.cert.authority().der;
    // The type that makes Android and Windows offer to install it.
    download("application/x-x509-ca-cert", "attachment; filename=\"hearth-authority.crt\"", der.to_vec())
}

async fn mobileconfig(State(conn): State<Conn>) -> Response<Body> {
    let authority = conn.gateway.hub.cert.authority();
    let text = profile::mobileconfig(&authority.name, &authority.der);
    // Safari installs it only when it is shown, not when it is saved.
    download("application/x-apple-aspen-config", "inline; filename=\"hearth-authority.mobileconfig\"", text)
}

fn download(mime: &'static str, disposition: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = file(mime, body);
    response.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    response
}
