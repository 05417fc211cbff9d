//! Pins: switching them, and their states.

use super::super::names::{Candidate, Mention, score};
use super::super::numbers::duration;
use super::super::words::Words;
use super::super::{Cannot, Intent, Kind, Parsed, PinRef, World, WorldNode};
use super::sensors::quantity;
use super::settle;
use hearth_shared::command::gpio::MAX_PULSE_MS;
use jiff::Zoned;

fn on_off(words: &mut Words) -> Option<(bool, bool)> {
    const TURN: &[&str] = &["turn", "switch", "put", "set", "power", "pulse"];
    const ON: &[&str] = &["on", "打开", "开启", "启动", "接通", "开"];
    const OFF: &[&str] = &["off", "关掉", "关闭", "关上", "停止", "断开", "停", "关"];
    const START: &[&str] = &["start", "activate", "enable", "run", "open", "pulse"];
    const STOP: &[&str] = &["stop", "deactivate", "disable", "close", "shut"];
    let turn = words.take(TURN);
    let off = words.take(OFF);
    let on = !off && words.take(ON);
    let stop = words.take(STOP);
    let start = !stop && words.take(START);
    match (on, off, start, stop) {
        (_, true, ..) => Some((false, turn || words.lang == super::super::Lang::Zh)),
        (true, ..) => Some((true, turn || words.lang == super::super::Lang::Zh)),
        (.., true) => Some((false, false)),
        (_, _, true, _) => Some((true, false)),
        _ => None,
    }
}

pub(super) fn pins(words: &Words, world: &World, _: &Zoned) -> Option<Parsed> {
    let mut w = words.clone();
    let asks_state = w.take(&[
        "state of",
        "state",
        "status",
        "开着吗",
        "关着吗",
        "开了吗",
        "关了吗",
        "开没开",
        "关没关",
        "是不是开着",
        "开着没有",
        "开着没",
        "状态",
        "运行吗",
        "running",
    ]) || words.has(&["开着", "关着"])
        || ["is", "are", "was", "has", "what", "which", "whether"].contains(&words.get(0));
    let told = on_off(&mut w);
    w.take(&["running", "开着", "关着"]);
    let for_ms = duration(&w);
    if let Some((_, range)) = &for_ms {
        w.mark(range.clone());
    }
    w.take(&["pin", "output", "relay", "引脚"]);
    let candidates =
        |state: bool| pin_candidates(world, state, told.map(|t| t.0), for_ms.as_ref().map(|d| d.0));
    let said = world
        .nodes
        .iter()
        .flat_map(|n| &n.pins)
        .any(|p| score(words, &p.name).0 > 0.0 || score(words, &p.id).0 > 0.0);
    if asks_state {
        // `what is the temperature` is no question about a pin; its name must be there.
        return if said && quantity(&mut words.clone()).is_none() {
            settle(&mut w, candidates(true), Mention::Part, Kind::Pin)
        } else {
            None
        };
    }
    let (_, turn) = told?;
    if !said && !turn {
        return None;
    }
    let input = world.nodes.iter().find_map(|node| {
        let pin = node
            .pins
            .iter()
            .find(|p| !p.output && (score(words, &p.name).0 > 0.0 || score(words, &p.id).0 > 0.0))?;
        Some(pin_ref(node, pin))
    });
    let outputs = candidates(false);
    let output_said = outputs.iter().any(|c| c.part.iter().any(|n| score(words, n).0 > 0.0));
    if let Some(pin) = input.filter(|_| !output_said) {
        return Some(Parsed::Cannot(Cannot::InputOnly { pin }));
    }
    if for_ms.as_ref().is_some_and(|d| d.0 > MAX_PULSE_MS) {
        return Some(Parsed::Cannot(Cannot::BadDuration { limit: "24 h" }));
    }
    settle(&mut w, outputs, Mention::Part, Kind::Pin)
}

fn pin_ref(node: &WorldNode, pin: &super::super::WorldPin) -> PinRef {
    PinRef { node: node.id, node_name: node.name.clone(), id: pin.id.clone(), name: pin.name.clone() }
}

fn pin_candidates(world: &World, state: bool, on: Option<bool>, for_ms: Option<u64>) -> Vec<Candidate> {
    let command = if state {
        "gpio.read"
    } else if for_ms.is_some() {
        "gpio.pulse"
    } else {
        "gpio.write"
    };
    let mut candidates = Vec::new();
    for node in world.nodes.iter().filter(|n| n.can(command)) {
        for pin in node.pins.iter().filter(|p| state || p.output) {
            let reference = pin_ref(node, pin);
            candidates.push(Candidate {
                node: node.name.clone(),
                part: vec![pin.name.clone(), pin.id.clone()],
                shown: pin.name.clone(),
                intent: if state {
                    Intent::PinState { pin: reference, asked: on }
                } else {
                    Intent::Switch { pin: reference, on: on.unwrap_or(true), for_ms }
                },
                aside: false,
            });
        }
    }
    candidates
}
