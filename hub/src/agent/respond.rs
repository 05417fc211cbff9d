//! What an intent does, and what is answered.

use super::act::Call;
use super::intents::{
    Intent, Lang, Parsed, PinRef, SensorRef, World, WorldNode, WorldPin, answer, language, parse,
};
use super::ledger::Outcome;
use super::run::{RunError, RunTask};
use super::wording;
use crate::channels::Reply;
use crate::nodes::NodeView;
use crate::store::now_ms;
use hearth_shared::command::gpio::PinState;
use hearth_shared::command::sensor::{ReadResult, SensorInfo};
use hearth_shared::command::system::InfoResult;
use hearth_shared::error::CommandError;
use hearth_shared::identity::{DeviceId, Digest};
use jiff::Zoned;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The step that holds what was understood.
const UNDERSTOOD: &str = "understood";

/// What the known nodes declare, as far as it is approved.
pub(super) fn world(nodes: &[NodeView]) -> World {
    World { nodes: nodes.iter().map(world_node).collect() }
}

fn world_node(view: &NodeView) -> WorldNode {
    let approved = |kind: &str, id: &str| view.approved.iter().any(|a| a.strip_prefix(kind) == Some(id));
    let declaration = view.declaration.as_ref();
    let parts =
        |list: Option<&Vec<hearth_shared::link::PartDecl>>, kind: &str| -> Vec<(String, String, String)> {
            list.into_iter()
                .flatten()
                .filter(|p| approved(kind, &p.id))
                .map(|p| (p.id.clone(), p.name.clone(), p.detail.clone()))
                .collect()
        };
    WorldNode {
        id: view.device.id,
        name: view.device.name.clone(),
        connected: view.connected,
        commands: view.commands().into_iter().map(str::to_owned).collect(),
        cameras: parts(declaration.map(|d| &d.cameras), "camera:")
            .into_iter()
            .map(|(id, name, _)| (id, name))
            .collect(),
        pins: parts(declaration.map(|d| &d.pins), "pin:")
            .into_iter()
            .map(|(id, name, detail)| WorldPin { id, name, output: detail == "output" })
            .collect(),
        sensors: declaration
            .into_iter()
            .flat_map(|d| &d.sensors)
            .filter(|s| approved("sensor:", &s.id))
            .map(|s| SensorRef {
                node: view.device.id,
                node_name: view.device.name.clone(),
                id: s.id.clone(),
                name: s.name.clone(),
                quantity: s.quantity,
                unit: s.unit.clone(),
            })
            .collect(),
    }
}

impl RunTask {
    pub(super) fn lang(&self) -> Lang {
        language(&self.new.text)
    }

    /// Understands the message and does what it asks for.
    pub(super) async fn answer(&self) -> Result<Reply, RunError> {
        let nodes = self.parts.nodes.list().await.map_err(|e| RunError::Told(e.to_string()))?;
        let world = world(&nodes);
        if let Some(intent) = self.understood_before().await? {
            return self.fulfil(intent, &nodes).await;
        }
        let model = self.parts.model()?;
        if let Some(model) = &model
            && self.resumed
            && self.find_line(&self.line_id("turn-0")).await?.is_some()
        {
            return self.converse(model, &nodes).await;
        }
        let key = &self.new.session_key;
        let open = self.parts.ledger.question(key).await?;
        let answered = open.as_ref().and_then(|q| answer(&self.new.text, q));
        let parsed = match answered {
            Some(intent) => Parsed::Intent { intent, certain: true },
            None => parse(&self.new.text, &world, &Zoned::now()),
        };
        match parsed {
            Parsed::Intent { intent, certain } if certain || model.is_none() => {
                let body = serde_json::to_string(&intent).map_err(|e| RunError::Told(e.to_string()))?;
                self.parts.ledger.begin(&self.new.run_id, UNDERSTOOD, body).await?;
                self.parts.ledger.ask(key, None).await?;
                self.fulfil(intent, &nodes).await
            }
            Parsed::Ambiguous { question, certain } if certain || model.is_none() => {
                self.parts.ledger.ask(key, Some(&question)).await?;
                Ok(self.text(wording::ask(&question)))
            }
            parsed => match (model, parsed) {
                (Some(model), _) => self.converse(&model, &nodes).await,
                (None, Parsed::Cannot(cannot)) => {
                    let waiting: Vec<&str> = nodes
                        .iter()
                        .filter(|n| n.pending_request.is_some())
                        .map(|n| n.device.name.as_str())
                        .collect();
                    Ok(self.text(wording::cannot(self.lang(), &cannot, &waiting)))
                }
                (None, _) => Ok(self.text(wording::not_understood(self.lang(), &self.new.text, &world))),
            },
        }
    }

    async fn understood_before(&self) -> Result<Option<Intent>, RunError> {
        if !self.resumed {
            return Ok(None);
        }
        let step = self.parts.ledger.step(&self.new.run_id, UNDERSTOOD).await?;
        Ok(step.and_then(|s| serde_json::from_str(&s.body).ok()))
    }

    /// A reply of words; told at once as the one delta it is.
    fn text(&self, text: String) -> Reply {
        self.tell.delta(&text, &text);
        Reply { text, ..Reply::default() }
    }

    /// The reply to a command that failed.
    fn failed_reply(&self, node_name: &str, outcome: &Outcome, error: &CommandError) -> Reply {
        let reply = self.text(wording::failed(self.lang(), node_name, outcome, error));
        Reply { failure: Some(error.code), ..reply }
    }

    fn call_of(&self, id: &str, node: DeviceId, node_name: &str, command: &str, params: Value) -> Call {
        Call {
            id: format!("{}-{id}", &Digest::of(self.new.run_id.as_bytes()).to_string()[..12]),
            node,
            node_name: node_name.to_owned(),
            command: command.to_owned(),
            params,
            wait_for_node: false,
            reason: None,
        }
    }

    async fn fulfil(&self, intent: Intent, nodes: &[NodeView]) -> Result<Reply, RunError> {
        let lang = self.lang();
        let view = |id: &DeviceId| nodes.iter().find(|n| n.device.id == *id);
        let connected = |id: &DeviceId| view(id).is_some_and(|n| n.connected);
        Ok(match intent {
            Intent::Snap { node, node_name, camera } => self.snap(node, &node_name, camera).await?,
            Intent::Switch { pin, on, for_ms } => self.switch(&pin, on, for_ms).await?,
            Intent::SensorNow { sensor, compare } if connected(&sensor.node) => {
                let call = self.call_of(
                    "read",
                    sensor.node,
                    &sensor.node_name,
                    "sensor.read",
                    json!({ "sensor": sensor.id }),
                );
                let outcome = self.call(&call).await?;
                match typed::<ReadResult>(&outcome) {
                    Ok(read) => self.text(wording::sensor_now(lang, &sensor, read.value, compare)),
                    Err(error) => self.failed_reply(&call.node_name, &outcome, &error),
                }
            }
            Intent::SensorNow { sensor, .. } => {
                let stats = self.parts.nodes.readings().stats(sensor.node, &sensor.id, 0, now_ms()).await?;
                self.text(wording::sensor_away(lang, &sensor, stats.map(|s| (s.last, s.last_at))))
            }
            Intent::SensorPast { sensor, stat, span, when, compare } => {
                let readings = self.parts.nodes.readings();
                let stats = readings.stats(sensor.node, &sensor.id, span.from_ms, span.to_ms).await?;
                self.text(match &stats {
                    Some(s) => wording::sensor_past(lang, &sensor, stat, &span, when, compare, s),
                    None => {
                        let all = readings.stats(sensor.node, &sensor.id, 0, now_ms()).await?;
                        wording::no_readings(lang, &sensor, &span, all.map(|s| (s.last, s.last_at)))
                    }
                })
            }
            Intent::PinState { pin, asked } => {
                if !connected(&pin.node) {
                    let seen = view(&pin.node).and_then(|n| n.device.last_seen_ms);
                    return Ok(self.text(wording::offline(lang, &pin.node_name, seen)));
                }
                let call =
                    self.call_of("read", pin.node, &pin.node_name, "gpio.read", json!({ "pin": pin.id }));
                let outcome = self.call(&call).await?;
                match typed::<PinState>(&outcome) {
                    Ok(state) => self.text(wording::pin_state(lang, &pin, &state, asked)),
                    Err(error) => self.failed_reply(&call.node_name, &outcome, &error),
                }
            }
            Intent::Record { sensor, interval_ms } => {
                let params = json!({ "sensor": sensor.id, "intervalMs": interval_ms });
                let mut call =
                    self.call_of("record", sensor.node, &sensor.node_name, "sensor.subscribe", params);
                call.wait_for_node = true;
                let outcome = self.call(&call).await?;
                match typed::<SensorInfo>(&outcome) {
                    Ok(info) => self.text(wording::recording(lang, &sensor, info.interval_ms)),
                    Err(error) => self.failed_reply(&call.node_name, &outcome, &error),
                }
            }
            Intent::Health { node, node_name } => {
                let can = view(&node).is_some_and(|n| n.commands().contains(&"system.info"));
                if !connected(&node) || !can {
                    return Ok(self.text(match view(&node) {
                        Some(n) if n.connected => wording::online_only(lang, &node_name),
                        other => {
                            wording::offline(lang, &node_name, other.and_then(|n| n.device.last_seen_ms))
                        }
                    }));
                }
                let call = self.call_of("info", node, &node_name, "system.info", json!({}));
                let outcome = self.call(&call).await?;
                match typed::<InfoResult>(&outcome) {
                    Ok(info) => self.text(wording::health(lang, &node_name, &info)),
                    Err(error) => self.failed_reply(&node_name, &outcome, &error),
                }
            }
            Intent::Status => {
                let pending =
                    self.parts.actions.approvals(false).await.map_err(|e| RunError::Told(e.to_string()))?;
                self.text(wording::status(lang, nodes, &pending))
            }
            Intent::List { kind } => self.text(wording::list(lang, kind, &world(nodes))),
            Intent::Help => {
                self.text(wording::help(lang, &world(nodes), self.parts.config.agent.model.is_some()))
            }
            Intent::Nothing => self.text(wording::nothing(lang)),
        })
    }

    async fn snap(&self, node: DeviceId, node_name: &str, camera: Option<String>) -> Result<Reply, RunError> {
        let lang = self.lang();
        let params = camera.as_ref().map_or_else(|| json!({}), |id| json!({ "deviceId": id }));
        let mut call = self.call_of("snap", node, node_name, "camera.snap", params);
        call.wait_for_node = true;
        let outcome = self.call(&call).await?;
        Ok(match &outcome.result {
            Ok(_) if outcome.media.is_empty() => self.text(wording::no_picture(lang, node_name)),
            Ok(_) => {
                let mut reply = self.text(wording::picture(lang, node_name, outcome.decided_by.as_deref()));
                reply.media = outcome.media;
                reply
            }
            Err(error) => self.failed_reply(node_name, &outcome, error),
        })
    }

    async fn switch(&self, pin: &PinRef, on: bool, for_ms: Option<u64>) -> Result<Reply, RunError> {
        let lang = self.lang();
        let (command, params) = match for_ms {
            Some(ms) => ("gpio.pulse", json!({ "pin": pin.id, "value": on, "durationMs": ms })),
            None => ("gpio.write", json!({ "pin": pin.id, "value": on })),
        };
        let mut call = self.call_of("switch", pin.node, &pin.node_name, command, params);
        call.wait_for_node = true;
        let outcome = self.call(&call).await?;
        Ok(match &outcome.result {
            Ok(_) => self.text(wording::switched(lang, pin, on, for_ms, outcome.decided_by.as_deref())),
            Err(error) => self.failed_reply(&pin.node_name, &outcome, error),
        })
    }
}

/// The result in its type; an answer that does not fit is an error of the node.
fn typed<T: DeserializeOwned>(outcome: &Outcome) -> Result<T, hearth_shared::error::CommandError> {
    use hearth_shared::error::{CommandError, ErrorCode};
    match &outcome.result {
        Ok(value) => serde_json::from_value(value.clone()).map_err(|e| {
            CommandError::new(ErrorCode::Internal, format!("the node's answer cannot be read: {e}"))
        }),
        Err(error) => Err(error.clone()),
    }
}
