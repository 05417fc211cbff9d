//! `hearth nodes invoke`: one command, its approval, its result, its attachment.

use super::Invoke;
use crate::cli::approve::{self, Policy};
use crate::cli::card::{Card, short};
use crate::cli::client::{Client, Incoming, refused};
use crate::cli::context::Context;
use crate::cli::error::Failure;
use crate::cli::keyboard::{Keyboard, Line};
use crate::cli::output::{bytes, safe_line, safe_text};
use crate::store::now_ms;
use hearth_shared::grant::Decision;
use hearth_shared::identity::SecretText;
use serde_json::{Value, json};

/// What to do with the approval, if it needs one.
pub(super) fn policy(arguments: &Invoke, context: &Context) -> Result<Option<Policy>, Failure> {
    if arguments.approve == Some(Policy::Ask) && !context.interactive {
        return Err(Failure::usage(
            "--approve ask needs a terminal",
            "use --approve yes or no, or decide elsewhere with `hearth approvals`",
        ));
    }
    Ok(arguments.approve.or(context.interactive.then_some(Policy::Ask)))
}

/// Runs it.
pub(super) async fn run(
    mut client: Client,
    node: &str,
    arguments: &Invoke,
    context: &Context,
) -> Result<(), Failure> {
    let policy = policy(arguments, context)?;
    let params: Value = match &arguments.params {
        None => json!({}),
        Some(text) => serde_json::from_str(text).map_err(|e| {
            Failure::usage(format!("PARAMS is no JSON: {e}"), "write an object such as '{\"pin\":\"pump\"}'")
        })?,
    };
    if !params.is_object() {
        return Err(Failure::usage(
            "PARAMS must be a JSON object",
            "write an object such as '{\"pin\":\"pump\"}'",
        ));
    }
    let key = SecretText::random().map_err(|e| Failure::failed(e.to_string(), "try again"))?;
    let mut request = json!({
        "nodeId": node,
        "command": arguments.command,
        "params": params.clone(),
        "idempotencyKey": key.expose(),
        "waitForNode": arguments.wait,
    });
    if let Some(seconds) = arguments.timeout {
        request["timeoutMs"] = json!(seconds * 1000);
    }
    if let Some(reason) = &arguments.reason {
        request["reason"] = json!(reason);
    }
    let wanted = client.send("node.invoke", request).await?;
    let mut keyboard = if policy == Some(Policy::Ask) { Some(Keyboard::open()?) } else { None };
    let result = loop {
        let incoming = tokio::select! {
            incoming = client.next() => incoming?,
            // Leaving withdraws the request: the hub cancels what its caller no longer waits for.
            _ = tokio::signal::ctrl_c() => return Err(Failure::failed("stopped before the answer came", "run it again")),
        };
        match incoming {
            Incoming::Answer { id, result } if id == wanted => break result.map_err(|e| refused(&e))?,
            Incoming::Event(event) if event.event == "exec.approval.requested" => {
                let payload = event.payload.unwrap_or_default();
                if of_this(&payload["request"], node, &arguments.command, &params) {
                    let id = payload["id"].as_str().unwrap_or_default();
                    let person = payload["request"]["need"] == "person";
                    decide(&mut client, id, policy, person, keyboard.as_mut(), context).await?;
                }
            }
            _ => {}
        }
    };
    client.close().await;
    finish(&result, arguments, context)
}

/// Whether an approval is about this request: the same node and command, every parameter that was given,
/// and no session, since the command line asked for it itself.
fn of_this(request: &Value, node: &str, command: &str, params: &Value) -> bool {
    let given = params.as_object().is_none_or(|p| p.iter().all(|(k, v)| request["params"][k] == *v));
    request["nodeId"] == node && request["nodeCommand"] == command && request["sessionKey"].is_null() && given
}

async fn decide(
    client: &mut Client,
    id: &str,
    policy: Option<Policy>,
    person: bool,
    keyboard: Option<&mut Keyboard>,
    context: &Context,
) -> Result<(), Failure> {
    let Some(policy) = policy else {
        if !context.json {
            // Not on stdout, which is for the result.
            let command = if person { "approver" } else { "approvals" };
            eprintln!("waits for approval {}; decide with `hearth {command} allow {0}`", short(id));
        }
        return Ok(());
    };
    let mut keyboard = keyboard;
    loop {
        let card = approve::fetch(client, id).await?;
        if !context.json {
            context.out.raw(card.text(now_ms()))?;
        }
        if card.needs_person() && policy != Policy::No {
            eprintln!("needs a person's own key: decide with `hearth approver allow {}`", short(id));
            return Ok(());
        }
        let decision = match (policy, &mut keyboard) {
            (Policy::Yes, _) => Some(Decision::AllowOnce),
            (Policy::Ask, Some(keyboard)) => ask(keyboard, &card).await,
            (Policy::No | Policy::Ask, _) => Some(Decision::Deny),
        };
        let Some(decision) = decision else {
            return context
                .out
                .line(format!("left open; decide with `hearth approvals allow {}`", short(id)));
        };
        match approve::decide(client, &card, decision).await {
            Ok(_) => return Ok(()),
            Err(failure) if approve::is_changed(&failure) && policy == Policy::Ask => {
                context.out.line("What would run has changed since; look again.")?;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Asks until the answer is clear; `None` when the person leaves it open.
async fn ask(keyboard: &mut Keyboard, card: &Card) -> Option<Decision> {
    loop {
        keyboard.prompt(approve::question(card.offers_always_by_hub()), false);
        match keyboard.next().await {
            Line::Text(text) => {
                if let Some(decision) = approve::parse_answer(&text, card.offers_always_by_hub()) {
                    return Some(decision);
                }
            }
            Line::Interrupted | Line::End => return None,
        }
    }
}

/// Prints the result and stores attachments.
fn finish(result: &Value, arguments: &Invoke, context: &Context) -> Result<(), Failure> {
    let media = result["media"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut stored = Vec::new();
    for item in media {
        let path = item["path"].as_str().unwrap_or_default();
        match &arguments.output {
            Some(output) if stored.is_empty() => {
                std::fs::copy(path, output).map_err(|e| {
                    Failure::failed(
                        format!("cannot write {}: {e}", output.display()),
                        format!("the attachment is at {path}"),
                    )
                })?;
                stored.push(output.display().to_string());
            }
            _ => stored.push(path.to_owned()),
        }
    }
    if arguments.output.is_some() && media.is_empty() {
        return Err(Failure::failed("the result has no attachment", "leave --output out"));
    }
    if context.json {
        return context.out.json(&json!({ "payload": result["payload"], "files": stored }));
    }
    if let Some(output) = result["payload"]["stdout"].as_str() {
        // What a program printed is shown as text, safe on a terminal.
        context.out.raw(safe_text(output))?;
        eprint!("{}", safe_text(result["payload"]["stderr"].as_str().unwrap_or_default()));
        if let Some(code) = result["payload"]["exitCode"].as_i64().filter(|c| *c != 0) {
            eprintln!("exit code {code}");
        }
        return Ok(());
    }
    let mut shown = result["payload"].clone();
    if !media.is_empty()
        && let Some(fields) = shown.as_object_mut()
    {
        // The file below is the picture; its bytes as text are for programs.
        fields.remove("base64");
    }
    let text = serde_json::to_string_pretty(&shown).unwrap_or_default();
    context.out.line(safe_text(&text))?;
    for (path, item) in stored.iter().zip(media) {
        let size = bytes(item["size"].as_u64().unwrap_or_default());
        context.out.line(format!("file: {} ({size})", safe_line(path)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_approval_of_this_request_is_answered() {
        let request = json!({
            "nodeId": "n", "nodeCommand": "gpio.pulse", "command": "Switch pin pump on for 1 s",
            "params": {"pin": "pump", "durationMs": 1000, "value": true}, "sessionKey": null,
        });
        let of = |node, command, params: Value| of_this(&request, node, command, &params);
        assert!(of("n", "gpio.pulse", json!({"pin": "pump", "durationMs": 1000})));
        assert!(!of("m", "gpio.pulse", json!({"pin": "pump", "durationMs": 1000})));
        assert!(!of("n", "gpio.write", json!({})));
        assert!(!of("n", "gpio.pulse", json!({"pin": "pump", "durationMs": 2000})));
        let mut of_a_chat = request.clone();
        of_a_chat["sessionKey"] = json!("agent:main:main");
        assert!(!of_this(&of_a_chat, "n", "gpio.pulse", &json!({})));
    }
}
