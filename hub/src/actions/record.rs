//! Actions in the database.

use super::{Action, ActionRequest, ActionState, Host};
use crate::approvals::rows::{from_word, parse, word};
use crate::nodes::Media;
use crate::store::{StoreError, now_ms};
use hearth_shared::chain::Head;
use hearth_shared::command::{Class, Need};
use hearth_shared::error::CommandError;
use hearth_shared::identity::{DeviceId, Digest, display_safe};
use hearth_shared::limits::{EFFECT_KEY_TTL_MS, MAX_REASON_CHARS, MAX_TIMEOUT_MS};
use hearth_shared::link::Invoke;
use hearth_shared::reading::{Correlation, RequestId};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// A requester's name, in characters.
const MAX_REQUESTER_CHARS: usize = 128;

/// An action with what only the hub itself needs to know.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) action: Action,
    pub(super) host: Host,
    pub(super) node_name: String,
    pub(super) checked_on_node: bool,
    pub(super) class: Class,
    pub(super) raise: Need,
    pub(super) requester: String,
    pub(super) requester_device: Option<DeviceId>,
    pub(super) reason: Option<String>,
    pub(super) timeout: Duration,
    pub(super) wait_for_node: bool,
    pub(super) ask_for: Option<Duration>,
    pub(super) correlation: Correlation,
    /// Powered milliseconds.
    pub(super) deadline: Option<u64>,
    pub(super) withdrawn_by: Option<String>,
}

impl Record {
    pub(super) fn new(id: RequestId, request: ActionRequest, plan: super::plan::Plan) -> Self {
        let reason = request.reason.map(|r| display_safe(r.trim(), MAX_REASON_CHARS));
        let timeout = request.timeout.clamp(Duration::from_millis(1), Duration::from_millis(MAX_TIMEOUT_MS));
        Self {
            action: Action {
                id,
                node: request.node,
                command: request.command,
                params: plan.params,
                state: ActionState::Submitted,
                result: None,
                media: Vec::new(),
                error: None,
                session_key: request.session_key,
                run_id: request.run_id,
                created_ms: now_ms(),
                finished_ms: None,
            },
            host: request.host,
            node_name: plan.node_name,
            checked_on_node: plan.checked_on_node,
            class: plan.class,
            raise: plan.raise,
            requester: display_safe(&request.requester, MAX_REQUESTER_CHARS),
            requester_device: request.requester_device,
            reason: reason.filter(|r| !r.is_empty()),
            timeout,
            wait_for_node: request.wait_for_node,
            ask_for: request.ask_for,
            correlation: request.correlation,
            deadline: None,
            withdrawn_by: None,
        }
    }

    /// Whose limits and keys it counts on.
    pub(super) fn owner(&self) -> String {
        owner(&self.requester, self.requester_device.as_ref())
    }

    /// The frame for our own nodes; always the stored plan.
    pub(super) fn invoke(&self, head: Head) -> Invoke {
        Invoke {
            request: self.action.id,
            command: self.action.command.clone(),
            params: self.action.params.to_string(),
            timeout_ms: self.timeout.as_millis() as u64,
            raise: self.raise,
            correlation: self.correlation,
            head,
        }
    }

    /// What an idempotency key stands for.
    pub(super) fn plan_digest(&self) -> Digest {
        let plan =
            [self.action.node.to_string(), self.action.command.clone(), self.action.params.to_string()];
        Digest::of(plan.join("\0").as_bytes())
    }
}

pub(super) fn owner(requester: &str, device: Option<&DeviceId>) -> String {
    device.map_or_else(|| requester.to_owned(), ToString::to_string)
}

/// What an idempotency key was used for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyUse {
    /// Not within 24 hours.
    Fresh,
    /// This action.
    Same(RequestId),
    /// Something else.
    Other,
}

pub(super) fn key_use(
    connection: &Connection,
    owner: &str,
    key: &str,
    plan: &Digest,
) -> Result<KeyUse, StoreError> {
    let since = now_ms().saturating_sub(EFFECT_KEY_TTL_MS) as i64;
    let row: Option<(String, [u8; 32])> = connection
        .prepare_cached(
            "SELECT action, plan FROM effect_keys WHERE requester = ?1 AND key = ?2 AND created_ms > ?3",
        )?
        .query_row(params![owner, key, since], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match row {
        None => KeyUse::Fresh,
        Some((action, used)) if used == plan.0 => KeyUse::Same(parse(&action)?),
        Some(_) => KeyUse::Other,
    })
}

/// Stores a new action, and its key if it has one.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    record: &Record,
    key: Option<&str>,
) -> Result<KeyUse, StoreError> {
    let owner = record.owner();
    let digest = record.plan_digest();
    let action = &record.action;
    if let Some(key) = key {
        let used = key_use(transaction, &owner, key, &digest)?;
        if used != KeyUse::Fresh {
            return Ok(used);
        }
        transaction.execute(
            "INSERT OR REPLACE INTO effect_keys (requester, key, action, plan, created_ms)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![owner, key, action.id.to_string(), digest.0, action.created_ms as i64],
        )?;
    }
    transaction
        .prepare_cached(
            "INSERT INTO actions (id, node, node_name, checked_on_node, command, params, class, raise,
                requester, requester_device, reason, session_key, run_id, timeout_ms, wait_for_node,
                correlation, state, created_ms, host, ask_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(params![
            action.id.to_string(),
            action.node.to_string(),
            record.node_name,
            record.checked_on_node,
            action.command,
            action.params.to_string(),
            record.class.as_str(),
            record.raise.as_str(),
            record.requester,
            record.requester_device.map(|d| d.to_string()),
            record.reason,
            action.session_key,
            action.run_id,
            record.timeout.as_millis() as i64,
            record.wait_for_node,
            record.correlation.to_string(),
            word(&action.state),
            action.created_ms as i64,
            record.host.as_str(),
            record.ask_for.map(|d| d.as_millis() as i64),
        ])?;
    Ok(KeyUse::Fresh)
}

pub(super) fn load(connection: &Connection, id: &RequestId) -> Result<Option<Record>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT * FROM actions WHERE id = ?1")?;
    let mut rows = statement.query([id.to_string()])?;
    rows.next()?.map(read).transpose()
}

/// All that are not finished.
pub(super) fn unfinished(connection: &Connection) -> Result<Vec<Record>, StoreError> {
    let mut statement =
        connection.prepare("SELECT * FROM actions WHERE finished_ms IS NULL ORDER BY created_ms")?;
    let mut rows = statement.query([])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(read(row)?);
    }
    Ok(records)
}

/// Moves an action on; `false` when it is not (or no longer) in a state of `from`.
pub(super) fn advance(
    transaction: &Transaction<'_>,
    id: &RequestId,
    from: &[ActionState],
    to: ActionState,
    deadline: Option<u64>,
) -> Result<bool, StoreError> {
    let mut changed = 0;
    for state in from {
        changed += transaction
            .prepare_cached(
                "UPDATE actions SET state = ?1, deadline_ms = ?2
                 WHERE id = ?3 AND state = ?4 AND finished_ms IS NULL",
            )?
            .execute(params![word(&to), deadline.map(|d| d as i64), id.to_string(), word(state)])?;
        if changed > 0 {
            break;
        }
    }
    Ok(changed > 0)
}

/// How an action ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    Done { result: Value, media: Vec<Media> },
    Failed(CommandError),
}

/// Ends an action that has not ended; `false` when it has, or when it is not in the state `from`.
pub(super) fn finish(
    transaction: &Transaction<'_>,
    id: &RequestId,
    end: &End,
    from: Option<ActionState>,
) -> Result<bool, StoreError> {
    let (state, result, media, error) = match end {
        End::Done { result, media } => {
            (ActionState::Done, Some(result.to_string()), Some(json(media)?), None)
        }
        End::Failed(error) => (ActionState::Failed, None, None, Some(json(error)?)),
    };
    let changed = transaction
        .prepare_cached(
            "UPDATE actions SET state = ?1, result = ?2, media = ?3, error = ?4, finished_ms = ?5,
                deadline_ms = NULL
             WHERE id = ?6 AND finished_ms IS NULL AND (?7 IS NULL OR state = ?7)",
        )?
        .execute(params![
            word(&state),
            result,
            media,
            error,
            now_ms() as i64,
            id.to_string(),
            from.map(|s| word(&s))
        ])?;
    Ok(changed > 0)
}

/// Notes that somebody withdrew what was sent already.
pub(super) fn withdraw(transaction: &Transaction<'_>, id: &RequestId, by: &str) -> Result<(), StoreError> {
    transaction.execute(
        "UPDATE actions SET withdrawn_by = ?1 WHERE id = ?2 AND finished_ms IS NULL",
        params![by, id.to_string()],
    )?;
    Ok(())
}

/// Deletes what ended before `before` (Unix milliseconds), approvals included, and keys that are too old.
pub(super) fn prune(transaction: &Transaction<'_>, before: u64) -> Result<u64, StoreError> {
    let keys_until = now_ms().saturating_sub(EFFECT_KEY_TTL_MS);
    let gone =
        transaction.execute("DELETE FROM actions WHERE finished_ms < ?1", [before.min(keys_until) as i64])?;
    transaction.execute("DELETE FROM effect_keys WHERE created_ms <= ?1", [keys_until as i64])?;
    Ok(gone as u64)
}

fn read(row: &Row<'_>) -> Result<Record, StoreError> {
    let text = |name: &str| row.get::<_, String>(name);
    let maybe = |name: &str| row.get::<_, Option<String>>(name);
    let number = |name: &str| row.get::<_, i64>(name).map(|n| n as u64);
    let maybe_number = |name: &str| row.get::<_, Option<i64>>(name).map(|n| n.map(|n| n as u64));
    Ok(Record {
        action: Action {
            id: parse(&text("id")?)?,
            node: parse(&text("node")?)?,
            command: text("command")?,
            params: from_json(&text("params")?)?,
            state: from_word(text("state")?)?,
            result: maybe("result")?.map(|t| from_json(&t)).transpose()?,
            media: maybe("media")?.map(|t| from_json(&t)).transpose()?.unwrap_or_default(),
            error: maybe("error")?.map(|t| from_json(&t)).transpose()?,
            session_key: maybe("session_key")?,
            run_id: maybe("run_id")?,
            created_ms: number("created_ms")?,
            finished_ms: maybe_number("finished_ms")?,
        },
        host: from_word(text("host")?)?,
        node_name: text("node_name")?,
        checked_on_node: row.get("checked_on_node")?,
        class: from_word(text("class")?)?,
        raise: from_word(text("raise")?)?,
        requester: text("requester")?,
        requester_device: maybe("requester_device")?.map(|t| parse(&t)).transpose()?,
        reason: maybe("reason")?,
        timeout: Duration::from_millis(number("timeout_ms")?),
        wait_for_node: row.get("wait_for_node")?,
        ask_for: maybe_number("ask_ms")?.map(Duration::from_millis),
        correlation: parse(&text("correlation")?)?,
        deadline: maybe_number("deadline_ms")?,
        withdrawn_by: maybe("withdrawn_by")?,
    })
}

fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::Corrupt(e.to_string()))
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Corrupt(e.to_string()))
}
