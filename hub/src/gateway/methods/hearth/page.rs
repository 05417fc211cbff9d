//! What the web page needs beyond the rest: the link that lets it in, and the last pictures of a node.

use super::pairing::{MAX_WINDOW_MS, is_local, network_addresses, reachable};
use super::people::require_device;
use crate::devices::{DeviceError, Scope};
use crate::gateway::Gateway;
use crate::gateway::answer::{Answer, Outward as _, forbidden, invalid};
use crate::gateway::methods::nodes::MediaEntry;
use crate::gateway::methods::{Access, Call, Method, method};
use crate::nodes::NodeError;
use crate::store::StoreError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hearth_shared::limits::PAGE_LINK_MS;
use hearth_shared::reading::RequestId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const ADMIN: Access = Access::Operator(Scope::Admin);
const READ: Access = Access::Operator(Scope::Read);

pub(super) const LINK: Method = method!("hearth.page.link", ADMIN, link, LinkParams => Link);
pub(super) const PICTURES: Method =
    method!("hearth.node.pictures", READ, pictures, PicturesParams => Pictures);

/// Pictures in one answer.
const MAX_PICTURES: usize = 50;

/// What the device behind a link may do.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Rights {
    /// Everything: pairings, approvers, the audit log.
    #[default]
    Owner,
    /// See, chat, and decide what waits.
    Member,
    /// See and chat.
    Guest,
}

impl Rights {
    fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Owner => &[Scope::Read, Scope::Write, Scope::Approvals, Scope::Pairing, Scope::Admin],
            Self::Member => &[Scope::Read, Scope::Write, Scope::Approvals],
            Self::Guest => &[Scope::Read, Scope::Write],
        }
    }
}

/// Makes a link that lets one browser in. Only for programs on this machine: whoever has the link is in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LinkParams {
    /// How long it may be used, at most a day; 10 minutes when left out.
    #[schemars(range(min = 1000, max = 86_400_000))]
    ttl_ms: Option<u64>,
    /// `owner` when left out.
    #[serde(default)]
    rights: Rights,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Link {
    /// The link under each address of this hub, the likeliest first. The secret is in the fragment, which
    /// browsers do not send.
    urls: Vec<String>,
    expires_at_ms: u64,
    /// True when nothing but this machine can reach these addresses.
    loopback_only: bool,
    rights: Rights,
}

async fn link(call: Call, params: LinkParams) -> Answer<Link> {
    if !call.client.local {
        return Err(forbidden("a link is shown on the hub's own machine only: run `hearth page` there"));
    }
    require_device(&call)?;
    let ttl = params.ttl_ms.unwrap_or(PAGE_LINK_MS);
    if !(1000..=MAX_WINDOW_MS).contains(&ttl) {
        return Err(invalid(format!("ttlMs must be 1000 to {MAX_WINDOW_MS}")));
    }
    let gateway = &call.gateway;
    let made = gateway
        .hub
        .devices
        .make_link(Duration::from_millis(ttl), params.rights.scopes(), &call.client.label())
        .await
        .map_err(DeviceError::outward)?;
    let secret = URL_SAFE_NO_PAD.encode(made.secret.0);
    Ok(Link {
        urls: addresses(gateway).iter().map(|a| format!("{}/#join={secret}", base(a))).collect(),
        expires_at_ms: made.expires_ms,
        loopback_only: gateway.addresses.iter().all(|a| a.ip().is_loopback()),
        rights: params.rights,
    })
}

/// Names first that the owner gave the hub: a page's keys belong to the address it was opened under, and a name
/// outlives a number. What only this machine reaches comes last.
fn addresses(gateway: &Gateway) -> Vec<String> {
    let network = network_addresses(gateway);
    let (named, other): (Vec<String>, Vec<String>) = network.into_iter().partition(|a| {
        let host = a.rsplit_once(':').map_or(a.as_str(), |(host, _)| host);
        gateway.hub.config.gateway.hosts.iter().any(|h| h == host)
    });
    let local = reachable(gateway).into_iter().filter(|a| is_local(a));
    named.into_iter().chain(other).chain(local).collect()
}

/// Plain only on this machine, where nobody listens on the way.
fn base(address: &str) -> String {
    format!("{}://{address}", if is_local(address) { "http" } else { "https" })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PicturesParams {
    /// Id, unique prefix of it, or name.
    node_id: String,
    /// At most 50; 12 when left out.
    #[schemars(range(min = 1, max = 50))]
    limit: Option<usize>,
}

/// Newest first; each is at `/media/<id>`.
#[derive(Debug, Serialize, JsonSchema)]
struct Pictures {
    pictures: Vec<Picture>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Picture {
    #[serde(flatten)]
    media: MediaEntry,
    request_id: RequestId,
    created_at_ms: u64,
}

async fn pictures(call: Call, params: PicturesParams) -> Answer<Pictures> {
    let limit = params.limit.unwrap_or(12).clamp(1, MAX_PICTURES);
    let nodes = &call.gateway.hub.nodes;
    let node = nodes.find(&params.node_id).await.map_err(NodeError::outward)?.device.id;
    let recent = nodes.media().recent(node, limit).await.map_err(StoreError::outward)?;
    let pictures = recent.iter().map(|found| Picture {
        media: MediaEntry::from(&found.media),
        request_id: found.request,
        created_at_ms: found.created_ms,
    });
    Ok(Pictures { pictures: pictures.collect() })
}

#[cfg(test)]
mod tests {
    use super::base;

    #[test]
    fn only_this_machine_is_reached_without_tls() {
        assert_eq!(base("127.0.0.1:18789"), "http://127.0.0.1:18789");
        assert_eq!(base("[::1]:18789"), "http://[::1]:18789");
        assert_eq!(base("192.168.1.5:18789"), "https://192.168.1.5:18789");
        assert_eq!(base("hub.example:18789"), "https://hub.example:18789");
    }
}
