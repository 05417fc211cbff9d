//! Errors as clients see them: one code for programs, one line for people.

use crate::actions::ActionError;
use crate::channels::host::HostError;
use crate::channels::people::PeopleError;
use crate::devices::{DeviceError, Scope};
use crate::nodes::NodeError;
use crate::routing::RouteError;
use crate::store::StoreError;
use hearth_shared::error::{CommandError, ErrorCode};
use hearth_shared::frame::ErrorShape;
use hearth_shared::identity::IdentityError;
use serde_json::json;

/// What a method gives.
pub(crate) type Answer<T> = Result<T, ErrorShape>;

/// The request itself is wrong; the same one will never work.
pub(crate) fn invalid(message: impl Into<String>) -> ErrorShape {
    ErrorShape::new("INVALID_REQUEST", message)
}

/// Not now.
pub(crate) fn unavailable(message: impl Into<String>) -> ErrorShape {
    ErrorShape::new("UNAVAILABLE", message)
}

/// Not for this caller.
pub(crate) fn forbidden(message: impl Into<String>) -> ErrorShape {
    ErrorShape::new("FORBIDDEN", message)
}

/// A right is missing.
pub(crate) fn missing_scope(scope: Scope) -> ErrorShape {
    let scope = scope.as_str();
    forbidden(format!("missing scope: {scope}"))
        .with_details(json!({ "code": "MISSING_SCOPE", "missingScope": scope, "requiredScopes": [scope] }))
}

fn coded(error: ErrorShape, code: &str) -> ErrorShape {
    error.with_details(json!({ "code": code }))
}

/// Gives an error type of the hub its outward form.
pub(crate) trait Outward {
    /// See the trait.
    fn outward(self) -> ErrorShape;
}

impl Outward for StoreError {
    fn outward(self) -> ErrorShape {
        match self {
            Self::Full | Self::Closed | Self::TooNew { .. } => unavailable(self.to_string()),
            // SQL texts and paths are for the log, not for clients.
            other => {
                tracing::error!(error = %other, "database");
                unavailable("the hub's database could not answer; see the hub's log")
            }
        }
    }
}

impl Outward for DeviceError {
    fn outward(self) -> ErrorShape {
        match self {
            Self::Store(e) => e.outward(),
            Self::Unknown { .. } => coded(invalid(self.to_string()), "UNKNOWN_REQUEST"),
            Self::Identity(e) => e.outward(),
            other => invalid(other.to_string()),
        }
    }
}

impl Outward for NodeError {
    fn outward(self) -> ErrorShape {
        match self {
            Self::Store(e) => e.outward(),
            Self::Device(e) => e.outward(),
            Self::Unknown(_) => coded(invalid(self.to_string()), "UNKNOWN_NODE"),
            other => invalid(other.to_string()),
        }
    }
}

impl Outward for ActionError {
    fn outward(self) -> ErrorShape {
        let message = self.to_string();
        match self {
            Self::Store(e) => e.outward(),
            Self::Refused(e) => e.outward(),
            Self::UnknownApproval(_) => {
                // The documented shape: programs look at `reason`.
                invalid("unknown or expired approval id")
                    .with_details(json!({ "reason": "APPROVAL_NOT_FOUND", "message": message }))
            }
            Self::AlreadyDecided { .. } => invalid("approval already resolved")
                .with_details(json!({ "reason": "APPROVAL_ALREADY_RESOLVED", "message": message })),
            Self::KeyReused => coded(invalid(message), "IDEMPOTENCY_KEY_REUSED"),
            Self::NotEnough(_) => coded(forbidden(message), "APPROVER_NOT_ENOUGH"),
            Self::Changed => coded(invalid(message), "APPROVAL_CHANGED"),
            Self::Ambiguous(_) => coded(invalid(message), "AMBIGUOUS"),
        }
    }
}

impl Outward for RouteError {
    fn outward(self) -> ErrorShape {
        match self {
            Self::Store(e) => e.outward(),
            Self::Refused(why) => invalid(why),
            Self::Busy(why) => {
                let mut error = unavailable(why);
                error.retryable = Some(true);
                error.retry_after_ms = Some(1_000);
                error
            }
            Self::KeyReused => coded(invalid(self.to_string()), "IDEMPOTENCY_KEY_REUSED"),
        }
    }
}

impl Outward for HostError {
    fn outward(self) -> ErrorShape {
        match self {
            Self::Store(e) | Self::People(PeopleError::Store(e)) => e.outward(),
            Self::NoChannel(_) => coded(invalid(self.to_string()), "UNKNOWN_CHANNEL"),
            Self::People(PeopleError::NoCode(_) | PeopleError::NoPerson { .. }) => {
                coded(invalid(self.to_string()), "UNKNOWN_PERSON")
            }
            Self::Channel(_) | Self::Send(_) | Self::Late => unavailable(self.to_string()),
            Self::NoPeople(_) | Self::People(_) => invalid(self.to_string()),
        }
    }
}

impl Outward for IdentityError {
    fn outward(self) -> ErrorShape {
        match self {
            Self::NoEntropy => unavailable(self.to_string()),
            other => invalid(other.to_string()),
        }
    }
}

impl Outward for CommandError {
    fn outward(self) -> ErrorShape {
        let code = self.code.as_str();
        let message = format!("{code}: {}", self.message);
        let error = match self.code {
            ErrorCode::InvalidParams | ErrorCode::UnknownCommand | ErrorCode::ApprovalRequired => {
                invalid(message)
            }
            ErrorCode::Denied | ErrorCode::ApprovalDenied | ErrorCode::NobodyToAsk => forbidden(message),
            _ => unavailable(message),
        };
        let mut error = coded(error, code);
        error.retryable =
            matches!(self.code, ErrorCode::Busy | ErrorCode::NotConnected | ErrorCode::RateLimited)
                .then_some(true);
        error
    }
}
