//! Parameters of methods: typed, closed, and refused in the words that clients of the protocol know.

use super::answer::{Answer, invalid};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads the parameters of `method`; a missing object counts as an empty one.
///
/// # Errors
/// `INVALID_REQUEST`, for example `invalid node.invoke params: must have required property 'nodeId'`.
pub(crate) fn read<T: DeserializeOwned>(method: &str, params: Value) -> Answer<T> {
    let params = if params.is_null() { Value::Object(serde_json::Map::new()) } else { params };
    serde_path_to_error::deserialize(params)
        .map_err(|e| invalid(format!("invalid {method} params: {}", describe(&e))))
}

fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let text = error.inner().to_string();
    let mut path: Vec<String> = error
        .path()
        .iter()
        .filter_map(|segment| match segment {
            serde_path_to_error::Segment::Seq { index } => Some(index.to_string()),
            serde_path_to_error::Segment::Map { key } => Some(key.clone()),
            serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => None,
        })
        .collect();
    let at = |path: &[String]| match path {
        [] => "at root".to_owned(),
        path => format!("at /{}", path.join("/")),
    };
    if let Some(field) = quoted(&text, "unknown field `") {
        if path.last().is_some_and(|last| last == field) {
            path.pop();
        }
        return format!("{}: unexpected property '{}'", at(&path), field);
    }
    if let Some(field) = quoted(&text, "missing field `") {
        let required = format!("must have required property '{field}'");
        return if path.is_empty() { required } else { format!("{}: {required}", at(&path)) };
    }
    if text.starts_with("unknown variant") {
        return format!("{}: must be equal to one of the allowed values", at(&path));
    }
    if let Some(expected) = text.split("expected ").nth(1) {
        return format!("{}: must be {expected}", at(&path));
    }
    format!("{}: {text}", at(&path))
}

fn quoted<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.strip_prefix(before)?.split('`').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Cli,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Inner {
        id: Mode,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[allow(dead_code)]
    struct Params {
        client: Option<Inner>,
        idempotency_key: String,
    }

    fn refuse(params: Value) -> String {
        read::<Params>("x.y", params).unwrap_err().message
    }

    #[test]
    fn refusals_use_the_documented_words() {
        let cases = [
            (json!({"idempotencyKey":"k","foo":1}), "invalid x.y params: at root: unexpected property 'foo'"),
            (json!({}), "invalid x.y params: must have required property 'idempotencyKey'"),
            (
                json!({"idempotencyKey":"k","client":{"id":"my-client"}}),
                "invalid x.y params: at /client/id: must be equal to one of the allowed values",
            ),
            (
                json!({"idempotencyKey":"k","client":{"id":"cli","x":1}}),
                "invalid x.y params: at /client: unexpected property 'x'",
            ),
            (json!({"idempotencyKey":7}), "invalid x.y params: at /idempotencyKey: must be a string"),
        ];
        for (params, message) in cases {
            assert_eq!(refuse(params), message);
        }
        assert!(read::<Params>("x.y", Value::Null).is_err(), "null counts as an empty object");
        let ok = read::<Params>("x.y", json!({"idempotencyKey":"k","client":{"id":"cli"}})).unwrap();
        assert!(matches!(ok.client, Some(Inner { id: Mode::Cli })));
    }
}
