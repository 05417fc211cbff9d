//! Numbers and lengths of time, in digits and words of both languages.

use super::words::Words;
use std::ops::Range;

const ONES: &[&str] = &[
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: &[&str] = &["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

fn english(word: &str) -> Option<f64> {
    let at = |list: &[&str]| list.iter().position(|w| *w == word);
    at(ONES).map(|n| n as f64).or_else(|| at(TENS).map(|n| (n as f64 + 2.0) * 10.0))
}

/// `二十五`, `一百二`, `两`, `半`; the characters must all be numerals.
pub(super) fn chinese(text: &str) -> Option<f64> {
    if text == "半" {
        return Some(0.5);
    }
    let (mut total, mut digit, mut seen) = (0.0, None, false);
    for c in text.chars() {
        seen = true;
        if let Some(n) = "零一二三四五六七八九".chars().position(|d| d == c) {
            digit = Some(n as f64);
        } else if c == '两' {
            digit = Some(2.0);
        } else {
            let unit = match c {
                '十' => 10.0,
                '百' => 100.0,
                '千' => 1000.0,
                _ => return None,
            };
            total += digit.take().unwrap_or(1.0) * unit;
        }
    }
    seen.then_some(total + digit.unwrap_or(0.0))
}

/// A number that begins at word `i`, and the word behind it.
pub(super) fn number_at(words: &Words, i: usize) -> Option<(f64, usize)> {
    let word = words.get(i);
    if let Ok(n) = word.parse::<f64>()
        && word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
    {
        return n.is_finite().then_some((n, i + 1));
    }
    if let Some(n) = english(word) {
        // `twenty five`
        let more = english(words.get(i + 1)).filter(|m| n >= 20.0 && *m >= 1.0 && *m < 10.0);
        return Some((n + more.unwrap_or(0.0), i + 1 + usize::from(more.is_some())));
    }
    let end = (i..words.len()).find(|&j| chinese(words.get(j)).is_none()).unwrap_or(words.len());
    let text: String = (i..end).map(|j| words.get(j)).collect();
    chinese(&text).map(|n| (n, end))
}

/// The first number in a range of words.
pub(super) fn number_in(words: &Words, range: Range<usize>) -> Option<(f64, Range<usize>)> {
    range.clone().find_map(|i| number_at(words, i).map(|(n, end)| (n, i..end)))
}

/// Milliseconds of the unit at word `i`, and the word behind it.
fn unit_at(words: &Words, i: usize) -> Option<(f64, usize)> {
    let two = format!("{}{}", words.get(i), words.get(i + 1));
    match two.as_str() {
        "秒钟" => return Some((1e3, i + 2)),
        "分钟" => return Some((60e3, i + 2)),
        "小时" | "钟头" => return Some((3_600e3, i + 2)),
        _ => {}
    }
    let ms = match words.get(i) {
        "ms" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" | "秒" => 1e3,
        "m" | "min" | "mins" | "minute" | "minutes" | "分" => 60e3,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600e3,
        "d" | "day" | "days" | "天" => 86_400e3,
        "week" | "weeks" | "周" => 7.0 * 86_400e3,
        _ => return None,
    };
    Some((ms, i + 1))
}

/// One length such as `20 s`, `half an hour`, `an hour and a half`, `一个半小时` beginning at word `i`.
fn length_at(words: &Words, i: usize) -> Option<(f64, usize)> {
    let (mut n, mut j) = match (words.get(i), words.get(i + 1)) {
        ("half", "a" | "an") => (0.5, i + 2),
        ("half", _) => (0.5, i + 1),
        ("a", "few" | "couple") => return None,
        ("a" | "an", _) => (1.0, i + 1),
        _ => number_at(words, i)?,
    };
    if words.get(j) == "个" {
        j += 1;
        if words.get(j) == "半" {
            n += 0.5;
            j += 1;
        }
    }
    let (unit, mut end) = unit_at(words, j)?;
    if [words.get(end), words.get(end + 1), words.get(end + 2)] == ["and", "a", "half"] {
        n += 0.5;
        end += 3;
    } else if words.get(end) == "半" && unit >= 60e3 {
        n += 0.5;
        end += 1;
    }
    Some((n * unit, end))
}

/// The first length of time in the sentence, parts in a row added up (`1 minute 30 seconds`), in
/// milliseconds. Longer than a year or below zero is none.
pub(super) fn duration(words: &Words) -> Option<(u64, Range<usize>)> {
    let (start, (mut ms, mut end)) = (0..words.len()).find_map(|i| length_at(words, i).map(|l| (i, l)))?;
    loop {
        let next = if words.get(end) == "and" { end + 1 } else { end };
        match length_at(words, next) {
            Some((more, behind)) => (ms, end) = (ms + more, behind),
            None => break,
        }
    }
    (ms > 0.0 && ms <= 366.0 * 86_400e3).then_some((ms.round() as u64, start..end))
}

/// `every 5 minutes`, `every minute`, `hourly`, `每5分钟`, `每隔一小时`.
pub(super) fn interval(words: &Words) -> Option<(u64, Range<usize>)> {
    if words.has(&["hourly", "每小时"]) {
        let range = words.find("hourly").or_else(|| words.find("每小时"))?;
        return Some((3_600_000, range));
    }
    let every = words.find("every").or_else(|| words.find("每隔")).or_else(|| words.find("每"))?;
    let from = every.end;
    let (ms, end) = length_at(words, from).or_else(|| unit_at(words, from)).or_else(|| {
        (words.get(from) == "other")
            .then(|| unit_at(words, from + 1))
            .flatten()
            .map(|(ms, end)| (2.0 * ms, end))
    })?;
    (ms > 0.0 && ms <= 366.0 * 86_400e3).then_some((ms.round() as u64, every.start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        for (text, ms) in [
            ("for 20 seconds", 20_000),
            ("20s", 20_000),
            ("1.5 h", 5_400_000),
            ("half a minute", 30_000),
            ("half an hour", 1_800_000),
            ("an hour and a half", 5_400_000),
            ("two minutes", 120_000),
            ("twenty five seconds", 25_000),
            ("1 minute 30 seconds", 90_000),
            ("1 minute and 30 seconds", 90_000),
            ("打开20秒", 20_000),
            ("二十秒", 20_000),
            ("两分钟", 120_000),
            ("半分钟", 30_000),
            ("半个小时", 1_800_000),
            ("一个半小时", 5_400_000),
            ("一分半", 90_000),
            ("十五分钟", 900_000),
            ("一百二十秒", 120_000),
        ] {
            assert_eq!(duration(&Words::new(text)).map(|d| d.0), Some(ms), "{text}");
        }
        for none in ["turn it on", "今天", "yesterday", "0 s", "-5 s", "99999999999 h", "a few minutes"] {
            assert_eq!(duration(&Words::new(none)).map(|d| d.0), None, "{none}");
        }
    }

    #[test]
    fn intervals() {
        for (text, ms) in [
            ("every 5 minutes", 300_000),
            ("every minute", 60_000),
            ("every other hour", 7_200_000),
            ("每5分钟", 300_000),
            ("每隔一小时", 3_600_000),
            ("每分钟", 60_000),
            ("hourly", 3_600_000),
        ] {
            assert_eq!(interval(&Words::new(text)).map(|d| d.0), Some(ms), "{text}");
        }
    }
}
