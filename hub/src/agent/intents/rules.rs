//! The rules, tried in order; each works on its own copy of the sentence and marks what it understood.

mod pins;
mod sensors;

use super::names::{Candidate, Mention, Pick, pick, score};
use super::words::Words;
use super::{Cannot, Intent, Kind, Parsed, Question, World, WorldNode, spans};
use jiff::Zoned;
use pins::pins;
use sensors::{quantity, record, sensor_by_name, sensors};

type Rule = fn(&Words, &World, &Zoned) -> Option<Parsed>;

const RULES: &[Rule] = &[help, list, record, picture, pins, sensors, health, sensor_by_name];

pub(super) fn parse(words: &Words, world: &World, now: &Zoned) -> Parsed {
    RULES.iter().find_map(|rule| rule(words, world, now)).unwrap_or(Parsed::Unknown)
}

fn done(words: &Words, intent: Intent) -> Option<Parsed> {
    Some(Parsed::Intent { intent, certain: words.left().is_empty() })
}

fn settle(words: &mut Words, candidates: Vec<Candidate>, mention: Mention, kind: Kind) -> Option<Parsed> {
    let mut known: Vec<String> = Vec::new();
    for candidate in &candidates {
        let label = candidate.label();
        if !known.contains(&label) {
            known.push(label);
        }
    }
    match pick(words, candidates, mention) {
        Pick::One(intent) => done(words, intent),
        Pick::Many(choices) => Some(Parsed::Ambiguous {
            question: Question { lang: words.lang, choices },
            certain: words.left().is_empty(),
        }),
        Pick::NoSuch(asked) => Some(Parsed::Cannot(Cannot::NoSuch { kind, asked, known })),
        Pick::Nothing => Some(Parsed::Cannot(Cannot::None { kind })),
    }
}

fn help(words: &Words, _: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let asked = w.take(&[
        "help",
        "what can you do",
        "what can i say",
        "what can i ask",
        "commands",
        "how does this work",
        "usage",
        "帮助",
        "你能做什么",
        "能做什么",
        "你会什么",
        "会做什么",
        "能干什么",
        "怎么用",
        "有什么功能",
        "可以做什么",
    ]);
    let greeting =
        words.len() <= 2 && words.has(&["hello", "hi", "hey", "你好", "您好"]) && w.left().is_empty();
    ((asked && w.left().is_empty()) || greeting)
        .then_some(Parsed::Intent { intent: Intent::Help, certain: true })
}

fn list(words: &Words, _: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let asks = w.take(&[
        "list",
        "show all",
        "which",
        "what",
        "are there",
        "do you have",
        "哪些",
        "有什么",
        "列表",
        "列出",
    ]);
    let kind = if w.take(&["cameras", "摄像头", "相机"]) {
        Kind::Camera
    } else if w.take(&["sensors", "传感器"]) {
        Kind::Sensor
    } else if w.take(&["pins", "switches", "outputs", "relays", "引脚", "开关", "继电器"]) {
        Kind::Pin
    } else if w.take(&["nodes", "devices", "boards", "节点", "设备"]) {
        Kind::Node
    } else {
        return None;
    };
    if kind == Kind::Node && w.take(&["online", "offline", "connected", "在线", "离线", "状态"]) {
        return done(&w, Intent::Status);
    }
    (asks || words.len() == 1).then_some(())?;
    w.take(&["show", "available", "known"]);
    w.left().is_empty().then(|| done(&w, Intent::List { kind }))?
}

fn picture(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let noun = w.take(&[
        "picture",
        "pictures",
        "photo",
        "photos",
        "photograph",
        "snapshot",
        "pic",
        "image",
        "照片",
        "相片",
        "图片",
        "拍照",
        "拍个照",
        "拍张照",
        "拍一张",
        "拍张",
        "拍一下",
        "拍",
        "截图",
    ]);
    let verb = w.take(&[
        "snap",
        "shoot",
        "capture",
        "take",
        "make",
        "send",
        "show",
        "view",
        "look",
        "拍下",
        "显示",
        "看看",
        "看一下",
        "发",
    ]);
    let camera = w.take(&["camera", "webcam", "cam", "摄像头", "相机", "画面", "监控"]);
    let sight = w.take(&["look like", "looks like", "what do you see", "什么样子"]);
    if !(noun || sight || (camera && (verb || words.len() <= 4)) || words.has(&["snap"])) {
        // `show me the garage` names a place and nothing else.
        let place =
            verb && (words.has(&["show me", "看看", "看一下"])) && quantity(&mut words.clone()).is_none();
        let bare = place && camera_candidates(world).iter().any(|c| score(words, &c.node).0 > 0.0);
        if !bare || world.nodes.iter().flat_map(|n| &n.sensors).any(|s| score(words, &s.name).0 > 0.0) {
            return None;
        }
        let mut probe = w.clone();
        let parsed = settle(&mut probe, camera_candidates(world), Mention::Optional, Kind::Camera);
        return parsed.filter(|p| !matches!(p, Parsed::Intent { certain: false, .. }));
    }
    if spans::speaks_of_past(words) && !noun {
        return None;
    }
    settle(&mut w, camera_candidates(world), Mention::Optional, Kind::Camera)
}

fn camera_candidates(world: &World) -> Vec<Candidate> {
    let snap = |node: &WorldNode, camera: Option<String>| Intent::Snap {
        node: node.id,
        node_name: node.name.clone(),
        camera,
    };
    let mut candidates = Vec::new();
    for node in world.nodes.iter().filter(|n| n.can("camera.snap")) {
        if node.cameras.is_empty() {
            // A foreign node does not say which cameras it has.
            candidates.push(Candidate {
                node: node.name.clone(),
                part: vec![],
                shown: String::new(),
                intent: snap(node, None),
                aside: false,
            });
        }
        for (id, name) in &node.cameras {
            candidates.push(Candidate {
                node: node.name.clone(),
                part: vec![name.clone(), id.clone()],
                shown: name.clone(),
                intent: snap(node, Some(id.clone())),
                aside: false,
            });
        }
    }
    candidates
}

fn health(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let asked = w.take(&[
        "status",
        "online",
        "offline",
        "connected",
        "health",
        "healthy",
        "doing",
        "warnings",
        "uptime",
        "alive",
        "ok",
        "okay",
        "fine",
        "well",
        "up",
        "reachable",
        "状态",
        "在线",
        "离线",
        "怎么样",
        "还好",
        "好吗",
        "健康",
        "正常",
        "连接",
    ]);
    w.take(&[
        "nodes",
        "node",
        "devices",
        "device",
        "board",
        "system",
        "hub",
        "everything",
        "home",
        "report",
        "节点",
        "设备",
        "系统",
        "家",
    ]);
    let candidates: Vec<Candidate> = world
        .nodes
        .iter()
        .map(|n| Candidate {
            node: n.name.clone(),
            part: Vec::new(),
            shown: String::new(),
            intent: Intent::Health { node: n.id, node_name: n.name.clone() },
            aside: false,
        })
        .collect();
    let said = candidates.iter().any(|c| score(words, &c.node).0 > 0.0);
    if said {
        let parsed = settle(&mut w, candidates, Mention::Optional, Kind::Node);
        // A node's name alone asks how it is; a name in a sentence nobody understood asks nothing.
        return parsed.filter(|p| asked || !matches!(p, Parsed::Intent { certain: false, .. }));
    }
    if !asked {
        return None;
    }
    match w.unknown_name() {
        Some(name) if !candidates.is_empty() => Some(Parsed::Cannot(Cannot::NoSuch {
            kind: Kind::Node,
            asked: name,
            known: candidates.into_iter().map(|c| c.node).collect(),
        })),
        _ => w.left().is_empty().then(|| done(&w, Intent::Status))?,
    }
}

pub(super) fn answer(words: &Words, question: &Question) -> Option<Intent> {
    let mut w = words.clone();
    if words.len() > 12 {
        return None;
    }
    if w.take(&[
        "cancel",
        "never mind",
        "nevermind",
        "none",
        "neither",
        "forget it",
        "no",
        "算了",
        "取消",
        "不用",
        "不要",
        "都不",
    ]) && w.left().is_empty()
    {
        return Some(Intent::Nothing);
    }
    if let [only] = question.choices.as_slice()
        && w.take(&["yes", "yep", "sure", "right", "correct", "exactly", "ok", "是", "对", "好", "嗯"])
        && w.left().is_empty()
    {
        return Some(only.intent.clone());
    }
    if let Some(index) = ordinal(&mut w, question.choices.len())
        && w.left().is_empty()
    {
        return question.choices.get(index).map(|c| c.intent.clone());
    }
    let mut w = words.clone();
    let mut best: Vec<(f64, &super::Choice, Vec<usize>)> = question
        .choices
        .iter()
        .map(|c| {
            let mut total = (0.0, Vec::new());
            // Part names count once, the node (always last) in addition.
            let (node, part) = c.names.split_last().map_or((None, &[][..]), |(n, p)| (Some(n), p));
            let part = part
                .iter()
                .map(|n| score(words, n))
                .fold((0.0, vec![]), |a, b| if b.0 > a.0 { b } else { a });
            for (points, hits) in [part].into_iter().chain(node.map(|n| score(words, n))) {
                total.0 += points;
                total.1.extend(hits);
            }
            (total.0, c, total.1)
        })
        .filter(|b| b.0 > 0.0)
        .collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (points, choice, hits) = best.first()?;
    if best.get(1).is_some_and(|second| second.0 > points - 0.05) {
        return None;
    }
    for i in hits {
        w.mark(*i..i + 1);
    }
    w.take(&["one", "camera", "sensor", "pin", "temperature", "那个", "这个"]);
    w.left().is_empty().then(|| choice.intent.clone())
}

fn ordinal(words: &mut Words, choices: usize) -> Option<usize> {
    const NAMES: &[&[&str]] = &[
        &["first", "1 st", "第一", "1", "one", "一"],
        &["second", "2 nd", "第二", "2", "two", "二"],
        &["third", "3 rd", "第三", "3", "three", "三"],
        &["fourth", "4 th", "第四", "4", "four", "四"],
        &["fifth", "5 th", "第五", "5", "five", "五"],
        &["sixth", "6 th", "第六", "6", "six", "六"],
        &["seventh", "7 th", "第七", "7", "seven", "七"],
        &["eighth", "8 th", "第八", "8", "eight", "八"],
        &["ninth", "9 th", "第九", "9", "nine", "九"],
    ];
    if words.take(&["last", "最后"]) {
        words.take(&["one"]);
        return choices.checked_sub(1);
    }
    // `the first one` is the first: what stands first in the list wins over the filler.
    let index = NAMES
        .iter()
        .position(|names| words.has(&names[..3]) || words.has(&names[3..4]))
        .or_else(|| NAMES.iter().position(|names| words.has(names)))?;
    words.take(NAMES[index]);
    words.take(&["one", "number", "第"]);
    (index < choices).then_some(index)
}
