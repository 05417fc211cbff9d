//! `/media/<id>`: a stored picture, for who may see.
//!
//! `Authorization: Bearer <gateway token>`, or `Bearer <device id>:<device token>`. Never a query, never a
//! cookie: addresses end up in logs and histories.

use super::{Conn, error_body, json_response};
use crate::devices::Scope;
use crate::gateway::rate::{Secret, Who};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use axum::http::{Response, StatusCode};
use hearth_shared::connect::Role;
use hearth_shared::identity::DeviceId;
use std::time::Instant;
use tokio::io::AsyncReadExt as _;

/// Read and sent at a time.
const PIECE: usize = 32 * 1024;
/// What a browser may show; everything else is only ever stored.
const SHOWN: [&str; 5] = ["image/jpeg", "image/png", "image/webp", "image/gif", "video/mp4"];

pub(super) async fn serve(
    State(conn): State<Conn>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response<Body> {
    if let Err(refusal) = authorise(&conn, &headers).await {
        return *refusal;
    }
    conn.ticket.authenticated();
    let found = match conn.gateway.hub.nodes.media().get(&id).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "media");
            return plain(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the hub could not look it up");
        }
    };
    let Some(found) = found else {
        return plain(StatusCode::NOT_FOUND, "not_found", "there is no such picture (any more)");
    };
    let Ok(file) = tokio::fs::File::open(&found.media.path).await else {
        return plain(StatusCode::NOT_FOUND, "not_found", "the file is gone");
    };
    let stream = futures_util::stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; PIECE];
        let read = file.read(&mut piece).await?;
        piece.truncate(read);
        Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    let shown = SHOWN.iter().find(|m| **m == found.media.mime);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(shown.unwrap_or(&"application/octet-stream")));
    if shown.is_none() {
        headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
    headers.insert(CONTENT_LENGTH, found.media.size.into());
    response
}

fn plain(status: StatusCode, kind: &str, message: &str) -> Response<Body> {
    json_response(status, &error_body(kind, message))
}

/// Whether the bearer may read.
async fn authorise(conn: &Conn, headers: &HeaderMap) -> Result<(), Box<Response<Body>>> {
    let refuse = || {
        let message =
            "send `Authorization: Bearer` with the gateway token, or with device id, colon and device token";
        let mut response = plain(StatusCode::UNAUTHORIZED, "unauthorized", message);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Box::new(response)
    };
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "))
        .ok_or_else(refuse)?
        .trim();
    let limits = &conn.gateway.auth_limits;
    let hub = &conn.gateway.hub;
    let now = Instant::now();
    let who = Who::Address(conn.peer.ip());
    if let Some((id, token)) = bearer.split_once(':') {
        // No key is proved here, so failures count against the address.
        if let Some(wait) = limits.blocked(Secret::Device, who, now) {
            return Err(Box::new(too_many(wait)));
        }
        let fits = match id.parse::<DeviceId>() {
            Ok(id) => {
                hub.devices.check_token(id, Role::Operator, token).await.unwrap_or(false)
                    && hub
                        .devices
                        .get(id)
                        .await
                        .is_ok_and(|device| device.is_some_and(|d| Scope::Read.satisfied_by(&d.scopes)))
            }
            Err(_) => false,
        };
        if fits {
            return Ok(());
        }
        limits.failed(Secret::Device, who, now);
        return Err(refuse());
    }
    let blocked = limits.blocked(Secret::Shared, who, now);
    if hub.keys.token.matches(bearer) && (blocked.is_none() || conn.peer.ip().is_loopback()) {
        return Ok(());
    }
    if let Some(wait) = blocked {
        return Err(Box::new(too_many(wait)));
    }
    limits.failed(Secret::Shared, who, now);
    Err(refuse())
}

fn too_many(wait: std::time::Duration) -> Response<Body> {
    let mut response =
        plain(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "too many failed attempts; wait and retry");
    response.headers_mut().insert(RETRY_AFTER, (wait.as_secs() + 1).into());
    response
}
