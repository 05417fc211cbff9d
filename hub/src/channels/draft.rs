//! Answers while they are being written: on platforms where a message can be changed, the words appear as
//! they come, in one message that in the end is the answer.
//!
//! An answer that is there within a moment is sent whole. What is kept here lives in memory only: the message
//! itself is a row of the outbox, so that a hub that was killed finishes the message it had begun.

use super::message::ReplyTo;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// An answer that is finished sooner is not streamed.
const FIRST_AFTER: Duration = Duration::from_millis(1_200);
/// Answers that are followed at once.
const MAX_FOLLOWED: usize = 64;

/// Answers of one channel that are being written.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    all: Mutex<HashMap<String, Draft>>,
}

#[derive(Debug)]
struct Draft {
    to: ReplyTo,
    may_decide: bool,
    text: String,
    changed: bool,
    due: Option<Instant>,
}

/// One that is to be shown now.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) run_id: String,
    pub(crate) to: ReplyTo,
    pub(crate) text: String,
}

impl Drafts {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Draft>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message was taken; its answer may come in pieces.
    pub(crate) fn follow(&self, run_id: &str, to: &ReplyTo, may_decide: bool) {
        let mut all = self.lock();
        if all.len() < MAX_FOLLOWED {
            let draft = Draft { to: to.clone(), may_decide, text: String::new(), changed: false, due: None };
            all.insert(run_id.to_owned(), draft);
        }
    }

    /// Where an answer goes that is followed, and whether the person there may decide approvals.
    pub(crate) fn find(&self, run_id: &str) -> Option<(ReplyTo, bool)> {
        self.lock().get(run_id).map(|d| (d.to.clone(), d.may_decide))
    }

    /// The words so far; whether somebody should look at the clock.
    pub(crate) fn update(&self, run_id: &str, text: &str, now: Instant) -> bool {
        let mut all = self.lock();
        let Some(draft) = all.get_mut(run_id).filter(|d| d.text != text) else { return false };
        text.clone_into(&mut draft.text);
        draft.changed = true;
        draft.due.get_or_insert(now + FIRST_AFTER);
        true
    }

    /// Shown; the next time not before then.
    pub(crate) fn written(&self, run_id: &str, next: Instant) {
        if let Some(draft) = self.lock().get_mut(run_id) {
            draft.due = Some(next);
        }
    }

    /// The answer is there, or cannot be streamed.
    pub(crate) fn end(&self, run_id: &str) {
        self.lock().remove(run_id);
    }

    /// When the next one is to be shown.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.lock().values().filter(|d| d.changed).filter_map(|d| d.due).min()
    }

    /// One that is due.
    pub(crate) fn take_due(&self, now: Instant) -> Option<Due> {
        let mut all = self.lock();
        let (run_id, draft) = all.iter_mut().find(|(_, d)| d.changed && d.due.is_some_and(|at| at <= now))?;
        draft.changed = false;
        Some(Due { run_id: run_id.clone(), to: draft.to.clone(), text: draft.text.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Conversation;
    use super::*;

    #[test]
    fn quick_answers_are_not_streamed_and_long_ones_at_their_pace() {
        let drafts = Drafts::default();
        let to = ReplyTo { channel: "t".into(), conversation: Conversation::direct("1") };
        let start = Instant::now();
        drafts.follow("r", &to, false);
        assert!(!drafts.update("unknown", "x", start));
        assert!(drafts.update("r", "one", start));
        assert!(drafts.take_due(start).is_none());
        let shown = start + FIRST_AFTER;
        assert_eq!(drafts.take_due(shown).unwrap().text, "one");
        drafts.written("r", shown + Duration::from_secs(1));
        assert!(drafts.next_due().is_none(), "nothing new");
        assert!(!drafts.update("r", "one", shown), "the same words are nothing new");
        assert!(drafts.update("r", "one two", shown));
        assert!(drafts.take_due(shown).is_none());
        assert_eq!(drafts.take_due(shown + Duration::from_secs(1)).unwrap().text, "one two");
        drafts.end("r");
        assert!(!drafts.update("r", "late", shown));
    }
}
