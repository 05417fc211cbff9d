//! `hearth pair`: opens the door for a device, shows the code, and who knocks.

use super::client::{Access, Client, Incoming, Target};
use super::context::Context;
use super::error::Failure;
use super::keyboard::{Keyboard, Line};
use super::output::{safe_line, span};
use crate::config::load;
use crate::home::write_private;
use crate::store::now_ms;
use hearth_shared::pairing::SetupCode;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Where the hub listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Listen {
    /// This machine and the network
    Lan,
    /// This machine only
    Loopback,
}

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How long the door stays open, for example 90s or 10m [default: `pairing.window_s`, 10 minutes]
    #[arg(long, value_name = "TIME", value_parser = parse_ttl)]
    ttl: Option<u64>,
    /// Let the hub listen on the network, or on this machine only; written into config.toml
    #[arg(long, value_enum)]
    listen: Option<Listen>,
    /// Show the code and return at once; the door stays open. Without it, --json prints a line for each event:
    /// `open` with the code at once, `knock`, and `paired` at the end
    #[arg(long)]
    no_wait: bool,
}

/// Seconds from `90s`, `10m`, `1h` or plain seconds.
pub(super) fn parse_ttl(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return Err("give a time such as 90s, 10m or 1h".into()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    seconds.filter(|s| (10..=86_400).contains(s)).ok_or_else(|| "it must be 10 seconds to 24 hours".into())
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    if let Some(listen) = arguments.listen {
        set_listen(context, listen)?;
    }
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let status = client.call("status", json!({})).await?;
        let bound = addresses(&status);
        if let Some(listen) = arguments.listen
            && reaches_network(&bound) != (listen == Listen::Lan)
        {
            return Err(Failure::failed(
                format!("config.toml is changed, but the running hub still listens on {}", join(&bound)),
                "stop it and start `hearth run` again, then `hearth pair`",
            ));
        }
        let mut keyboard = None;
        if !reaches_network(&bound) && context.interactive {
            let keyboard = keyboard.insert(Keyboard::open()?);
            if offer_network(keyboard, context).await? {
                return Ok(());
            }
        }
        let params = arguments.ttl.map_or_else(|| json!({}), |ttl| json!({ "ttlMs": ttl * 1000 }));
        let window = client.call("hearth.pair.open", params).await?;
        show(&window, &bound, context)?;
        if arguments.no_wait {
            client.close().await;
            return Ok(());
        }
        wait(client, &window, keyboard, context).await
    })
}

fn addresses(status: &Value) -> Vec<SocketAddr> {
    let all = status["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(Value::as_str).filter_map(|a| a.parse().ok()).collect()
}

fn reaches_network(bound: &[SocketAddr]) -> bool {
    bound.iter().any(|a| !a.ip().is_loopback())
}

fn join(bound: &[SocketAddr]) -> String {
    bound.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Explains why no other machine can reach the hub, and changes that after a yes. True when it did.
async fn offer_network(keyboard: &mut Keyboard, context: &Context) -> Result<bool, Failure> {
    context.out.line(
        "The hub listens on this machine only, so that nobody on the network can reach it.\n\
         A board on the network needs it to listen there too; every device still has to be let in.",
    )?;
    keyboard.prompt("Let the hub listen on the network? [y]es, or [n]o for a node on this machine: ", false);
    match keyboard.next().await {
        Line::Text(text) if matches!(text.trim(), "y" | "yes" | "Y") => {
            set_listen(context, Listen::Lan)?;
            context.out.line(
                "Written into config.toml. Stop the hub and start `hearth run` again, then run `hearth pair` once more.",
            )?;
            Ok(true)
        }
        Line::Text(_) => Ok(false),
        Line::Interrupted | Line::End => {
            Err(Failure::failed("stopped; the door stayed closed", "run `hearth pair` again"))
        }
    }
}

/// Writes `gateway.bind`, keeping everything else of the file as it is.
fn set_listen(context: &Context, listen: Listen) -> Result<(), Failure> {
    let path = context.home.config();
    context.config()?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => {
            return Err(Failure::failed(format!("{}: {e}", path.display()), "check that it belongs to you"));
        }
    };
    let value = match listen {
        Listen::Lan => "[\"0.0.0.0\"]",
        Listen::Loopback => "[\"127.0.0.1\"]",
    };
    let changed = with_bind(&text, value);
    if load::parse(&changed).is_err() {
        return Err(Failure::failed(
            format!("{} is written in a way that this cannot change", path.display()),
            format!("set it by hand: [gateway] bind = {value}"),
        ));
    }
    Ok(write_private(&path, changed.as_bytes())?)
}

/// The text with `gateway.bind` set: its own line replaced, or put below the table's header.
fn with_bind(text: &str, value: &str) -> String {
    let line = format!("bind = {value}");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let header = lines.iter().position(|l| l.trim() == "[gateway]");
    match header {
        None => {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.push("[gateway]".into());
            lines.push(line);
        }
        Some(at) => {
            let end = lines[at + 1..]
                .iter()
                .position(|l| l.trim_start().starts_with('['))
                .map_or(lines.len(), |n| at + 1 + n);
            let is_bind = |l: &String| {
                l.trim_start().strip_prefix("bind").is_some_and(|r| r.trim_start().starts_with('='))
            };
            match lines[at + 1..end].iter().position(is_bind) {
                Some(n) => lines[at + 1 + n] = line,
                None => lines.insert(at + 1, line),
            }
        }
    }
    lines.join("\n") + "\n"
}

fn show(window: &Value, bound: &[SocketAddr], context: &Context) -> Result<(), Failure> {
    if context.json {
        return context.out.json_line(&json!({ "event": "open", "window": window }));
    }
    let code = window["code"].as_str().unwrap_or_default();
    let out = context.out;
    if let Some(qr) = qr(code) {
        out.raw(if context.interactive { on_white(&qr) } else { qr })?;
    }
    out.line(format!("\n{code}\n"))?;
    out.line(format!(
        "On the board: hearth-node pair {}",
        if code.len() > 60 { "CODE   (the line above, or scan the picture)" } else { code }
    ))?;
    if let Ok(contents) = SetupCode::decode(code) {
        out.line(format!(
            "The code names {} and {}, and works once.",
            contents.addresses.join(", "),
            match contents.approvers.len() {
                1 => "1 approver".to_owned(),
                n => format!("{n} approvers"),
            }
        ))?;
    }
    if let Some(address) = bound.iter().find(|a| !a.ip().is_loopback()).or(bound.first()) {
        out.line(format!(
            "Without the code: hearth-node pair HOST:{} there, then compare the words.",
            address.port()
        ))?;
    }
    let left = window["expiresAtMs"].as_u64().unwrap_or_default().saturating_sub(now_ms());
    out.line(format!("The door is open for {}. Ctrl-C closes it.", span(left)))
}

/// The code as a picture of half blocks; `None` when it is too long for one.
pub(super) fn qr(code: &str) -> Option<String> {
    let qr = qrcode::QrCode::with_error_correction_level(code, qrcode::EcLevel::L).ok()?;
    Some(qr.render::<qrcode::render::unicode::Dense1x2>().quiet_zone(true).build() + "\n")
}

/// Black on white whatever the terminal's colours are: phones do not read it the other way round.
pub(super) fn on_white(qr: &str) -> String {
    qr.lines().map(|line| format!("\x1b[30;107m{line}\x1b[0m\n")).collect()
}

/// Shows knocks and their outcome until a device is in, the door closes, or the person leaves.
async fn wait(
    mut client: Client,
    window: &Value,
    mut keyboard: Option<Keyboard>,
    context: &Context,
) -> Result<(), Failure> {
    let left = window["expiresAtMs"].as_u64().unwrap_or_default().saturating_sub(now_ms());
    let deadline = tokio::time::Instant::now() + Duration::from_millis(left);
    let mut asked: Option<Value> = None;
    let mut before = known(&mut client).await?;
    loop {
        let line = async {
            match &mut keyboard {
                Some(keyboard) => keyboard.next().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            incoming = client.next() => match incoming? {
                Incoming::Event(event) => event,
                Incoming::Answer { .. } => continue,
            },
            line = line => {
                if let (Some(request), Line::Text(text)) = (asked.take(), line) {
                    answer(&mut client, &request, &text, context).await?;
                }
                continue;
            }
            () = tokio::time::sleep_until(deadline) => {
                return Err(Failure::failed("the door closed and nobody came in", "run `hearth pair` again"));
            }
            _ = tokio::signal::ctrl_c() => {
                client.call("hearth.pair.close", json!({})).await?;
                return Err(Failure::failed("the door is closed", "run `hearth pair` again"));
            }
        };
        let payload = event.payload.unwrap_or_default();
        match event.event.as_str() {
            "device.pair.requested" => {
                knock(&payload, context)?;
                if context.interactive {
                    let keyboard = match &mut keyboard {
                        Some(keyboard) => keyboard,
                        none => none.insert(Keyboard::open()?),
                    };
                    keyboard.prompt("Let it in? [y]es or [n]o: ", false);
                    asked = Some(payload);
                }
            }
            "device.pair.resolved" | "presence" => {
                let now = known(&mut client).await?;
                let fresh =
                    now.iter().find(|d| !before.iter().any(|b| b["deviceId"] == d["deviceId"])).cloned();
                if let Some(device) = fresh {
                    client.close().await;
                    return welcome(&device, context);
                }
                before = now;
            }
            "hearth.alarm" => {
                eprintln!("ALARM: {}", safe_line(payload["message"].as_str().unwrap_or_default()));
            }
            _ => {}
        }
    }
}

async fn known(client: &mut Client) -> Result<Vec<Value>, Failure> {
    let list = client.call("device.pair.list", json!({})).await?;
    Ok(list["paired"].as_array().cloned().unwrap_or_default())
}

fn knock(pending: &Value, context: &Context) -> Result<(), Failure> {
    if context.json {
        return context.out.json_line(&json!({ "event": "knock", "pending": pending }));
    }
    let text = |name: &str| safe_line(pending[name].as_str().unwrap_or("-"));
    context.out.line(format!(
        "\n{} ({}) knocks from {}",
        text("displayName"),
        text("role"),
        text("remoteIp")
    ))?;
    if let Some(words) = pending["words"].as_str() {
        context.out.line(format!("  words: {}\n  They must be the same on its screen.", safe_line(words)))?;
    }
    let commands: Vec<&str> = pending["commands"]
        .as_array()
        .map(|c| c.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    if !commands.is_empty() {
        context.out.line(format!("  it offers: {}", safe_line(&commands.join(", "))))?;
    }
    if context.interactive {
        return Ok(());
    }
    context.out.line(format!(
        "  decide with `hearth devices approve {}` or reject",
        super::card::short(pending["requestId"].as_str().unwrap_or_default())
    ))
}

async fn answer(client: &mut Client, request: &Value, text: &str, context: &Context) -> Result<(), Failure> {
    let method = match text.trim() {
        "y" | "yes" => "device.pair.approve",
        "n" | "no" => "device.pair.reject",
        _ => return context.out.line("Left open; decide with `hearth devices approve` or reject."),
    };
    client.call(method, json!({ "requestId": request["requestId"] })).await?;
    Ok(())
}

fn welcome(device: &Value, context: &Context) -> Result<(), Failure> {
    if context.json {
        return context.out.json_line(&json!({ "event": "paired", "device": device }));
    }
    let name = safe_line(device["displayName"].as_str().unwrap_or("the device"));
    context.out.line(format!("{name} is in. Start it with `hearth-node run`; `hearth nodes list` shows it."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_limits() {
        assert_eq!(parse_ttl("90s"), Ok(90));
        assert_eq!(parse_ttl("10m"), Ok(600));
        assert_eq!(parse_ttl("1h"), Ok(3600));
        assert_eq!(parse_ttl("60"), Ok(60));
        for bad in ["", "5", "2d", "x", "25h", "99999999999999999999s"] {
            assert!(parse_ttl(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bind_is_set_and_the_rest_of_the_file_stays() {
        assert_eq!(with_bind("", "[\"0.0.0.0\"]"), "[gateway]\nbind = [\"0.0.0.0\"]\n");
        let text = "# mine\n[gateway]\nport = 5 # x\n  bind = [\"127.0.0.1\"]\n\n[log]\nlevel = \"info\"\n";
        let changed = with_bind(text, "[\"0.0.0.0\"]");
        assert_eq!(
            changed,
            "# mine\n[gateway]\nport = 5 # x\nbind = [\"0.0.0.0\"]\n\n[log]\nlevel = \"info\"\n"
        );
        let other = with_bind("[log]\nlevel = \"info\"\n", "[\"0.0.0.0\"]");
        assert_eq!(load::parse(&other).unwrap().gateway.bind.len(), 1);
        // The example's commented line is no key.
        let example = crate::config::example::text();
        let changed = with_bind(&example, "[\"0.0.0.0\"]");
        assert!(load::parse(&changed).unwrap().gateway.bind[0].is_unspecified());
    }

    #[test]
    fn a_code_becomes_a_picture() {
        let code = format!("hearth1-{}", "A".repeat(300));
        assert!(qr(&code).unwrap().lines().count() > 20);
        assert!(qr(&"A".repeat(9000)).is_none(), "too long for a QR code");
    }
}
