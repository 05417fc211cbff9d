//! `hearth doctor`: finds faults layer by layer, from the directory up to each node; works with the hub
//! stopped too, and changes nothing.

mod machine;
mod running;
mod state;

use super::context::Context;
use super::error::Failure;
use super::output::safe_line;
use serde::Serialize;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Works, but should be looked at.
    Warn,
    /// Does not work.
    Fail,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// `home`, `config`, `keys`, `lock`, `database`, `machine`, `gateway`, `model`, `nodes`.
    layer: &'static str,
    verdict: Verdict,
    /// What was found.
    what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Findings of a layer.
#[derive(Debug)]
struct Layer<'a> {
    name: &'static str,
    findings: &'a mut Vec<Finding>,
}

impl Layer<'_> {
    fn ok(&mut self, what: impl Into<String>) {
        self.add(Verdict::Ok, what.into(), None);
    }

    fn warn(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Verdict::Warn, what.into(), Some(remedy.into()));
    }

    fn fail(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Verdict::Fail, what.into(), Some(remedy.into()));
    }

    fn add(&mut self, verdict: Verdict, what: String, remedy: Option<String>) {
        self.findings.push(Finding { layer: self.name, verdict, what: safe_line(&what), remedy });
    }
}

pub(super) fn run(_: &Arguments, context: &Context) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let home = &context.home;
    let there = state::home(&mut Layer { name: "home", findings: &mut findings }, home);
    let config = state::config(&mut Layer { name: "config", findings: &mut findings }, home);
    machine::check(&mut Layer { name: "machine", findings: &mut findings }, home);
    if there {
        state::keys(&mut Layer { name: "keys", findings: &mut findings }, home);
        state::database(&mut Layer { name: "database", findings: &mut findings }, home);
    }
    let runs = there && state::lock(&mut Layer { name: "lock", findings: &mut findings }, home);
    context.block_on(async {
        running::gateway(&mut findings, home, config.as_ref(), runs).await;
        if let Some(model) = config.as_ref().and_then(|c| c.agent.model.as_ref()) {
            running::model(&mut Layer { name: "model", findings: &mut findings }, model).await;
        }
        Ok(())
    })?;
    report(&findings, context)
}

fn report(findings: &[Finding], context: &Context) -> Result<(), Failure> {
    let count = |verdict| findings.iter().filter(|f| f.verdict == verdict).count();
    let (warned, failed) = (count(Verdict::Warn), count(Verdict::Fail));
    if context.json {
        context.out.json(&json!({ "ok": failed == 0, "findings": findings }))?;
    } else {
        for finding in findings {
            let mark = match finding.verdict {
                Verdict::Ok => "ok  ",
                Verdict::Warn => "WARN",
                Verdict::Fail => "FAIL",
            };
            context.out.line(format!("{mark}  {:<9} {}", finding.layer, finding.what))?;
            if let Some(remedy) = &finding.remedy {
                context.out.line(format!("                do: {remedy}"))?;
            }
        }
    }
    if failed > 0 {
        return Err(Failure::failed(
            format!("faults: {failed}, warnings: {warned}"),
            "follow the remedies above, the first one first",
        ));
    }
    if context.json { Ok(()) } else { context.out.line(format!("\nNo fault found, {warned} warnings.")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use std::os::unix::fs::PermissionsExt as _;

    fn collect(f: impl FnOnce(&mut Layer<'_>)) -> Vec<Finding> {
        let mut findings = Vec::new();
        f(&mut Layer { name: "test", findings: &mut findings });
        findings
    }

    fn worst(findings: &[Finding]) -> Verdict {
        let mut worst = Verdict::Ok;
        for f in findings {
            assert!(f.verdict == Verdict::Ok || f.remedy.as_ref().is_some_and(|r| !r.is_empty()), "{f:?}");
            worst = match (worst, f.verdict) {
                (Verdict::Fail, _) | (_, Verdict::Fail) => Verdict::Fail,
                (Verdict::Warn, _) | (_, Verdict::Warn) => Verdict::Warn,
                _ => Verdict::Ok,
            };
        }
        worst
    }

    #[test]
    fn faults_of_the_directory_are_found_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(&dir.path().join("none")));
        assert_eq!(worst(&collect(|l| assert!(!state::home(l, &home)))), Verdict::Warn);
        home.create().unwrap();
        assert_eq!(worst(&collect(|l| assert!(state::home(l, &home)))), Verdict::Ok);
        crate::keys::HubKeys::open(&home).unwrap();
        assert_eq!(worst(&collect(|l| state::keys(l, &home))), Verdict::Ok);
        std::fs::set_permissions(home.hub_key(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(worst(&collect(|l| state::keys(l, &home))), Verdict::Fail);
        std::fs::write(home.tls(), "broken").unwrap();
        assert!(collect(|l| state::keys(l, &home)).iter().any(|f| f.what.contains("tls.pem")));
        std::fs::set_permissions(home.root(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(worst(&collect(|l| assert!(state::home(l, &home)))), Verdict::Fail);
        std::fs::write(home.config(), "[gateway]\nprot = 5\n").unwrap();
        assert_eq!(worst(&collect(|l| assert!(state::config(l, &home).is_none()))), Verdict::Fail);
    }

    #[test]
    fn a_damaged_database_and_a_running_hub_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        home.create().unwrap();
        drop(crate::store::Store::open(&home.database()).unwrap());
        assert_eq!(worst(&collect(|l| state::database(l, &home))), Verdict::Ok);
        // A home of its own: the closing store may still write its log back into the first one's file.
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        home.create().unwrap();
        std::fs::write(home.database(), vec![7; 8192]).unwrap();
        assert_eq!(worst(&collect(|l| state::database(l, &home))), Verdict::Fail);
        assert!(!state::lock(&mut Layer { name: "t", findings: &mut Vec::new() }, &home));
        let _lock = home.lock().unwrap();
        assert!(state::lock(&mut Layer { name: "t", findings: &mut Vec::new() }, &home));
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = crate::config::Config::default();
        config.gateway.port = taken.local_addr().unwrap().port();
        let mut findings = Vec::new();
        running::gateway(&mut findings, &home, Some(&config), false).await;
        assert_eq!(worst(&findings), Verdict::Fail);
    }
}
