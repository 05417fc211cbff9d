//! What fits the link.

use crate::capability::{Bytes, Output};
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::limits::{DEFAULT_TIMEOUT_MS, MAX_ATTACHMENT, MAX_LINK_FRAME, MAX_TIMEOUT_MS};
use hearth_shared::link::Outcome;
use std::time::Duration;

/// Room in a frame for all but the result's text.
pub(super) const MAX_RESULT: usize = MAX_LINK_FRAME - 16 * 1024;
/// Longest message of an error.
pub(super) const MAX_MESSAGE: usize = 4 * 1024;

/// The time a command gets when `asked_ms` is what its caller has left; 0 is no wish.
pub(super) fn time_limit(asked_ms: u64) -> Duration {
    let ms = if asked_ms == 0 { DEFAULT_TIMEOUT_MS } else { asked_ms.min(MAX_TIMEOUT_MS) };
    Duration::from_millis(ms)
}

/// What fits the link; an effect whose result does not fit still happened, and the error says so.
pub(super) fn bounded(result: Result<Output, CommandError>) -> (Outcome, Vec<Bytes>) {
    let too_large = |what: String| {
        let message = format!("it ran, but {what}");
        (Outcome::Failed(CommandError::new(ErrorCode::TooLarge, message)), Vec::new())
    };
    match result {
        Err(mut error) => {
            shorten(&mut error.message);
            (Outcome::Failed(error), Vec::new())
        }
        Ok(output) if output.result.len() > MAX_RESULT => {
            too_large(format!("its result has {} bytes, the limit is {MAX_RESULT}", output.result.len()))
        }
        Ok(output) => match output.attachments.iter().map(|a| a.data.len() as u64).max() {
            Some(size) if size > MAX_ATTACHMENT => {
                too_large(format!("an attachment has {size} bytes, the limit is {MAX_ATTACHMENT}"))
            }
            _ => (Outcome::Done { result: output.result }, output.attachments),
        },
    }
}

/// Cuts an error's text to a length that always fits.
pub(super) fn shorten(message: &mut String) {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
}
