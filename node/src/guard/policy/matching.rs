//! Whether a rule fits a command.
//!
//! A rule that loosens must fit exactly, so whatever is not certain does not fit it. A rule at least as
//! strict as the default must not be slipped past, so whatever is not certain does fit it.

use super::Rule;
use crate::config::{Demand, PolicyRule};
use crate::guard::uses::MAX_PER_HOUR;
use hearth_shared::command::system::RunParams;
use hearth_shared::command::{Invocation, SPECS};
use hearth_shared::identity::Digest;

/// Minutes of the day in UTC; an end before the start goes over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    from: u16,
    to: u16,
}

impl Window {
    fn parse(text: &str) -> Result<Self, String> {
        let minute = |part: &str| {
            let (h, m) = part.trim().split_once(':')?;
            let (h, m): (u16, u16) = (h.parse().ok()?, m.parse().ok()?);
            (h < 24 && m < 60).then_some(h * 60 + m)
        };
        text.split_once('-')
            .and_then(|(from, to)| Some(Self { from: minute(from)?, to: minute(to)? }))
            .filter(|w| w.from != w.to)
            .ok_or_else(|| format!("between_utc = {text:?}: write two times of day as 06:00-20:00"))
    }

    fn holds(self, minute: u16) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

impl Rule {
    pub(super) fn compile(rule: &PolicyRule) -> Result<Self, String> {
        check_command(&rule.command)?;
        check_conditions(rule)?;
        let window = rule.between_utc.as_deref().map(Window::parse).transpose()?;
        let text = serde_json::to_vec(rule).map_err(|e| e.to_string())?;
        Ok(Self { text: rule.clone(), window, key: Digest::of(&text) })
    }

    pub(super) fn covers(&self, command: &str) -> bool {
        covers(&self.text.command, command)
    }

    /// Whether it fits every request of its commands, always.
    pub(super) fn has_no_conditions(&self) -> bool {
        let r = &self.text;
        let texts = [&r.pin, &r.camera, &r.sensor, &r.cwd, &r.between_utc];
        texts.iter().all(|t| t.is_none())
            && r.run.is_none()
            && r.value.is_none()
            && r.max_duration_ms.is_none()
            && r.longer_than_ms.is_none()
    }

    pub(super) fn fits(&self, invocation: &Invocation, default: Demand, minute_utc: Option<u16>) -> bool {
        self.covers(invocation.name()) && {
            let strict = self.text.need >= default;
            self.fits_target(invocation, strict)
                && self.fits_switch(invocation)
                && self.fits_program(invocation, strict)
                && self.window.is_none_or(|w| minute_utc.map_or(strict, |minute| w.holds(minute)))
        }
    }

    fn fits_target(&self, invocation: &Invocation, strict: bool) -> bool {
        let rule = &self.text;
        let target = invocation.target();
        [("pin", &rule.pin), ("camera", &rule.camera), ("sensor", &rule.sensor)].iter().all(
            |(kind, wanted)| {
                let Some(wanted) = wanted else { return true };
                match &target {
                    Some(t) => t.kind == *kind && t.id == wanted,
                    // "The first camera" may be the one the rule names.
                    None => strict && *kind == "camera" && matches!(invocation, Invocation::CameraSnap(_)),
                }
            },
        )
    }

    fn fits_switch(&self, invocation: &Invocation) -> bool {
        let rule = &self.text;
        let (value, duration) = match invocation {
            Invocation::GpioWrite(p) => (Some(p.value), None),
            Invocation::GpioPulse(p) => (Some(p.value), Some(p.duration_ms)),
            _ => (None, None),
        };
        (rule.value.is_none() || rule.value == value)
            && rule.max_duration_ms.is_none_or(|max| duration.is_some_and(|d| d <= max))
            && rule.longer_than_ms.is_none_or(|min| duration.is_some_and(|d| d > min))
    }

    fn fits_program(&self, invocation: &Invocation, strict: bool) -> bool {
        let Invocation::SystemRun(params) = invocation else {
            return self.text.run.is_none() && self.text.cwd.is_none();
        };
        self.fits_surroundings(params, strict)
            && self.text.run.as_ref().is_none_or(|wanted| fits_arguments(wanted, &params.command, strict))
    }

    /// A directory or a variable can turn a harmless program into another one.
    fn fits_surroundings(&self, params: &RunParams, strict: bool) -> bool {
        if strict {
            self.text.cwd.is_none() || params.cwd.is_none() || params.cwd == self.text.cwd
        } else {
            params.cwd == self.text.cwd && params.env.is_empty()
        }
    }
}

fn covers(pattern: &str, command: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => command.starts_with(prefix),
        None => pattern == command,
    }
}

fn fits_arguments(wanted: &[String], have: &[String], strict: bool) -> bool {
    let open_end = wanted.len() > 1 && wanted.last().is_some_and(|last| last == "*");
    let fixed = if open_end { &wanted[..wanted.len() - 1] } else { wanted };
    let length_fits = if open_end { have.len() >= fixed.len() } else { have.len() == fixed.len() };
    length_fits
        && fixed
            .iter()
            .zip(have)
            .enumerate()
            .all(|(i, (want, have))| want == have || (strict && i == 0 && file_name(want) == file_name(have)))
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn check_command(pattern: &str) -> Result<(), String> {
    let shape_ok = pattern == "*" || pattern.ends_with(".*") || !pattern.contains('*');
    if shape_ok && SPECS.iter().any(|s| covers(pattern, s.name)) {
        return Ok(());
    }
    let names: Vec<&str> = SPECS.iter().map(|s| s.name).collect();
    Err(format!(
        "command = {pattern:?} is no command; use `*`, a family such as `gpio.*`, or one of {}",
        names.join(", ")
    ))
}

/// A condition on a parameter that the command does not have would never fit: a mistake, and in a rule
/// that denies a dangerous one.
fn check_conditions(rule: &PolicyRule) -> Result<(), String> {
    let conditions: [(&str, bool, &[&str]); 8] = [
        ("pin", rule.pin.is_some(), &["gpio.read", "gpio.write", "gpio.pulse"]),
        ("camera", rule.camera.is_some(), &["camera.snap"]),
        ("sensor", rule.sensor.is_some(), &["sensor.read", "sensor.subscribe"]),
        ("value", rule.value.is_some(), &["gpio.write", "gpio.pulse"]),
        ("max_duration_ms", rule.max_duration_ms.is_some(), &["gpio.pulse"]),
        ("longer_than_ms", rule.longer_than_ms.is_some(), &["gpio.pulse"]),
        ("run", rule.run.is_some(), &["system.run"]),
        ("cwd", rule.cwd.is_some(), &["system.run"]),
    ];
    for (what, set, commands) in conditions {
        if set && !commands.iter().any(|c| covers(&rule.command, c)) {
            return Err(format!(
                "{what} has no meaning for command = {:?}; it goes with {}",
                rule.command,
                commands.join(", ")
            ));
        }
    }
    if rule.max_duration_ms.is_some() && rule.need == Demand::Deny {
        return Err("max_duration_ms with need = \"deny\" denies the short ones; use longer_than_ms".into());
    }
    if let Some(run) = &rule.run {
        if run.first().is_none_or(|p| p.is_empty() || p == "*") {
            return Err("run needs a program first, for example run = [\"/usr/bin/uptime\"]".into());
        }
        if run[..run.len() - 1].iter().any(|a| a == "*") {
            return Err("`*` may only be the last argument of run".into());
        }
    }
    let limits =
        [("uses", rule.uses), ("uses_per_boot", rule.uses_per_boot), ("uses_per_hour", rule.uses_per_hour)];
    for (key, limit) in limits {
        if limit == Some(0) {
            return Err(format!("{key} = 0 never allows anything; use need = \"deny\""));
        }
        if limit.is_some() && rule.need == Demand::Deny {
            return Err(format!("{key} has no meaning with need = \"deny\""));
        }
    }
    if rule.uses_per_hour.is_some_and(|n| n > MAX_PER_HOUR) {
        return Err(format!("uses_per_hour is over {MAX_PER_HOUR}"));
    }
    Ok(())
}
