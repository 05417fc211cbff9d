//! Methods: what clients may ask, one file a family, one table for all.
//!
//! A method is a function from typed, closed parameters to a typed result. The table says who may call it;
//! the schema of both types is committed in `hub/schema/`.

mod agent;
pub(crate) mod approvals;
mod chat;
mod config;
pub(crate) mod device_pair;
pub(crate) mod health;
mod hearth;
pub(crate) mod node_pair;
mod node_role;
mod nodes;
mod push;
mod system;
mod withdraw;

use super::Gateway;
use super::answer::{Answer, forbidden, invalid, missing_scope};
use super::clients::Client;
use super::params;
use crate::devices::Scope;
use futures_util::future::BoxFuture;
use hearth_shared::connect::Role;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// A request on its way.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) client: Arc<Client>,
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl Call {
    /// Reads the parameters.
    fn read<T: DeserializeOwned>(&mut self) -> Answer<T> {
        params::read(&self.method, std::mem::take(&mut self.params))
    }

    /// A first answer; the method's result follows with the same id.
    pub(crate) fn answer_first(&self, payload: &impl Serialize) {
        self.client.outbound.answer(&self.id, encode(payload));
    }

    /// Refuses a caller that lacks a right.
    pub(crate) fn require(&self, scope: Scope) -> Answer<()> {
        if self.client.may(scope) { Ok(()) } else { Err(missing_scope(scope)) }
    }

    /// Refuses a caller that may not decide approvals or speak for the owner's keys.
    pub(crate) fn require_decider(&self) -> Answer<()> {
        self.require(Scope::Approvals)?;
        if self.client.may_decide() {
            return Ok(());
        }
        Err(forbidden(
            "deciding needs a device key: a client that holds only the token file may look, not decide; \
             use `hearth approvals` on this machine or a paired device",
        ))
    }
}

fn encode(value: &impl Serialize) -> Value {
    // Results are plain structs with string keys: they always encode.
    serde_json::to_value(value).unwrap_or_default()
}

/// Who may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Operators with this right.
    Operator(Scope),
    /// Nodes.
    Node,
    /// Everybody.
    Any,
}

/// What happens to a running method when its caller leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It comes to its end: half a change is worse than one nobody waits for.
    Finish,
    /// It is dropped, and with it what it waits for.
    Withdraw,
}

/// An entry of the table.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) access: Access,
    leaving: Leaving,
    run: fn(Call) -> BoxFuture<'static, Answer<Value>>,
    schemas: fn(&mut SchemaGenerator) -> (Schema, Schema),
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Method({})", self.name)
    }
}

impl Method {
    /// Schemas of parameters and result.
    pub(crate) fn schemas(&self, generator: &mut SchemaGenerator) -> (Schema, Schema) {
        (self.schemas)(generator)
    }
}

/// An entry: name, who, function from (call, parameters) to a result; `leaving` where it is dropped with
/// its caller.
macro_rules! method {
    ($name:literal, $access:expr, $run:path, $params:ty => $result:ty) => {
        method!($name, $access, $run, $params => $result, Finish)
    };
    ($name:literal, $access:expr, $run:path, $params:ty => $result:ty, $leaving:ident) => {
        $crate::gateway::methods::Method {
            name: $name,
            access: $access,
            leaving: $crate::gateway::methods::Leaving::$leaving,
            run: |mut call| {
                Box::pin(async move {
                    let params: $params = call.read()?;
                    let result: $result = $run(call, params).await?;
                    Ok($crate::gateway::methods::encode(&result))
                })
            },
            schemas: |generator| {
                (generator.subschema_for::<$params>(), generator.subschema_for::<$result>())
            },
        }
    };
}
use method;

/// All methods, by family.
pub(crate) const FAMILIES: &[(&str, &[Method])] = &[
    ("system", system::METHODS),
    ("config", config::METHODS),
    ("chat", chat::METHODS),
    ("agent", agent::METHODS),
    ("node", nodes::METHODS),
    ("device.pair", device_pair::METHODS),
    ("node.pair", node_pair::METHODS),
    ("node.role", node_role::METHODS),
    ("approval", approvals::METHODS),
    ("push", push::METHODS),
    ("hearth", hearth::METHODS),
];

/// No parameters.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

fn all() -> impl Iterator<Item = &'static Method> {
    FAMILIES.iter().flat_map(|(_, methods)| methods.iter())
}

/// Names for `hello-ok`: what this role may call at all.
pub(crate) fn names(role: Role) -> Vec<&'static str> {
    all()
        .filter(|m| match m.access {
            Access::Operator(_) => role == Role::Operator,
            Access::Node => role == Role::Node,
            Access::Any => true,
        })
        .map(|m| m.name)
        .collect()
}

/// Runs a request and sends its answer.
pub(crate) async fn run(call: Call) {
    let (client, id) = (Arc::clone(&call.client), call.id.clone());
    match dispatch(call).await {
        Ok(payload) => client.outbound.answer(&id, payload),
        Err(error) => client.outbound.fail(&id, error),
    }
}

async fn dispatch(call: Call) -> Answer<Value> {
    let Some(method) = all().find(|m| m.name == call.method) else {
        return Err(invalid(format!(
            "unknown method: {}",
            hearth_shared::identity::display_safe(&call.method, 100)
        )));
    };
    match method.access {
        Access::Any => {}
        Access::Operator(_) if call.client.role != Role::Operator => {
            return Err(invalid(format!("unauthorized role: {}", call.client.role.as_str())));
        }
        Access::Node if call.client.role != Role::Node => {
            return Err(invalid(format!("unauthorized role: {}", call.client.role.as_str())));
        }
        Access::Operator(scope) => call.require(scope)?,
        Access::Node => {}
    }
    tracing::debug!(method = method.name, client = call.client.conn_id, "call");
    match method.leaving {
        Leaving::Withdraw => (method.run)(call).await,
        Leaving::Finish => {
            let tasks = call.gateway.hub.tasks.tracker.clone();
            let running = tasks.spawn((method.run)(call));
            running.await.unwrap_or_else(|_| Err(super::answer::unavailable("the hub is stopping")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for method in all() {
            assert!(seen.insert(method.name), "{} stands twice", method.name);
        }
    }
}
