//! `push.web.*`: a page asks to be told when it is closed.

use super::{Access, Call, Method, NoParams, method};
use crate::devices::Scope;
use crate::gateway::answer::{Answer, Outward as _, forbidden, invalid};
use crate::notify::SubscribeError;
use crate::notify::webpush::Keys;
use crate::store::StoreError;
use hearth_shared::frame::ErrorShape;
use hearth_shared::identity::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const READ: Access = Access::Operator(Scope::Read);

pub(super) const METHODS: &[Method] = &[
    method!("push.web.vapidPublicKey", READ, key, NoParams => Key),
    method!("push.web.subscribe", READ, subscribe, SubscribeParams => Subscribed),
    method!("push.web.unsubscribe", READ, unsubscribe, UnsubscribeParams => Unsubscribed),
];

/// What `PushManager.subscribe` takes as `applicationServerKey`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Key {
    /// P-256 public key, base64url.
    vapid_public_key: String,
}

async fn key(call: Call, _: NoParams) -> Answer<Key> {
    Ok(Key { vapid_public_key: call.gateway.hub.notify.public_key() })
}

/// A subscription belongs to a device, and ends with it.
fn device(call: &Call) -> Answer<DeviceId> {
    call.client
        .device_id()
        .ok_or_else(|| forbidden("only a paired device can be told: this client has no device key"))
}

/// `PushSubscription.toJSON()`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SubscribeParams {
    endpoint: String,
    /// As the browser gives it; not used.
    #[serde(default, rename = "expirationTime")]
    _expiration_time: Option<u64>,
    keys: Keys,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Subscribed {
    ok: bool,
}

async fn subscribe(call: Call, params: SubscribeParams) -> Answer<Subscribed> {
    let device = device(&call)?;
    let notify = &call.gateway.hub.notify;
    notify.subscribe(device, params.endpoint, &params.keys).await.map_err(SubscribeError::outward)?;
    Ok(Subscribed { ok: true })
}

impl crate::gateway::answer::Outward for SubscribeError {
    fn outward(self) -> ErrorShape {
        match self {
            Self::Store(error) => error.outward(),
            other => invalid(other.to_string()),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnsubscribeParams {
    endpoint: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Unsubscribed {
    /// Whether there was one.
    removed: bool,
}

async fn unsubscribe(call: Call, params: UnsubscribeParams) -> Answer<Unsubscribed> {
    let device = device(&call)?;
    let removed = call.gateway.hub.notify.unsubscribe(device, params.endpoint).await;
    Ok(Unsubscribed { removed: removed.map_err(StoreError::outward)? })
}
