//! `hearth readings`: history of sensors.

use super::client::{Access, Client, Target};
use super::context::Context;
use super::devices::pick;
use super::error::Failure;
use super::output::{safe_line, time};
use crate::store::now_ms;
use clap::Subcommand;
use jiff::civil::{Date, DateTime};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Points shown by `show`.
const SHOW_LIMIT: u64 = 24;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show minimum, mean, maximum and the course; without a sensor, all sensors with their last value
    Show(Span),
    /// Write the values as CSV, every one that is kept: raw ones, and five-minute summaries before them
    Export {
        #[command(flatten)]
        span: Span,
        /// Write to this file instead of stdout
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct Span {
    /// Node id (its head is enough) or name
    node: Option<String>,
    /// Sensor, for example temperature
    sensor: Option<String>,
    /// Begin: 2026-11-30, 2026-11-30T18:00, or an RFC 3339 time
    #[arg(long, value_name = "TIME", conflicts_with = "last")]
    from: Option<String>,
    /// End [default: now]
    #[arg(long, value_name = "TIME", conflicts_with = "last")]
    to: Option<String>,
    /// The last 24h, 90m or 7d [default: 24h]
    #[arg(long, value_name = "TIME")]
    last: Option<String>,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let span = match &arguments.action {
            Action::Show(span) | Action::Export { span, .. } => span,
        };
        let (from, to) = bounds(span, now_ms())?;
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let sensors = client.call("hearth.readings.sensors", json!({})).await?;
        let all = sensors["sensors"].as_array().cloned().unwrap_or_default();
        let (Some(node), Action::Show(_) | Action::Export { .. }) = (&span.node, &arguments.action) else {
            return match &arguments.action {
                Action::Show(_) => list(&all, context),
                Action::Export { .. } => Err(Failure::usage(
                    "name a node and a sensor",
                    "see `hearth readings show` for what there is",
                )),
            };
        };
        let nodes = client.call("node.list", json!({})).await?;
        let nodes = nodes["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let node_id = pick(nodes, node, &["nodeId", "displayName"], "node")?["nodeId"].clone();
        let sensor = sensor(&all, &node_id, span.sensor.as_deref())?;
        let params = json!({ "nodeId": node_id, "sensor": sensor, "fromMs": from, "toMs": to });
        match &arguments.action {
            Action::Show(_) => show(&mut client, params, context).await,
            Action::Export { output, .. } => export(&mut client, params, output.as_ref(), context).await,
        }
    })
}

/// The sensor that is meant: the only one of the node when none is named.
fn sensor(all: &[Value], node: &Value, wanted: Option<&str>) -> Result<String, Failure> {
    let of_node: Vec<&str> =
        all.iter().filter(|s| s["nodeId"] == *node).filter_map(|s| s["sensor"].as_str()).collect();
    let hint = "see `hearth readings show` for what there is";
    match (wanted, of_node.as_slice()) {
        (Some(wanted), known) if known.contains(&wanted) => Ok(wanted.to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (_, []) => Err(Failure::not_found("no readings of this node yet", hint)),
        (Some(wanted), _) => {
            Err(Failure::not_found(format!("no readings of a sensor `{}`", safe_line(wanted)), hint))
        }
        (None, known) => Err(Failure::usage(
            format!("the node has {} sensors", known.len()),
            format!("name one: {}", safe_line(&known.join(", "))),
        )),
    }
}

fn bounds(span: &Span, now: u64) -> Result<(u64, u64), Failure> {
    let usage = |what: String| Failure::usage(what, "see `hearth readings show --help`");
    if span.from.is_none() && span.to.is_none() {
        let last = parse_span(span.last.as_deref().unwrap_or("24h")).map_err(usage)?;
        return Ok((now.saturating_sub(last), now + 1));
    }
    let to = span.to.as_deref().map(parse_time).transpose().map_err(usage)?.unwrap_or(now + 1);
    let day = 24 * 3_600_000;
    let from =
        span.from.as_deref().map(parse_time).transpose().map_err(usage)?.unwrap_or(to.saturating_sub(day));
    if from >= to {
        return Err(usage("--from must be before --to".into()));
    }
    Ok((from, to))
}

/// Milliseconds of `90m`, `24h`, `7d`, `2w`.
fn parse_span(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return Err(format!("`{}` is no length of time; give one such as 24h or 7d", safe_line(text))),
    };
    let ms = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).filter(|ms| *ms > 0);
    ms.ok_or_else(|| format!("`{}` is no length of time; give one such as 24h or 7d", safe_line(text)))
}

/// Unix milliseconds of a date, a local time, or an RFC 3339 time.
fn parse_time(text: &str) -> Result<u64, String> {
    let local = |at: DateTime| at.to_zoned(TimeZone::system()).ok().map(|z| z.timestamp());
    let at =
        text.parse::<Timestamp>().ok().or_else(|| text.parse::<DateTime>().ok().and_then(local)).or_else(
            || text.parse::<Date>().ok().and_then(|d| local(d.to_datetime(jiff::civil::Time::midnight()))),
        );
    at.and_then(|t| u64::try_from(t.as_millisecond()).ok())
        .ok_or_else(|| format!("`{}` is no time; give one such as 2026-11-30T18:00", safe_line(text)))
}

fn list(all: &[Value], context: &Context) -> Result<(), Failure> {
    if context.json {
        return context.out.json(&json!({ "sensors": all }));
    }
    if all.is_empty() {
        return context.out.line("No readings yet; a connected node sends them by itself.");
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|s| {
            let text = |name: &str| safe_line(s[name].as_str().unwrap_or_default());
            let node = if s["nodeName"].is_string() {
                text("nodeName")
            } else {
                super::card::short(&text("nodeId"))
            };
            let value = s["value"].as_f64().map_or_else(|| "-".into(), number);
            vec![
                node,
                text("sensor"),
                format!("{value} {}", text("unit")).trim_end().to_owned(),
                time(s["atMs"].as_u64().unwrap_or_default()),
            ]
        })
        .collect();
    context.out.table(&["NODE", "SENSOR", "LAST", "AT"], &rows)
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

async fn show(client: &mut Client, params: Value, context: &Context) -> Result<(), Failure> {
    let answer = client.call("hearth.readings.stats", params.clone()).await?;
    let stats = &answer["stats"];
    let mut series = params;
    series["limit"] = json!(SHOW_LIMIT);
    let points = client.call("hearth.readings.series", series).await?;
    if context.json {
        return context.out.json(&json!({ "stats": stats, "points": points["points"] }));
    }
    if stats.is_null() {
        return context.out.line("Nothing in that time.");
    }
    let value = |name: &str| stats[name].as_f64().map_or_else(|| "-".into(), number);
    let at = |name: &str| time(stats[name].as_u64().unwrap_or_default());
    context.out.line(format!("minimum  {:>10}  at {}", value("min"), at("minAt")))?;
    context.out.line(format!("mean     {:>10}  of {} values", value("mean"), stats["count"]))?;
    context.out.line(format!("maximum  {:>10}  at {}", value("max"), at("maxAt")))?;
    context.out.line(format!("last     {:>10}  at {}\n", value("last"), at("lastAt")))?;
    let points = points["points"].as_array().cloned().unwrap_or_default();
    let (low, high) = (stats["min"].as_f64().unwrap_or_default(), stats["max"].as_f64().unwrap_or_default());
    for point in points {
        let value = point["value"].as_f64().unwrap_or_default();
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        let bar = "█".repeat((share * 30.0).round().clamp(0.0, 30.0) as usize);
        context.out.line(format!(
            "{}  {:>10}  {bar}",
            time(point["at"].as_u64().unwrap_or_default()),
            number(value)
        ))?;
    }
    Ok(())
}

async fn export(
    client: &mut Client,
    params: Value,
    output: Option<&PathBuf>,
    context: &Context,
) -> Result<(), Failure> {
    let mut pages = Pages { client, params, more: true };
    if context.json && output.is_none() {
        let mut all = Vec::new();
        while let Some(points) = pages.next().await? {
            all.extend(points);
        }
        return context.out.json(&json!({ "points": all }));
    }
    let mut target = match output {
        None => None,
        Some(path) => Some(std::fs::File::create(path).map_err(|e| unwritable(path, &e))?),
    };
    let mut write = |text: &str| match (&mut target, output) {
        (Some(file), Some(path)) => file.write_all(text.as_bytes()).map_err(|e| unwritable(path, &e)),
        _ => context.out.raw(text),
    };
    let mut count = 0;
    write(CSV_HEAD)?;
    while let Some(points) = pages.next().await? {
        count += points.len();
        let text = |name: &str| pages.params[name].as_str().unwrap_or_default();
        write(&csv(text("nodeId"), text("sensor"), &points))?;
    }
    match output {
        None => Ok(()),
        Some(path) if context.json => context.out.json(&json!({ "file": path, "points": count })),
        Some(path) => context.out.line(format!("{count} values are in {}", path.display())),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()), "name a file that you may write")
}

/// The values of a span, page by page: a year of them need not be in memory at once.
struct Pages<'a> {
    client: &'a mut Client,
    params: Value,
    more: bool,
}

impl Pages<'_> {
    async fn next(&mut self) -> Result<Option<Vec<Value>>, Failure> {
        if !self.more {
            return Ok(None);
        }
        let mut page = self.client.call("hearth.readings.page", self.params.clone()).await?;
        self.more = page["next"].is_string();
        self.params["after"] = page["next"].take();
        Ok(Some(page["points"].as_array().cloned().unwrap_or_default()))
    }
}

const CSV_HEAD: &str = "time,node,sensor,value,min,max\r\n";

/// Lines of CSV after RFC 4180.
fn csv(node: &str, sensor: &str, points: &[Value]) -> String {
    let mut out = String::new();
    for point in points {
        let at = i64::try_from(point["at"].as_u64().unwrap_or_default()).unwrap_or_default();
        let at = Timestamp::from_millisecond(at).map(|t| t.to_string()).unwrap_or_default();
        let number = |name: &str| point[name].as_f64().map(|v| v.to_string()).unwrap_or_default();
        let row = [at, node.to_owned(), sensor.to_owned(), number("value"), number("min"), number("max")];
        out.push_str(&row.map(|f| field(&f)).join(","));
        out.push_str("\r\n");
    }
    out
}

/// Quoted where it must be; a text that a spreadsheet would take for a formula is kept a text.
fn field(text: &str) -> String {
    let formula =
        text.starts_with(['=', '@']) || (text.starts_with(['+', '-']) && text.parse::<f64>().is_err());
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: Option<&str>, to: Option<&str>, last: Option<&str>) -> Span {
        let own = |t: Option<&str>| t.map(str::to_owned);
        Span { node: None, sensor: None, from: own(from), to: own(to), last: own(last) }
    }

    #[test]
    fn spans_of_time() {
        let now = 1_800_000_000_000;
        assert_eq!(bounds(&span(None, None, None), now).unwrap(), (now - 86_400_000, now + 1));
        assert_eq!(bounds(&span(None, None, Some("90m")), now).unwrap().0, now - 90 * 60_000);
        let (from, to) =
            bounds(&span(Some("2026-11-30T00:00:00Z"), Some("2026-12-01T00:00:00Z"), None), now).unwrap();
        assert_eq!(to - from, 86_400_000);
        for bad in [
            span(Some("yesterdayish"), None, None),
            span(Some("2026-12-02"), Some("2026-12-01"), None),
            span(None, None, Some("5 parsecs")),
            span(None, None, Some("0h")),
        ] {
            assert_eq!(bounds(&bad, now).unwrap_err().code(), 2);
        }
    }

    #[test]
    fn csv_is_quoted_and_holds_no_formulas() {
        let points = [json!({"at": 1_796_083_200_000_u64, "value": -1.5, "min": -1.5, "max": -1.5})];
        let text = csv("gar,\"age\"", "=HYPERLINK()", &points);
        let row = text.lines().next().unwrap();
        assert_eq!(row, "2026-12-01T00:00:00Z,\"gar,\"\"age\"\"\",'=HYPERLINK(),-1.5,-1.5,-1.5");
    }

    #[test]
    fn the_only_sensor_needs_no_name() {
        let all = [
            json!({"nodeId": "a", "sensor": "t"}),
            json!({"nodeId": "b", "sensor": "t"}),
            json!({"nodeId": "b", "sensor": "h"}),
        ];
        assert_eq!(sensor(&all, &json!("a"), None).unwrap(), "t");
        assert_eq!(sensor(&all, &json!("b"), None).unwrap_err().code(), 2);
        assert_eq!(sensor(&all, &json!("b"), Some("x")).unwrap_err().code(), 4);
        assert_eq!(sensor(&all, &json!("c"), None).unwrap_err().code(), 4);
    }
}
