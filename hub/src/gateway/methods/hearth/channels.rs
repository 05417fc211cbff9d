//! Channels: how they stand, who was let in, and letting people in.

use crate::channels::host::{ChannelView, HostError};
use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _, forbidden};
use crate::gateway::methods::{Access, Call, Method, NoParams, method};
use crate::store::StoreError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const READ: Access = Access::Operator(Scope::Read);
const ADMIN: Access = Access::Operator(Scope::Admin);
const PAIRING: Access = Access::Operator(Scope::Pairing);

pub(super) const LIST: Method = method!("hearth.channels.list", READ, list, NoParams => ChannelList);
pub(super) const TEST: Method = method!("hearth.channels.test", ADMIN, test, TestParams => Tested);
pub(super) const ALLOW: Method = method!("hearth.channels.allow", PAIRING, allow, AllowParams => Allowed);
pub(super) const REMOVE: Method = method!("hearth.channels.remove", PAIRING, remove, RemoveParams => Removed);

#[derive(Debug, Serialize, JsonSchema)]
struct ChannelList {
    channels: Vec<ChannelEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ChannelEntry {
    name: String,
    /// `starting`, `up` or `down`.
    state: String,
    /// Unix milliseconds.
    since_ms: u64,
    /// Why it is down, or what went wrong with sending last.
    error: Option<String>,
    /// Unix milliseconds.
    last_received_ms: Option<u64>,
    /// Unix milliseconds.
    last_sent_ms: Option<u64>,
    /// For example `pictures`, `buttons`, `edits`.
    capabilities: Vec<String>,
    /// Messages that wait to be sent.
    waiting: u64,
    /// Messages that could not be sent within the last 7 days.
    failed: u64,
    /// People who may write, by the configuration.
    allow: Vec<String>,
    /// People who may decide, by the configuration.
    approvers: Vec<String>,
    /// People who were let in.
    people: Vec<PersonEntry>,
    /// People who wait to be let in.
    knocks: Vec<KnockEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PersonEntry {
    id: String,
    name: String,
    may_decide: bool,
    added_at_ms: u64,
    added_by: String,
}

/// The code itself is with the person who knocks: who lets him in types it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct KnockEntry {
    id: String,
    name: String,
    created_at_ms: u64,
}

impl From<ChannelView> for ChannelEntry {
    fn from(view: ChannelView) -> Self {
        let (allow, approvers) = view.access.map(|a| (a.allow, a.approvers)).unwrap_or_default();
        Self {
            name: view.name.into(),
            state: view.condition.state.as_str().into(),
            since_ms: view.condition.since_ms,
            error: view.condition.error,
            last_received_ms: view.condition.received_ms,
            last_sent_ms: view.condition.sent_ms,
            capabilities: view.can.names().into_iter().map(str::to_owned).collect(),
            waiting: view.waiting,
            failed: view.failed,
            allow,
            approvers,
            people: view
                .members
                .into_iter()
                .map(|m| PersonEntry {
                    id: m.person,
                    name: m.name,
                    may_decide: m.may_decide,
                    added_at_ms: m.added_ms,
                    added_by: m.added_by,
                })
                .collect(),
            knocks: view
                .knocks
                .into_iter()
                .map(|k| KnockEntry { id: k.person, name: k.name, created_at_ms: k.created_ms })
                .collect(),
        }
    }
}

async fn list(call: Call, _: NoParams) -> Answer<ChannelList> {
    let list = call.gateway.hub.channels.list().await.map_err(StoreError::outward)?;
    Ok(ChannelList { channels: list.into_iter().map(Into::into).collect() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TestParams {
    channel: String,
    /// Also send a test message to this person (the platform's id; a session for clients of the gateway).
    person: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Tested {
    /// Who the hub is there.
    account: String,
}

async fn test(call: Call, params: TestParams) -> Answer<Tested> {
    let channels = &call.gateway.hub.channels;
    let account =
        channels.test(&params.channel, params.person.as_deref()).await.map_err(HostError::outward)?;
    Ok(Tested { account })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AllowParams {
    channel: String,
    /// The code that the person was given.
    code: String,
    /// He may decide approvals too.
    #[serde(default)]
    may_decide: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Allowed {
    id: String,
    name: String,
    may_decide: bool,
}

async fn allow(call: Call, params: AllowParams) -> Answer<Allowed> {
    if params.may_decide {
        call.require(Scope::Admin)?;
        if call.client.device.is_none() {
            return Err(forbidden(
                "saying who may decide needs a device key: the token file alone is not enough",
            ));
        }
    }
    let by = call.client.label();
    let channels = &call.gateway.hub.channels;
    let member = channels
        .allow(&params.channel, &params.code, params.may_decide, &by)
        .await
        .map_err(HostError::outward)?;
    Ok(Allowed { id: member.person, name: member.name, may_decide: member.may_decide })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RemoveParams {
    channel: String,
    /// The platform's id.
    person: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Removed {
    ok: bool,
}

async fn remove(call: Call, params: RemoveParams) -> Answer<Removed> {
    let by = call.client.label();
    call.gateway
        .hub
        .channels
        .remove(&params.channel, &params.person, &by)
        .await
        .map_err(HostError::outward)?;
    Ok(Removed { ok: true })
}
