//! Where the board's readings and events go: the outbox, or nowhere in a unit test.

/// Takes what the board records. Never blocks; a full queue drops readings and counts them.
pub trait Recorder: Send + Sync + std::fmt::Debug {
    /// A sensor's value in its declared unit. Not finite: ignored.
    fn reading(&self, sensor: &str, value: f64);
    /// Something happened: `kind` such as `gpio.edge`, details as JSON text of at most 4 KiB.
    /// Its commit begins at once, beside the caller: an edge does not wait for the group of readings,
    /// and a slow card does not hold up the caller.
    fn event(&self, kind: &str, json: String);
}
