//! Notifications: on the desktop, on all terminals, or in the log of a simulated board.

use super::process::{self, Launch};
use super::program;
use hearth_shared::command::system::{NotifyParams, Priority};
use hearth_shared::error::{CommandError, ErrorCode};
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Variables by which a program finds the desktop session.
const SESSION: &[&str] =
    &["DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XAUTHORITY"];
const LIMIT: Duration = Duration::from_secs(10);

/// How people here are told.
#[derive(Debug)]
pub(super) enum Notifier {
    /// `notify-send` and the session's variables.
    Desktop(PathBuf, Vec<(String, String)>),
    /// `wall`.
    Terminals(PathBuf),
    /// The node's own log: a simulated board has nobody in front of it.
    Log,
}

/// What to do where there is none.
pub(super) fn unavailable() -> CommandError {
    CommandError::new(
        ErrorCode::Hardware,
        "this node cannot show notifications: it has no desktop session with notify-send, and no `wall` \
         (package bsdutils or util-linux), or `notify = false` stands under [board] in node.toml",
    )
}

impl Notifier {
    /// What this machine has.
    pub(super) fn find() -> Option<Self> {
        let session: Vec<(String, String)> = SESSION
            .iter()
            .filter_map(|name| Some(((*name).to_string(), std::env::var(name).ok()?)))
            .collect();
        let has_desktop = session.iter().any(|(name, _)| name != "XDG_RUNTIME_DIR" && name != "XAUTHORITY");
        let desktop = program::find("notify-send").filter(|_| has_desktop);
        desktop
            .map(|path| Self::Desktop(path, session))
            .or_else(|| program::find("wall").map(Self::Terminals))
    }

    /// As in the result: `desktop`, `terminals` or `log`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Desktop(..) => "desktop",
            Self::Terminals(_) => "terminals",
            Self::Log => "log",
        }
    }

    pub(super) async fn show(&self, params: &NotifyParams) -> Result<(), CommandError> {
        let (title, body) = (printable(&params.title), printable(&params.body));
        let launch = match self {
            Self::Log => {
                tracing::info!(title, body, "notification");
                return Ok(());
            }
            Self::Desktop(program, session) => {
                let urgency = match params.priority {
                    Priority::Passive => "low",
                    Priority::Active => "normal",
                    Priority::TimeSensitive => "critical",
                };
                let args = vec![
                    "--app-name=hearth".into(),
                    format!("--urgency={urgency}"),
                    "--".into(),
                    title,
                    // The body of a desktop notification is markup.
                    body.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
                ];
                let mut launch = Launch::tool(program.clone(), args);
                launch.env.extend(session.iter().cloned());
                launch
            }
            Self::Terminals(program) => {
                let mut launch = Launch::tool(program.clone(), Vec::new());
                launch.input = Some(format!("{title}\n{body}\n").into_bytes());
                launch
            }
        };
        let ended = process::run(launch, LIMIT, &CancellationToken::new()).await?;
        if ended.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&ended.err.bytes()).trim().chars().take(200).collect::<String>();
        Err(CommandError::new(
            ErrorCode::Hardware,
            format!("the notification was not shown ({}): {why}", self.name()),
        ))
    }
}

/// Nothing that moves a terminal's cursor or hides text.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}
