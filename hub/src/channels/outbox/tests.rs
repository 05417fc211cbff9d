//! The outbox over kills: what was begun is found or sent again, what is done stays done.

use super::rows;
use crate::channels::can;
use crate::channels::message::{Conversation, MessageId, Part, ReplyTo, Text};
use crate::store::{Store, now_ms};
use rusqlite::params;

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("hub.db")).unwrap();
    (dir, store)
}

fn text(body: &str) -> Part {
    Part::Text { text: Text::markdown(body) }
}

fn to(id: &str) -> ReplyTo {
    ReplyTo { channel: "telegram".into(), conversation: Conversation::direct(id) }
}

async fn queue(store: &Store, key: &'static str, conversation: &'static str, body: &'static str) -> bool {
    let to = Conversation::direct(conversation);
    store.write(move |t| rows::enqueue(t, key, "telegram", &to, &text(body))).await.unwrap()
}

async fn next(store: &Store, paused: &[&str]) -> Option<rows::Queued> {
    let paused: Vec<Conversation> = paused.iter().map(|p| Conversation::direct(*p)).collect();
    store.read(move |c| rows::next(c, "telegram", &paused)).await.unwrap()
}

async fn ended_run(store: &Store, run: &'static str, state: &'static str, reply: &'static str) {
    let reply_to = serde_json::to_string(&to("1")).unwrap();
    store
        .write(move |t| {
            t.execute(
                "INSERT INTO runs (run_id, session_key, channel, sender, text, correlation, state, started_ms, ended_ms, \
                 reply, error, reply_to) VALUES (?1, 's', 'telegram', 'p', 'x', '', ?2, 0, ?3, ?4, ?4, ?5)",
                params![run, state, now_ms() as i64, reply, reply_to],
            )?;
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_key_is_queued_once_and_order_is_kept_in_a_conversation() {
    let (_dir, store) = store();
    assert!(queue(&store, "a", "1", "first").await);
    assert!(!queue(&store, "a", "1", "again").await);
    queue(&store, "b", "1", "second").await;
    queue(&store, "c", "2", "elsewhere").await;
    let first = next(&store, &[]).await.unwrap();
    assert_eq!(first.part, text("first"));
    assert_eq!(next(&store, &["1"]).await.unwrap().part, text("elsewhere"), "one conversation waits alone");
    store.write(move |t| rows::end(t, first.id, None)).await.unwrap();
    assert_eq!(next(&store, &[]).await.unwrap().part, text("second"));
    assert!(!queue(&store, "a", "1", "much later").await, "a sent key stays known");
    let kept: String = store
        .read(|c| Ok(c.query_row("SELECT part FROM outbox WHERE key = 'a'", [], |r| r.get(0))?))
        .await
        .unwrap();
    assert_eq!(kept, "{}", "what was sent is not kept");
}

#[tokio::test]
async fn what_was_begun_says_so_after_a_kill() {
    let (_dir, store) = store();
    queue(&store, "a", "1", "x").await;
    let id = next(&store, &[]).await.unwrap().id;
    store.write(move |t| rows::begin(t, id, Some("41"))).await.unwrap();
    let again = next(&store, &[]).await.unwrap();
    assert_eq!((again.begun, again.mark.as_deref(), again.message), (true, Some("41"), None));
    store.write(move |t| rows::not_posted(t, id, "429", false)).await.unwrap();
    assert!(!next(&store, &[]).await.unwrap().begun);
}

#[tokio::test]
async fn answers_are_taken_over_once_with_the_run() {
    let (_dir, store) = store();
    ended_run(&store, "r1", "done", "hello").await;
    ended_run(&store, "r2", "failed", "it broke").await;
    ended_run(&store, "r3", "stopped", "").await;
    let (channels, all) = store.write(|t| rows::hand_over(t, can)).await.unwrap();
    assert_eq!((channels, all), (vec!["telegram".to_owned()], true));
    for body in ["hello", "it broke"] {
        let queued = next(&store, &[]).await.unwrap();
        assert_eq!(queued.part, text(body));
        store.write(move |t| rows::end(t, queued.id, None)).await.unwrap();
    }
    assert!(next(&store, &[]).await.is_none(), "who stopped it was told");
    let (channels, _) = store.write(|t| rows::hand_over(t, can)).await.unwrap();
    assert!(channels.is_empty());
}

#[tokio::test]
async fn a_message_that_was_streamed_becomes_the_answer() {
    let (_dir, store) = store();
    let draft = store.write(|t| rows::draft(t, "r1", &to("1"))).await.unwrap().unwrap();
    assert!(next(&store, &[]).await.is_none(), "a draft is not for sending");
    store.write(move |t| rows::posted(t, draft.id, &MessageId("77".into()))).await.unwrap();
    ended_run(&store, "r1", "done", "the whole answer").await;
    store.write(|t| rows::hand_over(t, can)).await.unwrap();
    let queued = next(&store, &[]).await.unwrap();
    assert_eq!((queued.id, queued.message.as_ref().map(|m| m.0.as_str())), (draft.id, Some("77")));
    assert_eq!(queued.part, text("the whole answer"));
    let late = store.write(|t| rows::draft(t, "r1", &to("1"))).await.unwrap();
    assert!(late.is_none(), "nobody streams into a finished answer");
}

#[tokio::test]
async fn a_draft_that_nobody_saw_or_that_scrolled_away_is_not_the_answer() {
    let (_dir, store) = store();
    store.write(|t| rows::draft(t, "r1", &to("1"))).await.unwrap().unwrap();
    let old = store.write(|t| rows::draft(t, "r2", &to("1"))).await.unwrap().unwrap();
    store
        .write(move |t| {
            rows::posted(t, old.id, &MessageId("5".into()))?;
            t.execute("UPDATE outbox SET created_ms = 1 WHERE id = ?1", [old.id])?;
            Ok(())
        })
        .await
        .unwrap();
    ended_run(&store, "r1", "done", "one").await;
    ended_run(&store, "r2", "done", "two").await;
    store.write(|t| rows::hand_over(t, can)).await.unwrap();
    for body in ["one", "two"] {
        let queued = next(&store, &[]).await.unwrap();
        assert_eq!((queued.part, queued.message, queued.begun), (text(body), None, false));
        store.write(move |t| rows::end(t, queued.id, None)).await.unwrap();
    }
}
