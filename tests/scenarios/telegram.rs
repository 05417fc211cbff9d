//! Telegram against the strict stand-in: talk, pictures, cards, attacks, faults and kills.

use hearth_tests::model::{StubModel, Turn};
use hearth_tests::process::{command, eventually};
use hearth_tests::telegram::{Failure, Shown};
use hearth_tests::{FakeTelegram, JsonClient, TestHub, TestNode};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(40);
/// May decide.
const OWNER: i64 = 4711;
/// May write.
const GUEST: i64 = 4712;
const STRANGER: i64 = 6666;
const GROUP: i64 = -1_001_234_567_890;

struct House {
    telegram: FakeTelegram,
    hub: TestHub,
}

fn house_with(more: &str) -> House {
    let telegram = FakeTelegram::start();
    let access =
        format!("approvers = [\"{OWNER}\"]\nallow = [\"{GUEST}\"]\nallow_groups = [\"{GROUP}\"]\n{more}");
    let hub = TestHub::start_with(&telegram.config(&access));
    House { telegram, hub }
}

fn house() -> House {
    house_with("")
}

impl House {
    /// Waits until the bot has shown something in a chat, from its n-th message on.
    fn shown(&self, chat: i64, from: usize, what: &str, wanted: impl Fn(&Shown) -> bool) -> Shown {
        eventually(what, PATIENCE, || self.telegram.messages(chat).into_iter().skip(from).find(|m| wanted(m)))
    }

    fn card(&self) -> Shown {
        self.shown(OWNER, 0, "a card with buttons", |m| !m.buttons.is_empty())
    }

    fn press(&self, person: i64, chat: i64, message: i64, data: &str) -> String {
        let id = self.telegram.press(person, chat, message, data);
        eventually("the press is answered", PATIENCE, || self.telegram.answer_to(&id))
    }

    fn status(&self) -> Value {
        self.hub.json(&["channels", "status", "telegram"])
    }

    fn end(self) {
        assert_eq!(self.telegram.violations(), Vec::<String>::new());
    }
}

fn data<'a>(card: &'a Shown, label: &str) -> &'a str {
    &card.buttons.iter().find(|(l, _)| l == label).unwrap_or_else(|| panic!("no {label}: {card:?}")).1
}

fn pump(hub: &TestHub) -> Option<bool> {
    let read = hub.cli(&["nodes", "invoke", "garage", "gpio.read", r#"{"pin":"pump"}"#, "--json"]);
    let value: Value = serde_json::from_str(&read.stdout).ok()?;
    value["payload"]["value"].as_bool().or_else(|| value["result"]["value"].as_bool())
}

#[test]
fn the_owner_asks_for_a_picture_allows_it_with_a_button_and_gets_it() {
    let house = house();
    let _node = TestNode::paired(&house.hub, "garage", "");
    house.telegram.say(OWNER, "take a picture in the garage");
    let card = house.card();
    assert!(card.text.contains("camera.snap") && card.text.contains("garage"), "{card:?}");
    assert!(card.text.contains("What the assistant says (not checked)"), "{card:?}");
    assert!(card.html.is_none(), "a card carries no markup");
    assert!(house.telegram.messages(OWNER).iter().all(|m| m.file.is_none()), "nothing before the yes");
    let said = house.press(OWNER, OWNER, card.id, data(&card, "Allow once"));
    assert!(said.contains("Allowed once"), "{said}");
    let picture = house.shown(OWNER, 0, "the picture", |m| m.file.is_some());
    assert!(picture.file.unwrap().starts_with(&[0xff, 0xd8]) && !picture.text.is_empty());
    let closed = house.shown(OWNER, 0, "the card is closed", |m| m.id == card.id && m.buttons.is_empty());
    assert!(closed.text.contains("Allowed once by telegram: P4711 (4711)"), "{closed:?}");
    // Once more: politely no.
    let again = house.press(OWNER, OWNER, card.id, data(&card, "Deny"));
    assert!(again.contains("Allowed once by telegram"), "{again}");
    assert_eq!(house.hub.cli(&["audit", "verify"]).code, 0);
    house.end();
}

#[test]
fn a_decision_taken_elsewhere_closes_the_card() {
    let house = house();
    let _node = TestNode::paired(&house.hub, "garage", "");
    house.telegram.say(OWNER, "turn the pump on for 20 seconds");
    let card = house.card();
    let _ = house
        .hub
        .cli(&["approvals", "deny", card.text.split("Approval ").nth(1).unwrap().get(..8).unwrap()])
        .ok();
    let closed = house.shown(OWNER, 0, "the card is closed", |m| m.id == card.id && m.buttons.is_empty());
    assert!(closed.text.contains("Denied"), "{closed:?}");
    house.shown(OWNER, 0, "the answer", |m| m.id != card.id && m.text.contains("said no"));
    assert_eq!(pump(&house.hub), Some(false));
    house.end();
}

#[test]
fn forged_stolen_and_replayed_presses_move_nothing() {
    let house = house();
    let _node = TestNode::paired(&house.hub, "garage", "");
    house.telegram.say(GUEST, "status");
    house.shown(GUEST, 0, "an answer", |_| true);
    house.telegram.say(OWNER, "turn the pump on for 20 seconds");
    let card = house.card();
    let allow = data(&card, "Allow once").to_owned();
    let not_valid = |said: String| assert!(said.contains("not valid"), "{said}");
    // Others, each with the true token: a member of the group, a guest in his own chat, a guest in the owner's.
    not_valid(house.press(GUEST, GROUP, card.id, &allow));
    not_valid(house.press(GUEST, GUEST, card.id, &allow));
    not_valid(house.press(GUEST, OWNER, card.id, &allow));
    // The owner himself, but in a group, under another message, in another chat.
    not_valid(house.press(OWNER, GROUP, card.id, &allow));
    not_valid(house.press(OWNER, OWNER, card.id + 1, &allow));
    not_valid(house.press(OWNER, GUEST, card.id, &allow));
    // Other tokens and shapes.
    for forged in ["1", "x", "100000000000000000000000000000000", &allow[1..], &format!("3{}", &allow[1..])] {
        not_valid(house.press(OWNER, OWNER, card.id, forged));
    }
    // Typed by those who may not, and by the owner where it does not count.
    let id = card.text.split("Approval ").nth(1).unwrap().get(..8).unwrap().to_owned();
    let typed = format!("/approve {id} allow-once");
    let before = house.telegram.messages(GUEST).len();
    house.telegram.say(GUEST, &typed);
    house.shown(GUEST, before, "a no", |m| m.text.contains("may not decide"));
    let entity = json!([{ "type": "bot_command", "offset": 0, "length": 8 }]);
    let ours = json!({ "message_id": 1, "from": { "id": hearth_tests::telegram::BOT, "is_bot": true } });
    house.telegram.say_with(
        GROUP,
        OWNER,
        json!({ "text": typed, "entities": entity, "reply_to_message": ours }),
    );
    house.shown(GROUP, 0, "a no in the group", |m| m.text.contains("may not decide"));
    let before = house.telegram.messages(OWNER).len();
    let origin = json!({ "type": "hidden_user", "sender_user_name": "Eve", "date": 1 });
    house.telegram.say_with(OWNER, OWNER, json!({ "text": typed, "forward_origin": origin }));
    house.shown(OWNER, before, "a no to the forward", |m| m.text.contains("may not decide"));
    assert_eq!(pump(&house.hub), Some(false), "nothing ran");
    // And the owner's own typed word does it.
    house.telegram.say(OWNER, &typed);
    eventually("the pump runs", PATIENCE, || (pump(&house.hub) == Some(true)).then_some(()));
    house.end();
}

#[test]
fn an_unknown_person_gets_a_code_and_nothing_else_until_he_is_let_in() {
    let house = house();
    house.telegram.say(STRANGER, "status");
    let code = house.shown(STRANGER, 0, "a code", |_| true).text;
    let code = code
        .split_whitespace()
        .find(|w| w.len() == 8 && w.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()));
    let code = code.expect("a code of 8 characters").to_owned();
    house.telegram.say(STRANGER, "let me in");
    house.telegram.say_with(STRANGER, STRANGER, json!({ "voice": { "file_id": "v", "duration": 3 } }));
    // Three wait; the fourth is not heard.
    for other in [7001, 7002] {
        house.telegram.say(other, "hi");
        house.shown(other, 0, "a code", |_| true);
    }
    house.telegram.say(7003, "hi");
    house.telegram.say(OWNER, "/help");
    house.shown(OWNER, 0, "an answer behind them", |_| true);
    assert_eq!(house.telegram.messages(STRANGER).len(), 1);
    assert!(house.telegram.messages(7003).is_empty());
    assert!(house.telegram.calls("getFile").is_empty(), "nothing is fetched for a stranger");
    assert_eq!(house.status()["knocks"].as_array().unwrap().len(), 3);

    assert_ne!(house.hub.cli(&["channels", "allow", "telegram", "AAAAAAAA"]).code, 0);
    let let_in = house.hub.cli(&["channels", "allow", "telegram", &code.to_lowercase()]).ok();
    assert!(let_in.stdout.contains("may write now"), "{let_in:?}");
    let before = house.telegram.messages(STRANGER).len();
    house.telegram.say(STRANGER, "/status");
    house.shown(STRANGER, before, "he is answered", |m| m.text.contains("node") || m.text.contains("Node"));
    let _ = house.hub.cli(&["channels", "remove", "telegram", &STRANGER.to_string()]).ok();
    assert_eq!(house.status()["people"], json!([]));
    house.end();
}

#[test]
fn groups_are_listed_spoken_to_and_never_decide() {
    let house = house();
    let _node = TestNode::paired(&house.hub, "garage", "");
    house.telegram.say(OWNER, "/help");
    house.shown(OWNER, 0, "the owner's chat is known", |_| true);
    house.telegram.say_with(GROUP, GUEST, json!({ "text": "turn the pump on for 20 seconds" }));
    let other = -1_009_999_999_999;
    let mention = json!([{ "type": "mention", "offset": 0, "length": 11 }]);
    house.telegram.say_with(other, GUEST, json!({ "text": "@hearth_bot status", "entities": mention }));
    house.telegram.say_with(
        GROUP,
        GUEST,
        json!({ "text": "@hearth_bot turn the pump on for 20 seconds", "entities": mention }),
    );
    // The card goes to the owner alone; the group hears that it waits.
    let card = house.card();
    house.shown(GROUP, 0, "it waits", |m| m.text.contains("needs a yes"));
    assert!(house.telegram.messages(GROUP).iter().all(|m| m.buttons.is_empty()));
    assert!(house.telegram.messages(other).is_empty());
    assert_eq!(pump(&house.hub), Some(false));
    house.press(OWNER, OWNER, card.id, data(&card, "Allow once"));
    house.shown(GROUP, 0, "the answer", |m| {
        m.text.contains("on") && m.text.contains("ump") && !m.text.contains("yes")
    });
    house.end();
}

#[test]
fn pictures_and_voice_notes_are_kept_as_files() {
    let house = house();
    house.telegram.keep_file("voice/1.oga", b"OggS and so on");
    let voice = json!({ "file_id": "voice/1.oga", "duration": 4, "mime_type": "audio/ogg", "file_size": 14 });
    house.telegram.say_with(OWNER, OWNER, json!({ "voice": voice }));
    house.shown(OWNER, 0, "it is kept", |m| m.text.contains("Kept 1 file"));
    let folder = house.hub.home().join("media");
    let kept: Vec<_> =
        std::fs::read_dir(folder).unwrap().flatten().map(|f| std::fs::read(f.path()).unwrap()).collect();
    assert!(kept.iter().any(|bytes| bytes == b"OggS and so on"));
    house.end();
}

#[test]
fn long_answers_are_split_and_slow_ones_are_streamed_into_one_message() {
    const LONG: &str = "The list of everything that is known goes on and on.\n\n";
    let telegram = FakeTelegram::start();
    let pieces = vec!["It is ", "a long ", "story, ", "told ", "slowly."];
    let turns = vec![Turn::Slowly(pieces, Duration::from_millis(1_300)), Turn::Words(vec![LONG; 200])];
    let model = StubModel::start(turns);
    let access = format!("approvers = [\"{OWNER}\"]");
    let hub = TestHub::start_with(&(telegram.config(&access) + &model.config()));
    let house = House { telegram, hub };
    house.telegram.say(OWNER, "tell me a story");
    let done = house.shown(OWNER, 0, "the whole story", |m| m.text == "It is a long story, told slowly.");
    assert!(done.edits >= 2, "{done:?}");
    assert_eq!(house.telegram.messages(OWNER).len(), 1, "in one message");
    house.telegram.say(OWNER, "tell me everything");
    let all = eventually("all of it", PATIENCE, || {
        let texts: Vec<String> = house.telegram.messages(OWNER).into_iter().skip(1).map(|m| m.text).collect();
        (texts.concat().matches("goes on and on.").count() == 200).then_some(texts)
    });
    assert!(all.len() >= 3 && all.iter().all(|t| t.encode_utf16().count() <= 4096 && t.ends_with('.')));
    house.end();
}

#[test]
fn limits_faults_and_other_pollers_are_obeyed_survived_and_explained() {
    let house = house();
    house.telegram.say(OWNER, "/help");
    house.shown(OWNER, 0, "an answer", |_| true);
    assert_eq!(house.status()["state"], "up");

    // Told to wait: waits, then sends once.
    house.telegram.fail("sendMessage", Failure::TooMany(2));
    let asked = std::time::Instant::now();
    house.telegram.say(OWNER, "/status");
    house.shown(OWNER, 1, "the answer after the pause", |_| true);
    assert!(asked.elapsed() >= Duration::from_secs(2));

    // The answer to a message got lost: it is found, not sent again.
    house.telegram.fail("sendMessage", Failure::AnswerLost);
    house.telegram.say(OWNER, "/status");
    house.shown(OWNER, 2, "the answer", |_| true);
    eventually("it is known to be there", PATIENCE, || {
        let looked = house.telegram.calls("editMessageText").len();
        (looked > 0 && house.status()["waiting"] == 0).then_some(())
    });
    house.telegram.fail("sendMessage", Failure::NotDone);
    house.telegram.say(OWNER, "/status");
    // In one conversation answers keep their order: behind this one nothing is left to come.
    let help = house.telegram.messages(OWNER)[0].text.clone();
    house.telegram.say(OWNER, "/help");
    house.shown(OWNER, 1, "the last answer", |m| m.text == help);
    assert_eq!(house.telegram.messages(OWNER).len(), 5, "each once: {:?}", house.telegram.messages(OWNER));

    // Markup that Telegram cannot read: the words come all the same.
    house.telegram.fail("sendMessage", Failure::Refused(400, "Bad Request: can't parse entities: x"));
    house.telegram.say(OWNER, "/status");
    house.shown(OWNER, 5, "the answer without markup", |m| m.html.is_none());

    house.telegram.other_poller();
    eventually("the conflict is told", PATIENCE, || {
        let log = house.hub.log();
        log.contains("another program fetches this bot's messages").then_some(())
    });
    eventually("it goes on by itself", PATIENCE, || (house.status()["state"] == "up").then_some(()));
    house.telegram.set_webhook(true);
    eventually("the webhook is told", PATIENCE, || {
        let error = house.status()["error"].as_str().unwrap_or_default().to_owned();
        error.contains("webhook").then_some(())
    });
    let test = house.hub.cli(&["channels", "test", "telegram", "--to", &OWNER.to_string()]).ok();
    assert!(test.stdout.contains("@hearth_bot"), "{test:?}");
    let listed = house.hub.cli(&["channels", "list"]).ok();
    assert!(listed.stdout.contains("telegram") && listed.stdout.contains("down"), "{listed:?}");
    assert!(!house.hub.log().contains("AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"), "the token is in no log");
    house.end();
}

#[test]
fn a_wrong_token_is_said_and_nothing_else_suffers() {
    let telegram = FakeTelegram::start();
    let config = telegram.config("").replace("110201543:", "1:");
    let hub = TestHub::start_with(&config);
    eventually("it is told", PATIENCE, || {
        let status = hub.json(&["channels", "status", "telegram"]);
        status["error"].as_str().unwrap_or_default().contains("@BotFather").then_some(())
    });
    assert!(hub.cli(&["status"]).code == 0);
}

#[test]
fn a_proxy_is_used_for_everything() {
    let telegram = FakeTelegram::start();
    // Nothing listens where the Bot API is said to be: only the proxy can have answered.
    let config = telegram.config(&format!("approvers = [\"{OWNER}\"]"));
    let config = config.replace(
        &format!("api_base = \"{}\"", telegram.url),
        &format!("api_base = \"http://127.0.0.1:9\"\nproxy = \"{}\"", telegram.url),
    );
    let hub = TestHub::start_with(&config);
    let house = House { telegram, hub };
    house.telegram.say(OWNER, "/help");
    house.shown(OWNER, 0, "an answer through the proxy", |_| true);
    house.end();
}

#[test]
fn cards_and_pictures_whose_answers_got_lost_come_once_over_a_kill() {
    let mut house = house();
    let _node = TestNode::paired(&house.hub, "garage", "");
    house.telegram.fail("sendMessage", Failure::AnswerLost);
    house.telegram.say(OWNER, "take a picture in the garage");
    let card = house.card();
    house.hub.kill();
    house.hub.restart();
    let allow = data(&card, "Allow once").to_owned();
    house.telegram.fail("sendPhoto", Failure::AnswerLost);
    eventually("the card is found again and its button works", PATIENCE, || {
        let said = house.press(OWNER, OWNER, card.id, &allow);
        said.contains("Allowed once").then_some(())
    });
    house.shown(OWNER, 0, "the picture", |m| m.file.is_some());
    house.hub.kill();
    house.hub.restart();
    let before = house.telegram.messages(OWNER).len();
    house.telegram.say(OWNER, "/help");
    house.shown(OWNER, before, "an answer behind it", |_| true);
    let all = house.telegram.messages(OWNER);
    assert_eq!(all.iter().filter(|m| m.file.is_some()).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|m| m.text.contains("camera.snap")).count(), 1, "{all:?}");
    house.end();
}

#[test]
fn who_is_let_in_as_approver_sees_what_waits_and_allows_it_once_the_node_is_back() {
    let telegram = FakeTelegram::start();
    let hub = TestHub::start_with(&telegram.config(""));
    let mut node = TestNode::paired(&hub, "garage", "");
    let approver = JsonClient::approver(&hub);
    let mut chat = command("hearth", hub.home(), &["chat", "turn the pump on for 20 seconds"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("an approval waits", PATIENCE, || {
        let list = hub.cli(&["approvals", "list", "--json"]);
        let list: Value = serde_json::from_str(&list.stdout).ok()?;
        list["approvals"][0]["id"].as_str().map(drop)
    });
    drop(approver);
    node.kill();
    node.wait_away(&hub);
    let house = House { telegram, hub };
    house.telegram.say(OWNER, "hello");
    let told = house.shown(OWNER, 0, "a code", |_| true).text;
    let code = told
        .split_whitespace()
        .find(|w| w.len() == 8 && w.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()));
    let _ = house.hub.cli(&["channels", "allow", "telegram", code.unwrap(), "--approver"]).ok();
    let early = house.card();
    assert_eq!(early.buttons.len(), 1, "only a no, while the node says nothing: {early:?}");
    node.start();
    let card = house.shown(OWNER, 0, "the real card", |m| m.buttons.len() == 2);
    assert!(
        house.shown(OWNER, 0, "the early card", |m| m.id == early.id).buttons.is_empty()
            || card.id != early.id
    );
    house.press(OWNER, OWNER, card.id, data(&card, "Allow once"));
    eventually("the pump runs", PATIENCE, || (pump(&house.hub) == Some(true)).then_some(()));
    assert!(chat.wait().unwrap().success());
    house.end();
}

/// 12 here, more with `HEARTH_CRASH_ROUNDS`.
fn rounds() -> u64 {
    std::env::var("HEARTH_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

#[test]
fn over_kills_and_lost_answers_every_message_is_answered_once() {
    let House { telegram, mut hub } = house();
    telegram.say(OWNER, "/status");
    eventually("the first answer", PATIENCE, || telegram.messages(OWNER).first().cloned());
    for round in 0..rounds() {
        telegram.say(OWNER, "/status");
        match round % 4 {
            1 => telegram.fail("sendMessage", Failure::AnswerLost),
            2 => telegram.fail("getUpdates", Failure::AnswerLost),
            _ => {}
        }
        // Not in step with anything: the kill hits every phase, from the poll to the answer.
        std::thread::sleep(Duration::from_millis(round * 67 % 400));
        hub.kill();
        hub.restart();
    }
    let wanted = 1 + usize::try_from(rounds()).unwrap();
    eventually("all are answered", Duration::from_secs(90), || {
        (telegram.messages(OWNER).len() >= wanted).then_some(())
    });
    // Whatever would come twice has its time to come.
    telegram.say(OWNER, "/help");
    eventually("the last answer", PATIENCE, || (telegram.messages(OWNER).len() > wanted).then_some(()));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(telegram.messages(OWNER).len(), wanted + 1, "{:#?}", telegram.messages(OWNER));
    eventually("all updates are confirmed", PATIENCE, || (telegram.unconfirmed() == 0).then_some(()));
    assert_eq!(telegram.violations(), Vec::<String>::new());
}

#[test]
fn a_request_that_waits_keeps_its_card_over_a_kill_of_the_hub() {
    let mut house = house();
    let _node = TestNode::paired(&house.hub, "garage", "");
    house.telegram.say(OWNER, "turn the pump on for 600 seconds");
    let card = house.card();
    house.hub.kill();
    let id = house.telegram.press(OWNER, OWNER, card.id, data(&card, "Allow once"));
    house.hub.restart();
    eventually("the press is answered", PATIENCE, || house.telegram.answer_to(&id));
    eventually("the pump runs", PATIENCE, || (pump(&house.hub) == Some(true)).then_some(()));
    house.shown(OWNER, 0, "the answer", |m| m.id != card.id && m.text.contains("on"));
    let cards = house.telegram.messages(OWNER).iter().filter(|m| m.text.contains("gpio.pulse")).count();
    assert_eq!(cards, 1, "the card came once");
    house.end();
}
