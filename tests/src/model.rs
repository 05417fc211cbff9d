//! A stand-in for an OpenAI-compatible server: streams what a test wrote down.

use crate::http;
use serde_json::{Value, json};
use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the model says in one turn.
#[derive(Debug, Clone)]
pub enum Turn {
    /// Words, in pieces.
    Words(Vec<&'static str>),
    /// Words, with a pause before each piece but the first.
    Slowly(Vec<&'static str>, Duration),
    /// A tool call: name and arguments.
    Call(&'static str, Value),
}

/// A server on loopback that answers one request after the other with the next turn.
#[derive(Debug)]
pub struct StubModel {
    /// For `base_url`.
    pub url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl StubModel {
    /// Starts it; it ends with the test process.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(turns: Vec<Turn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}/v1", listener.local_addr().expect("it has an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for turn in turns {
                let (stream, _) = listener.accept().expect("a connection");
                let request = answer(stream, &turn);
                seen.lock().expect("not poisoned").push(request);
            }
        });
        Self { url, requests }
    }

    /// Bodies of the requests so far.
    ///
    /// # Panics
    /// When the server failed.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().expect("not poisoned").clone()
    }

    /// The hub's configuration for it.
    #[must_use]
    pub fn config(&self) -> String {
        format!("[agent.model]\nbase_url = \"{}\"\nname = \"stub\"\napi_key = \"sk-stub-secret\"\n", self.url)
    }
}

fn answer(stream: TcpStream, turn: &Turn) -> Value {
    let mut reader = BufReader::new(stream);
    let request = http::read(&mut reader).expect("a request");
    let mut stream = reader.into_inner();
    let deltas: Vec<Value> = match turn {
        Turn::Words(pieces) | Turn::Slowly(pieces, _) => {
            pieces.iter().map(|p| json!({ "content": p })).collect()
        }
        Turn::Call(name, arguments) => {
            let arguments = arguments.to_string();
            let (head, tail) = arguments.split_at(arguments.len() / 2);
            vec![
                json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
                                       "function": {"name": name, "arguments": head}}]}),
                json!({"tool_calls": [{"index": 0, "function": {"arguments": tail}}]}),
            ]
        }
    };
    let reason = if matches!(turn, Turn::Words(_) | Turn::Slowly(..)) { "stop" } else { "tool_calls" };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the hub reads");
    for (n, delta) in deltas.into_iter().enumerate() {
        if let Turn::Slowly(_, pause) = turn
            && n > 0
        {
            std::thread::sleep(*pause);
        }
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
        write!(stream, "data: {chunk}\n\n").expect("the hub reads");
        stream.flush().expect("the hub reads");
    }
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    write!(stream, "data: {last}\n\ndata: [DONE]\n\n").expect("the hub reads");
    serde_json::from_slice(&request.body).expect("JSON")
}
