//! The ways by which a person who is not looking is told.

use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _};
use crate::gateway::methods::{Access, Call, Method, NoParams, method};
use crate::store::StoreError;
use schemars::JsonSchema;
use serde::Serialize;

const READ: Access = Access::Operator(Scope::Read);
const WRITE: Access = Access::Operator(Scope::Write);

pub(super) const STATUS: Method = method!("hearth.notify.status", READ, status, NoParams => Status);
pub(super) const TEST: Method = method!("hearth.notify.test", WRITE, test, NoParams => Tested, Withdraw);

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The program that is run, without its arguments.
    command: Option<String>,
    /// Host of the ntfy server; the topic is a secret.
    ntfy: Option<String>,
    /// Browsers that are subscribed, and those of the caller's device among them.
    browsers: usize,
    this_device: usize,
    /// Whether notices say what waits, or only that something does.
    details: bool,
}

async fn status(call: Call, _: NoParams) -> Answer<Status> {
    let hub = &call.gateway.hub;
    let config = &hub.config.notify;
    let (browsers, this_device) =
        hub.notify.subscriptions(call.client.device_id()).await.map_err(StoreError::outward)?;
    let host = |url: &String| reqwest::Url::parse(url).ok()?.host_str().map(str::to_owned);
    Ok(Status {
        command: config.command.first().cloned(),
        ntfy: config.ntfy.as_ref().and_then(|n| host(&n.url)),
        browsers,
        this_device,
        details: config.details,
    })
}

/// Every way that was tried; empty when none is set up.
#[derive(Debug, Serialize, JsonSchema)]
struct Tested {
    sent: Vec<Way>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Way {
    /// `command`, `ntfy`, `push`.
    way: String,
    /// Of a browser: its device's name.
    device: Option<String>,
    ok: bool,
    error: Option<String>,
}

async fn test(call: Call, _: NoParams) -> Answer<Tested> {
    let sent = call.gateway.hub.notify.test().await;
    let way = |s: crate::notify::Sent| Way {
        way: s.way.into(),
        device: s.device,
        ok: s.error.is_none(),
        error: s.error,
    };
    Ok(Tested { sent: sent.into_iter().map(way).collect() })
}
