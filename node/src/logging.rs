//! Log lines to stderr, for people or as JSON, under the correlation id that came with a request.

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text.
    Human,
    /// One JSON object.
    Json,
}

/// Level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// What is not as it should be.
    Warn,
    /// What happened.
    Info,
    /// How it happened.
    Debug,
    /// Every step.
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Starts logging for this process; a second call does nothing.
pub fn start(level: LogLevel, format: LogFormat) {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = match format {
        LogFormat::Human => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let filter = LevelFilter::from(level);
    if tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().is_err() {
        tracing::debug!("logging was started before");
    }
}
