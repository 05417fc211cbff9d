//! What every adapter is held against: [`facets`] for what it declares, [`sending`] for what it sends, and
//! [`talking`] for a conversation through the whole hub. An adapter brings the other end of the line, a
//! [`Platform`].

use super::adapter::{Adapter, Channel};
use super::capabilities::Capabilities;
use super::message::{Button, Text};
use super::toy::{Toy, ToyConfig};
use super::{ChannelsConfig, clients, open_one, telegram};
use crate::config::{AccessConfig, Config};
use crate::home::Home;
use crate::hub::Hub;
use crate::nodes::Media;
use hearth_shared::identity::Digest;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The person in the tests, and one whom nobody knows.
const PERSON: &str = "4711";
const STRANGER: &str = "4712";

/// The other end.
pub(crate) trait Platform {
    /// A person writes directly; `id` is the message's, and the same id again is the same message.
    fn write(&mut self, person: &str, id: u64, text: &str);
    /// Words that a person saw, in order, each message as it is now.
    fn seen(&mut self, person: &str) -> Vec<String>;
}

async fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(value) = check() {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("still not: {what}");
}

/// What is declared is there, and nothing else.
pub(crate) fn facets(can: Capabilities, adapter: &dyn Adapter) {
    assert_eq!(can.pictures.is_some(), adapter.pictures().is_some(), "pictures");
    assert_eq!(can.buttons, adapter.buttons().is_some(), "buttons");
    assert_eq!(can.edits, adapter.edits().is_some(), "edits");
    assert_eq!(can.typing, adapter.typing().is_some(), "typing");
    assert_eq!(can.files, adapter.files().is_some(), "files");
    assert_eq!(can.recovery, adapter.recovery().is_some(), "recovery");
    assert!(!(can.buttons && can.own_cards), "cards come from one side");
    assert!(can.text.max >= 100 && can.pictures.is_none_or(|c| c.max <= can.text.max), "limits");
}

/// Everything that is sent arrives as it is, up to the limits.
pub(crate) async fn sending(can: Capabilities, adapter: &dyn Adapter, platform: &mut dyn Platform) {
    assert!(!adapter.check().await.unwrap().is_empty());
    let to = adapter.direct(PERSON).await.unwrap();
    let longest = "x".repeat(can.text.max);
    let odd = "<b>&amp; *x* _y_ [z](w) `c` 中文 😀 \"'";
    let mut ids = Vec::new();
    for text in [longest.as_str(), odd] {
        ids.push(adapter.messages().send(&to, &Text::plain(text)).await.unwrap());
        eventually("the words are there", || platform.seen(PERSON).last().filter(|t| *t == text).map(drop))
            .await;
    }
    if let Some(edits) = adapter.edits() {
        for _ in 0..2 {
            edits.edit(&to, &ids[1], &Text::plain("changed")).await.unwrap();
            let seen = platform.seen(PERSON);
            assert!(seen.iter().any(|t| t == "changed") && !seen.iter().any(|t| t == odd), "{seen:?}");
        }
    }
    if let Some(buttons) = adapter.buttons() {
        let button = |label: &str| Button { label: label.into(), data: "d".repeat(64) };
        ids.push(buttons.send_card(&to, &Text::plain(odd), &[button("Yes"), button("No")]).await.unwrap());
        assert_eq!(platform.seen(PERSON).last().map(String::as_str), Some(odd));
    }
    if let (Some(pictures), Some(limit)) = (adapter.pictures(), can.pictures) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jpg");
        std::fs::write(&path, [0xff, 0xd8, 0xff, 0xd9]).unwrap();
        let picture =
            Media { id: "m".into(), path, mime: "image/jpeg".into(), size: 4, sha256: Digest([0; 32]) };
        for caption in ["y".repeat(limit.max), String::new()] {
            let sent = pictures.send_picture(&to, &picture, &Text::plain(&caption)).await.unwrap();
            ids.push(sent);
            assert_eq!(platform.seen(PERSON).last(), Some(&caption));
        }
    }
    if let Some(typing) = adapter.typing() {
        typing.show_typing(&to).await.unwrap();
    }
    let count = ids.len();
    ids.sort_by(|a, b| a.0.cmp(&b.0));
    ids.dedup();
    assert_eq!(ids.len(), count, "every message has an id of its own");
}

/// A message is answered once, however often it comes; who is not known gets a code and nothing else.
pub(crate) async fn talking(platform: &mut dyn Platform) {
    let before = platform.seen(PERSON).len();
    platform.write(PERSON, 1, "status");
    eventually("an answer", || (platform.seen(PERSON).len() > before).then_some(())).await;
    platform.write(PERSON, 1, "status");
    platform.write(PERSON, 2, "/help");
    let all = eventually("the second answer", || {
        let seen = platform.seen(PERSON);
        (seen.len() > before + 1).then_some(seen)
    })
    .await;
    assert_eq!(all.len(), before + 2, "{all:?}");
    platform.write(STRANGER, 3, "status");
    let code = eventually("a code", || platform.seen(STRANGER).pop()).await;
    assert!(code.contains("hearth channels allow"), "{code}");
    platform.write(STRANGER, 4, "hello?");
    platform.write(PERSON, 5, "/help");
    eventually("the third answer", || (platform.seen(PERSON).len() > before + 2).then_some(())).await;
    assert_eq!(platform.seen(STRANGER).len(), 1, "nothing else");
}

fn access() -> AccessConfig {
    AccessConfig { allow: vec![PERSON.into()], ..AccessConfig::default() }
}

struct House {
    _dir: tempfile::TempDir,
    hub: Arc<Hub>,
    adapter: Arc<dyn Adapter>,
}

/// A hub with one more channel.
async fn house<C: Channel>(own: &C::Config) -> House {
    let dir = tempfile::tempdir().unwrap();
    let mut adapter = None;
    let hub =
        Hub::open_with(Home::locate(Some(dir.path())), Config::default(), |_: &ChannelsConfig, ground| {
            let opened = open_one::<C>(own, ground);
            adapter = opened.adapter.as_ref().ok().cloned();
            vec![opened]
        })
        .await
        .unwrap();
    House { _dir: dir, hub, adapter: adapter.unwrap() }
}

struct TelegramSide(hearth_tests::FakeTelegram);

impl Platform for TelegramSide {
    fn write(&mut self, person: &str, id: u64, text: &str) {
        let person: i64 = person.parse().unwrap();
        // Ids far from those that the server gives out itself.
        self.0.say_with(person, person, json!({ "text": text, "message_id": 1_000 + id }));
    }
    fn seen(&mut self, person: &str) -> Vec<String> {
        self.0.messages(person.parse().unwrap()).into_iter().map(|m| m.text).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telegram_conforms() {
    let fake = hearth_tests::FakeTelegram::start();
    let config = fake.config(&format!("allow = [\"{PERSON}\"]"));
    let config: Config = toml::from_str(&config).unwrap();
    let house = house::<telegram::Telegram>(config.channels.telegram.as_ref().unwrap()).await;
    let mut side = TelegramSide(fake);
    facets(telegram::Telegram::CAN, &*house.adapter);
    talking(&mut side).await;
    sending(telegram::Telegram::CAN, &*house.adapter, &mut side).await;
    house.hub.drain("test").await;
    assert_eq!(side.0.violations(), Vec::<String>::new());
}

/// A server of the toy's protocol.
struct ToySide {
    seen: Arc<std::sync::Mutex<Vec<(String, String)>>>,
    out: std::sync::mpsc::Sender<String>,
}

impl ToySide {
    fn start() -> (Self, String) {
        use std::io::{BufRead as _, BufReader, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (out, lines) = std::sync::mpsc::channel::<String>();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = seen.clone();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut writer = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                for line in lines {
                    writer.write_all(line.as_bytes()).unwrap();
                }
            });
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let (person, text) = line.split_once(' ').unwrap();
                heard.lock().unwrap().push((person.to_owned(), text.replace('\u{2028}', "\n")));
            }
        });
        (Self { seen, out }, address)
    }
}

impl Platform for ToySide {
    fn write(&mut self, person: &str, id: u64, text: &str) {
        self.out.send(format!("{id} {person} {text}\n")).unwrap();
    }
    fn seen(&mut self, person: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(p, _)| p == person).map(|(_, text)| text.clone()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_toy_conforms() {
    let (mut side, address) = ToySide::start();
    let house = house::<Toy>(&ToyConfig { address, access: access() }).await;
    facets(Toy::CAN, &*house.adapter);
    talking(&mut side).await;
    sending(Toy::CAN, &*house.adapter, &mut side).await;
    house.hub.drain("test").await;
}

/// What stands in the transcript of a session is what its clients see.
struct ClientSide(Arc<Hub>);

impl Platform for ClientSide {
    fn write(&mut self, _: &str, _: u64, _: &str) {
        unreachable!("clients write through the gateway");
    }
    fn seen(&mut self, person: &str) -> Vec<String> {
        let key = format!("agent:main:{person}");
        let (sessions, handle) = (self.0.sessions.clone(), tokio::runtime::Handle::current());
        let lines =
            tokio::task::block_in_place(|| handle.block_on(sessions.history(&key, 1000, 0))).unwrap().0;
        let text =
            |l: &crate::sessions::Message| l.content[0]["text"].as_str().unwrap_or_default().to_owned();
        lines.iter().map(text).collect()
    }
}

async fn clients_conform<C: Channel>() {
    let house = house::<C>(&C::Config::default()).await;
    facets(C::CAN, &*house.adapter);
    sending(C::CAN, &*house.adapter, &mut ClientSide(house.hub.clone())).await;
    house.hub.drain("test").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_terminal_conforms() {
    clients_conform::<clients::Terminal>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_web_chat_conforms() {
    clients_conform::<clients::Webchat>().await;
}
