//! The certificate for browsers.

use crate::cert::CertError;
use crate::devices::Scope;
use crate::gateway::Gateway;
use crate::gateway::answer::{Answer, Outward as _, forbidden, unavailable};
use crate::gateway::methods::{Access, Call, Method, NoParams, method};
use crate::store::StoreError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

const READ: Access = Access::Operator(Scope::Read);
const ADMIN: Access = Access::Operator(Scope::Admin);

pub(super) const STATUS: Method = method!("hearth.cert.status", READ, status, NoParams => Status);
pub(super) const RENEW: Method = method!("hearth.cert.renew", ADMIN, renew, RenewParams => Status);

/// What TLS shows, and who vouches for it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The authority's name, as phones list it.
    authority: String,
    /// SHA-256 of the authority's certificate: `AB:CD:…`, for comparing on the phone.
    fingerprint: String,
    /// Host names and addresses the certificate is good for.
    names: Vec<String>,
    /// Names of this hub that the authority may not vouch for, since they came later.
    left_out: Vec<String>,
    /// Unix milliseconds; it is renewed 30 days before.
    expires_at_ms: u64,
    /// Where the page that leads through the installation is, the most likely address first; empty while
    /// only this machine can reach the hub.
    pages: Vec<String>,
}

fn describe(gateway: &Gateway) -> Status {
    let cert = &gateway.hub.cert;
    let (authority, served) = (cert.authority(), cert.served());
    let mut addresses = super::pairing::network_addresses(gateway);
    // Those that stay without a warning first.
    addresses
        .sort_by_key(|a| !a.rsplit_once(':').is_some_and(|(host, _)| served.names.iter().any(|n| n == host)));
    Status {
        fingerprint: authority.fingerprint(),
        authority: authority.name,
        pages: addresses.iter().map(|address| format!("https://{address}/trust")).collect(),
        names: served.names,
        left_out: served.left_out,
        expires_at_ms: served.expires_ms,
    }
}

async fn status(call: Call, _: NoParams) -> Answer<Status> {
    Ok(describe(&call.gateway))
}

/// A new certificate now. The key that nodes pin stays.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RenewParams {
    /// Also a new authority: everybody must install it again. Only for programs on this machine.
    #[serde(default)]
    authority: bool,
}

async fn renew(call: Call, params: RenewParams) -> Answer<Status> {
    if params.authority && !call.client.local {
        return Err(forbidden(
            "a new authority is made on the hub's own machine only: run `hearth cert renew --authority` there",
        ));
    }
    let hub = &call.gateway.hub;
    let cert = Arc::clone(&hub.cert);
    let renewed = tokio::task::spawn_blocking(move || cert.renew(params.authority)).await;
    match renewed {
        Ok(renewed) => renewed.map_err(told)?,
        Err(error) => {
            tracing::error!(%error, "renewing the certificate");
            return Err(unavailable("the certificate could not be renewed; see the hub's log"));
        }
    }
    let body = json!({
        "authority": params.authority,
        "fingerprint": hub.cert.authority().fingerprint(),
        "by": call.client.label(),
    });
    hub.audit.append("certificate.renewed", body).await.map_err(StoreError::outward)?;
    Ok(describe(&call.gateway))
}

/// Paths are for the log.
fn told(error: CertError) -> hearth_shared::frame::ErrorShape {
    tracing::error!(%error, "renewing the certificate");
    unavailable("the certificate could not be renewed; see the hub's log")
}
