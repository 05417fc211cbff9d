//! Against a real HTTP server on loopback that sends what such servers send, cut where it hurts.

use super::*;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers one connection after the other with the next script, each piece in its own write.
pub(in crate::agent) struct Stub {
    pub(in crate::agent) url: String,
    pub(in crate::agent) requests: Arc<Mutex<Vec<String>>>,
}

pub(in crate::agent) async fn serve(scripts: Vec<Vec<String>>) -> Stub {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    tokio::spawn(async move {
        for script in scripts {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let text = String::from_utf8_lossy(&request).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head
                        .lines()
                        .find_map(|l| {
                            l.to_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
                        })
                        .unwrap_or(0);
                    if body.len() >= length {
                        break;
                    }
                }
                let n = socket.read(&mut buffer).await.unwrap();
                assert!(n > 0, "the client went away");
                request.extend_from_slice(&buffer[..n]);
            }
            seen.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            for piece in script {
                if piece == "HANG" {
                    // Until the client gives up.
                    let _ = socket.read(&mut buffer).await;
                } else {
                    socket.write_all(piece.as_bytes()).await.unwrap();
                    socket.flush().await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
            let _ = socket.shutdown().await;
        }
    });
    Stub { url, requests }
}

pub(in crate::agent) const OK: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

pub(in crate::agent) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

pub(in crate::agent) fn text(piece: &str) -> String {
    data(&json!({ "choices": [{ "index": 0, "delta": { "content": piece }, "finish_reason": null }] }))
}

pub(in crate::agent) fn end(reason: &str) -> String {
    data(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })) + "data: [DONE]\n\n"
}

fn call(part: Value) -> String {
    data(&json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [part] }, "finish_reason": null }] }))
}

fn status(line: &str, more: &str, body: &str) -> Vec<String> {
    vec![format!(
        "HTTP/1.1 {line}\r\n{more}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )]
}

fn config(url: &str) -> ModelConfig {
    ModelConfig {
        base_url: url.into(),
        name: "m".into(),
        api_key_env: None,
        api_key: Some(SecretText::new("sk-very-secret".into())),
        context_tokens: 32_768,
    }
}

async fn ask(stub: &Stub) -> (Result<Turn, ModelError>, String) {
    let model = OpenAi::new(&config(&stub.url)).unwrap().hurried(Duration::from_millis(300));
    let prompt = Prompt { messages: vec![json!({ "role": "user", "content": "hi" })], tools: vec![] };
    let mut shown = String::new();
    let result = model.turn(&prompt, |t| shown.push_str(t)).await;
    (result, shown)
}

#[tokio::test]
async fn text_arrives_whole_whatever_the_cuts() {
    let whole = format!("{OK}: ping\n\n{}{}{}{}", text("Grüße, "), text("世界"), text("!"), end("stop"));
    // Every byte on its own cannot be sent as text; cut at character boundaries, three at a time.
    let chars: Vec<char> = whole.chars().collect();
    let pieces: Vec<String> = chars.chunks(3).map(|c| c.iter().collect()).collect();
    let stub = serve(vec![pieces]).await;
    let (turn, shown) = ask(&stub).await;
    assert_eq!(turn.unwrap().text, "Grüße, 世界!");
    assert_eq!(shown, "Grüße, 世界!");
    let request = stub.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /v1/chat/completions ") && request.contains("Bearer sk-very-secret"));
    assert!(request.contains(r#""stream":true"#) && !request.contains(r#""tools""#));
}

#[tokio::test]
async fn tool_calls_are_put_together_from_fragments() {
    let script = vec![
        OK.into(),
        call(json!({ "index": 0, "id": "a", "function": { "name": "camera_snap", "arguments": "" } })),
        call(json!({ "index": 0, "function": { "arguments": "{\"no" } })),
        call(json!({ "index": 0, "function": { "arguments": "de\":\"x\"}" } })),
        call(json!({ "index": 1, "id": "b", "function": { "name": "gpio_list", "arguments": "{}" } })),
        // Servers that number every call 0, and such that send no number.
        call(json!({ "index": 1, "id": "c", "function": { "name": "sensor_list", "arguments": "{}" } })),
        call(json!({ "id": "d", "function": { "name": "system_info", "arguments": "{}" } })),
        end("tool_calls"),
    ];
    let (turn, _) = ask(&serve(vec![script]).await).await;
    let turn = turn.unwrap();
    let calls: Vec<(&str, &str)> =
        turn.calls.iter().map(|c| (c.name.as_str(), c.arguments.as_str())).collect();
    assert_eq!(
        calls,
        [
            ("camera_snap", r#"{"node":"x"}"#),
            ("gpio_list", "{}"),
            ("sensor_list", "{}"),
            ("system_info", "{}")
        ]
    );
}

#[tokio::test]
async fn busy_servers_are_tried_again_and_told_when_they_stay_so() {
    let busy =
        || status("429 Too Many Requests", "retry-after: 0\r\n", r#"{"error":{"message":"slow down"}}"#);
    let fine = vec![OK.into(), text("ok"), end("stop")];
    let stub = serve(vec![busy(), status("500 Oops", "", "<html>secret page</html>"), fine]).await;
    assert_eq!(ask(&stub).await.0.unwrap().text, "ok");
    let (error, _) = ask(&serve(vec![busy(), busy(), busy()]).await).await;
    let error = error.unwrap_err();
    assert_eq!(error, ModelError::Busy { status: 429, tries: 3, message: "slow down".into() });
}

#[tokio::test]
async fn refusals_are_told_at_once_and_without_the_key() {
    let stub = serve(vec![status("401 Unauthorized", "", r#"{"error":{"message":"bad key"}}"#)]).await;
    let (error, _) = ask(&stub).await;
    assert_eq!(error.unwrap_err(), ModelError::Refused { status: 401, message: "bad key".into() });
    let model = OpenAi::new(&config("http://127.0.0.1:1/v1")).unwrap();
    assert!(!format!("{model:?}").contains("very-secret"));
}

#[tokio::test]
async fn a_break_is_hidden_before_the_first_word_and_told_after_it() {
    let fine = vec![OK.into(), text("ok"), end("stop")];
    let (turn, shown) = ask(&serve(vec![vec![OK.into()], fine.clone()]).await).await;
    assert_eq!((turn.unwrap().text.as_str(), shown.as_str()), ("ok", "ok"));
    let (error, shown) = ask(&serve(vec![vec![OK.into(), text("half a")], fine.clone()]).await).await;
    assert!(matches!(error, Err(ModelError::Interrupted(_))), "{error:?}");
    assert_eq!(shown, "half a", "nothing is shown twice");
    let told = data(&json!({ "error": { "message": "out of memory" } }));
    let (error, _) = ask(&serve(vec![vec![OK.into(), text("x"), told]]).await).await;
    assert_eq!(error.unwrap_err(), ModelError::Interrupted("out of memory".into()));
}

#[tokio::test]
async fn silence_and_nonsense_end() {
    let (error, _) = ask(&serve(vec![vec![OK.into(), text("x"), "HANG".into()]]).await).await;
    assert!(matches!(error, Err(ModelError::Silent(_))), "{error:?}");
    let (error, _) = ask(&serve(vec![vec![OK.into(), "data: {nonsense\n\n".into()]]).await).await;
    assert!(matches!(error, Err(ModelError::Malformed(_))), "{error:?}");
    let (error, _) = ask(&serve(vec![vec![OK.into(), end("stop")]]).await).await;
    assert!(matches!(error, Err(ModelError::Malformed(_))), "an empty answer: {error:?}");
    let (error, _) = ask(&Stub { url: "http://127.0.0.1:1/v1".into(), requests: Arc::default() }).await;
    assert!(matches!(error, Err(ModelError::Unreachable { .. })), "{error:?}");
}
