//! Sensors: now, in the past, and how often they are recorded.

use super::super::names::{Candidate, Mention, score};
use super::super::numbers::{interval, number_in};
use super::super::words::Words;
use super::super::{Cannot, Compare, Intent, Kind, Parsed, SensorRef, Stat, World, spans};
use super::settle;
use hearth_shared::command::sensor::Quantity;
use jiff::Zoned;

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

pub(super) fn quantity(words: &mut Words) -> Option<Quantity> {
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
            let kept: Vec<String> =
                super::super::words::cut(name).into_iter().filter(|w| !common(w)).collect();
            kept.join(" ").replace("温 度", "").replace("湿 度", "")
        })
        .collect()
}

pub(super) fn record(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
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

pub(super) fn sensors(words: &Words, world: &World, now: &Zoned) -> Option<Parsed> {
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
pub(super) fn sensor_by_name(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
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
