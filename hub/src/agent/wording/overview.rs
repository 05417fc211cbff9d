//! Status, health, lists and help.

use super::super::intents::{Kind, Lang, World};
use super::{clock, kind_name, length, pick, value};
use crate::approvals::Approval;
use crate::nodes::NodeView;
use hearth_shared::command::system::InfoResult;

/// All nodes, who is there, and what waits for a person.
pub fn status(lang: Lang, nodes: &[NodeView], pending: &[Approval]) -> String {
    let mut lines = Vec::new();
    if nodes.is_empty() {
        lines.push(pick(
            lang,
            "No node is paired yet; run `hearth pair`.".into(),
            "还没有配对的节点；运行 `hearth pair`。".into(),
        ));
    }
    let online = nodes.iter().filter(|n| n.connected).count();
    if !nodes.is_empty() {
        let all = nodes.len();
        lines.push(pick(
            lang,
            format!("{online} of {all} nodes online:"),
            format!("{all} 个节点中 {online} 个在线："),
        ));
    }
    for node in nodes {
        let name = &node.device.name;
        lines.push(if node.connected {
            let more = if node.pending.is_empty() {
                String::new()
            } else {
                let n = node.pending.len();
                pick(lang, format!(" ({n} new parts wait for approval)"), format!("（{n} 项新功能待批准）"))
            };
            pick(lang, format!("  {name}: online{more}"), format!("  {name}：在线{more}"))
        } else {
            format!("  {}", offline(lang, name, node.device.last_seen_ms))
        });
    }
    if !pending.is_empty() {
        let n = pending.len();
        lines.push(pick(lang, format!("{n} waiting for a decision:"), format!("{n} 个请求待决定：")));
        for approval in pending.iter().take(5) {
            let id = approval.id.to_string();
            lines.push(format!("  {} {} ({})", &id[..8], approval.sentence, approval.node_name));
        }
    }
    lines.join("\n")
}

/// Runs of the session that go on.
pub fn running(lang: Lang, runs: usize) -> String {
    pick(
        lang,
        format!("{runs} requests of this conversation are going on."),
        format!("此对话有 {runs} 个请求正在进行。"),
    )
}

/// A node that is away.
pub fn offline(lang: Lang, node: &str, last_seen_ms: Option<u64>) -> String {
    match last_seen_ms {
        Some(ms) => {
            let at = clock(lang, ms);
            pick(lang, format!("{node}: offline, last seen {at}"), format!("{node}：离线，最后在线 {at}"))
        }
        None => pick(lang, format!("{node}: offline, never seen"), format!("{node}：离线，从未连接")),
    }
}

/// A node that does not report its health.
pub fn online_only(lang: Lang, node: &str) -> String {
    pick(
        lang,
        format!("{node} is online; it does not report its health."),
        format!("{node} 在线；它不报告健康状况。"),
    )
}

/// A board's health: faults first.
pub fn health(lang: Lang, node: &str, info: &InfoResult) -> String {
    let mb = |bytes: u64| bytes / 1_000_000;
    let gb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e9);
    let mut lines = Vec::new();
    if info.warnings.is_empty() {
        lines.push(pick(lang, format!("{node} is fine."), format!("{node} 一切正常。")));
    } else {
        let n = info.warnings.len();
        lines.push(pick(lang, format!("{node} has {n} warnings:"), format!("{node} 有 {n} 个警告：")));
        lines.extend(
            info.warnings.iter().map(|w| format!("  {}", hearth_shared::identity::display_safe(w, 200))),
        );
    }
    let up = length(lang, info.uptime_s.max(1).saturating_mul(1000));
    let (free, all) = (mb(info.memory_available_bytes), mb(info.memory_total_bytes));
    let (disk, disk_all) = (gb(info.disk_available_bytes), gb(info.disk_total_bytes));
    let load = info.load[0];
    let mut facts = vec![
        pick(lang, format!("up {up}"), format!("已运行 {up}")),
        pick(lang, format!("load {load:.2}"), format!("负载 {load:.2}")),
        pick(lang, format!("memory {free} of {all} MB free"), format!("内存剩余 {free}/{all} MB")),
        pick(lang, format!("card {disk} of {disk_all} GB free"), format!("存储剩余 {disk}/{disk_all} GB")),
    ];
    if let Some(c) = info.cpu_temperature_c {
        facts.push(pick(lang, format!("processor {}", value(c, "°C")), format!("处理器 {}", value(c, "°C"))));
    }
    if let Some(dbm) = info.wifi_signal_dbm {
        facts.push(format!("Wi-Fi {dbm} dBm"));
    }
    lines.push(facts.join(", "));
    lines.join("\n")
}

/// Everything of a kind.
pub fn list(lang: Lang, kind: Kind, world: &World) -> String {
    let mut lines = Vec::new();
    for node in &world.nodes {
        let away =
            if node.connected { String::new() } else { pick(lang, ", offline".into(), "，离线".into()) };
        let mut add = |name: &str, id: &str, more: &str| {
            let id = if name.eq_ignore_ascii_case(id) { String::new() } else { format!(" `{id}`") };
            lines.push(format!("  {name}{id} ({}{more}{away})", node.name));
        };
        match kind {
            Kind::Camera => node.cameras.iter().for_each(|(id, name)| add(name, id, "")),
            Kind::Pin => {
                node.pins.iter().for_each(|p| add(&p.name, &p.id, if p.output { "" } else { ", input" }))
            }
            Kind::Sensor => node.sensors.iter().for_each(|s| {
                let unit = if s.unit.is_empty() { String::new() } else { format!(", {}", s.unit) };
                add(&s.name, &s.id, &unit);
            }),
            Kind::Node => {
                let state = if node.connected {
                    pick(lang, "online".into(), "在线".into())
                } else {
                    pick(lang, "offline".into(), "离线".into())
                };
                lines.push(format!("  {}: {state}", node.name));
            }
        }
    }
    if lines.is_empty() {
        let kind = kind_name(lang, kind);
        return pick(lang, format!("There is no {kind}."), format!("没有{kind}。"));
    }
    lines.join("\n")
}

/// Requests that work here and now, made from what the nodes declare.
pub fn examples(lang: Lang, world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for node in &world.nodes {
        let name = &node.name;
        if node.can("camera.snap") {
            found.push(pick(lang, format!("take a picture in {name}"), format!("拍一张 {name} 的照片")));
        }
        if let Some(sensor) = node.sensors.first() {
            let s = &sensor.name;
            found.push(pick(lang, format!("what is the {s} of {name}?"), format!("{name} 的 {s} 是多少？")));
            found.push(pick(
                lang,
                format!("what was last night's minimum of {s} in {name}?"),
                format!("昨晚 {name} 的 {s} 最低是多少？"),
            ));
            found.push(pick(
                lang,
                format!("record {s} of {name} every 5 minutes"),
                format!("每5分钟记录 {name} 的 {s}"),
            ));
        }
        if let Some(pin) = node.pins.iter().find(|p| p.output) {
            let p = &pin.name;
            found.push(pick(lang, format!("turn {p} on for 20 seconds"), format!("把 {p} 打开20秒")));
            found.push(pick(lang, format!("is {p} on?"), format!("{p} 开着吗？")));
        }
        if node.can("system.info") {
            found.push(pick(lang, format!("how is {name} doing?"), format!("{name} 怎么样？")));
        }
    }
    found.push(pick(lang, "status".into(), "状态".into()));
    found
}

/// What one can say.
pub fn help(lang: Lang, world: &World, model: bool) -> String {
    let mut lines: Vec<String> =
        examples(lang, world).into_iter().take(9).map(|e| format!("  {e}")).collect();
    lines.insert(0, pick(lang, "You can say, for example:".into(), "可以这样说：".into()));
    if world.nodes.is_empty() {
        lines.push(pick(
            lang,
            "No node is paired yet; run `hearth pair`.".into(),
            "还没有配对的节点；运行 `hearth pair`。".into(),
        ));
    }
    lines.push(pick(
        lang,
        "Commands: /help, /status, /new (a fresh conversation), /stop, /approve ID allow-once|allow-always|deny".into(),
        "命令：/help、/status、/new（新对话）、/stop、/approve ID allow-once|allow-always|deny".into(),
    ));
    if !model {
        lines.push(pick(
            lang,
            "No language model is configured: add [agent.model] to the file that `hearth config path` prints.".into(),
            "没有配置语言模型：在 `hearth config path` 所示文件中加入 [agent.model]。".into(),
        ));
    }
    lines.join("\n")
}
