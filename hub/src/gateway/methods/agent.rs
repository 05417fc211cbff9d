//! `agent`, `agent.wait`, `sessions.*`: runs and where they belong.

use super::chat::deliver;
use super::nodes::MediaEntry;
use super::{Access, Call, Method, method};
use crate::agent::{Run, RunState};
use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _, invalid};
use crate::routing::Router;
use crate::sessions::SessionInfo;
use crate::store::{StoreError, now_ms};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

const READ: Access = Access::Operator(Scope::Read);
const WRITE: Access = Access::Operator(Scope::Write);

pub(super) const METHODS: &[Method] = &[
    method!("agent", WRITE, agent, AgentParams => Finished, Withdraw),
    method!("agent.wait", WRITE, wait, WaitParams => Waited, Withdraw),
    method!("sessions.list", READ, sessions, SessionsParams => SessionList),
    method!("sessions.resolve", READ, resolve, ResolveParams => Resolved),
];

/// How long `agent.wait` waits by default, and at most.
const DEFAULT_WAIT_MS: u64 = 30_000;
const MAX_WAIT_MS: u64 = 24 * 3_600_000;
/// `agent` looks again this often.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// A message that starts a run. Settings of other gateways that mean nothing here are taken and not used.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the schema is closed and names what clients may send")]
struct AgentParams {
    message: String,
    /// Becomes the run's id; the same key again is the same message.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: String,
    session_key: Option<String>,
    /// Not taken yet: refused when there are any.
    #[serde(default)]
    attachments: Vec<Value>,
    agent_id: Option<String>,
    session_id: Option<String>,
    to: Option<String>,
    channel: Option<String>,
    account_id: Option<String>,
    thread_id: Option<Value>,
    reply_to: Option<String>,
    reply_channel: Option<String>,
    thinking: Option<String>,
    model: Option<String>,
    provider: Option<String>,
    deliver: Option<bool>,
    best_effort_deliver: Option<bool>,
    timeout: Option<u64>,
    lane: Option<String>,
    extra_system_prompt: Option<String>,
    label: Option<String>,
}

/// The first of the two answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    run_id: String,
    session_key: String,
    agent_id: String,
    /// `accepted`
    status: String,
    accepted_at: u64,
}

/// The second: what came of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Finished {
    run_id: String,
    /// `ok` or `error`.
    status: String,
    summary: String,
    result: AgentResult,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AgentResult {
    payloads: Vec<Payload>,
    meta: Meta,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Payload {
    text: Option<String>,
    media_url: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Meta {
    duration_ms: u64,
}

async fn agent(call: Call, params: AgentParams) -> Answer<Finished> {
    let session = params.session_key.unwrap_or_else(|| "main".into());
    let routed = deliver(&call, session, params.message, params.idempotency_key, &params.attachments).await?;
    call.answer_first(&Accepted {
        run_id: routed.run_id.clone(),
        session_key: routed.session_key,
        agent_id: "main".into(),
        status: "accepted".into(),
        accepted_at: now_ms(),
    });
    let agent = &call.gateway.hub.agent;
    let run = loop {
        if let Some(run) = agent.wait(&routed.run_id, LOOK_AGAIN).await.map_err(StoreError::outward)? {
            break run;
        }
        if agent.run(&routed.run_id).await.map_err(StoreError::outward)?.is_none() {
            return Err(invalid(format!("no run `{}`", routed.run_id)));
        }
    };
    let mut payloads = vec![Payload { text: run.reply.clone(), media_url: None }];
    payloads.extend(
        run.media.iter().map(|m| Payload { text: None, media_url: Some(m.path.display().to_string()) }),
    );
    Ok(Finished {
        summary: run.error.clone().unwrap_or_else(|| "completed".into()),
        status: status(&run).into(),
        result: AgentResult {
            payloads,
            meta: Meta { duration_ms: run.ended_ms.unwrap_or_else(now_ms).saturating_sub(run.started_ms) },
        },
        run_id: run.run_id,
    })
}

fn status(run: &Run) -> &'static str {
    match run.state {
        RunState::Done => "ok",
        RunState::Failed | RunState::Stopped => "error",
        RunState::Queued
        | RunState::Thinking
        | RunState::Acting
        | RunState::WaitingApproval
        | RunState::WaitingDevice => "timeout",
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WaitParams {
    run_id: String,
    /// 30 s when left out, at most a day. The run itself goes on.
    timeout_ms: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Waited {
    run_id: String,
    /// `ok`, `error`, or `timeout` while it goes on.
    status: String,
    /// What it is doing, for example `waiting-approval`.
    state: RunStateName,
    started_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminal_reply: Option<TerminalReply>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    media: Vec<MediaEntry>,
}

/// As [`RunState`] is written.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
struct RunStateName(String);

#[derive(Debug, Serialize, JsonSchema)]
struct TerminalReply {
    /// `visible`
    disposition: String,
    text: String,
}

async fn wait(call: Call, params: WaitParams) -> Answer<Waited> {
    let at_most = Duration::from_millis(params.timeout_ms.unwrap_or(DEFAULT_WAIT_MS).min(MAX_WAIT_MS));
    let agent = &call.gateway.hub.agent;
    let ended = agent.wait(&params.run_id, at_most).await.map_err(StoreError::outward)?;
    let run = match ended {
        Some(run) => run,
        None => agent
            .run(&params.run_id)
            .await
            .map_err(StoreError::outward)?
            .ok_or_else(|| invalid(format!("no run `{}`", params.run_id)))?,
    };
    let state = super::encode(&run.state).as_str().unwrap_or_default().to_owned();
    Ok(Waited {
        status: status(&run).into(),
        state: RunStateName(state),
        started_at: run.started_ms,
        ended_at: run.ended_ms,
        stop_reason: match run.state {
            RunState::Done => Some("stop".into()),
            RunState::Stopped => Some("aborted".into()),
            _ => None,
        },
        terminal_reply: run.reply.map(|text| TerminalReply { disposition: "visible".into(), text }),
        media: run.media.iter().map(MediaEntry::from).collect(),
        error: run.error,
        run_id: run.run_id,
    })
}

/// Filters of other gateways that mean nothing here are taken and not used.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the schema is closed and names what clients may send")]
struct SessionsParams {
    limit: Option<usize>,
    offset: Option<usize>,
    active_minutes: Option<u64>,
    /// Part of the key.
    search: Option<String>,
    include_global: Option<bool>,
    include_unknown: Option<bool>,
    include_last_message: Option<bool>,
    include_derived_titles: Option<bool>,
    agent_id: Option<String>,
    label: Option<String>,
    spawned_by: Option<String>,
    archived: Option<bool>,
    sort_by: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SessionList {
    ts: u64,
    path: String,
    count: usize,
    total_count: usize,
    next_offset: Option<usize>,
    has_more: bool,
    defaults: Defaults,
    sessions: Vec<SessionEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Defaults {
    model_provider: Option<String>,
    model: Option<String>,
    context_tokens: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SessionEntry {
    key: String,
    kind: String,
    agent_id: String,
    session_id: String,
    updated_at: u64,
    /// Lines of the transcript.
    messages: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_run_id: Option<String>,
}

impl From<SessionInfo> for SessionEntry {
    fn from(s: SessionInfo) -> Self {
        Self {
            key: s.key,
            kind: s.kind,
            agent_id: s.agent_id,
            session_id: s.session_id,
            updated_at: s.updated_at,
            messages: s.messages,
            last_run_id: s.last_run_id,
        }
    }
}

async fn sessions(call: Call, params: SessionsParams) -> Answer<SessionList> {
    let hub = &call.gateway.hub;
    let mut all = hub.sessions.list().await.map_err(StoreError::outward)?;
    if let Some(minutes) = params.active_minutes {
        let since = now_ms().saturating_sub(minutes.saturating_mul(60_000));
        all.retain(|s| s.updated_at >= since);
    }
    if let Some(search) = &params.search {
        all.retain(|s| s.key.contains(search.as_str()));
    }
    let total = all.len();
    let offset = params.offset.unwrap_or(0);
    let sessions: Vec<SessionEntry> =
        all.into_iter().skip(offset).take(params.limit.unwrap_or(usize::MAX)).map(Into::into).collect();
    let seen = offset.saturating_add(sessions.len());
    let model = hub.config.agent.model.as_ref();
    Ok(SessionList {
        ts: now_ms(),
        path: hub.home.sessions("main").display().to_string(),
        count: sessions.len(),
        total_count: total,
        next_offset: (seen < total).then_some(seen),
        has_more: seen < total,
        defaults: Defaults {
            model_provider: model.map(|_| "openai".into()),
            model: model.map(|m| m.name.clone()),
            context_tokens: model.map(|m| m.context_tokens),
        },
        sessions,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResolveParams {
    /// `main` or a long form.
    key: Option<String>,
    session_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Resolved {
    ok: bool,
    key: String,
    agent_id: String,
}

async fn resolve(call: Call, params: ResolveParams) -> Answer<Resolved> {
    let key = match (params.key, params.session_id) {
        (Some(key), None) => Router::session_key(&key),
        (None, Some(id)) => {
            let all = call.gateway.hub.sessions.list().await.map_err(StoreError::outward)?;
            let found = all.into_iter().find(|s| s.session_id == id);
            found.ok_or_else(|| invalid(format!("no session `{id}`")))?.key
        }
        _ => return Err(invalid("name either key or sessionId")),
    };
    Ok(Resolved { ok: true, key, agent_id: "main".into() })
}
