//! `system.*`

use super::Params;
use crate::limits::{MAX_RUN_OUTPUT, MAX_TIMEOUT_MS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// No parameters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InfoParams {}

/// A board's health. What a board cannot tell is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InfoResult {
    /// Host name.
    pub hostname: String,
    /// Board model, for example `Raspberry Pi Zero 2 W Rev 1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Kernel name and release.
    pub kernel: String,
    /// Machine architecture, for example `aarch64`.
    pub arch: String,
    /// Seconds since boot.
    pub uptime_s: u64,
    /// Load averages over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Processors.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_total_bytes: u64,
    /// Bytes of memory that programs could still get.
    pub memory_available_bytes: u64,
    /// Bytes on the file system of the node's state.
    pub disk_total_bytes: u64,
    /// Bytes free there for the node.
    pub disk_available_bytes: u64,
    /// Processor temperature in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_temperature_c: Option<f64>,
    /// The supply voltage is too low now (Raspberry Pi).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_voltage: Option<bool>,
    /// The processor is slowed down now, by heat or by voltage (Raspberry Pi).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<bool>,
    /// Wi-Fi signal in dBm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wifi_signal_dbm: Option<i32>,
    /// The root file system is mounted read-only: usual after card errors.
    pub root_read_only: bool,
    /// Whether the clock is set by the network.
    pub clock_synchronized: bool,
    /// Version of the node program.
    pub version: String,
    /// Faults in words, each with what to do; empty when all is well.
    pub warnings: Vec<String>,
}

impl Params for InfoParams {
    type Result = InfoResult;
    fn sentence(&self) -> String {
        "Report the board's health".into()
    }
}

/// Programs to look for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WhichParams {
    /// Bare names, at most 64.
    pub bins: Vec<String>,
}

/// Where they are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhichResult {
    /// Name to absolute path; missing ones are left out.
    pub bins: BTreeMap<String, String>,
}

impl Params for WhichParams {
    type Result = WhichResult;
    fn check(&self) -> Result<(), String> {
        if self.bins.len() > 64 {
            return Err(format!("{} names in bins, the limit is 64", self.bins.len()));
        }
        match self.bins.iter().find(|b| b.is_empty() || b.contains('/') || b.contains('\0')) {
            Some(bad) => Err(format!("bins holds {bad:?}, which is no bare program name")),
            None => Ok(()),
        }
    }
    fn sentence(&self) -> String {
        format!("Find the programs {}", self.bins.join(", "))
    }
}

/// A program to run: an argument vector, never a shell line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunParams {
    /// Program and arguments, 1 to 256; the program is a bare name or an absolute path.
    pub command: Vec<String>,
    /// Absolute working directory; `/` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables beside the scrubbed environment; names that steer the loader or an interpreter are refused.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Time limit, 100 to 1,800,000 ms; then the whole process group is killed.
    #[serde(default = "default_run_timeout")]
    pub timeout_ms: u64,
}

fn default_run_timeout() -> u64 {
    30_000
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// Exit code; left out when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The time limit ended it.
    pub timed_out: bool,
    /// Exit code 0 in time.
    pub success: bool,
    /// Standard output as text, invalid UTF-8 replaced; over the limit the middle is left out and said so.
    pub stdout: String,
    /// Standard error, likewise. Both together keep at most 200,000 bytes.
    pub stderr: String,
    /// Bytes of output that were dropped.
    pub dropped_bytes: u64,
    /// Milliseconds it ran.
    pub duration_ms: u64,
}

/// Variables that make a loader or an interpreter run other code than the one approved.
const STEERING_ENV: &[&str] = &[
    "PATH",
    "IFS",
    "ENV",
    "BASH_ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "PERL5LIB",
    "PERLLIB",
    "PERL5OPT",
    "PERL5DB",
    "RUBYLIB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "RESOLV_HOST_CONF",
    "TMPDIR",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "MANPAGER",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "LUA_PATH",
    "LUA_CPATH",
    "LUA_INIT",
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "CDPATH",
    "GLOBIGNORE",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "SSLKEYLOGFILE",
    "CURL_HOME",
    "WGETRC",
    "TERMINFO",
    "TERMCAP",
];
/// Prefixes of the same kind.
const STEERING_PREFIXES: &[&str] =
    &["LD_", "DYLD_", "BASH_FUNC_", "GIT_", "DOTNET_", "COMPlus_", "MALLOC_", "npm_config_"];

/// Whether a variable may be set for a program.
#[must_use]
pub fn env_name_allowed(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !STEERING_ENV.contains(&name)
        && !STEERING_PREFIXES.iter().any(|p| name.starts_with(p))
}

impl Params for RunParams {
    type Result = RunResult;
    fn check(&self) -> Result<(), String> {
        let Some(program) = self.command.first().filter(|p| !p.is_empty()) else {
            return Err("command is empty; give the program and its arguments".into());
        };
        if program.contains('/') && !program.starts_with('/') {
            return Err(format!(
                "program {program:?} is a relative path; give a bare name or an absolute path"
            ));
        }
        if self.command.len() > 256 {
            return Err(format!("{} arguments, the limit is 256", self.command.len()));
        }
        if self.command.iter().any(|a| a.contains('\0')) || self.env.values().any(|v| v.contains('\0')) {
            return Err("an argument or variable holds a NUL character".into());
        }
        if self.cwd.as_ref().is_some_and(|d| !d.starts_with('/') || d.contains('\0')) {
            return Err("cwd must be an absolute path".into());
        }
        if let Some(name) = self.env.keys().find(|n| !env_name_allowed(n)) {
            return Err(format!(
                "env may not set {name:?}: it steers a loader or interpreter, or is no plain name"
            ));
        }
        if !(100..=MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            return Err(format!("timeoutMs {} is not within 100 to {MAX_TIMEOUT_MS}", self.timeout_ms));
        }
        Ok(())
    }
    fn sentence(&self) -> String {
        format!("Run {}", quote_argv(&self.command))
    }
}

/// An argument vector on one line, every argument that is not plain in JSON quotes, so that the eye
/// sees where each begins and ends.
#[must_use]
pub fn quote_argv(argv: &[String]) -> String {
    let plain =
        |a: &str| !a.is_empty() && a.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c));
    let quoted: Vec<String> =
        argv.iter().map(|a| if plain(a) { a.clone() } else { format!("{a:?}") }).collect();
    quoted.join(" ")
}

/// How urgent a notification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Priority {
    /// In the list, no sound.
    Passive,
    /// Ordinary.
    #[default]
    Active,
    /// Breaks through.
    TimeSensitive,
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NotifyParams {
    /// At most 200 characters.
    pub title: String,
    /// At most 2,000 characters.
    #[serde(default)]
    pub body: String,
    /// Urgency.
    #[serde(default)]
    pub priority: Priority,
}

/// Where it was shown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotifyResult {
    /// `desktop` (notify-send), `terminals` (wall), or `log` (the log of a simulated board).
    pub delivered: String,
}

impl Params for NotifyParams {
    type Result = NotifyResult;
    fn check(&self) -> Result<(), String> {
        if self.title.is_empty() || self.title.chars().count() > 200 {
            return Err("title must have 1 to 200 characters".into());
        }
        if self.body.chars().count() > 2_000 {
            return Err("body must have at most 2000 characters".into());
        }
        Ok(())
    }
    fn sentence(&self) -> String {
        format!("Show the notification {:?}", self.title)
    }
}

/// Shares of the output limit that head and tail keep: the tail holds the error more often.
pub const RUN_OUTPUT_HEAD: usize = MAX_RUN_OUTPUT / 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str]) -> RunParams {
        RunParams {
            command: command.iter().map(ToString::to_string).collect(),
            cwd: None,
            env: BTreeMap::new(),
            timeout_ms: 1000,
        }
    }

    #[test]
    fn loaders_and_interpreters_cannot_be_steered() {
        for name in ["LD_PRELOAD", "PATH", "PYTHONPATH", "BASH_FUNC_ls%%", "1X", "", "A B", "GIT_SSH_COMMAND"]
        {
            let mut params = run(&["ls"]);
            params.env.insert(name.into(), "x".into());
            assert!(params.check().is_err(), "{name}");
        }
        let mut params = run(&["ls"]);
        params.env.insert("LANG".into(), "C".into());
        assert_eq!(params.check(), Ok(()));
    }

    #[test]
    fn program_must_be_a_name_or_an_absolute_path() {
        assert!(run(&[]).check().is_err());
        assert!(run(&["./x"]).check().is_err());
        assert!(run(&["/bin/ls"]).check().is_ok());
    }

    #[test]
    fn quoting_shows_where_arguments_end() {
        let argv = ["echo".to_string(), "a b".to_string(), String::new()];
        assert_eq!(quote_argv(&argv), r#"echo "a b" """#);
    }
}
