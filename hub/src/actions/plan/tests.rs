use super::*;
use crate::actions::tests::node::FakeNode;
use crate::devices::LinkKind;
use hearth_shared::identity::SecretKey;
use serde_json::json;

fn view(kind: LinkKind) -> NodeView {
    let key = SecretKey::from_seed(&[1; 32]);
    FakeNode::new(&key, &SecretKey::from_seed(&[2; 32]), kind).view()
}

fn fails(command: &str, params: Value) -> CommandError {
    check(view(LinkKind::Hearth), &NodesConfig::default(), command, &params).unwrap_err()
}

#[test]
fn parameters_are_completed_and_the_camera_is_named() {
    let rules = NodesConfig::default();
    let plan = check(view(LinkKind::Hearth), &rules, "camera.snap", &Value::Null).unwrap();
    assert_eq!(plan.params["deviceId"], "front");
    assert_eq!(plan.params["maxWidth"], 1600);
    assert_eq!((plan.class, plan.raise), (Class::Capture, Need::None));
    let mut unapproved = view(LinkKind::Hearth);
    unapproved.approved.retain(|a| a != "camera:front");
    let error = check(unapproved, &rules, "camera.snap", &json!({})).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotApproved);
}

#[test]
fn refusals_say_what_and_what_next() {
    for (command, params, code, says) in [
        ("gpio.list", json!({}), ErrorCode::NotApproved, "hearth devices approve garage"),
        ("gpio.wrote", json!({}), ErrorCode::UnknownCommand, "did you mean `gpio.write`?"),
        ("oven.bake", json!({}), ErrorCode::UnknownCommand, "it has: camera.snap, gpio.pulse"),
        ("pin:pump", json!({}), ErrorCode::UnknownCommand, "no command"),
        ("a\u{202e}b", json!({}), ErrorCode::UnknownCommand, "\\u{202e}"),
        ("gpio.write", json!({"pin": "pump"}), ErrorCode::InvalidParams, "value"),
        ("gpio.write", json!([1]), ErrorCode::InvalidParams, "object"),
        (
            "gpio.write",
            json!({"pin": "pump", "value": true, "approved": true}),
            ErrorCode::InvalidParams,
            "approved",
        ),
        ("gpio.write", json!({"pin": "pmup", "value": true}), ErrorCode::NotFound, "did you mean `pump`?"),
        ("gpio.write", json!({"pin": "door", "value": true}), ErrorCode::NotApproved, "pin:door"),
    ] {
        let error = fails(command, params.clone());
        assert_eq!(error.code, code, "{command} {params}: {error}");
        assert!(error.message.contains(says), "{command} {params}: {error}");
    }
}

#[test]
fn a_device_that_is_not_accepted_or_no_node_gets_nothing() {
    let rules = NodesConfig::default();
    for state in [DeviceState::Revoked, DeviceState::Rejected, DeviceState::Preauthorised] {
        let mut view = view(LinkKind::Hearth);
        view.device.state = state;
        let error = check(view, &rules, "gpio.read", &json!({"pin": "pump"})).unwrap_err();
        assert_eq!(error.code, ErrorCode::Denied);
    }
    let mut operator = view(LinkKind::Hearth);
    operator.device.roles = vec![Role::Operator];
    assert!(check(operator, &rules, "gpio.read", &json!({"pin": "pump"})).is_err());
}

#[test]
fn rules_name_a_command_or_a_family() {
    let rules = ["gpio.*".to_owned(), "system.run".to_owned()];
    assert_eq!(matching(&rules, "gpio.write"), Some("gpio.*"));
    assert_eq!(matching(&rules, "system.run"), Some("system.run"));
    assert_eq!(matching(&rules, "system.run.prepare"), None);
    assert_eq!(matching(&rules, "gpiox"), None);
}

#[test]
fn what_is_not_known_of_a_foreign_node_asks() {
    for (command, class) in [
        ("system.which", Class::Observe),
        ("device.info", Class::Observe),
        ("system.run.prepare", Class::Observe),
        ("camera.snap", Class::Capture),
        ("screen.record", Class::Capture),
        ("canvas.present", Class::Actuate),
        ("system.notify", Class::Actuate),
        ("system.run", Class::Execute),
        ("system.runner", Class::Execute),
        ("mcp.tools.call.v1", Class::Execute),
        ("file.write", Class::Execute),
    ] {
        assert_eq!(foreign_class(command), class, "{command}");
    }
}

#[test]
fn a_foreign_sentence_hides_no_second_plan() {
    let argv = json!({"command": ["ls", "a b"]});
    assert_eq!(foreign_sentence("system.run", &argv), "Run ls \"a b\"");
    let double = json!({"command": ["ls"], "systemRunPlan": {"argv": ["rm", "x"]}});
    assert!(foreign_sentence("system.run", &double).contains("rm"));
}

#[test]
fn a_foreign_node_cannot_be_told_that_somebody_approved() {
    let rules = NodesConfig::default();
    for key in ["approved", "approvalDecision"] {
        let error = check(view(LinkKind::Json), &rules, "canvas.present", &json!({key: true})).unwrap_err();
        assert!(error.message.contains(key), "{error}");
    }
    let long = json!({"text": "x".repeat(MAX_PARAMS)});
    let error = check(view(LinkKind::Json), &rules, "canvas.present", &long).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidParams);
}
