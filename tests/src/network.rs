//! A cable that can be pulled: a network namespace of its own for a node, and the link to it.

use crate::process::skip;
use std::process::{Command, Stdio};

/// A namespace with one virtual cable to this machine. Dropping it removes both.
#[derive(Debug)]
pub struct Cable {
    /// The namespace; see [`crate::Program::move_into`].
    pub namespace: String,
    /// This machine's address on the cable.
    pub address: String,
    device: String,
}

fn ip(args: &[&str]) -> bool {
    run("ip", args)
}

fn run<S: AsRef<std::ffi::OsStr>>(program: &str, args: &[S]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Cable {
    /// Lays a cable; `number` tells those of one test process apart. Where that is not possible the test is
    /// skipped.
    ///
    /// # Panics
    /// In CI, when it is not possible; and when it is and fails half way.
    #[must_use]
    pub fn lay(number: u8) -> Option<Self> {
        let id = std::process::id() % 10_000;
        let namespace = format!("hearth-{id}-{number}");
        let probe = run("tc", &["-V"]) && ip(&["netns", "add", &namespace]);
        if !probe {
            skip("network namespaces need root, `ip` and `tc`");
            return None;
        }
        let (device, far) = (format!("hn{id}x{number}"), format!("hf{id}x{number}"));
        let net = format!("10.{}.{}", 200 + number % 50, id % 250);
        let cable = Self { namespace, address: format!("{net}.1"), device };
        let within = ["netns", "exec", cable.namespace.as_str(), "ip"];
        let inside = |args: &[&str]| ip(&[&within[..], args].concat());
        let laid = ip(&[
            "link",
            "add",
            &cable.device,
            "type",
            "veth",
            "peer",
            "name",
            &far,
            "netns",
            &cable.namespace,
        ]) && ip(&["addr", "add", &format!("{net}.1/30"), "dev", &cable.device])
            && ip(&["link", "set", &cable.device, "up"])
            && inside(&["addr", "add", &format!("{net}.2/30"), "dev", &far])
            && inside(&["link", "set", &far, "up"])
            && inside(&["link", "set", "lo", "up"]);
        assert!(laid, "the cable {} cannot be laid", cable.device);
        Some(cable)
    }

    /// The hub's configuration (what follows its port) to listen on the cable as well.
    #[must_use]
    pub fn config(&self) -> String {
        format!("bind = [\"127.0.0.1\", \"{}\"]\n", self.address)
    }

    /// Pulls the cable.
    ///
    /// # Panics
    /// When that fails.
    pub fn cut(&self) {
        assert!(ip(&["link", "set", &self.device, "down"]), "the cable cannot be cut");
    }

    /// Puts it back.
    ///
    /// # Panics
    /// When that fails.
    pub fn mend(&self) {
        assert!(ip(&["link", "set", &self.device, "up"]), "the cable cannot be mended");
    }

    /// Lets no more than this many kB a second through, each way.
    ///
    /// # Panics
    /// When `tc` refuses it.
    pub fn throttle(&self, kb_per_second: u32) {
        let far = self.device.replacen("hn", "hf", 1);
        let rate = format!("{}bit", kb_per_second * 8_000);
        let shape = |device| {
            [
                "qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate, "burst", "4kb", "latency",
                "400ms",
            ]
            .map(str::to_owned)
        };
        let inside = ["netns", "exec", &self.namespace, "tc"].map(str::to_owned);
        let inside = [&inside[..], &shape(&far)].concat();
        let done = run("ip", &inside) && run("tc", &shape(&self.device));
        assert!(done, "the cable cannot be throttled");
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip(&["link", "del", &self.device]);
        ip(&["netns", "del", &self.namespace]);
    }
}
