//! Every command a node may run, each defined once.
//!
//! The table at the end of this file is the single source: from it follow the node's dispatch (a
//! `match` over [`Invocation`] that does not compile while a command is missing), the hub's checks,
//! the model's tool list, the JSON schemas and the documentation. To add a command, write its
//! parameters and result in the module of its family below, add one line to the table, and implement
//! `Handle` for the parameters in the node's capability of that family: three files.
//!
//! Parameters travel as JSON text. Unknown keys and keys that stand twice are refused, defaults are
//! filled in, and [`Invocation::params_json`] writes the complete form: the one a person is shown and
//! a rule is compared with.

pub mod camera;
pub mod gpio;
pub mod sensor;
pub mod system;

use crate::error::{CommandError, ErrorCode};
use crate::limits::MAX_PARAMS;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What kind of thing a command does to the world; the default rules follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Looks at states that are no secret: lists, pins, sensors, health.
    Observe,
    /// Records people or places: pictures, clips.
    Capture,
    /// Moves something: a pin, a relay, a notification.
    Actuate,
    /// Runs programs.
    Execute,
}

impl Class {
    /// As written in rules and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Capture => "capture",
            Self::Actuate => "actuate",
            Self::Execute => "execute",
        }
    }
}

/// Whose yes a command needs. Ordered: a larger need is never satisfied by a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// Nobody's.
    #[default]
    None,
    /// The hub signs after a permitted person decided, in chat for instance.
    Hub,
    /// A person signs with a key the hub does not hold.
    Person,
}

impl Need {
    /// As written in rules and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hub => "hub",
            Self::Person => "person",
        }
    }
}

/// Parameters of one command.
pub trait Params: Serialize + DeserializeOwned {
    /// What the command answers with.
    type Result: Serialize + DeserializeOwned;

    /// Checks ranges that the type does not express.
    ///
    /// # Errors
    /// One line that names the parameter, its value and the limit.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The camera, pin or sensor this touches, if it is about one.
    fn target(&self) -> Option<Target<'_>> {
        None
    }

    /// One plain English sentence for a card, from the parameters alone, for example
    /// `Switch pin pump on for 20 s`.
    fn sentence(&self) -> String;
}

/// A part of the board that a command touches. Its name in a declared surface is `kind:id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// `camera`, `pin` or `sensor`.
    pub kind: &'static str,
    /// The id the node declared.
    pub id: &'a str,
}

impl std::fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

/// What is known of a command without its parameters.
#[derive(Debug, Clone, Copy)]
pub struct CommandSpec {
    /// `family.verb`, for example `camera.snap`.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// One sentence for people and for a model's tool list.
    pub summary: &'static str,
    /// JSON schema of the parameters.
    #[cfg(feature = "schema")]
    pub params_schema: fn() -> schemars::Schema,
    /// JSON schema of the result.
    #[cfg(feature = "schema")]
    pub result_schema: fn() -> schemars::Schema,
}

/// The specification of a command by name.
#[must_use]
pub fn spec(name: &str) -> Option<&'static CommandSpec> {
    SPECS.iter().find(|s| s.name == name)
}

fn parse_params<P: Params>(command: &str, json: &str) -> Result<P, CommandError> {
    let invalid = |why: String| {
        CommandError::new(ErrorCode::InvalidParams, format!("{command}: {why}; see `hearth nodes show NODE`"))
    };
    if json.len() > MAX_PARAMS {
        return Err(invalid(format!("parameters of {} bytes, the limit is {MAX_PARAMS}", json.len())));
    }
    let text = if json.trim().is_empty() { "{}" } else { json };
    let params: P = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
    params.check().map_err(invalid)?;
    Ok(params)
}

macro_rules! commands {
    // `$d` is a dollar sign: a macro that writes a macro cannot write one itself.
    ($d:tt $($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $class:ident, $params:ty;)+) => {
        /// Gives the names of all variants of [`Invocation`](crate::command::Invocation), in the order of
        /// the table, to another macro: for a `match` with one arm a command.
        #[macro_export]
        macro_rules! for_each_command {
            ($d macro_name:ident) => { $d macro_name! { $($variant)+ } };
        }

        /// A command with its checked parameters.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Invocation {
            $($(#[doc = $doc])+ $variant($params),)+
        }

        /// All commands, in the order of the table.
        pub const SPECS: &[CommandSpec] = &[
            $(CommandSpec {
                name: $name,
                class: Class::$class,
                summary: concat!($($doc),+),
                #[cfg(feature = "schema")]
                params_schema: || schemars::schema_for!($params),
                #[cfg(feature = "schema")]
                result_schema: || schemars::schema_for!(<$params as Params>::Result),
            },)+
        ];

        impl Invocation {
            /// Reads a command and its parameters.
            ///
            /// # Errors
            /// `UNKNOWN_COMMAND`, or `INVALID_PARAMS` with the parameter and the limit.
            pub fn parse(command: &str, params_json: &str) -> Result<Self, CommandError> {
                match command {
                    $($name => parse_params(command, params_json).map(Self::$variant),)+
                    other => Err(CommandError::new(
                        ErrorCode::UnknownCommand,
                        format!("no command `{}`", crate::identity::display_safe(other, 64)),
                    )),
                }
            }

            /// Its name, for example `camera.snap`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)+ }
            }

            /// Its class.
            #[must_use]
            pub fn class(&self) -> Class {
                match self { $(Self::$variant(_) => Class::$class,)+ }
            }

            /// The parameters as JSON, all defaults filled in.
            #[must_use]
            pub fn params_json(&self) -> serde_json::Value {
                match self {
                    // The parameter structs hold numbers, text, lists and maps with text keys: none of
                    // these can fail to serialise.
                    $(Self::$variant(p) => serde_json::to_value(p).unwrap_or_default(),)+
                }
            }

            /// What it touches; see [`Params::target`].
            #[must_use]
            pub fn target(&self) -> Option<Target<'_>> {
                match self { $(Self::$variant(p) => p.target(),)+ }
            }

            /// See [`Params::sentence`].
            #[must_use]
            pub fn sentence(&self) -> String {
                match self { $(Self::$variant(p) => p.sentence(),)+ }
            }
        }

        $(impl From<$params> for Invocation {
            fn from(params: $params) -> Self { Self::$variant(params) }
        })+
    };
}

commands! { $
    /// Lists the cameras of a node.
    CameraList = "camera.list", Observe, camera::ListParams;
    /// Takes a picture.
    CameraSnap = "camera.snap", Capture, camera::SnapParams;
    /// Lists the pins a node offers, with their states.
    GpioList = "gpio.list", Observe, gpio::ListParams;
    /// Reads a pin.
    GpioRead = "gpio.read", Observe, gpio::ReadParams;
    /// Switches an output pin on or off; it stays so.
    GpioWrite = "gpio.write", Actuate, gpio::WriteParams;
    /// Switches an output pin for a while, then back to its safe state.
    GpioPulse = "gpio.pulse", Actuate, gpio::PulseParams;
    /// Lists the sensors of a node.
    SensorList = "sensor.list", Observe, sensor::ListParams;
    /// Reads a sensor now.
    SensorRead = "sensor.read", Observe, sensor::ReadParams;
    /// Sets how often a node records a sensor for the hub's history; 0 stops it.
    SensorSubscribe = "sensor.subscribe", Observe, sensor::SubscribeParams;
    /// Reports a board's health: load, memory, card, temperature, under-voltage, Wi-Fi.
    SystemInfo = "system.info", Observe, system::InfoParams;
    /// Finds programs on a node.
    SystemWhich = "system.which", Observe, system::WhichParams;
    /// Runs a program with arguments, without a shell.
    SystemRun = "system.run", Execute, system::RunParams;
    /// Shows a notification on the node.
    SystemNotify = "system.notify", Actuate, system::NotifyParams;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_filled_in_and_the_complete_form_is_stable() {
        let snap = Invocation::parse("camera.snap", "{}").unwrap();
        let full = snap.params_json();
        assert_eq!(full["maxWidth"], 1600);
        assert_eq!(Invocation::parse("camera.snap", &full.to_string()).unwrap(), snap);
        assert_eq!(Invocation::parse("camera.list", "").unwrap().name(), "camera.list");
    }

    #[test]
    fn unknown_and_duplicate_keys_are_refused() {
        for bad in [
            r#"{"pin":"pump","value":true,"approved":true}"#,
            r#"{"pin":"pump","pin":"lamp","value":true}"#,
            r#"{"value":true}"#,
            "[]",
            "{",
            r#"{"pin":"pump","value":1}"#,
        ] {
            let error = Invocation::parse("gpio.write", bad).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParams, "{bad}");
        }
        assert_eq!(Invocation::parse("gpio.explode", "{}").unwrap_err().code, ErrorCode::UnknownCommand);
    }

    #[test]
    fn out_of_range_values_name_the_limit() {
        let error = Invocation::parse("gpio.pulse", r#"{"pin":"pump","durationMs":0}"#).unwrap_err();
        assert!(error.message.contains("durationMs"), "{error}");
    }

    #[test]
    fn classes_are_those_of_the_security_rules() {
        for (name, class) in [
            ("camera.list", Class::Observe),
            ("camera.snap", Class::Capture),
            ("gpio.read", Class::Observe),
            ("gpio.pulse", Class::Actuate),
            ("sensor.subscribe", Class::Observe),
            ("system.which", Class::Observe),
            ("system.notify", Class::Actuate),
            ("system.run", Class::Execute),
        ] {
            assert_eq!(spec(name).unwrap().class, class, "{name}");
        }
    }
}
