//! What runs: the hub's port, its TLS key, its nodes, and the model server.

use super::{Finding, Layer};
use crate::cli::client::{Access, Client, Target, tls_key_fits};
use crate::config::{Config, ModelConfig};
use crate::home::Home;
use hearth_shared::identity::SecretText;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// How long a model server may take to answer.
const MODEL: Duration = Duration::from_secs(5);
/// How long a node may take to tell how it is.
const NODE: Duration = Duration::from_secs(10);

/// The port, and all that is behind it.
pub(super) async fn gateway(findings: &mut Vec<Finding>, home: &Home, config: Option<&Config>, runs: bool) {
    let mut layer = Layer { name: "gateway", findings };
    if !runs {
        if let Some(config) = config {
            free_port(&mut layer, config);
        }
        return;
    }
    let target = match Target::local(home) {
        Ok(target) => target,
        Err(failure) => return layer.fail(failure.message().to_owned(), failure.next().to_owned()),
    };
    let mut client = match Client::connect(&target, Access::OWNER).await {
        Ok(client) => client,
        Err(failure) => return layer.fail(failure.message().to_owned(), failure.next().to_owned()),
    };
    layer.ok("the hub answers and knows this command line");
    match tls_key_fits(home).await {
        Ok(()) => layer.ok("its TLS key is the one that nodes pin"),
        Err(failure) => layer.fail(failure.message().to_owned(), failure.next().to_owned()),
    }
    match client.call("status", json!({})).await {
        Ok(status) if status["approvals"]["approvers"].as_u64() == Some(0) => layer.warn(
            "nobody who could decide an approval is connected, may do so in a chat, or is notified",
            "keep `hearth chat` open, or set `approvals.wait_for_approver` and use `hearth approvals`",
        ),
        Ok(_) => {}
        Err(failure) => layer.fail(failure.message().to_owned(), failure.next().to_owned()),
    }
    let mut layer = Layer { name: "channels", findings };
    match client.call("hearth.channels.list", json!({})).await {
        Ok(list) => {
            for channel in list["channels"].as_array().into_iter().flatten() {
                one_channel(&mut layer, channel);
            }
        }
        Err(failure) => layer.fail(failure.message().to_owned(), failure.next().to_owned()),
    }
    let mut layer = Layer { name: "nodes", findings };
    match client.call("node.list", json!({})).await {
        Ok(list) => {
            let nodes = list["nodes"].as_array().cloned().unwrap_or_default();
            if nodes.is_empty() {
                layer.warn("no node is paired", "`hearth pair` shows a setup code for one");
            }
            for node in &nodes {
                one_node(&mut layer, &mut client, node).await;
            }
        }
        Err(failure) => layer.fail(failure.message().to_owned(), failure.next().to_owned()),
    }
    client.close().await;
}

/// Nothing runs: can the hub have its port?
fn free_port(layer: &mut Layer<'_>, config: &Config) {
    for ip in &config.gateway.bind {
        let address = SocketAddr::new(*ip, config.gateway.port);
        match TcpListener::bind(address) {
            Ok(_) => layer.ok(format!("{address} is free")),
            Err(error) => layer.fail(
                format!("{address} cannot be taken: {error}"),
                "stop the program that has it, or change `gateway.port` or `gateway.bind`",
            ),
        }
    }
}

fn one_channel(layer: &mut Layer<'_>, channel: &Value) {
    let name = channel["name"].as_str().unwrap_or("a channel");
    let next = format!("see `hearth channels status {name}`");
    let error = channel["error"].as_str().unwrap_or("no reason is known");
    let unsent = channel["waiting"].as_u64().unwrap_or(0);
    match channel["state"].as_str() {
        Some("down") => layer.fail(format!("{name} is down: {error}"), next),
        Some("starting") => layer.warn(format!("{name} has not answered yet"), next),
        _ if unsent > 20 => layer.warn(format!("{unsent} messages wait to be sent on {name}: {error}"), next),
        _ => layer.ok(format!("{name} is up")),
    }
}

async fn one_node(layer: &mut Layer<'_>, client: &mut Client, node: &Value) {
    let name = node["displayName"].as_str().unwrap_or("a node");
    if node["connected"] != true {
        layer.warn(
            format!("{name} is away"),
            "look at the board's power and network, then run `hearth-node status` there",
        );
        return;
    }
    if node["pendingRequestId"].is_string() {
        layer.warn(
            format!("{name} declares parts that nobody approved"),
            format!("hearth nodes show {name}, then hearth devices approve {name}"),
        );
    }
    let has_info = node["commands"].as_array().is_some_and(|c| c.iter().any(|c| c == "system.info"));
    if !has_info {
        layer.ok(format!("{name} is connected"));
        return;
    }
    let Ok(key) = SecretText::random() else { return };
    let params = json!({
        "nodeId": node["nodeId"], "command": "system.info", "params": {},
        "timeoutMs": NODE.as_millis() as u64, "idempotencyKey": key.expose(),
    });
    match client.call_within(NODE + Duration::from_secs(5), "node.invoke", params).await {
        Ok(answer) => {
            let warnings = answer["payload"]["warnings"].as_array().cloned().unwrap_or_default();
            if warnings.is_empty() {
                layer.ok(format!("{name} is connected and well"));
            }
            for warning in warnings.iter().filter_map(Value::as_str) {
                layer.warn(
                    format!("{name}: {warning}"),
                    "see `hearth nodes invoke NODE system.info` for the figures",
                );
            }
        }
        Err(failure) => layer.warn(
            format!("{name} is connected but did not tell how it is: {}", failure.message()),
            "run `hearth-node status` on the board",
        ),
    }
}

/// The model server.
pub(super) async fn model(layer: &mut Layer<'_>, model: &ModelConfig) {
    if let Some(variable) = &model.api_key_env
        && std::env::var_os(variable).is_none_or(|v| v.is_empty())
    {
        layer.warn(
            format!("the environment variable {variable} with the API key is not set here"),
            "set it where the hub is started, for example in its service file",
        );
    }
    let url = format!("{}/models", model.base_url.trim_end_matches('/'));
    let ask = async {
        let client = reqwest::Client::builder().timeout(MODEL).build()?;
        let mut request = client.get(&url);
        if let Some(key) = model.key() {
            request = request.bearer_auth(key.expose());
        }
        let response = request.send().await?;
        Ok::<_, reqwest::Error>((response.status(), response.json::<Value>().await.unwrap_or_default()))
    };
    match ask.await {
        Ok((status, list)) if status.is_success() => {
            let known = list["data"].as_array().map(Vec::as_slice).unwrap_or_default();
            if known.is_empty() || known.iter().any(|m| m["id"] == model.name.as_str()) {
                layer.ok(format!("the model server at {} answers", model.base_url));
            } else {
                let names: Vec<&str> = known.iter().filter_map(|m| m["id"].as_str()).take(5).collect();
                layer.warn(
                    format!("the model server does not list `{}`", model.name),
                    format!("set `agent.model.name` to one of: {}", names.join(", ")),
                );
            }
        }
        Ok((status, _)) => layer.fail(
            format!("the model server at {} answers {status}", model.base_url),
            "check `agent.model.base_url` (it usually ends in /v1) and the API key",
        ),
        Err(error) => layer.fail(
            format!("the model server at {} cannot be reached: {}", model.base_url, error.without_url()),
            "start it, or correct `agent.model.base_url`; without it the built-in grammar answers",
        ),
    }
}
