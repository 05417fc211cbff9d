use super::*;
use proptest::prelude::*;

fn policy(text: &str) -> Policy {
    Policy::compile(&config(text)).unwrap()
}

fn config(text: &str) -> Config {
    let mut config: Config = toml::from_str(text).unwrap();
    config.file = Some("/etc/node.toml".into());
    config.policy.locate(text);
    config
}

fn parse(command: &str, params: &str) -> Invocation {
    Invocation::parse(command, params).unwrap()
}

fn context() -> Context<'static> {
    Context { person_in_force: false, minute_utc: None, uses: None, powered_ms: 0 }
}

fn verdict(policy: &Policy, command: &str, params: &str) -> Verdict {
    policy.evaluate(&parse(command, params), &context()).verdict
}

fn need(policy: &Policy, command: &str, params: &str) -> Option<Need> {
    match verdict(policy, command, params) {
        Verdict::Allow { .. } => Some(Need::None),
        Verdict::Ask { need, .. } => Some(need),
        Verdict::Deny { .. } => None,
    }
}

const SNAP: &str = "{}";
const RUN: &str = r#"{"command":["/usr/bin/uptime"]}"#;
const PULSE: &str = r#"{"pin":"pump","durationMs":20000}"#;

#[test]
fn defaults_follow_the_class_and_person_waits_for_its_keys() {
    let policy = policy("");
    assert_eq!(need(&policy, "gpio.list", "{}"), Some(Need::None));
    assert_eq!(need(&policy, "camera.snap", SNAP), Some(Need::Hub));
    assert_eq!(need(&policy, "gpio.pulse", PULSE), Some(Need::Hub));
    let Verdict::Ask { need: Need::Hub, rule } = verdict(&policy, "system.run", RUN) else { panic!() };
    assert!(rule.contains("as hub until"), "{rule}");
    let ready = Context { person_in_force: true, ..context() };
    let Verdict::Ask { need: Need::Person, rule } =
        policy.evaluate(&parse("system.run", RUN), &ready).verdict
    else {
        panic!()
    };
    assert!(rule.contains("policy.execute of /etc/node.toml") && rule.contains("only the owner"), "{rule}");
    assert_eq!(policy.declared_need("system.run", Class::Execute, true), Need::Person);
    assert_eq!(policy.declared_need("system.run", Class::Execute, false), Need::Hub);
}

#[test]
fn a_rule_that_loosens_fits_only_what_it_names() {
    let policy = policy(
        "[[policy.rule]]\ncommand = 'gpio.pulse'\npin = 'pump'\nvalue = true\nmax_duration_ms = 60000\nneed = 'none'",
    );
    assert_eq!(need(&policy, "gpio.pulse", PULSE), Some(Need::None));
    for params in [
        r#"{"pin":"pump","durationMs":60001}"#,
        r#"{"pin":"heater","durationMs":20000}"#,
        r#"{"pin":"pump","value":false,"durationMs":20000}"#,
    ] {
        assert_eq!(need(&policy, "gpio.pulse", params), Some(Need::Hub), "{params}");
    }
    assert_eq!(need(&policy, "gpio.write", r#"{"pin":"pump","value":true}"#), Some(Need::Hub));
}

#[test]
fn the_first_rule_decides_and_a_denial_names_rule_line_and_owner() {
    let policy = policy(
        "# comment\n[[policy.rule]]\ncommand = 'gpio.*'\npin = 'heater'\nneed = 'deny'\n\n\
         [[policy.rule]] # second\ncommand = '*'\nneed = 'none'\n",
    );
    let Verdict::Deny { code: ErrorCode::Denied, rule } =
        verdict(&policy, "gpio.write", r#"{"pin":"heater","value":true}"#)
    else {
        panic!()
    };
    for part in ["policy rule 1", "line 2 of /etc/node.toml", "pin heater", "deny", "only the owner"] {
        assert!(rule.contains(part), "{part} in {rule}");
    }
    let Verdict::Allow { rule } = verdict(&policy, "system.run", RUN) else { panic!() };
    assert!(rule.contains("line 7"), "{rule}");
}

#[test]
fn programs_are_exact_for_a_yes_and_by_name_for_a_no() {
    let policy = policy(
        "[[policy.rule]]\ncommand = 'system.run'\nrun = ['/usr/bin/reboot', '*']\nneed = 'deny'\n\
         [[policy.rule]]\ncommand = 'system.run'\nrun = ['/usr/bin/systemctl', 'status', '*']\nneed = 'none'\n\
         [[policy.rule]]\ncommand = 'system.run'\nrun = ['/usr/bin/git', 'pull']\ncwd = '/srv'\nneed = 'none'\n",
    );
    let run = |params: &str| need(&policy, "system.run", params);
    assert_eq!(run(r#"{"command":["reboot","-f"]}"#), None);
    assert_eq!(run(r#"{"command":["/sbin/reboot"],"cwd":"/","env":{"LANG":"C"}}"#), None);
    assert_eq!(run(r#"{"command":["/usr/bin/systemctl","status","ssh"]}"#), Some(Need::None));
    assert_eq!(run(r#"{"command":["/usr/bin/systemctl","status"]}"#), Some(Need::None));
    for params in [
        r#"{"command":["systemctl","status","ssh"]}"#,
        r#"{"command":["/usr/bin/systemctl","stop","ssh"]}"#,
        r#"{"command":["/usr/bin/systemctl"]}"#,
        r#"{"command":["/usr/bin/systemctl","status"],"env":{"SYSTEMD_PAGER":"x"}}"#,
        r#"{"command":["/usr/bin/systemctl","status"],"cwd":"/tmp"}"#,
        r#"{"command":["/usr/bin/git","pull"]}"#,
        r#"{"command":["/usr/bin/git","pull","x"],"cwd":"/srv"}"#,
    ] {
        assert_eq!(run(params), Some(Need::Hub), "{params}");
    }
    assert_eq!(run(r#"{"command":["/usr/bin/git","pull"],"cwd":"/srv"}"#), Some(Need::None));
}

#[test]
fn the_first_camera_slips_past_no_denial() {
    let policy = policy(
        "[[policy.rule]]\ncommand = 'camera.snap'\ncamera = 'bedroom'\nneed = 'deny'\n\
         [[policy.rule]]\ncommand = 'camera.snap'\ncamera = 'garden'\nneed = 'none'\n",
    );
    assert_eq!(need(&policy, "camera.snap", "{}"), None);
    assert_eq!(need(&policy, "camera.snap", r#"{"deviceId":"bedroom"}"#), None);
    assert_eq!(need(&policy, "camera.snap", r#"{"deviceId":"garden"}"#), Some(Need::None));
    assert_eq!(need(&policy, "camera.snap", r#"{"deviceId":"door"}"#), Some(Need::Hub));
}

#[test]
fn times_of_day_are_off_for_a_yes_and_on_for_a_no_while_the_clock_is_not_set() {
    let loose =
        policy("[[policy.rule]]\ncommand = 'camera.snap'\nbetween_utc = '22:00-06:00'\nneed = 'none'");
    let strict =
        policy("[[policy.rule]]\ncommand = 'camera.snap'\nbetween_utc = '08:00-20:00'\nneed = 'deny'");
    let at = |policy: &Policy, minute_utc| {
        policy.evaluate(&parse("camera.snap", "{}"), &Context { minute_utc, ..context() }).verdict
    };
    let allowed = |v| matches!(v, Verdict::Allow { .. });
    let denied = |v| matches!(v, Verdict::Deny { .. });
    assert!(!allowed(at(&loose, None)));
    assert!(allowed(at(&loose, Some(23 * 60))) && allowed(at(&loose, Some(5 * 60 + 59))));
    assert!(!allowed(at(&loose, Some(6 * 60))));
    assert!(denied(at(&strict, None)));
    assert!(denied(at(&strict, Some(8 * 60))) && !denied(at(&strict, Some(20 * 60))));
}

#[test]
fn a_reached_limit_refuses_or_asks() {
    let text = |beyond: &str| {
        format!(
            "[[policy.rule]]\ncommand = 'gpio.pulse'\nneed = 'none'\nuses_per_hour = 2\nuses = 3\nbeyond = '{beyond}'"
        )
    };
    let (deny, ask) = (policy(&text("deny")), policy(&text("ask")));
    let pulse = parse("gpio.pulse", PULSE);
    let mut uses = Uses::default();
    for policy in [&deny, &ask] {
        let key = policy.evaluate(&pulse, &context()).counts.unwrap();
        for at in [1_000, 2_000] {
            let counter = uses.after_use(&key, at);
            uses.put(key, counter);
        }
    }
    let at = |policy: &Policy, uses: &Uses, powered_ms| {
        policy.evaluate(&pulse, &Context { uses: Some(uses), powered_ms, ..context() })
    };
    let Verdict::Deny { code: ErrorCode::RateLimited, rule } = at(&deny, &uses, 3_000).verdict else {
        panic!()
    };
    assert!(rule.contains("2 uses in an hour of powered time") && rule.contains("policy rule 1"), "{rule}");
    assert!(matches!(at(&ask, &uses, 3_000).verdict, Verdict::Ask { need: Need::Hub, .. }));
    // An hour later one more, then the third use of all is the last.
    let later = at(&deny, &uses, 3_700_000);
    assert!(matches!(later.verdict, Verdict::Allow { .. }));
    let counter = uses.after_use(&later.counts.unwrap(), 3_700_000);
    uses.put(later.counts.unwrap(), counter);
    assert!(matches!(
        at(&deny, &uses, 90_000_000).verdict,
        Verdict::Deny { code: ErrorCode::RateLimited, .. }
    ));
    // What observes is not counted.
    let all = policy("[[policy.rule]]\ncommand = '*'\nneed = 'none'\nuses_per_boot = 1");
    assert_eq!(all.evaluate(&parse("gpio.list", "{}"), &context()).counts, None);
}

#[test]
fn mistakes_are_named_with_rule_and_line() {
    for (rule, part) in [
        ("command = 'gpio.explode'\nneed = 'none'", "gpio.pulse"),
        ("command = 'gp*'\nneed = 'none'", "is no command"),
        ("command = 'camera.snap'\npin = 'x'\nneed = 'deny'", "pin has no meaning"),
        ("command = 'gpio.pulse'\nmax_duration_ms = 5\nneed = 'deny'", "longer_than_ms"),
        ("command = 'gpio.pulse'\nuses = 0\nneed = 'none'", "uses = 0"),
        ("command = 'gpio.pulse'\nuses = 1\nneed = 'deny'", "no meaning"),
        ("command = 'system.run'\nrun = []\nneed = 'none'", "program first"),
        ("command = 'system.run'\nrun = ['a', '*', 'b']\nneed = 'none'", "last argument"),
        ("command = 'camera.snap'\nbetween_utc = '25:00-3'\nneed = 'none'", "06:00-20:00"),
        ("command = 'gpio.pulse'\nuses_per_hour = 100000\nneed = 'none'", "1000"),
    ] {
        let error = Policy::compile(&config(&format!("[[policy.rule]]\n{rule}"))).unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("policy rule 1 (line 1 of /etc/node.toml)"),
            "{error}"
        );
    }
    assert!(toml::from_str::<Config>("[policy]\nobserv = 'none'").is_err());
    assert!(toml::from_str::<Config>("[[policy.rule]]\ncommand = '*'\nneed = 'maybe'").is_err());
}

#[test]
fn the_digest_covers_every_value_and_no_layout() {
    let base = "[policy]\ncapture = 'hub'\n[[policy.rule]]\ncommand = 'gpio.pulse'\nneed = 'none'\n";
    let digest = |text: &str| policy(text).digest();
    assert_eq!(digest(base), digest(&format!("# note\n\n{base}  # end")));
    for changed in [
        base.replace("'hub'", "'none'"),
        base.replace("gpio.pulse", "gpio.write"),
        format!("{base}uses = 3\n"),
        format!("{base}[board]\nsimulate = true\n"),
    ] {
        assert_ne!(digest(base), digest(&changed), "{changed}");
    }
}

#[test]
fn remarks_and_dry_runs_say_what_holds() {
    let policy = policy(
        "[policy]\nactuate = 'none'\n[[policy.rule]]\ncommand = 'system.*'\nneed = 'none'\n\
         [[policy.rule]]\ncommand = 'system.run'\nneed = 'person'\n",
    );
    let remarks = policy.check().join("\n");
    for part in ["any program without asking", "rule 1 fits all it fits", "needs a person", "policy.actuate"]
    {
        assert!(remarks.contains(part), "{part} in {remarks}");
    }
    assert_eq!(super::Policy::compile(&Config::default()).unwrap().check(), Vec::<String>::new());
    let tested = policy.test("gpio.pulse", PULSE, false, None).unwrap().to_string();
    assert!(tested.starts_with("allow: policy.actuate"), "{tested}");
    assert_eq!(policy.test("gpio.x", "{}", false, None).unwrap_err().code, ErrorCode::UnknownCommand);
}

proptest! {
    /// Whatever stricter rules stand in the file, none of them makes a request looser than its default.
    #[test]
    fn strict_rules_never_loosen(
        which in prop::collection::vec((0usize..4, 0usize..3), 0..6),
        pin in "[a-c]",
        duration_ms in 1u64..100_000,
        minute in prop::option::of(0u16..1440),
    ) {
        let conditions = ["", "pin = 'a'\n", "longer_than_ms = 50000\n", "between_utc = '08:00-20:00'\n"];
        let needs = ["hub", "person", "deny"];
        let text: String = which
            .iter()
            .map(|(c, n)| format!("[[policy.rule]]\ncommand = 'gpio.pulse'\n{}need = '{}'\n", conditions[*c], needs[*n]))
            .collect();
        let pulse = parse("gpio.pulse", &format!(r#"{{"pin":"{pin}","durationMs":{duration_ms}}}"#));
        let verdict = policy(&text).evaluate(&pulse, &Context { minute_utc: minute, ..context() }).verdict;
        let is_loose = matches!(verdict, Verdict::Allow { .. } | Verdict::Ask { need: Need::None, .. });
        prop_assert!(!is_loose);
    }
}
