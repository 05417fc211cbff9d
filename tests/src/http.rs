//! As much HTTP/1.1 as a stand-in for somebody else's server needs: one thread a connection, keep-alive,
//! bodies with a length or in chunks, JSON and multipart forms.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Path without the query.
    pub path: String,
    headers: BTreeMap<String, String>,
    /// All of it.
    pub body: Vec<u8>,
}

/// Fields of a form or a JSON object, and files by field.
#[derive(Debug, Default)]
pub struct Fields {
    /// Values; those of a form are read as JSON where they are JSON.
    pub values: BTreeMap<String, Value>,
    /// Bytes.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// The next request of a connection; `None` at its end.
pub fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let target = line.split_whitespace().nth(1)?.split('?').next()?;
    // A proxy is asked for a whole address.
    let path = match target.strip_prefix("http://") {
        Some(address) => address.find('/').map_or("/", |at| &address[at..]),
        None => target,
    };
    let path = path.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|t| t.contains("chunked")) {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else if let Some(length) = headers.get("content-length") {
        body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
    }
    Some(Request { path, headers, body })
}

/// Answers; the connection stays open.
pub fn answer(stream: &mut TcpStream, status: u16, kind: &str, body: &[u8]) {
    let head =
        format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

impl Request {
    /// A header by its lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body's fields.
    #[must_use]
    pub fn fields(&self) -> Fields {
        let kind = self.headers.get("content-type").map_or("", String::as_str);
        match kind.split_once("boundary=") {
            Some((_, boundary)) => multipart(&self.body, boundary.trim_matches('"')),
            None => {
                let values = serde_json::from_slice(&self.body).unwrap_or_default();
                Fields { values, files: BTreeMap::new() }
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

fn multipart(body: &[u8], boundary: &str) -> Fields {
    let mark = format!("--{boundary}");
    let mut fields = Fields::default();
    let mut rest = body;
    while let Some(at) = find(rest, mark.as_bytes()) {
        rest = &rest[at + mark.len()..];
        let Some(head_end) = find(rest, b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
        let Some(end) = find(rest, format!("\r\n{mark}").as_bytes()) else { break };
        let content = &rest[head_end + 4..end];
        let name = head.split("name=\"").nth(1).and_then(|n| n.split('"').next()).unwrap_or_default();
        if head.contains("filename=") {
            fields.files.insert(name.into(), content.to_vec());
        } else {
            let text = String::from_utf8_lossy(content).into_owned();
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            fields.values.insert(name.into(), value);
        }
        rest = &rest[end + 2..];
    }
    fields
}
