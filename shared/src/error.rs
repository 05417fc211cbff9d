//! Error codes that travel: one closed list for the link, the command line and the audit log.

use serde::{Deserialize, Serialize};

/// Why a command did not give a result. The order is part of the link format: append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// Parameters are missing, unknown, doubled or out of range.
    InvalidParams,
    /// The node has no such command.
    UnknownCommand,
    /// A rule refuses it; the message names the rule, where it is and who can change it.
    Denied,
    /// A person must decide first; nobody has yet.
    ApprovalRequired,
    /// A person said no.
    ApprovalDenied,
    /// The request's lifetime ended before anybody decided.
    ApprovalExpired,
    /// No approver is configured and none is connected.
    NobodyToAsk,
    /// The grant or challenge does not hold: wrong signer, other boot, replayed, too late, policy changed.
    GrantRefused,
    /// The node is not connected.
    NotConnected,
    /// The time limit passed.
    Timeout,
    /// The caller or the hub withdrew the request before it had an effect.
    Cancelled,
    /// It was started, and whether it finished is not known. Nobody repeats it on his own.
    OutcomeUnknown,
    /// The device is in use or a queue is full; retry later.
    Busy,
    /// The board, camera, pin or sensor failed.
    Hardware,
    /// No such camera, pin or sensor.
    NotFound,
    /// The result or an attachment is larger than the limit.
    TooLarge,
    /// Declared, but not approved at pairing yet.
    NotApproved,
    /// A limit of uses or rate was reached.
    RateLimited,
    /// A fault inside the program; the log has more.
    Internal,
}

impl ErrorCode {
    /// The code as it is written in JSON, for example `OUTCOME_UNKNOWN`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidParams => "INVALID_PARAMS",
            Self::UnknownCommand => "UNKNOWN_COMMAND",
            Self::Denied => "DENIED",
            Self::ApprovalRequired => "APPROVAL_REQUIRED",
            Self::ApprovalDenied => "APPROVAL_DENIED",
            Self::ApprovalExpired => "APPROVAL_EXPIRED",
            Self::NobodyToAsk => "NOBODY_TO_ASK",
            Self::GrantRefused => "GRANT_REFUSED",
            Self::NotConnected => "NOT_CONNECTED",
            Self::Timeout => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::OutcomeUnknown => "OUTCOME_UNKNOWN",
            Self::Busy => "BUSY",
            Self::Hardware => "HARDWARE",
            Self::NotFound => "NOT_FOUND",
            Self::TooLarge => "TOO_LARGE",
            Self::NotApproved => "NOT_APPROVED",
            Self::RateLimited => "RATE_LIMITED",
            Self::Internal => "INTERNAL",
        }
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed command: code for programs, one clear line for people (what, where, the limit, what next).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{code}: {message}")]
pub struct CommandError {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
}

impl CommandError {
    /// Puts the two together.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_str_is_what_serde_writes() {
        for code in [ErrorCode::InvalidParams, ErrorCode::OutcomeUnknown, ErrorCode::NobodyToAsk] {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.as_str()));
        }
    }
}
