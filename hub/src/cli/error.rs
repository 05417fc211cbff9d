//! What went wrong, what to do next, and the exit code.

use crate::cert::CertError;
use crate::config::ConfigError;
use crate::home::HomeError;
use crate::hub::HubError;
use crate::keys::KeyError;
use crate::store::StoreError;
use hearth_shared::identity::display_safe_lines;
use hearth_shared::limits::MAX_ERROR_CHARS;
use std::process::ExitCode;

/// Exit codes other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Failed.
    Failed = 1,
    /// The command line is not right.
    Usage = 2,
    /// The hub does not run or cannot be reached.
    Unreachable = 3,
    /// There is no such thing.
    NotFound = 4,
    /// Denied.
    Denied = 5,
}

impl Exit {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Failed, Self::Usage, Self::Unreachable, Self::NotFound, Self::Denied];
}

/// An error at the edge: one line, a next step, an exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit code; `None` when the reader of our output went away, which is no fault.
    exit: Option<Exit>,
    message: String,
    next: String,
}

impl Failure {
    /// A failure with its exit code and what to do next.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { exit: Some(exit), message: message.into(), next: next.into() }
    }

    /// Exit code 1.
    #[must_use]
    pub fn failed(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message, next)
    }

    /// Exit code 2.
    #[must_use]
    pub fn usage(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message, next)
    }

    /// Exit code 4.
    #[must_use]
    pub fn not_found(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message, next)
    }

    /// Exit code 5.
    #[must_use]
    pub fn denied(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Exit::Denied, message, next)
    }

    /// Output cannot be written; a reader that went away ends the program quietly.
    #[must_use]
    pub fn output(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: None, message: String::new(), next: String::new() };
        }
        Self::failed(format!("cannot write the output: {error}"), "check the terminal or file it goes to")
    }

    /// The exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.exit.map_or(0, |e| e as u8)
    }

    /// The line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> &str {
        &self.next
    }

    /// Tells the person or program on stderr.
    #[must_use]
    pub fn report(&self, json: bool) -> ExitCode {
        if self.exit.is_some() {
            // It may repeat an argument, a file name or what another program said.
            let message = display_safe_lines(&self.message, MAX_ERROR_CHARS);
            if json {
                let error = serde_json::json!({ "exit": self.code(), "message": message, "next": self.next });
                eprintln!("{}", serde_json::json!({ "error": error }));
            } else if self.message.contains(&self.next) || self.message.contains("`hearth ") {
                // The message says already what to run.
                eprintln!("hearth: {message}");
            } else {
                eprintln!("hearth: {message}\n  next: {}", self.next);
            }
        }
        ExitCode::from(self.code())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.next)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::failed(error.to_string(), "correct it, then run `hearth config check`")
    }
}

impl From<HomeError> for Failure {
    fn from(error: HomeError) -> Self {
        let next = match &error {
            HomeError::Locked { .. } => "`hearth status` tells about the one that runs",
            HomeError::Io { .. } => {
                "check that it exists and belongs to you; `hearth doctor` looks at the whole directory"
            }
            HomeError::Exposed { .. } | HomeError::Foreign { .. } | HomeError::RestoreCut { .. } => {
                "`hearth doctor` looks at the whole directory"
            }
        };
        Self::failed(error.to_string(), next)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::failed(error.to_string(), "run `hearth doctor`")
    }
}

impl From<CertError> for Failure {
    fn from(error: CertError) -> Self {
        Self::failed(error.to_string(), "run `hearth doctor`")
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::failed(error.to_string(), "run `hearth doctor`")
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Home(e) => e.into(),
            HubError::Key(e) => e.into(),
            HubError::Cert(e) => e.into(),
            HubError::Store(e) => e.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_success_and_other_faults_are_not() {
        let gone = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::output(&gone).code(), 0);
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert_eq!(Failure::output(&full).code(), 1);
    }

    #[test]
    fn codes_are_those_of_the_table() {
        assert_eq!(Exit::ALL.map(|e| e as u8), [1, 2, 3, 4, 5]);
    }
}
