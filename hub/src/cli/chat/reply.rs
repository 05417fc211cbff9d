//! What the hub's `chat` events and transcripts say, in plain form.

use crate::cli::error::Failure;
use serde_json::Value;

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The run.
    pub run_id: String,
    /// The reply.
    pub text: String,
    /// Paths of pictures.
    pub media: Vec<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// Text and pictures of a message: content is a text, or parts.
#[must_use]
pub fn content(message: &Value) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut media = Vec::new();
    match &message["content"] {
        Value::String(whole) => text.push_str(whole),
        Value::Array(parts) => {
            for part in parts {
                if part["type"] == "text" {
                    if !text.is_empty() {
                        text.push('\n');
                    }
                    text.push_str(part["text"].as_str().unwrap_or_default());
                } else if let Some(path) = part["path"].as_str() {
                    media.push(path.to_owned());
                }
            }
        }
        _ => {}
    }
    (text, media)
}

/// What a `chat` event means for the run it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Something is being done, or waited for: what, in words when there are any for people.
    Status { phase: String, text: String },
    /// The reply so far.
    Text(String),
    /// The whole reply; the code of the command it says failed.
    Final { text: String, media: Vec<String>, failure: Option<String> },
    /// Stopped or failed, with the reason.
    Failed(String),
}

/// Reads the payload of a `chat` event.
#[must_use]
pub fn progress(payload: &Value) -> Option<Progress> {
    let (text, media) = content(&payload["message"]);
    Some(match payload["state"].as_str()? {
        "status" => {
            let text = |name: &str| payload[name].as_str().unwrap_or_default().to_owned();
            Progress::Status { phase: text("phase"), text: text("text") }
        }
        "delta" => Progress::Text(text),
        "final" => Progress::Final { text, media, failure: payload["failure"].as_str().map(str::to_owned) },
        "aborted" => {
            Progress::Failed(payload["errorMessage"].as_str().unwrap_or("the request was stopped").to_owned())
        }
        "error" => Progress::Failed(
            payload["errorMessage"].as_str().unwrap_or("the request failed without a reason").to_owned(),
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_and_pictures_come_out_of_both_forms() {
        assert_eq!(content(&json!({"content": "hi"})), ("hi".into(), vec![]));
        let parts = json!({"content": [
            {"type": "text", "text": "Here it is."},
            {"type": "image", "mime": "image/jpeg", "path": "/h/media/a.jpg"},
        ]});
        assert_eq!(content(&parts), ("Here it is.".into(), vec!["/h/media/a.jpg".into()]));
        assert_eq!(content(&json!(null)), (String::new(), vec![]));
    }

    #[test]
    fn states_of_the_protocol() {
        let of = |v: Value| progress(&v);
        assert_eq!(of(json!({"state":"delta","message":{"content":"a"}})), Some(Progress::Text("a".into())));
        assert_eq!(of(json!({"state":"error","errorMessage":"no"})), Some(Progress::Failed("no".into())));
        assert_eq!(of(json!({"state":"later"})), None);
    }
}
