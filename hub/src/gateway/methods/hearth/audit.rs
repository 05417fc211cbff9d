//! The audit log.

use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _};
use crate::gateway::methods::{Access, Call, Method, NoParams, encode, method};
use crate::store::StoreError;
use hearth_shared::chain::{Head, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const ADMIN: Access = Access::Operator(Scope::Admin);
const APPROVALS: Access = Access::Operator(Scope::Approvals);

pub(super) const LIST: Method = method!("hearth.audit.list", ADMIN, list, ListParams => Page);
pub(super) const VERIFY: Method = method!("hearth.audit.verify", ADMIN, verify, NoParams => Report);
pub(super) const COMPARE: Method =
    method!("hearth.audit.compare", APPROVALS, compare, HeadParams => Compared);
pub(super) const HELD: Method = method!("hearth.audit.held", APPROVALS, held, HeadParams => Compared);

/// Records in one answer.
const MAX_PAGE: usize = 500;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Records after this number; from the beginning when left out.
    after: Option<u64>,
    /// At most 500; 100 when left out.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Page {
    /// Oldest first: `seq`, `atMs`, `kind`, `body`, hashes.
    records: Vec<Record>,
    head: Head,
}

async fn list(call: Call, params: ListParams) -> Answer<Page> {
    let audit = &call.gateway.hub.audit;
    let limit = params.limit.unwrap_or(100).clamp(1, MAX_PAGE);
    Ok(Page {
        records: audit.records(params.after.unwrap_or(0), limit).await.map_err(StoreError::outward)?,
        head: audit.head().await.map_err(StoreError::outward)?,
    })
}

/// Whether the chain holds, and whether nodes agree.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
struct Report(Value);

async fn verify(call: Call, _: NoParams) -> Answer<Report> {
    let report = call.gateway.hub.audit.verify().await.map_err(StoreError::outward)?;
    Ok(Report(encode(&report)))
}

/// A head that an approver keeps.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HeadParams {
    seq: u64,
    hash: hearth_shared::identity::Digest,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Compared {
    /// `null` when the log still holds this head.
    fault: Option<String>,
}

async fn compare(call: Call, params: HeadParams) -> Answer<Compared> {
    let head = Head { seq: params.seq, hash: params.hash };
    let fault = call.gateway.hub.audit.compare(head).await.map_err(StoreError::outward)?;
    Ok(Compared { fault })
}

/// An approver tells that it keeps this head: these records count as anchored.
async fn held(call: Call, params: HeadParams) -> Answer<Compared> {
    call.require_decider()?;
    let audit = &call.gateway.hub.audit;
    let head = Head { seq: params.seq, hash: params.hash };
    let fault = audit.compare(head).await.map_err(StoreError::outward)?;
    if fault.is_none() {
        audit.note_held(call.client.label(), head).await.map_err(StoreError::outward)?;
    }
    Ok(Compared { fault })
}
