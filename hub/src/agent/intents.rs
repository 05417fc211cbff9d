//! Requests understood without a language model: a small grammar in English and Chinese.
//!
//! | what | for example |
//! | --- | --- |
//! | a picture | `take a picture in the garage`, `show me the garage camera`, `拍一张车库的照片` |
//! | a sensor now | `how warm is the greenhouse?`, `is the greenhouse above 30 degrees?`, `温室多少度?` |
//! | a sensor in the past | `what was last night's minimum?`, `average humidity this week`, `昨晚最低温度是多少?` |
//! | switching | `turn the pump on for 20 seconds`, `switch off the pump`, `把水泵打开20秒` |
//! | the state of a pin | `is the pump on?`, `水泵开着吗` |
//! | recording | `record the temperature every 5 minutes`, `每5分钟记录温度` |
//! | nodes | `status`, `which nodes are online`, `how is the garage doing?`, `状态` |
//! | what there is | `help`, `list the sensors`, `有哪些摄像头` |
//!
//! [`parse`] is a pure function over the [`World`]: the names that the known nodes declare, connected or
//! not. What could mean two things is [`Parsed::Ambiguous`] and becomes a [`Question`]; [`answer`]
//! understands the reply to it. Names may be misspelt a little, and common ones are known in both
//! languages (水泵 finds `pump`).

mod names;
mod numbers;
mod rules;
mod spans;
#[cfg(test)]
mod tests;
mod words;

use hearth_shared::command::sensor::Quantity;
use hearth_shared::identity::DeviceId;
use jiff::Zoned;
use serde::{Deserialize, Serialize};

pub use spans::Span;
pub use words::Lang;

/// What can be talked about.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Known nodes, connected or not.
    pub nodes: Vec<WorldNode>,
}

/// A node with the approved part of what it declares.
#[derive(Debug, Clone)]
pub struct WorldNode {
    /// Its id.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// Connected now.
    pub connected: bool,
    /// Commands that may be invoked.
    pub commands: Vec<String>,
    /// Cameras: id and name.
    pub cameras: Vec<(String, String)>,
    /// Pins.
    pub pins: Vec<WorldPin>,
    /// Sensors.
    pub sensors: Vec<SensorRef>,
}

impl WorldNode {
    /// Whether it may run a command.
    #[must_use]
    pub fn can(&self, command: &str) -> bool {
        self.commands.iter().any(|c| c == command)
    }
}

/// A pin.
#[derive(Debug, Clone)]
pub struct WorldPin {
    /// Id.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// May be switched.
    pub output: bool,
}

/// A sensor of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SensorRef {
    /// Node.
    pub node: DeviceId,
    /// Name of the node.
    pub node_name: String,
    /// Sensor id.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it measures.
    pub quantity: Quantity,
    /// Unit symbol.
    pub unit: String,
}

/// A pin of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRef {
    /// Node.
    pub node: DeviceId,
    /// Name of the node.
    pub node_name: String,
    /// Pin id.
    pub id: String,
    /// Name for people.
    pub name: String,
}

/// Which value of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stat {
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Mean.
    Mean,
    /// All three.
    Summary,
}

/// `above 30`: a question with yes or no for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    /// Above, or below.
    pub above: bool,
    /// In the sensor's unit.
    pub value: f64,
}

/// What a list is wanted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Nodes.
    Node,
    /// Cameras.
    Camera,
    /// Pins.
    Pin,
    /// Sensors.
    Sensor,
}

/// What a person wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Intent {
    /// A picture.
    Snap { node: DeviceId, node_name: String, camera: Option<String> },
    /// A value now.
    SensorNow { sensor: SensorRef, compare: Option<Compare> },
    /// A value of the past; `when`: the time of it is what was asked.
    SensorPast { sensor: SensorRef, stat: Stat, span: Span, when: bool, compare: Option<Compare> },
    /// Switch a pin, for a while or until somebody switches it again.
    Switch { pin: PinRef, on: bool, for_ms: Option<u64> },
    /// Whether a pin is on; `asked`: the state asked about.
    PinState { pin: PinRef, asked: Option<bool> },
    /// A board's health.
    Health { node: DeviceId, node_name: String },
    /// All nodes, who is there.
    Status,
    /// What there is of a kind.
    List { kind: Kind },
    /// Record a sensor; 0 stops.
    Record { sensor: SensorRef, interval_ms: u64 },
    /// What one can say.
    Help,
    /// An open question is withdrawn.
    Nothing,
}

/// One possible meaning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// For people.
    pub label: String,
    /// Names that choose it.
    pub names: Vec<String>,
    /// What would be done.
    pub intent: Intent,
}

/// A question that waits for its answer; kept with the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Language.
    pub lang: Lang,
    /// What could be meant; one choice is a confirmation.
    pub choices: Vec<Choice>,
}

/// Why a request that was understood cannot be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Cannot {
    /// A name fits nothing of the kind.
    NoSuch { kind: Kind, asked: String, known: Vec<String> },
    /// No known node has one.
    None { kind: Kind },
    /// The pin is an input.
    InputOnly { pin: PinRef },
    /// A pulse over 24 hours, or a recording interval out of range.
    BadDuration { limit: &'static str },
}

/// How a sentence is understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed {
    /// One thing is meant. `certain`: every word was understood.
    Intent { intent: Intent, certain: bool },
    /// Two or more could be meant. `certain`: every other word was understood.
    Ambiguous { question: Question, certain: bool },
    /// Understood, and impossible.
    Cannot(Cannot),
    /// Not a request the grammar knows.
    Unknown,
}

/// Understands a sentence. `now` carries the time zone.
#[must_use]
pub fn parse(text: &str, world: &World, now: &Zoned) -> Parsed {
    rules::parse(&words::Words::new(text), world, now)
}

/// The language a text is answered in.
#[must_use]
pub fn language(text: &str) -> Lang {
    words::Words::new(text).lang
}

/// Understands the answer to a question; `None` when the text is no answer to it.
#[must_use]
pub fn answer(text: &str, question: &Question) -> Option<Intent> {
    rules::answer(&words::Words::new(text), question)
}

/// How near an example is to a text, 0 to 1: for "the nearest I can do".
#[must_use]
pub fn nearness(text: &str, example: &str) -> f64 {
    strsim::sorensen_dice(&words::cut(text).join(" "), &words::cut(example).join(" "))
}
