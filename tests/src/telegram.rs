//! A strict stand-in for Telegram's Bot API, written from its description: long polling with offsets and
//! conflicts, limits of texts, captions and buttons counted as Telegram counts, HTML that is really read,
//! edits that change nothing refused, people who never wrote not reachable. What the real one would refuse is
//! refused, and parameters that it does not know are a violation, which [`FakeTelegram::violations`] tells.

mod calls;
mod html;

use crate::http;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The bot's token.
pub const TOKEN: &str = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";
/// The bot's id.
pub const BOT: i64 = 110_201_543;

/// How a call is made to fail.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Refused with this code and these words.
    Refused(u16, &'static str),
    /// 429 with `retry_after` in seconds.
    TooMany(u64),
    /// Done, but the answer is lost.
    AnswerLost,
    /// The connection breaks before anything is done.
    NotDone,
}

/// A message in a chat, as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its id.
    pub id: i64,
    /// Words without markup.
    pub text: String,
    /// HTML as it was sent, when it was.
    pub html: Option<String>,
    /// Bytes of a picture or file.
    pub file: Option<Vec<u8>>,
    /// Label and data.
    pub buttons: Vec<(String, String)>,
    /// How often it was changed.
    pub edits: u32,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    updates: Vec<(i64, Value)>,
    next_update: i64,
    /// Ids of private chats and basic groups share one count, as with the real one.
    next_message: i64,
    next_in_supergroup: BTreeMap<i64, i64>,
    chats: BTreeMap<i64, Vec<Shown>>,
    /// Chats in which the bot may write.
    known: BTreeSet<i64>,
    files: BTreeMap<String, Vec<u8>>,
    callbacks: BTreeMap<String, Option<String>>,
    failures: Vec<(String, Failure)>,
    calls: Vec<(String, Value)>,
    violations: Vec<String>,
    /// Counts polls: an older one that still waits is told of the conflict.
    poll: u64,
    webhook: bool,
    other_poller: bool,
    sent_at: Vec<(i64, Instant)>,
}

/// The server; it ends with the test process.
#[derive(Debug, Clone)]
pub struct FakeTelegram {
    /// For `api_base`.
    pub url: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl FakeTelegram {
    /// Starts it.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let state = State { next_update: 1, next_message: 1, ..State::default() };
        let fake = Self { url, shared: Arc::new((Mutex::new(state), Condvar::new())) };
        let server = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        fake
    }

    /// The hub's configuration for it; `access` is the content of `[channels.telegram.access]`.
    #[must_use]
    pub fn config(&self, access: &str) -> String {
        format!(
            "[channels.telegram]\ntoken = \"{TOKEN}\"\napi_base = \"{}\"\npoll_s = 2\n[channels.telegram.access]\n{access}\n",
            self.url
        )
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().expect("the server did not panic")
    }

    /// A person writes to the bot; gives the message's id.
    pub fn say(&self, person: i64, text: &str) -> i64 {
        self.say_with(person, person, json!({ "text": text }))
    }

    /// A person writes in a chat, with these fields of the message.
    pub fn say_with(&self, chat: i64, person: i64, fields: Value) -> i64 {
        let mut state = self.lock();
        state.known.insert(chat);
        let id = state.fresh_id(chat);
        let kind = if chat > 0 { "private" } else { "supergroup" };
        let mut message = json!({
            "message_id": id, "date": 1_700_000_000, "chat": { "id": chat, "type": kind, "title": "Home" },
            "from": { "id": person, "is_bot": false, "first_name": format!("P{person}"), "language_code": "en" },
        });
        for (key, value) in fields.as_object().into_iter().flatten() {
            message[key] = value.clone();
        }
        state.update(json!({ "message": message }));
        drop(state);
        self.shared.1.notify_all();
        id
    }

    /// Hands an update out as it is, without its number.
    pub fn push(&self, update: Value) {
        self.lock().update(update);
        self.shared.1.notify_all();
    }

    /// A person presses a button under a message in a chat; gives the id under which it will be answered.
    pub fn press(&self, person: i64, chat: i64, message: i64, data: &str) -> String {
        let mut state = self.lock();
        let id = format!("cb{}", state.callbacks.len() + 1);
        state.callbacks.insert(id.clone(), None);
        let kind = if chat > 0 { "private" } else { "supergroup" };
        state.update(json!({ "callback_query": {
            "id": id, "chat_instance": "1", "data": data,
            "from": { "id": person, "is_bot": false, "first_name": format!("P{person}") },
            "message": { "message_id": message, "date": 1_700_000_000, "chat": { "id": chat, "type": kind },
                         "from": { "id": BOT, "is_bot": true, "first_name": "Hearth" } },
        }}));
        drop(state);
        self.shared.1.notify_all();
        id
    }

    /// What was answered to a press.
    #[must_use]
    pub fn answer_to(&self, callback: &str) -> Option<String> {
        self.lock().callbacks.get(callback).cloned().flatten()
    }

    /// What the bot has in a chat, in order.
    #[must_use]
    pub fn messages(&self, chat: i64) -> Vec<Shown> {
        self.lock().chats.get(&chat).cloned().unwrap_or_default()
    }

    /// A file that a person sent, to be fetched under its id.
    pub fn keep_file(&self, id: &str, bytes: &[u8]) {
        self.lock().files.insert(id.into(), bytes.to_vec());
    }

    /// The next call of this method fails so; several stand in a line.
    pub fn fail(&self, method: &str, failure: Failure) {
        self.lock().failures.push((method.into(), failure));
    }

    /// A webhook is set, by whoever.
    pub fn set_webhook(&self, set: bool) {
        self.lock().webhook = set;
        self.shared.1.notify_all();
    }

    /// Another program polls, once: the poll that waits, or else the next one, is told of it.
    pub fn other_poller(&self) {
        self.lock().other_poller = true;
        self.shared.1.notify_all();
    }

    /// Calls of a method so far.
    #[must_use]
    pub fn calls(&self, method: &str) -> Vec<Value> {
        self.lock().calls.iter().filter(|(m, _)| m == method).map(|(_, p)| p.clone()).collect()
    }

    /// What the real one would have been asked wrongly.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Updates that were not confirmed by a poll behind them.
    #[must_use]
    pub fn unconfirmed(&self) -> usize {
        self.lock().updates.len()
    }

    fn serve(&self, stream: TcpStream) {
        let mut writer = stream.try_clone().expect("a socket");
        let mut reader = BufReader::new(stream);
        while let Some(request) = http::read(&mut reader) {
            if let Some(file) = request.path.strip_prefix(&format!("/file/bot{TOKEN}/")) {
                let bytes = self.lock().files.get(file).cloned();
                match bytes {
                    Some(bytes) => http::answer(&mut writer, 200, "application/octet-stream", &bytes),
                    None => http::answer(&mut writer, 404, "application/json", b"{}"),
                }
                continue;
            }
            let Some(method) = request.path.strip_prefix(&format!("/bot{TOKEN}/")) else {
                let body = json!({ "ok": false, "error_code": 401, "description": "Unauthorized" });
                http::answer(&mut writer, 401, "application/json", body.to_string().as_bytes());
                continue;
            };
            let fields = request.fields();
            let failure = {
                let mut state = self.lock();
                let params = json!(fields.values);
                state.calls.push((method.to_owned(), params));
                let at = state.failures.iter().position(|(m, _)| m == method);
                at.map(|at| state.failures.remove(at).1)
            };
            let outcome = match failure {
                Some(Failure::NotDone) => return,
                Some(Failure::Refused(code, why)) => Err((code, why.to_owned(), None)),
                Some(Failure::TooMany(seconds)) => {
                    Err((429, format!("Too Many Requests: retry after {seconds}"), Some(seconds)))
                }
                Some(Failure::AnswerLost) => {
                    let _ = self.call(method, &fields);
                    return;
                }
                None => self.call(method, &fields),
            };
            let (status, body) = match outcome {
                Ok(result) => (200, json!({ "ok": true, "result": result })),
                Err((code, why, retry)) => {
                    let mut body = json!({ "ok": false, "error_code": code, "description": why });
                    if let Some(seconds) = retry {
                        body["parameters"] = json!({ "retry_after": seconds });
                    }
                    (code, body)
                }
            };
            http::answer(&mut writer, status, "application/json", body.to_string().as_bytes());
        }
    }

    fn call(&self, method: &str, fields: &http::Fields) -> calls::Outcome {
        if method == "getUpdates" {
            return self.get_updates(fields);
        }
        self.lock().call(method, fields)
    }

    fn get_updates(&self, fields: &http::Fields) -> calls::Outcome {
        calls::check_params(&mut self.lock(), "getUpdates", fields);
        let number = |name: &str| fields.values.get(name).and_then(Value::as_i64);
        let deadline = Instant::now() + Duration::from_secs(number("timeout").unwrap_or(0).unsigned_abs());
        let mut state = self.lock();
        if let Some(offset) = number("offset") {
            state.updates.retain(|(id, _)| *id >= offset);
        }
        state.poll += 1;
        let mine = state.poll;
        loop {
            if state.webhook {
                let why = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first";
                return Err((409, why.into(), None));
            }
            if state.poll != mine || std::mem::take(&mut state.other_poller) {
                let why = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
                return Err((409, why.into(), None));
            }
            if !state.updates.is_empty() {
                return Ok(state.updates.iter().take(100).map(|(_, update)| update.clone()).collect());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(json!([]));
            }
            state = self.shared.1.wait_timeout(state, left).expect("the server did not panic").0;
        }
    }
}

impl State {
    fn fresh_id(&mut self, chat: i64) -> i64 {
        let next = if chat < -1_000_000_000_000 {
            self.next_in_supergroup.entry(chat).or_insert(1)
        } else {
            &mut self.next_message
        };
        *next += 1;
        *next - 1
    }

    fn update(&mut self, mut update: Value) {
        update["update_id"] = self.next_update.into();
        self.updates.push((self.next_update, update));
        self.next_update += 1;
    }
}
