//! History of sensors.

use crate::config::RetentionConfig;
use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _, invalid};
use crate::gateway::methods::{Access, Call, Method, NoParams, method};
use crate::nodes::NodeError;
use crate::store::{StoreError, now_ms};
use hearth_shared::identity::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const READ: Access = Access::Operator(Scope::Read);

pub(super) const STATS: Method = method!("hearth.readings.stats", READ, stats, SpanParams => Stats);
pub(super) const SERIES: Method = method!("hearth.readings.series", READ, series, SeriesParams => Series);
pub(super) const PAGE: Method = method!("hearth.readings.page", READ, page, PageParams => Page);
pub(super) const SENSORS: Method = method!("hearth.readings.sensors", READ, sensors, NoParams => Sensors);

pub(super) const USAGE: Method = method!("hearth.retention.usage", READ, usage, NoParams => Usage);

/// Points in one answer.
const MAX_POINTS: usize = 50_000;

/// A sensor and a span of time; the last 24 hours when left out. Unix milliseconds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpanParams {
    /// Id, unique prefix of it, or name.
    node_id: String,
    sensor: String,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
}

/// As [`SpanParams`], with the number of points.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SeriesParams {
    /// Id, unique prefix of it, or name.
    node_id: String,
    sensor: String,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    /// At most 50000; 1000 when left out. More are merged.
    #[schemars(range(min = 1, max = 50_000))]
    limit: Option<usize>,
}

/// As [`SpanParams`]: values as they are kept, nothing merged, a page at a time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PageParams {
    /// Id, unique prefix of it, or name.
    node_id: String,
    sensor: String,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    /// `next` of the page before.
    after: Option<String>,
    /// Points of a page: at most 50000; 10000 when left out.
    #[schemars(range(min = 1, max = 50_000))]
    limit: Option<usize>,
}

fn span(from: Option<u64>, to: Option<u64>) -> Answer<(u64, u64)> {
    let to = to.unwrap_or_else(|| now_ms() + 1);
    let from = from.unwrap_or_else(|| to.saturating_sub(24 * 3_600_000));
    if from >= to {
        return Err(invalid("fromMs must be before toMs"));
    }
    Ok((from, to))
}

async fn node(call: &Call, which: &str) -> Answer<DeviceId> {
    Ok(call.gateway.hub.nodes.find(which).await.map_err(NodeError::outward)?.device.id)
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Stats {
    node_id: DeviceId,
    sensor: String,
    from_ms: u64,
    to_ms: u64,
    /// `null` when the span holds nothing.
    #[schemars(with = "Option<StatsSchema>")]
    stats: Option<crate::nodes::readings::Stats>,
}

/// What a span held; times are Unix milliseconds.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase", rename = "SpanStats")]
#[allow(dead_code, reason = "only its schema is used")]
struct StatsSchema {
    count: u64,
    min: f64,
    min_at: u64,
    mean: f64,
    max: f64,
    max_at: u64,
    last: f64,
    last_at: u64,
}

async fn stats(call: Call, params: SpanParams) -> Answer<Stats> {
    let (from_ms, to_ms) = span(params.from_ms, params.to_ms)?;
    let node_id = node(&call, &params.node_id).await?;
    let readings = call.gateway.hub.nodes.readings();
    let stats = readings.stats(node_id, &params.sensor, from_ms, to_ms).await.map_err(StoreError::outward)?;
    Ok(Stats { node_id, sensor: params.sensor, from_ms, to_ms, stats })
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Series {
    node_id: DeviceId,
    sensor: String,
    from_ms: u64,
    to_ms: u64,
    /// Oldest first.
    #[schemars(with = "Vec<PointSchema>")]
    points: Vec<crate::nodes::readings::Point>,
}

/// A raw value, or a summary with minimum and maximum; `at` in Unix milliseconds.
#[derive(JsonSchema)]
#[serde(rename = "Point")]
#[allow(dead_code, reason = "only its schema is used")]
struct PointSchema {
    at: u64,
    value: f64,
    min: f64,
    max: f64,
}

async fn series(call: Call, params: SeriesParams) -> Answer<Series> {
    let (from_ms, to_ms) = span(params.from_ms, params.to_ms)?;
    let node_id = node(&call, &params.node_id).await?;
    let limit = params.limit.unwrap_or(1000).clamp(1, MAX_POINTS);
    let readings = call.gateway.hub.nodes.readings();
    let points =
        readings.series(node_id, &params.sensor, from_ms, to_ms, limit).await.map_err(StoreError::outward)?;
    Ok(Series { node_id, sensor: params.sensor, from_ms, to_ms, points })
}

#[derive(Debug, Serialize, JsonSchema)]
struct Page {
    /// Oldest first: raw values where they are kept, five-minute summaries before.
    #[schemars(with = "Vec<PointSchema>")]
    points: Vec<crate::nodes::readings::Point>,
    /// For `after` of the next page; `null` on the last one.
    next: Option<String>,
}

async fn page(call: Call, params: PageParams) -> Answer<Page> {
    let (from_ms, to_ms) = span(params.from_ms, params.to_ms)?;
    let node_id = node(&call, &params.node_id).await?;
    let after = params.after.as_deref().map(str::parse).transpose();
    let after = after.map_err(|_| invalid("`after` is not the `next` of a page"))?;
    let limit = params.limit.unwrap_or(10_000).clamp(1, MAX_POINTS);
    let readings = call.gateway.hub.nodes.readings();
    let (points, next) = readings
        .page(node_id, &params.sensor, from_ms, to_ms, after, limit)
        .await
        .map_err(StoreError::outward)?;
    Ok(Page { points, next: next.map(|n| n.to_string()) })
}

#[derive(Debug, Serialize, JsonSchema)]
struct Sensors {
    sensors: Vec<Sensor>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Sensor {
    node_id: DeviceId,
    node_name: String,
    sensor: String,
    /// As the node declares it; `null` when it does not any more.
    unit: Option<String>,
    /// The newest value, and when in Unix milliseconds.
    value: f64,
    at_ms: u64,
}

async fn sensors(call: Call, _: NoParams) -> Answer<Sensors> {
    let nodes = call.gateway.hub.nodes.list().await.map_err(NodeError::outward)?;
    let all = call.gateway.hub.nodes.readings().sensors().await.map_err(StoreError::outward)?;
    let sensors = all
        .into_iter()
        .map(|(node_id, sensor, value, at_ms)| {
            let node = nodes.iter().find(|n| n.device.id == node_id);
            let declared = node
                .and_then(|n| n.declaration.as_ref())
                .and_then(|d| d.sensors.iter().find(|s| s.id == sensor));
            Sensor {
                node_id,
                node_name: node.map_or_else(|| node_id.short(), |n| n.device.name.clone()),
                unit: declared.map(|s| s.unit.clone()),
                sensor,
                value,
                at_ms,
            }
        })
        .collect();
    Ok(Sensors { sensors })
}

/// What is kept, and what may be.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Usage {
    /// Raw readings.
    readings: u64,
    readings_oldest_ms: Option<u64>,
    /// Five-minute summaries.
    summaries: u64,
    summaries_oldest_ms: Option<u64>,
    events: u64,
    /// Pictures and other attachments.
    media: u64,
    media_bytes: u64,
    database_bytes: u64,
    /// Left on the card; `null` when it cannot be told.
    free_bytes: Option<u64>,
    /// Pictures are refused and old ones go.
    card_full: bool,
    /// Readings and events that full outboxes dropped.
    lost: u64,
    /// As configured.
    limits: RetentionConfig,
}

async fn usage(call: Call, _: NoParams) -> Answer<Usage> {
    let usage = call.gateway.hub.nodes.usage().await.map_err(StoreError::outward)?;
    Ok(Usage {
        readings: usage.readings,
        readings_oldest_ms: usage.readings_oldest_ms,
        summaries: usage.summaries,
        summaries_oldest_ms: usage.summaries_oldest_ms,
        events: usage.events,
        media: usage.media,
        media_bytes: usage.media_bytes,
        database_bytes: usage.database_bytes,
        free_bytes: usage.free_bytes,
        card_full: usage.card_full,
        lost: usage.lost,
        limits: usage.limits,
    })
}
