//! `approval.history`: what was decided, expired or withdrawn.

use super::{Entry, entry};
use crate::actions::ActionError;
use crate::gateway::answer::{Answer, Outward as _, invalid};
use crate::gateway::methods::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryParams {
    /// 1 to 100; 50 when left out.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// `exec`; there are no others here.
    kind: Option<String>,
}

/// Decided, expired and withdrawn ones, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct History {
    items: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(super) async fn history(call: Call, params: HistoryParams) -> Answer<History> {
    let limit = params.limit.unwrap_or(50);
    if !(1..=100).contains(&limit) {
        return Err(invalid("invalid approval.history params: at /limit: must be 1 to 100"));
    }
    if params.kind.is_some_and(|kind| kind != "exec") {
        return Ok(History { items: Vec::new(), next_cursor: None });
    }
    let actions = &call.gateway.hub.actions;
    let found = actions.history(limit, params.cursor.as_deref()).await.map_err(ActionError::outward)?;
    let next_cursor = found.last().filter(|_| found.len() == limit).map(|last| last.id.to_string());
    Ok(History { items: found.iter().map(entry).collect(), next_cursor })
}
