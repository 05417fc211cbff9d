//! Who was let in on a channel, and who knocks.
//!
//! An unknown person who writes directly gets a code, once, and nothing else. The owner types it into
//! `hearth channels allow`. A code lives for an hour; at most three wait on one channel, so that nobody can fill the list, and
//! whoever comes when it is full gets nothing.

use crate::approvals::audit::Audit;
use crate::routing::access::Known;
use crate::store::{Store, StoreError, now_ms};
use hearth_shared::identity::{IdentityError, display_safe, random, same_secret};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::json;

/// Characters of a code: nothing that looks like something else.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Characters in a code.
const CODE_LENGTH: usize = 8;
/// How long a code is good.
pub const KNOCK_MS: u64 = 3_600_000;
/// Codes that may wait on one channel.
pub const MAX_KNOCKS: usize = 3;
/// People on one channel.
pub const MAX_PEOPLE: i64 = 1_000;

/// Somebody who was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The platform's id.
    pub person: String,
    /// What he called himself.
    pub name: String,
    /// Whether he may decide approvals.
    pub may_decide: bool,
    /// Unix milliseconds.
    pub added_ms: u64,
    /// Who let him in.
    pub added_by: String,
}

/// Somebody who waits to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knock {
    /// The platform's id.
    pub person: String,
    /// What he calls himself.
    pub name: String,
    /// His code.
    pub code: String,
    /// Unix milliseconds.
    pub created_ms: u64,
}

/// Why somebody cannot be let in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeopleError {
    /// No such code.
    #[error("no such code waits on `{0}`; codes live for an hour, see `hearth channels list`")]
    NoCode(String),
    /// No such person.
    #[error("`{person}` was not let in on `{channel}`; see `hearth channels status {channel}`")]
    NoPerson {
        /// The channel.
        channel: String,
        /// The id.
        person: String,
    },
    /// The list is full.
    #[error("{MAX_PEOPLE} people are let in on `{0}`, the limit; remove some first")]
    Full(String),
    /// Database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct People {
    store: Store,
}

impl People {
    /// The lists of a hub.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// What is known of somebody.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn known(&self, channel: &str, person: &str) -> Result<Known, StoreError> {
        let (channel, person) = (channel.to_owned(), person.to_owned());
        self.store
            .read(move |c| {
                let found: Option<bool> = c
                    .prepare_cached(
                        "SELECT may_decide FROM channel_people WHERE channel = ?1 AND person = ?2",
                    )?
                    .query_row([channel, person], |r| r.get(0))
                    .optional()?;
                Ok(Known { allowed: found.is_some(), may_decide: found == Some(true) })
            })
            .await
    }

    /// A fresh code for somebody unknown: `None` when he has one already or too many wait.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn knock(&self, channel: &str, person: &str, name: &str) -> Result<Option<String>, StoreError> {
        let code = fresh_code().map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let (channel, person, name) = (channel.to_owned(), person.to_owned(), display_safe(name, 64));
        self.store
            .write(move |t| {
                let now = now_ms();
                t.execute(
                    "DELETE FROM channel_knocks WHERE created_ms <= ?1",
                    [now.saturating_sub(KNOCK_MS) as i64],
                )?;
                let waiting = knocks(t, &channel)?;
                if waiting.len() >= MAX_KNOCKS || waiting.iter().any(|k| k.person == person) {
                    return Ok(None);
                }
                t.execute(
                    "INSERT INTO channel_knocks (channel, person, name, code, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![channel, person, name, code, now as i64],
                )?;
                tracing::info!(channel, person, name, "somebody unknown writes and got a code");
                Ok(Some(code))
            })
            .await
    }

    /// Who waits with a code that is still good, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn knocks(&self, channel: &str) -> Result<Vec<Knock>, StoreError> {
        let channel = channel.to_owned();
        self.store.read(move |c| knocks(c, &channel)).await
    }

    /// Everybody who was let in, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn members(&self, channel: &str) -> Result<Vec<Member>, StoreError> {
        let channel = channel.to_owned();
        self.store
            .read(move |c| {
                let mut statement = c.prepare_cached(
                    "SELECT person, name, may_decide, added_ms, added_by FROM channel_people WHERE channel = ?1 \
                     ORDER BY name, person",
                )?;
                let rows = statement.query_map([channel], |r| {
                    Ok(Member {
                        person: r.get(0)?,
                        name: r.get(1)?,
                        may_decide: r.get(2)?,
                        added_ms: r.get::<_, i64>(3)? as u64,
                        added_by: r.get(4)?,
                    })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// Lets the person in who was given this code; it is used up.
    ///
    /// # Errors
    /// [`PeopleError`].
    pub async fn allow(
        &self,
        channel: &str,
        code: &str,
        may_decide: bool,
        by: &str,
    ) -> Result<Member, PeopleError> {
        let wanted = code.trim().to_ascii_uppercase();
        let (channel, by) = (channel.to_owned(), by.to_owned());
        self.store
            .write(move |t| {
                let found = knocks(t, &channel)?
                    .into_iter()
                    .find(|k| same_secret(k.code.as_bytes(), wanted.as_bytes()));
                let Some(knock) = found else { return Ok(Err(PeopleError::NoCode(channel))) };
                let count: i64 = t.query_row(
                    "SELECT count(*) FROM channel_people WHERE channel = ?1",
                    [&channel],
                    |r| r.get(0),
                )?;
                if count >= MAX_PEOPLE {
                    return Ok(Err(PeopleError::Full(channel)));
                }
                let now = now_ms();
                t.execute(
                    "INSERT OR REPLACE INTO channel_people (channel, person, name, may_decide, added_ms, added_by) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    params![channel, knock.person, knock.name, may_decide, now as i64, by],
                )?;
                t.execute(
                    "DELETE FROM channel_knocks WHERE channel = ?1 AND person = ?2",
                    [&channel, &knock.person],
                )?;
                let body = json!({ "channel": channel, "person": knock.person, "name": knock.name,
                                   "mayDecide": may_decide, "by": by });
                Audit::append_in(t, "channel.allowed", &body)?;
                let Knock { person, name, .. } = knock;
                Ok(Ok(Member { person, name, may_decide, added_ms: now, added_by: by }))
            })
            .await?
    }

    /// Forgets somebody who was let in.
    ///
    /// # Errors
    /// [`PeopleError::NoPerson`], [`PeopleError::Store`].
    pub async fn remove(&self, channel: &str, person: &str, by: &str) -> Result<(), PeopleError> {
        let (channel, person) = (channel.to_owned(), person.to_owned());
        let by = by.to_owned();
        self.store
            .write(move |t| {
                let gone = t.execute(
                    "DELETE FROM channel_people WHERE channel = ?1 AND person = ?2",
                    [&channel, &person],
                )?;
                if gone == 0 {
                    return Ok(Err(PeopleError::NoPerson { channel, person }));
                }
                let body = json!({ "channel": channel, "person": person, "by": by });
                Audit::append_in(t, "channel.removed", &body)?;
                Ok(Ok(()))
            })
            .await?
    }
}

fn knocks(c: &Connection, channel: &str) -> Result<Vec<Knock>, StoreError> {
    let since = now_ms().saturating_sub(KNOCK_MS) as i64;
    let mut statement = c.prepare_cached(
        "SELECT person, name, code, created_ms FROM channel_knocks WHERE channel = ?1 AND created_ms > ?2 \
         ORDER BY created_ms, person",
    )?;
    let rows = statement.query_map(params![channel, since], |r| {
        let created_ms = r.get::<_, i64>(3)? as u64;
        Ok(Knock { person: r.get(0)?, name: r.get(1)?, code: r.get(2)?, created_ms })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// 40 random bits.
fn fresh_code() -> Result<String, IdentityError> {
    // 256 is a multiple of 32: every character is as likely.
    let bytes = random::<CODE_LENGTH>()?;
    Ok(bytes.iter().map(|b| ALPHABET[usize::from(b % 32)] as char).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people() -> (tempfile::TempDir, People) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("hub.db")).unwrap();
        (dir, People::new(store))
    }

    #[test]
    fn codes_have_eight_characters_that_nobody_mistakes() {
        let code = fresh_code().unwrap();
        assert_eq!(code.len(), 8);
        assert!(code.bytes().all(|b| ALPHABET.contains(&b)), "{code}");
        assert_ne!(code, fresh_code().unwrap());
    }

    #[tokio::test]
    async fn a_code_lets_in_once_and_only_the_person_it_was_given_to() {
        let (_dir, people) = people();
        let code = people.knock("t", "7", "Ann\u{202e}").await.unwrap().unwrap();
        assert_eq!(people.knock("t", "7", "Ann").await.unwrap(), None, "he has one");
        assert!(matches!(people.allow("other", &code, true, "me").await, Err(PeopleError::NoCode(_))));
        assert!(matches!(people.allow("t", "AAAAAAAA", true, "me").await, Err(PeopleError::NoCode(_))));
        let member = people.allow("t", &code.to_lowercase(), false, "me").await.unwrap();
        assert_eq!((member.person.as_str(), member.may_decide), ("7", false));
        assert!(!member.name.contains('\u{202e}'));
        assert!(matches!(people.allow("t", &code, true, "me").await, Err(PeopleError::NoCode(_))), "used up");
        assert_eq!(people.known("t", "7").await.unwrap(), Known { allowed: true, may_decide: false });
        assert_eq!(people.known("t", "8").await.unwrap(), Known::default());
        people.remove("t", "7", "me").await.unwrap();
        assert!(matches!(people.remove("t", "7", "me").await, Err(PeopleError::NoPerson { .. })));
        assert_eq!(people.known("t", "7").await.unwrap(), Known::default());
    }

    #[tokio::test]
    async fn three_wait_and_a_fourth_gets_nothing_until_a_code_is_too_old() {
        let (_dir, people) = people();
        for person in ["1", "2", "3"] {
            assert!(people.knock("t", person, "x").await.unwrap().is_some());
        }
        assert_eq!(people.knock("t", "4", "x").await.unwrap(), None);
        assert!(people.knock("other", "4", "x").await.unwrap().is_some());
        let code = people.knocks("t").await.unwrap()[0].code.clone();
        let old = now_ms() - KNOCK_MS - 1;
        people
            .store
            .write(move |t| {
                t.execute("UPDATE channel_knocks SET created_ms = ?1 WHERE person = '1'", [old as i64])?;
                Ok(())
            })
            .await
            .unwrap();
        assert!(matches!(people.allow("t", &code, true, "me").await, Err(PeopleError::NoCode(_))));
        assert!(people.knock("t", "4", "x").await.unwrap().is_some());
    }
}
