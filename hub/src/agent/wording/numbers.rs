//! Values, lengths of time and times of day.

use super::super::intents::Lang;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// A value with as many digits as a person wants, and its unit.
pub fn value(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 1.0 || v == 0.0 => 1,
        _ => 2,
    };
    let number = format!("{value:.digits$}");
    // `-0.0` is a zero.
    let number = if number.trim_start_matches('-').chars().all(|c| "0.".contains(c)) {
        number.trim_start_matches('-').to_owned()
    } else {
        number
    };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

/// `20 s`, `1 min 30 s`, `2 h`, `3 days`.
pub fn length(lang: Lang, ms: u64) -> String {
    let units: [(u64, &str, &str); 4] =
        [(86_400_000, "d", "天"), (3_600_000, "h", "小时"), (60_000, "min", "分钟"), (1000, "s", "秒")];
    if ms < 1000 {
        return super::pick(lang, format!("{ms} ms"), format!("{ms} 毫秒"));
    }
    let mut left = ms;
    let mut parts = Vec::new();
    for (size, en, zh) in units {
        let n = left / size;
        left %= size;
        if n > 0 && parts.len() < 2 {
            parts.push(super::pick(lang, format!("{n} {en}"), format!("{n} {zh}")));
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.join(" ")
}

/// `14:02`, `yesterday 14:02`, `2026-11-28 14:02`, in the hub's zone.
pub fn clock(lang: Lang, ms: u64) -> String {
    clock_at(lang, ms, &Zoned::now())
}

fn clock_at(lang: Lang, ms: u64, now: &Zoned) -> String {
    let zone: TimeZone = now.time_zone().clone();
    let Ok(at) =
        i64::try_from(ms).map_err(|_| ()).and_then(|ms| Timestamp::from_millisecond(ms).map_err(|_| ()))
    else {
        return format!("{ms} ms");
    };
    let at = at.to_zoned(zone);
    let time = at.strftime("%H:%M").to_string();
    let days = (now.date() - at.date()).get_days();
    match days {
        0 => time,
        1 => super::pick(lang, format!("yesterday {time}"), format!("昨天 {time}")),
        _ => at.strftime("%Y-%m-%d %H:%M").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lengths_and_times_for_people() {
        assert_eq!(value(21.449, "°C"), "21.4 °C");
        assert_eq!(value(-0.001, "V"), "0.00 V");
        assert_eq!(value(0.456, "V"), "0.46 V");
        assert_eq!(value(1013.25, "hPa"), "1013 hPa");
        assert_eq!(length(Lang::En, 20_000), "20 s");
        assert_eq!(length(Lang::En, 90_000), "1 min 30 s");
        assert_eq!(length(Lang::Zh, 7_200_000), "2 小时");
        assert_eq!(length(Lang::En, 500), "500 ms");
        let now = jiff::civil::date(2026, 11, 30).at(20, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap();
        let at = |h: i64| (now.timestamp().as_millisecond() - h * 3_600_000) as u64;
        assert_eq!(clock_at(Lang::En, at(1), &now), "19:00");
        assert_eq!(clock_at(Lang::Zh, at(24), &now), "昨天 20:00");
        assert_eq!(clock_at(Lang::En, at(72), &now), "2026-11-27 20:00");
        assert_eq!(clock_at(Lang::En, u64::MAX, &now), format!("{} ms", u64::MAX));
    }
}
