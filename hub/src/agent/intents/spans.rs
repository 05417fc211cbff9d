//! Spans of past time: `last night`, `this week`, `过去三小时`, in the hub's time zone.

use super::numbers::{interval, number_at};
use super::words::{Lang, Words};
use jiff::{Span as Length, ToSpan as _, Zoned};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// From when to when, Unix milliseconds, and what to call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First millisecond.
    pub from_ms: u64,
    /// The millisecond after the last.
    pub to_ms: u64,
    /// For the reply, in the language of the question.
    pub label: String,
}

#[derive(Clone, Copy)]
enum Named {
    Night,
    Yesterday,
    DayBefore,
    Today,
    Morning,
    Evening,
    Week,
    LastWeek,
    Month,
}

const NAMED: &[(Named, &[&str], &str, &str)] = &[
    (Named::DayBefore, &["day before yesterday", "前天"], "the day before yesterday", "前天"),
    (
        Named::Night,
        &["last night", "overnight", "during the night", "昨晚", "昨夜", "夜里"],
        "last night",
        "昨晚",
    ),
    (Named::Yesterday, &["yesterday", "昨天", "昨日"], "yesterday", "昨天"),
    (Named::Morning, &["this morning", "今早", "今晨", "早上", "今天早上"], "this morning", "今早"),
    (Named::Evening, &["this evening", "tonight", "今晚"], "this evening", "今晚"),
    (Named::Today, &["today", "so far today", "今天", "今日"], "today", "今天"),
    (Named::LastWeek, &["last week", "上周", "上星期", "上个星期"], "last week", "上周"),
    (Named::Week, &["this week", "本周", "这周", "这星期", "这个星期"], "this week", "本周"),
    (Named::Month, &["this month", "本月", "这个月"], "this month", "本月"),
];

/// The span a sentence names, and marks its words.
pub(super) fn span(words: &mut Words, now: &Zoned) -> Option<Span> {
    if let Some(span) = rolling(words, now) {
        return Some(span);
    }
    let (named, range, en, zh) = NAMED.iter().find_map(|(named, phrases, en, zh)| {
        phrases.iter().find_map(|p| words.find(p)).map(|r| (*named, r, *en, *zh))
    })?;
    words.mark(range);
    let (from, to) = bounds(named, now)?;
    make(&from, &to.min(now.clone()), if words.lang == Lang::Zh { zh } else { en }.to_owned())
}

/// The last 24 hours: when a minimum is asked for without a time.
pub(super) fn last_day(lang: Lang, now: &Zoned) -> Option<Span> {
    let label = if lang == Lang::Zh { "过去24小时" } else { "in the last 24 hours" };
    make(&now.checked_sub(24.hours()).ok()?, now, label.to_owned())
}

fn make(from: &Zoned, to: &Zoned, label: String) -> Option<Span> {
    let ms = |z: &Zoned| u64::try_from(z.timestamp().as_millisecond()).ok();
    Some(Span { from_ms: ms(from)?, to_ms: ms(to)?, label })
}

fn bounds(named: Named, now: &Zoned) -> Option<(Zoned, Zoned)> {
    let day = |back: i64| now.checked_sub(back.days()).ok()?.start_of_day().ok();
    let at = |back: i64, hour: i8| {
        now.checked_sub(back.days())
            .ok()?
            .with()
            .hour(hour)
            .minute(0)
            .second(0)
            .subsec_nanosecond(0)
            .build()
            .ok()
    };
    let week = now.date().weekday().to_monday_zero_offset();
    Some(match named {
        Named::Night => (at(1, 18)?, at(0, 8)?),
        Named::Yesterday => (day(1)?, day(0)?),
        Named::DayBefore => (day(2)?, day(1)?),
        Named::Today => (day(0)?, now.clone()),
        Named::Morning => (at(0, 5)?.min(now.clone()), at(0, 12)?),
        Named::Evening => (at(0, 17)?.min(now.clone()), now.clone()),
        Named::Week => (day(i64::from(week))?, now.clone()),
        Named::LastWeek => (day(i64::from(week) + 7)?, day(i64::from(week))?),
        Named::Month => (now.first_of_month().ok()?.start_of_day().ok()?, now.clone()),
    })
}

/// `last 3 hours`, `in the past two days`, `last hour`, `过去三小时`, `最近24小时`.
fn rolling(words: &mut Words, now: &Zoned) -> Option<Span> {
    // `last night` and `last week` are named spans, not lengths.
    let start = ["last", "past", "previous", "过去", "最近"].iter().find_map(|p| words.find(p))?;
    let (n, at) = match number_at(words, start.end) {
        Some((n, at)) => (n, at),
        None => (1.0, start.end),
    };
    let at = if words.get(at) == "个" { at + 1 } else { at };
    let two = format!("{}{}", words.get(at), words.get(at + 1));
    let (unit, end, en, zh) = match (words.get(at), two.as_str()) {
        (_, "分钟") => (60.0, at + 2, "minutes", "分钟"),
        (_, "小时") => (3600.0, at + 2, "hours", "小时"),
        ("minute" | "minutes" | "min", _) => (60.0, at + 1, "minutes", "分钟"),
        ("hour" | "hours" | "h", _) => (3600.0, at + 1, "hours", "小时"),
        ("day" | "days" | "天", _) => (86_400.0, at + 1, "days", "天"),
        ("week" | "weeks" | "周", _) if at > start.end => (7.0 * 86_400.0, at + 1, "weeks", "周"),
        _ => return None,
    };
    let seconds = n * unit;
    if !(seconds > 0.0 && seconds <= 400.0 * 86_400.0) {
        return None;
    }
    let range: Range<usize> = start.start..end;
    words.mark(range);
    let from = now.checked_sub(Length::new().seconds(seconds as i64)).ok()?;
    let label = match words.lang {
        Lang::Zh => format!("过去{n}{zh}"),
        Lang::En => format!("in the last {n} {}", if n == 1.0 { &en[..en.len() - 1] } else { en }),
    };
    make(&from, now, label)
}

/// Whether the sentence speaks of the past at all; recording orders (`every 5 minutes`) do not.
pub(super) fn speaks_of_past(words: &Words) -> bool {
    interval(words).is_none()
        && (words.has(&["was", "were", "did", "history", "历史", "曾经"])
            || NAMED.iter().any(|(_, phrases, ..)| words.has(phrases))
            || words.has(&["last hour", "past hour", "last day", "past day"])
            || ["last", "past", "previous", "过去", "最近"]
                .iter()
                .any(|p| words.find(p).is_some_and(|r| number_at(words, r.end).is_some())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, now: &str) -> Option<(String, String)> {
        // Central Europe by its rule: a machine without a time zone database has no names.
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now = now.parse::<jiff::civil::DateTime>().unwrap().to_zoned(zone).unwrap();
        let span = span(&mut Words::new(text), &now)?;
        let show = |ms: u64| {
            jiff::Timestamp::from_millisecond(ms as i64)
                .unwrap()
                .to_zoned(now.time_zone().clone())
                .strftime("%m-%d %H:%M")
                .to_string()
        };
        Some((show(span.from_ms), show(span.to_ms)))
    }

    #[test]
    fn spans_in_the_zone_of_the_hub() {
        let now = "2026-03-29T10:30:00"; // a Sunday; clocks went forward at 02:00
        for (text, from, to) in [
            ("what was last night's minimum", "03-28 18:00", "03-29 08:00"),
            ("昨晚最低温度", "03-28 18:00", "03-29 08:00"),
            ("yesterday", "03-28 00:00", "03-29 00:00"),
            ("昨天", "03-28 00:00", "03-29 00:00"),
            ("the day before yesterday", "03-27 00:00", "03-28 00:00"),
            ("max today", "03-29 00:00", "03-29 10:30"),
            ("this week", "03-23 00:00", "03-29 10:30"),
            ("last week", "03-16 00:00", "03-23 00:00"),
            ("this morning", "03-29 05:00", "03-29 10:30"),
            ("last 3 hours", "03-29 07:30", "03-29 10:30"),
            ("过去三小时", "03-29 07:30", "03-29 10:30"),
            ("in the past hour", "03-29 09:30", "03-29 10:30"),
        ] {
            assert_eq!(named(text, now), Some((from.into(), to.into())), "{text}");
        }
        assert_eq!(named("how warm is it", now), None);
        // In the small hours the night is not over.
        let early = named("last night", "2026-03-29T03:30:00").unwrap();
        assert_eq!(early, ("03-28 18:00".into(), "03-29 03:30".into()));
    }
}
