//! The words of replies, in English and Chinese: short, with units, times in the hub's zone.

mod numbers;
mod overview;

use super::intents::{Cannot, Compare, Kind, Lang, PinRef, Question, SensorRef, Span, Stat, World, nearness};
use super::ledger::Outcome;
use crate::channels::ApprovalPrompt;
use crate::nodes::readings::Stats;
use hearth_shared::command::gpio::PinState;
use hearth_shared::error::{CommandError, ErrorCode};
pub(super) use numbers::{clock, length, value};
pub(super) use overview::{health, help, list, offline, online_only, running, status};

/// Chooses by language.
pub(super) fn pick(lang: Lang, en: String, zh: String) -> String {
    match lang {
        Lang::En => en,
        Lang::Zh => zh,
    }
}

fn by(lang: Lang, decided_by: Option<&str>) -> String {
    decided_by
        .map(person)
        .map_or_else(String::new, |who| pick(lang, format!(", allowed by {who}"), format!("，由 {who} 允许")))
}

/// Who decided, for people: the long id of a device is cut to what lists show of it.
fn person(who: &str) -> String {
    let short = |word: &str| {
        let id = word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
        if id { word[..8].to_owned() } else { word.to_owned() }
    };
    who.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

pub(super) fn picture(lang: Lang, node: &str, decided_by: Option<&str>) -> String {
    let by = by(lang, decided_by);
    pick(lang, format!("Here is the picture from {node}{by}."), format!("这是 {node} 的照片{by}。"))
}

pub(super) fn no_picture(lang: Lang, node: &str) -> String {
    pick(
        lang,
        format!("{node} took the picture, but the hub could not keep it; see `hearth logs`."),
        format!("{node} 拍了照片，但中枢没有保存下来；见 `hearth logs`。"),
    )
}

pub(super) fn switched(
    lang: Lang,
    pin: &PinRef,
    on: bool,
    for_ms: Option<u64>,
    decided_by: Option<&str>,
) -> String {
    let by = by(lang, decided_by);
    let (name, node) = (&pin.name, &pin.node_name);
    let (en, zh) = if on { ("on", "打开") } else { ("off", "关闭") };
    match for_ms {
        Some(ms) => {
            let length = length(lang, ms);
            pick(
                lang,
                format!("{name} ({node}) is {en} for {length}, then back to its safe state{by}."),
                format!("{name}（{node}）已{zh} {length}，之后回到安全状态{by}。"),
            )
        }
        None => pick(lang, format!("{name} ({node}) is {en}{by}."), format!("{name}（{node}）已{zh}{by}。")),
    }
}

pub(super) fn pin_state(lang: Lang, pin: &PinRef, state: &PinState, asked: Option<bool>) -> String {
    let (name, node) = (&pin.name, &pin.node_name);
    let yes = asked.map(|a| a == state.value);
    let lead = match yes {
        Some(true) => pick(lang, "Yes, ".into(), "是的，".into()),
        Some(false) => pick(lang, "No, ".into(), "不，".into()),
        None => String::new(),
    };
    let mut text = pick(
        lang,
        format!("{lead}{name} ({node}) is {}", if state.value { "on" } else { "off" }),
        format!("{lead}{name}（{node}）{}", if state.value { "开着" } else { "关着" }),
    );
    if let Some(ms) = state.pulse_left_ms {
        let left = length(lang, ms);
        text.push_str(&pick(lang, format!(", for {left} more"), format!("，还有 {left}")));
    }
    text + &pick(lang, ".".into(), "。".into())
}

fn sensor_name(sensor: &SensorRef) -> String {
    format!("{} ({})", sensor.name, sensor.node_name)
}

pub(super) fn sensor_now(lang: Lang, sensor: &SensorRef, now: f64, compare: Option<Compare>) -> String {
    let (name, reading) = (sensor_name(sensor), value(now, &sensor.unit));
    let lead = verdict(lang, compare, now, now);
    pick(lang, format!("{lead}{name}: {reading}."), format!("{lead}{name}：{reading}。"))
}

/// `Yes: ` or `No: ` when a limit was asked about.
fn verdict(lang: Lang, compare: Option<Compare>, min: f64, max: f64) -> String {
    compare.map_or_else(String::new, |c| {
        let yes = if c.above { max > c.value } else { min < c.value };
        if yes {
            pick(lang, "Yes. ".into(), "是。".into())
        } else {
            pick(lang, "No. ".into(), "否。".into())
        }
    })
}

pub(super) fn sensor_away(lang: Lang, sensor: &SensorRef, last: Option<(f64, u64)>) -> String {
    let (name, node) = (&sensor.name, &sensor.node_name);
    match last {
        Some((last, at)) => {
            let (reading, at) = (value(last, &sensor.unit), clock(lang, at));
            pick(
                lang,
                format!("{node} is offline. Its last {name} was {reading}, {at}."),
                format!("{node} 不在线。{name} 最后的读数是 {reading}（{at}）。"),
            )
        }
        None => pick(
            lang,
            format!("{node} is offline, and there is no reading of {name} yet."),
            format!("{node} 不在线，还没有 {name} 的读数。"),
        ),
    }
}

pub(super) fn sensor_past(
    lang: Lang,
    sensor: &SensorRef,
    stat: Stat,
    span: &Span,
    when: bool,
    compare: Option<Compare>,
    s: &Stats,
) -> String {
    let (name, label) = (sensor_name(sensor), &span.label);
    let v = |x: f64| value(x, &sensor.unit);
    let lead = verdict(lang, compare, s.min, s.max);
    let one = |en: &str, zh: &str, x: f64, at: u64| {
        let at = clock(lang, at);
        if when {
            pick(
                lang,
                format!("{lead}{name} {label}: {en} at {at}, {}.", v(x)),
                format!("{lead}{name} {label}{zh}在 {at}，{}。", v(x)),
            )
        } else {
            pick(
                lang,
                format!("{lead}{name} {label}: {en} {} ({at}).", v(x)),
                format!("{lead}{name} {label}{zh} {}（{at}）。", v(x)),
            )
        }
    };
    match stat {
        Stat::Min => one("minimum", "最低", s.min, s.min_at),
        Stat::Max => one("maximum", "最高", s.max, s.max_at),
        Stat::Mean => pick(
            lang,
            format!("{lead}{name} {label}: average {}.", v(s.mean)),
            format!("{lead}{name} {label}平均 {}。", v(s.mean)),
        ),
        Stat::Summary => pick(
            lang,
            format!(
                "{lead}{name} {label}: {} to {}, average {} (lowest {}, highest {}).",
                v(s.min),
                v(s.max),
                v(s.mean),
                clock(lang, s.min_at),
                clock(lang, s.max_at)
            ),
            format!(
                "{lead}{name} {label}：最低 {}（{}），最高 {}（{}），平均 {}。",
                v(s.min),
                clock(lang, s.min_at),
                v(s.max),
                clock(lang, s.max_at),
                v(s.mean)
            ),
        ),
    }
}

/// Nothing was recorded in a span; `last`: the newest reading there is.
pub(super) fn no_readings(lang: Lang, sensor: &SensorRef, span: &Span, last: Option<(f64, u64)>) -> String {
    let (name, label) = (sensor_name(sensor), &span.label);
    match last {
        Some((last, at)) => {
            let (reading, at) = (value(last, &sensor.unit), clock(lang, at));
            pick(
                lang,
                format!("There are no readings of {name} {label}; the newest is {reading}, {at}."),
                format!("{label} 没有 {name} 的读数；最新的是 {reading}（{at}）。"),
            )
        }
        None => pick(
            lang,
            format!(
                "There are no readings of {name} {label}. Say `record {} every 5 minutes` to start.",
                sensor.name
            ),
            format!("{label} 没有 {name} 的读数。可以说“每5分钟记录{}”。", sensor.name),
        ),
    }
}

pub(super) fn recording(lang: Lang, sensor: &SensorRef, interval_ms: u64) -> String {
    let name = sensor_name(sensor);
    if interval_ms == 0 {
        return pick(lang, format!("{name} is no longer recorded."), format!("已停止记录 {name}。"));
    }
    let length = length(lang, interval_ms);
    pick(lang, format!("{name} is recorded every {length}."), format!("每 {length} 记录一次 {name}。"))
}

/// Why something did not happen. Nothing is softened: a person may rely on it.
pub(super) fn failed(lang: Lang, node: &str, outcome: &Outcome, error: &CommandError) -> String {
    let who =
        outcome.decided_by.as_deref().map_or_else(|| pick(lang, "a person".into(), "有人".into()), person);
    let en = match error.code {
        ErrorCode::ApprovalDenied => format!("Not done: {who} said no."),
        ErrorCode::ApprovalExpired => {
            "Not done: nobody decided in time. Ask again if you still want it.".into()
        }
        ErrorCode::NobodyToAsk => {
            format!("Not done: it needs a person's yes, and nobody can be asked. {}", error.message)
        }
        ErrorCode::NotConnected => format!("Not done: {node} is offline. {}", error.message),
        ErrorCode::Cancelled => "Withdrawn; nothing was done.".into(),
        ErrorCode::OutcomeUnknown => {
            format!("It was started on {node}, and whether it finished is not known: {}", error.message)
        }
        _ => format!("Not done ({node}): {}", error.message),
    };
    let zh = match error.code {
        ErrorCode::ApprovalDenied => format!("没有执行：{who} 拒绝了。"),
        ErrorCode::ApprovalExpired => "没有执行：没有人及时决定。如仍需要，请再说一次。".into(),
        ErrorCode::NobodyToAsk => format!("没有执行：需要有人同意，但没有人可以询问。{}", error.message),
        ErrorCode::NotConnected => format!("没有执行：{node} 不在线。{}", error.message),
        ErrorCode::Cancelled => "已撤回，什么都没有做。".into(),
        ErrorCode::OutcomeUnknown => format!("已在 {node} 开始，但不知道是否完成：{}", error.message),
        _ => format!("没有执行（{node}）：{}", error.message),
    };
    pick(lang, en, zh)
}

pub(super) fn waits_for_node(lang: Lang, node: &str) -> String {
    pick(
        lang,
        format!("{node} is offline. The request waits for it; /stop withdraws it."),
        format!("{node} 不在线。请求会等它回来；/stop 可撤回。"),
    )
}

pub(super) fn waits_for_person(lang: Lang, node: &str, prompt: &ApprovalPrompt, how: Option<&str>) -> String {
    let how = how.map_or_else(String::new, |h| format!("\n{h}"));
    pick(
        lang,
        format!("This needs a yes: {} on {node}.{how}", prompt.sentence),
        format!("这需要同意：{}（{node}）。{how}", prompt.sentence),
    )
}

pub(super) fn ask(question: &Question) -> String {
    let lang = question.lang;
    if let [only] = question.choices.as_slice() {
        return pick(lang, format!("Do you mean {}?", only.label), format!("您是指 {} 吗？", only.label));
    }
    let lines: Vec<String> =
        question.choices.iter().enumerate().map(|(i, c)| format!("{}. {}", i + 1, c.label)).collect();
    let lines = lines.join("\n");
    pick(lang, format!("Which one?\n{lines}"), format!("哪一个？\n{lines}"))
}

fn kind_name(lang: Lang, kind: Kind) -> &'static str {
    match (lang, kind) {
        (Lang::En, Kind::Node) => "node",
        (Lang::En, Kind::Camera) => "camera",
        (Lang::En, Kind::Pin) => "output",
        (Lang::En, Kind::Sensor) => "sensor",
        (Lang::Zh, Kind::Node) => "节点",
        (Lang::Zh, Kind::Camera) => "摄像头",
        (Lang::Zh, Kind::Pin) => "输出",
        (Lang::Zh, Kind::Sensor) => "传感器",
    }
}

/// `waiting`: nodes with parts that nobody approved yet; what is asked for may be among them.
pub(super) fn cannot(lang: Lang, cannot: &Cannot, waiting: &[&str]) -> String {
    match cannot {
        Cannot::NoSuch { kind, asked, known } => {
            let asked = hearth_shared::identity::display_safe(asked, 60);
            let (kind, known) = (kind_name(lang, *kind), known.join(", "));
            pick(
                lang,
                format!("I know no {kind} `{asked}`. There is: {known}."),
                format!("没有叫“{asked}”的{kind}。现有：{known}。"),
            )
        }
        Cannot::None { kind } if !waiting.is_empty() => {
            let (kind, waiting) = (kind_name(lang, *kind), waiting.join(", "));
            pick(
                lang,
                format!(
                    "No {kind} is approved. New parts of {waiting} wait for it: see `hearth devices list`, then \
                     `hearth devices approve NAME`."
                ),
                format!(
                    "没有已批准的{kind}。{waiting} 有新部件等待批准：见 `hearth devices list`，然后 \
                     `hearth devices approve 名称`。"
                ),
            )
        }
        Cannot::None { kind } => {
            let kind = kind_name(lang, *kind);
            pick(
                lang,
                format!(
                    "No known node has such: {kind}. See `hearth nodes list`, or pair one with `hearth pair`."
                ),
                format!("已知的节点都没有这样的{kind}。见 `hearth nodes list`，或用 `hearth pair` 配对。"),
            )
        }
        Cannot::InputOnly { pin } => pick(
            lang,
            format!("{} ({}) is an input: it can be read, not switched.", pin.name, pin.node_name),
            format!("{}（{}）是输入，只能读取。", pin.name, pin.node_name),
        ),
        Cannot::BadDuration { limit } => {
            pick(lang, format!("That time is out of range: {limit}."), format!("时间超出范围：{limit}。"))
        }
    }
}

pub(super) fn nothing(lang: Lang) -> String {
    pick(lang, "All right, nothing was done.".into(), "好的，什么都没有做。".into())
}

pub(super) fn not_understood(lang: Lang, text: &str, world: &World) -> String {
    let mut examples = overview::examples(lang, world);
    examples.sort_by(|a, b| nearness(text, b).total_cmp(&nearness(text, a)));
    examples.truncate(3);
    let near: Vec<String> = examples.iter().map(|e| format!("  {e}")).collect();
    let near = near.join("\n");
    pick(
        lang,
        format!(
            "I did not understand that. The nearest I can do:\n{near}\n`help` lists more. For free conversation name a \
             language model under [agent.model] in the file that `hearth config path` prints."
        ),
        format!(
            "我没有听懂。最接近的是：\n{near}\n说“帮助”可以看到更多。要自由对话，请在 `hearth config path` 所示文件的 \
             [agent.model] 中配置语言模型。"
        ),
    )
}
