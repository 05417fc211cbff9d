//! Runs, their steps and open questions in the database.

use super::intents::Question;
use super::{Run, RunState};
use crate::nodes::Media;
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::error::CommandError;
use hearth_shared::reading::{Correlation, RequestId};
use rusqlite::{OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a message id is remembered (and with it its run).
const KEEP_MS: u64 = 7 * 24 * 3_600_000;
/// How long a question waits for its answer.
const QUESTION_MS: u64 = 30 * 60_000;

/// A message that becomes a run.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// The message's id.
    pub run_id: String,
    /// Long form.
    pub session_key: String,
    /// Where it came from.
    pub channel: String,
    /// Who wrote it.
    pub sender: String,
    /// What.
    pub text: String,
    /// For the logs.
    pub correlation: Correlation,
    /// Where the answer is to be sent, for channels to which the hub pushes; opaque here.
    pub reply_to: Option<String>,
}

/// What came of a tool call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) result: Result<Value, CommandError>,
    #[serde(default)]
    pub(super) media: Vec<Media>,
    /// Who decided, when a person was asked.
    #[serde(default)]
    pub(super) decided_by: Option<String>,
}

/// A step as stored.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) at_ms: u64,
    pub(super) body: String,
    pub(super) action: Option<RequestId>,
    pub(super) outcome: Option<Outcome>,
}

#[derive(Debug, Clone)]
pub(super) struct Ledger(pub(super) Store);

fn state_name(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Thinking => "thinking",
        RunState::Acting => "acting",
        RunState::WaitingApproval => "waiting-approval",
        RunState::WaitingDevice => "waiting-device",
        RunState::Done => "done",
        RunState::Failed => "failed",
        RunState::Stopped => "stopped",
    }
}

fn state_from(text: &str) -> Result<RunState, StoreError> {
    [
        RunState::Queued,
        RunState::Thinking,
        RunState::Acting,
        RunState::WaitingApproval,
        RunState::WaitingDevice,
        RunState::Done,
        RunState::Failed,
        RunState::Stopped,
    ]
    .into_iter()
    .find(|s| state_name(*s) == text)
    .ok_or_else(|| StoreError::Corrupt(format!("runs.state {text:?}")))
}

fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::Corrupt(e.to_string()))
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Corrupt(e.to_string()))
}

const RUN: &str = "SELECT run_id, session_key, state, started_ms, ended_ms, reply, media, error FROM runs";

struct Raw(Run, String, String);

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    let run = Run {
        run_id: row.get(0)?,
        session_key: row.get(1)?,
        state: RunState::Queued,
        started_ms: row.get::<_, i64>(3)? as u64,
        ended_ms: row.get::<_, Option<i64>>(4)?.map(|ms| ms as u64),
        reply: row.get(5)?,
        media: Vec::new(),
        error: row.get(7)?,
    };
    Ok(Raw(run, row.get(2)?, row.get(6)?))
}

fn whole(Raw(mut run, state, media): Raw) -> Result<Run, StoreError> {
    run.state = state_from(&state)?;
    run.media = from_json(&media)?;
    Ok(run)
}

impl Ledger {
    /// Stores a new run, or finds the one with the same id.
    pub(super) async fn insert(&self, new: NewRun) -> Result<Option<Run>, StoreError> {
        self.0
            .write(move |t| {
                let now = now_ms();
                t.execute("DELETE FROM runs WHERE ended_ms < ?1", [now.saturating_sub(KEEP_MS) as i64])?;
                let known = t
                    .query_row(&format!("{RUN} WHERE run_id = ?1"), [&new.run_id], raw)
                    .optional()?
                    .map(whole)
                    .transpose()?;
                if known.is_none() {
                    t.execute(
                        "INSERT INTO runs (run_id, session_key, channel, sender, text, correlation, state, started_ms, reply_to) \
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7, ?8)",
                        params![
                            new.run_id,
                            new.session_key,
                            new.channel,
                            new.sender,
                            new.text,
                            new.correlation.to_string(),
                            now as i64,
                            new.reply_to
                        ],
                    )?;
                }
                Ok(known)
            })
            .await
    }

    pub(super) async fn run(&self, run_id: &str) -> Result<Option<Run>, StoreError> {
        let id = run_id.to_owned();
        self.0
            .read(move |c| {
                c.query_row(&format!("{RUN} WHERE run_id = ?1"), [id], raw).optional()?.map(whole).transpose()
            })
            .await
    }

    pub(super) async fn text(&self, run_id: &str) -> Result<Option<String>, StoreError> {
        let id = run_id.to_owned();
        self.0
            .read(move |c| {
                Ok(c.query_row("SELECT text FROM runs WHERE run_id = ?1", [id], |r| r.get(0)).optional()?)
            })
            .await
    }

    /// Runs that did not end, oldest first, with the number of events they have sent.
    pub(super) async fn unfinished(&self) -> Result<Vec<(NewRun, u64, u64)>, StoreError> {
        self.0
            .read(|c| {
                let mut statement = c.prepare(
                    "SELECT run_id, session_key, channel, sender, text, correlation, events, started_ms, reply_to FROM runs \
                     WHERE ended_ms IS NULL ORDER BY started_ms, rowid",
                )?;
                let rows = statement.query_map([], |row| {
                    let new = NewRun {
                        run_id: row.get(0)?,
                        session_key: row.get(1)?,
                        channel: row.get(2)?,
                        sender: row.get(3)?,
                        text: row.get(4)?,
                        correlation: row.get::<_, String>(5)?.parse().unwrap_or_default(),
                        reply_to: row.get(8)?,
                    };
                    Ok((new, row.get::<_, i64>(6)? as u64, row.get::<_, i64>(7)? as u64))
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    pub(super) async fn set_state(
        &self,
        run_id: &str,
        state: RunState,
        events: u64,
    ) -> Result<(), StoreError> {
        let id = run_id.to_owned();
        self.0
            .write(move |t| {
                t.execute(
                    "UPDATE runs SET state = ?2, events = ?3 WHERE run_id = ?1 AND ended_ms IS NULL",
                    params![id, state_name(state), events as i64],
                )?;
                Ok(())
            })
            .await
    }

    /// Ends a run; false when it had ended before.
    pub(super) async fn finish(
        &self,
        run_id: &str,
        state: RunState,
        reply: Option<String>,
        media: &[Media],
        error: Option<String>,
    ) -> Result<bool, StoreError> {
        let (id, media) = (run_id.to_owned(), json(&media)?);
        self.0
            .write(move |t| {
                let changed = t.execute(
                    "UPDATE runs SET state = ?2, ended_ms = ?3, reply = ?4, media = ?5, error = ?6 \
                     WHERE run_id = ?1 AND ended_ms IS NULL",
                    params![id, state_name(state), now_ms() as i64, reply, media, error],
                )?;
                Ok(changed == 1)
            })
            .await
    }

    /// Writes down what is about to be done. The same step again stays as it was.
    pub(super) async fn begin(&self, run_id: &str, call_id: &str, body: String) -> Result<(), StoreError> {
        let (run, call) = (run_id.to_owned(), call_id.to_owned());
        self.0
            .write(move |t| {
                t.execute(
                    "INSERT OR IGNORE INTO steps (run_id, call_id, at_ms, body) VALUES (?1, ?2, ?3, ?4)",
                    params![run, call, now_ms() as i64, body],
                )?;
                Ok(())
            })
            .await
    }

    pub(super) async fn note_action(
        &self,
        run_id: &str,
        call_id: &str,
        action: RequestId,
    ) -> Result<(), StoreError> {
        let (run, call) = (run_id.to_owned(), call_id.to_owned());
        self.0
            .write(move |t| {
                t.execute(
                    "UPDATE steps SET action = ?3 WHERE run_id = ?1 AND call_id = ?2",
                    params![run, call, action.to_string()],
                )?;
                Ok(())
            })
            .await
    }

    pub(super) async fn end(&self, run_id: &str, call_id: &str, outcome: &Outcome) -> Result<(), StoreError> {
        let (run, call, outcome) = (run_id.to_owned(), call_id.to_owned(), json(outcome)?);
        self.0
            .write(move |t| {
                t.execute(
                    "UPDATE steps SET outcome = ?3 WHERE run_id = ?1 AND call_id = ?2",
                    params![run, call, outcome],
                )?;
                Ok(())
            })
            .await
    }

    pub(super) async fn step(&self, run_id: &str, call_id: &str) -> Result<Option<Step>, StoreError> {
        let (run, call) = (run_id.to_owned(), call_id.to_owned());
        self.0
            .read(move |c| {
                let row = c
                    .query_row(
                        "SELECT at_ms, body, action, outcome FROM steps WHERE run_id = ?1 AND call_id = ?2",
                        [run, call],
                        |row| {
                            Ok((
                                row.get::<_, i64>(0)? as u64,
                                row.get::<_, String>(1)?,
                                row.get::<_, Option<String>>(2)?,
                                row.get::<_, Option<String>>(3)?,
                            ))
                        },
                    )
                    .optional()?;
                row.map(|(at_ms, body, action, outcome)| {
                    Ok(Step {
                        at_ms,
                        body,
                        action: action.and_then(|a| a.parse().ok()),
                        outcome: outcome.as_deref().map(from_json).transpose()?,
                    })
                })
                .transpose()
            })
            .await
    }

    /// Actions of a run without an outcome.
    pub(super) async fn open_actions(&self, run_id: &str) -> Result<Vec<RequestId>, StoreError> {
        let run = run_id.to_owned();
        self.0
            .read(move |c| {
                let mut statement = c.prepare(
                    "SELECT action FROM steps WHERE run_id = ?1 AND action IS NOT NULL AND outcome IS NULL",
                )?;
                let rows = statement.query_map([run], |row| row.get::<_, String>(0))?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?.iter().filter_map(|a| a.parse().ok()).collect())
            })
            .await
    }

    /// Pictures of all finished steps, in their order.
    pub(super) async fn media(&self, run_id: &str) -> Result<Vec<Media>, StoreError> {
        let run = run_id.to_owned();
        self.0
            .read(move |c| {
                let mut statement = c.prepare(
                    "SELECT outcome FROM steps WHERE run_id = ?1 AND outcome IS NOT NULL ORDER BY rowid",
                )?;
                let rows = statement.query_map([run], |row| row.get::<_, String>(0))?;
                let mut media = Vec::new();
                for row in rows {
                    media.extend(from_json::<Outcome>(&row?)?.media);
                }
                Ok(media)
            })
            .await
    }

    pub(super) async fn ask(&self, session_key: &str, question: Option<&Question>) -> Result<(), StoreError> {
        let (key, question) = (session_key.to_owned(), question.map(json).transpose()?);
        self.0
            .write(move |t| {
                match question {
                    Some(question) => t.execute(
                        "INSERT OR REPLACE INTO questions (session_key, question, asked_ms) VALUES (?1, ?2, ?3)",
                        params![key, question, now_ms() as i64],
                    )?,
                    None => t.execute("DELETE FROM questions WHERE session_key = ?1", [key])?,
                };
                Ok(())
            })
            .await
    }

    pub(super) async fn question(&self, session_key: &str) -> Result<Option<Question>, StoreError> {
        let key = session_key.to_owned();
        self.0
            .read(move |c| {
                let text = c
                    .query_row(
                        "SELECT question FROM questions WHERE session_key = ?1 AND asked_ms > ?2",
                        params![key, now_ms().saturating_sub(QUESTION_MS) as i64],
                        |row| row.get::<_, String>(0),
                    )
                    .optional()?;
                // A question of an older version that cannot be read any more is no question.
                Ok(text.and_then(|t| serde_json::from_str(&t).ok()))
            })
            .await
    }
}
