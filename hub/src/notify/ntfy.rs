//! An ntfy server: one POST a notice.

use super::{Kind, SendError, judge};
use crate::config::NtfyConfig;

/// Publishes. `Title` is the hub's name for itself; the body is the text.
pub(super) async fn publish(
    client: &reqwest::Client,
    config: &NtfyConfig,
    text: &str,
    kind: Kind,
) -> Result<(), SendError> {
    let (priority, tag) = match kind {
        Kind::Approval => ("high", "raised_hand"),
        Kind::Alarm => ("urgent", "rotating_light"),
        Kind::Pairing => ("default", "wave"),
        Kind::Test => ("default", "house"),
    };
    let mut request = client
        .post(&config.url)
        .header("title", "Hearth")
        .header("priority", priority)
        .header("tags", tag)
        .body(text.to_owned());
    if let Some(token) = config.token() {
        request = request.bearer_auth(token.expose());
    }
    judge(request.send().await)
}
