//! The rules, tried in order; each works on its own copy of the sentence and marks what it understood.

use super::names::{Candidate, Mention, Pick, pick, score};
use super::numbers::{duration, interval, number_in};
use super::words::Words;
use super::{
    Cannot, Compare, Intent, Kind, Parsed, PinRef, Question, SensorRef, Stat, World, WorldNode, spans,
};
use hearth_shared::command::gpio::MAX_PULSE_MS;
use hearth_shared::command::sensor::Quantity;
use jiff::Zoned;

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

const QUANTITIES: &[(Quantity, &[&str])] = &[
    (
        Quantity::Temperature,
        &[
            "temperature",
            "temperatures",
            "temp",
            "how warm",
            "how hot",
            "how cold",
            "warm",
            "hot",
            "cold",
            "cool",
            "warmer",
            "hotter",
            "colder",
            "cooler",
            "warmest",
            "hottest",
            "coldest",
            "degrees",
            "degree",
            "celsius",
            "heat",
            "温度",
            "气温",
            "多少度",
            "几度",
            "热吗",
            "冷吗",
            "多热",
            "多冷",
            "最热",
            "最冷",
            "热不热",
            "冷不冷",
        ],
    ),
    (Quantity::Humidity, &["humidity", "humid", "damp", "湿度", "潮湿", "湿不湿"]),
    (Quantity::Pressure, &["pressure", "barometer", "气压", "压力"]),
    (
        Quantity::Light,
        &["brightness", "bright", "dark", "lux", "light level", "illuminance", "亮度", "光照", "照度"],
    ),
    (Quantity::Voltage, &["voltage", "volts", "电压"]),
    (Quantity::Current, &["amps", "amperes", "电流"]),
    (Quantity::Power, &["watts", "wattage", "power consumption", "功率"]),
    (Quantity::FanSpeed, &["fan speed", "rpm", "转速"]),
];

fn quantity(words: &mut Words) -> Option<Quantity> {
    let found = QUANTITIES.iter().find(|(_, phrases)| words.has(phrases)).map(|(q, _)| *q)?;
    for (quantity, phrases) in QUANTITIES {
        if *quantity == found {
            words.take(phrases);
        }
    }
    Some(found)
}

/// Sensors as candidates. Temperatures inside a computer are not what "how warm is the garage" means.
fn sensor_candidates(
    world: &World,
    wanted: Option<Quantity>,
    command: Option<&str>,
    intent: impl Fn(SensorRef) -> Intent,
) -> Vec<Candidate> {
    const INSIDE: &[&str] =
        &["cpu", "soc", "thermal", "core", "package", "acpi", "nvme", "hwmon", "x86", "gpu", "处理器"];
    let sensors = world.nodes.iter().filter(|n| command.is_none_or(|c| n.can(c))).flat_map(|n| &n.sensors);
    sensors
        .filter(|s| wanted.is_none_or(|q| s.quantity == q))
        .map(|s| {
            let names = format!("{} {}", s.id, s.name).to_lowercase();
            Candidate {
                node: s.node_name.clone(),
                part: if wanted.is_some() { plain_names(s) } else { vec![s.name.clone(), s.id.clone()] },
                shown: s.name.clone(),
                aside: INSIDE.iter().any(|i| names.contains(i)),
                intent: intent(s.clone()),
            }
        })
        .collect()
}

/// Names without the words every sensor of a quantity has: who asks for "the temperature" did not name
/// the sensor called `Temperature` among others.
fn plain_names(sensor: &SensorRef) -> Vec<String> {
    let common = |w: &String| QUANTITIES.iter().any(|(_, phrases)| phrases.contains(&w.as_str()));
    [&sensor.name, &sensor.id]
        .into_iter()
        .map(|name| {
            let kept: Vec<String> = super::words::cut(name).into_iter().filter(|w| !common(w)).collect();
            kept.join(" ").replace("温 度", "").replace("湿 度", "")
        })
        .collect()
}

fn record(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let stop = w.take(&[
        "stop recording",
        "stop logging",
        "stop tracking",
        "stop monitoring",
        "停止记录",
        "不再记录",
        "别记录",
    ]);
    let start = w.take(&[
        "record",
        "log",
        "track",
        "monitor",
        "sample",
        "measure",
        "subscribe to",
        "subscribe",
        "记录",
        "采集",
        "监测",
        "测量",
        "监控",
        "测",
    ]);
    let every = interval(&w);
    if let Some((_, range)) = &every {
        w.mark(range.clone());
    }
    let interval_ms = match (&every, stop, start) {
        (_, true, _) => 0,
        (Some((ms, _)), _, true) => *ms,
        (None, _, true) if words.has(&["record", "subscribe", "记录"]) && !words.question => 60_000,
        _ => return None,
    };
    if interval_ms != 0 && !(100..=86_400_000).contains(&interval_ms) {
        return Some(Parsed::Cannot(Cannot::BadDuration { limit: "0.1 s – 24 h" }));
    }
    let wanted = quantity(&mut w);
    let candidates = sensor_candidates(world, wanted, Some("sensor.subscribe"), |sensor| Intent::Record {
        sensor,
        interval_ms,
    });
    settle(&mut w, candidates, Mention::Optional, Kind::Sensor)
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

fn on_off(words: &mut Words) -> Option<(bool, bool)> {
    const TURN: &[&str] = &["turn", "switch", "put", "set", "power", "pulse"];
    const ON: &[&str] = &["on", "打开", "开启", "启动", "接通", "开"];
    const OFF: &[&str] = &["off", "关掉", "关闭", "关上", "停止", "断开", "停", "关"];
    const START: &[&str] = &["start", "activate", "enable", "run", "open", "pulse"];
    const STOP: &[&str] = &["stop", "deactivate", "disable", "close", "shut"];
    let turn = words.take(TURN);
    let off = words.take(OFF);
    let on = !off && words.take(ON);
    let stop = words.take(STOP);
    let start = !stop && words.take(START);
    match (on, off, start, stop) {
        (_, true, ..) => Some((false, turn || words.lang == super::Lang::Zh)),
        (true, ..) => Some((true, turn || words.lang == super::Lang::Zh)),
        (.., true) => Some((false, false)),
        (_, _, true, _) => Some((true, false)),
        _ => None,
    }
}

fn pins(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let asks_state = w.take(&[
        "state of",
        "state",
        "status",
        "开着吗",
        "关着吗",
        "开了吗",
        "关了吗",
        "开没开",
        "关没关",
        "是不是开着",
        "开着没有",
        "开着没",
        "状态",
        "运行吗",
        "running",
    ]) || words.has(&["开着", "关着"])
        || ["is", "are", "was", "has", "what", "which", "whether"].contains(&words.get(0));
    let told = on_off(&mut w);
    w.take(&["running", "开着", "关着"]);
    let for_ms = duration(&w);
    if let Some((_, range)) = &for_ms {
        w.mark(range.clone());
    }
    w.take(&["pin", "output", "relay", "引脚"]);
    let candidates =
        |state: bool| pin_candidates(world, state, told.map(|t| t.0), for_ms.as_ref().map(|d| d.0));
    let said = world
        .nodes
        .iter()
        .flat_map(|n| &n.pins)
        .any(|p| score(words, &p.name).0 > 0.0 || score(words, &p.id).0 > 0.0);
    if asks_state {
        // `what is the temperature` is no question about a pin; its name must be there.
        return if said && quantity(&mut words.clone()).is_none() {
            settle(&mut w, candidates(true), Mention::Part, Kind::Pin)
        } else {
            None
        };
    }
    let (_, turn) = told?;
    if !said && !turn {
        return None;
    }
    let input = world.nodes.iter().find_map(|node| {
        let pin = node
            .pins
            .iter()
            .find(|p| !p.output && (score(words, &p.name).0 > 0.0 || score(words, &p.id).0 > 0.0))?;
        Some(pin_ref(node, pin))
    });
    let outputs = candidates(false);
    let output_said = outputs.iter().any(|c| c.part.iter().any(|n| score(words, n).0 > 0.0));
    if let Some(pin) = input.filter(|_| !output_said) {
        return Some(Parsed::Cannot(Cannot::InputOnly { pin }));
    }
    if for_ms.as_ref().is_some_and(|d| d.0 > MAX_PULSE_MS) {
        return Some(Parsed::Cannot(Cannot::BadDuration { limit: "24 h" }));
    }
    settle(&mut w, outputs, Mention::Part, Kind::Pin)
}

fn pin_ref(node: &WorldNode, pin: &super::WorldPin) -> PinRef {
    PinRef { node: node.id, node_name: node.name.clone(), id: pin.id.clone(), name: pin.name.clone() }
}

fn pin_candidates(world: &World, state: bool, on: Option<bool>, for_ms: Option<u64>) -> Vec<Candidate> {
    let command = if state {
        "gpio.read"
    } else if for_ms.is_some() {
        "gpio.pulse"
    } else {
        "gpio.write"
    };
    let mut candidates = Vec::new();
    for node in world.nodes.iter().filter(|n| n.can(command)) {
        for pin in node.pins.iter().filter(|p| state || p.output) {
            let reference = pin_ref(node, pin);
            candidates.push(Candidate {
                node: node.name.clone(),
                part: vec![pin.name.clone(), pin.id.clone()],
                shown: pin.name.clone(),
                intent: if state {
                    Intent::PinState { pin: reference, asked: on }
                } else {
                    Intent::Switch { pin: reference, on: on.unwrap_or(true), for_ms }
                },
                aside: false,
            });
        }
    }
    candidates
}

const MIN: &[&str] = &["minimum", "min", "lowest", "coldest", "least", "smallest", "最低", "最小", "最冷"];
const MAX: &[&str] = &["maximum", "max", "highest", "hottest", "warmest", "peak", "最高", "最大", "最热"];
const MEAN: &[&str] = &["average", "mean", "avg", "平均"];

fn stat(words: &mut Words) -> Option<Stat> {
    let found =
        [(MIN, Stat::Min), (MAX, Stat::Max), (MEAN, Stat::Mean)].map(|(p, s)| words.take(p).then_some(s));
    let mut found = found.into_iter().flatten();
    let first = found.next()?;
    Some(if found.next().is_some() { Stat::Summary } else { first })
}

fn compare(words: &mut Words) -> Option<Compare> {
    const ABOVE: &[&str] = &[
        "above",
        "over",
        "more than",
        "exceed",
        "exceeds",
        "warmer than",
        "hotter than",
        "higher than",
        "greater than",
        "超过",
        "高于",
        "大于",
        "以上",
    ];
    const BELOW: &[&str] = &[
        "below",
        "under",
        "less than",
        "colder than",
        "cooler than",
        "lower than",
        "低于",
        "小于",
        "不到",
        "以下",
    ];
    let side = [(ABOVE, true), (BELOW, false)]
        .into_iter()
        .find_map(|(phrases, above)| phrases.iter().find_map(|p| words.find(p)).map(|r| (r, above)));
    let (range, above) = side?;
    let length = words.len();
    let (value, at) = number_in(words, range.end..length).or_else(|| number_in(words, 0..range.start))?;
    words.mark(range);
    words.mark(at.clone());
    // `per cent`, `°C`, `hPa` behind the number.
    words.take(&["percent", "per cent", "c", "hpa", "lux", "degrees", "degree", "celsius", "度"]);
    Some(Compare { above, value })
}

fn sensors(words: &Words, world: &World, now: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let mut wanted = quantity(&mut w);
    let stat = stat(&mut w);
    let compare = compare(&mut w);
    let sensor_said = |w: &Words| {
        world
            .nodes
            .iter()
            .flat_map(|n| &n.sensors)
            .any(|s| score(w, &s.name).0 > 0.0 || score(w, &s.id).0 > 0.0)
    };
    let generic = w.take(&["sensor", "传感器", "读数"]);
    // `is the garage above 30?`, `超过30度吗`: degrees are meant where nothing else is named.
    let place = world.nodes.iter().any(|n| score(&w, &n.name).0 > 0.0) || words.has(&["c", "度"]);
    if wanted.is_none() && compare.is_some() && place && !generic && !sensor_said(&w) {
        wanted = Some(Quantity::Temperature);
    }
    let named = wanted.is_some() || generic || sensor_said(&w);
    if !named && (stat.is_none() || !(spans::speaks_of_past(words) || w.left().is_empty())) {
        return None;
    }
    w.take(&["measure", "measured", "read", "show", "display", "显示", "大概"]);
    if stat.is_some() || spans::speaks_of_past(words) {
        let when = w.take(&["at what time", "what time", "when", "几点", "什么时候", "何时"]);
        w.take(&["history", "历史", "reached", "get", "got", "ever", "recorded"]);
        let span = spans::span(&mut w, now).or_else(|| spans::last_day(words.lang, now))?;
        let stat = stat.unwrap_or(match compare {
            Some(Compare { above: true, .. }) => Stat::Max,
            Some(_) => Stat::Min,
            None => Stat::Summary,
        });
        // A minimum of nothing named: of the temperature, if there is one.
        let wanted = wanted.or_else(|| {
            let some =
                world.nodes.iter().flat_map(|n| &n.sensors).any(|s| s.quantity == Quantity::Temperature);
            (!generic && some && !sensor_said(&w)).then_some(Quantity::Temperature)
        });
        let candidates = sensor_candidates(world, wanted, None, |sensor| Intent::SensorPast {
            sensor,
            stat,
            span: span.clone(),
            when,
            compare,
        });
        return settle(&mut w, candidates, Mention::Optional, Kind::Sensor);
    }
    if wanted.is_none() && !generic {
        return None;
    }
    let candidates =
        sensor_candidates(world, wanted, Some("sensor.read"), |sensor| Intent::SensorNow { sensor, compare });
    settle(&mut w, candidates, Mention::Optional, Kind::Sensor)
}

/// `soil moisture?`, `what is the water level`, `is the tank level below 20?`: a sensor by its own name.
fn sensor_by_name(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let compare = compare(&mut w);
    w.take(&["show", "read", "显示"]);
    let mut candidates =
        sensor_candidates(world, None, Some("sensor.read"), |sensor| Intent::SensorNow { sensor, compare });
    candidates.retain(|c| c.part.iter().any(|name| score(&w, name).0 > 0.0));
    if candidates.is_empty() {
        return None;
    }
    settle(&mut w, candidates, Mention::Part, Kind::Sensor)
        .filter(|p| !matches!(p, Parsed::Intent { certain: false, .. }))
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
