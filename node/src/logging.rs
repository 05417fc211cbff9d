//! Log lines to stderr, for people or as JSON, under the correlation id that came with a request.

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
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

/// Reads a filter as the hub does: a level, or levels by module such as `info,hearth_node::link=debug`.
///
/// # Errors
/// One line for people.
pub fn filter(text: &str) -> Result<Targets, String> {
    text.parse().map_err(|_| {
        "give `off`, `error`, `warn`, `info`, `debug`, `trace`, or a filter such as \
         `info,hearth_node::link=debug`"
            .to_owned()
    })
}

/// Starts logging for this process; a second call does nothing.
pub fn start(filter: Targets, format: LogFormat) {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = match format {
        LogFormat::Human => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    if tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().is_err() {
        tracing::debug!("logging was started before");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        let quiet = filter("warn,hearth_node::link=debug").unwrap();
        assert!(quiet.would_enable("hearth_node::link::session", &Level::DEBUG));
        assert!(!quiet.would_enable("hearth_node::guard", &Level::INFO));
        assert!(!filter("off").unwrap().would_enable("hearth_node", &Level::ERROR));
        assert!(filter("hearth_node=loud").is_err());
    }
}
