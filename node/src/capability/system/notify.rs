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
        let Some(launch) = self.launch(params) else {
            tracing::info!(title = params.title, body = params.body, "notification");
            return Ok(());
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

    /// The program that shows it, if one does.
    fn launch(&self, params: &NotifyParams) -> Option<Launch> {
        let (title, body) = (printable(&params.title), printable(&params.body));
        match self {
            Self::Log => None,
            Self::Desktop(program, session) => {
                let urgency = match params.priority {
                    Priority::Passive => "low",
                    Priority::Active => "normal",
                    Priority::TimeSensitive => "critical",
                };
                // The body of a desktop notification is markup.
                let body = body.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let options = ["--app-name=hearth".into(), format!("--urgency={urgency}"), "--".into()];
                let args = options.into_iter().chain([title, body]).collect();
                let mut launch = Launch::tool(program.clone(), args);
                launch.env.extend(session.iter().cloned());
                Some(launch)
            }
            Self::Terminals(program) => {
                let mut launch = Launch::tool(program.clone(), Vec::new());
                launch.input = Some(format!("{title}\n{body}\n").into_bytes());
                Some(launch)
            }
        }
    }
}

/// Nothing that moves a terminal's cursor or hides text.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(title: &str, body: &str) -> NotifyParams {
        NotifyParams { title: title.into(), body: body.into(), priority: Priority::TimeSensitive }
    }

    #[test]
    fn a_title_is_no_option_and_a_body_is_no_markup() {
        let session = vec![("DISPLAY".to_string(), ":0".to_string())];
        let desktop = Notifier::Desktop("/usr/bin/notify-send".into(), session);
        let launch = desktop.launch(&params("--help", "<b>a & b</b>")).unwrap();
        let args =
            ["--app-name=hearth", "--urgency=critical", "--", "--help", "&lt;b&gt;a &amp; b&lt;/b&gt;"];
        assert_eq!(launch.args, args);
        assert_eq!(launch.env.get("DISPLAY").map(String::as_str), Some(":0"));
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let terminals = Notifier::Terminals("/usr/bin/wall".into());
        let launch = terminals.launch(&params("a\u{1b}[2J", "b\rc\nd")).unwrap();
        assert_eq!(launch.input.as_deref(), Some("a [2J\nb c\nd\n".as_bytes()));
        assert!(launch.args.is_empty());
    }

    #[tokio::test]
    async fn a_program_that_fails_says_why() {
        let notifier = Notifier::Desktop("/bin/false".into(), Vec::new());
        let error = notifier.show(&params("a", "")).await.unwrap_err();
        assert!(error.code == ErrorCode::Hardware && error.message.contains("desktop"), "{error}");
        Notifier::Terminals("/bin/cat".into()).show(&params("a", "b")).await.unwrap();
        Notifier::Log.show(&params("a", "b")).await.unwrap();
    }
}
