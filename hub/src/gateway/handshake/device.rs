//! Whether a client holds the key it names: the checks, in the order the protocol documents.

use super::Refusal;
use super::params::ConnectParams;
use crate::gateway::answer::invalid;
use hearth_shared::connect::JsonProof;
use hearth_shared::identity::{DeviceId, PublicKey, Signature};
use hearth_shared::limits::SIGNED_AT_SKEW_MS;
use serde_json::json;

/// A device whose key is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proved {
    pub(crate) id: DeviceId,
    pub(crate) key: PublicKey,
}

fn refuse(message: &str, code: &str, reason: &str) -> Refusal {
    invalid(message).with_details(json!({ "code": code, "reason": reason })).into()
}

/// Checks `params.device` if it is there. `nonce` is the one this socket was challenged with; a socket has
/// one connect, so it is used once. A key that cannot be read has no id and fails the first check.
pub(super) fn check(params: &ConnectParams, nonce: &str, now_ms: u64) -> Result<Option<Proved>, Refusal> {
    let Some(device) = &params.device else { return Ok(None) };
    let key = PublicKey::from_wire(&device.public_key).ok();
    let Some(key) = key.filter(|k| k.device_id().to_string() == device.id) else {
        return Err(refuse(
            "device identity mismatch",
            "DEVICE_AUTH_DEVICE_ID_MISMATCH",
            "device-id-mismatch",
        ));
    };
    if now_ms.abs_diff(device.signed_at) > SIGNED_AT_SKEW_MS.unsigned_abs() {
        return Err(refuse(
            "device signature expired",
            "DEVICE_AUTH_SIGNATURE_EXPIRED",
            "device-signature-stale",
        ));
    }
    if device.nonce.trim().is_empty() {
        return Err(refuse("device nonce required", "DEVICE_AUTH_NONCE_REQUIRED", "device-nonce-missing"));
    }
    if device.nonce != nonce {
        return Err(refuse("device nonce mismatch", "DEVICE_AUTH_NONCE_MISMATCH", "device-nonce-mismatch"));
    }
    let proof = JsonProof {
        device_id: &device.id,
        client_id: params.client.id.as_str(),
        client_mode: params.client.mode.as_str(),
        role: params.role.as_deref().unwrap_or("operator"),
        scopes: &params.scopes,
        signed_at_ms: i64::try_from(device.signed_at).unwrap_or(i64::MAX),
        token: params.auth.signed_token(),
        nonce,
        platform: &params.client.platform,
        device_family: params.client.device_family.as_deref().unwrap_or_default(),
    };
    let verified = Signature::from_wire(&device.signature).is_ok_and(|s| proof.verify(&key, &s).is_ok());
    if !verified {
        return Err(refuse("device signature invalid", "DEVICE_AUTH_SIGNATURE_INVALID", "device-signature"));
    }
    Ok(Some(Proved { id: key.device_id(), key }))
}
