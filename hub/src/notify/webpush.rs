//! Web Push (RFC 8030): to browsers whose page is closed, through their makers' services.

mod encrypt;
pub(super) mod subscriptions;

pub use subscriptions::{Keys, Subscription};

use super::{SendError, judge};
use crate::home::Home;
use crate::keys::{self, KeyError};
use crate::store::now_ms;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData as _};
use reqwest::Url;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::json;

/// Services of the makers of browsers. Others only when the configuration names them: the hub does not
/// call whatever address a page hands in.
const SERVICES: [&str; 3] = ["fcm.googleapis.com", "updates.push.services.mozilla.com", "web.push.apple.com"];
/// Services with a host for each region.
const SERVICE_FAMILIES: [&str; 2] = [".push.apple.com", ".notify.windows.com"];
/// How long a signed permission is valid; services refuse more than a day.
const PERMISSION_MS: u64 = 12 * 3_600_000;

/// The hub's identity towards push services (RFC 8292): a key of its own, which says nothing else about it.
#[derive(Debug)]
pub struct Sender {
    key: KeyPair,
    contact: String,
    /// Further services, as origins.
    more: Vec<String>,
}

impl Sender {
    /// Reads the key of the home, or makes one.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn open(home: &Home, contact: String, more: Vec<String>) -> Result<Self, KeyError> {
        Ok(Self { key: keys::load_or_make_p256(&home.push_key())?, contact, more })
    }

    /// What a page subscribes with: the public key, base64url.
    #[must_use]
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.der_bytes())
    }

    /// The endpoint of a subscription, if it is one of a push service.
    #[must_use]
    pub fn allowed(&self, endpoint: &str) -> Option<Url> {
        let url = Url::parse(endpoint).ok()?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return None;
        }
        let origin = url.origin().ascii_serialization();
        let host = url.host_str()?;
        let known = url.scheme() == "https"
            && url.port().is_none()
            && (SERVICES.contains(&host) || SERVICE_FAMILIES.iter().any(|f| host.ends_with(f)));
        (known || self.more.iter().any(|m| m.trim_end_matches('/') == origin)).then_some(url)
    }

    /// Sends one message.
    pub(super) async fn send(
        &self,
        client: &reqwest::Client,
        to: &Subscription,
        text: &str,
        ttl_s: u64,
    ) -> Result<(), SendError> {
        let url = self.allowed(&to.endpoint).ok_or(SendError::Gone)?;
        let refused = |_| SendError::Refused("the browser's key is none".into());
        let body = encrypt::encrypt(&to.p256dh, &to.auth, text.as_bytes()).map_err(refused)?;
        let permission = self.permission(&url).map_err(|_| SendError::Refused("cannot sign".into()))?;
        let request = client
            .post(url)
            .header("authorization", format!("vapid t={permission}, k={}", self.public_key()))
            .header("content-encoding", "aes128gcm")
            .header("content-type", "application/octet-stream")
            .header("ttl", ttl_s.to_string())
            .header("urgency", "high")
            .body(body);
        judge(request.send().await)
    }

    /// A JSON Web Token for the service (ES256).
    fn permission(&self, url: &Url) -> Result<String, ring::error::Unspecified> {
        let claims = json!({
            "aud": url.origin().ascii_serialization(),
            "exp": (now_ms() + PERMISSION_MS) / 1000,
            "sub": self.contact,
        });
        let encode = |v: &serde_json::Value| URL_SAFE_NO_PAD.encode(v.to_string());
        let signed = format!("{}.{}", encode(&json!({ "typ": "JWT", "alg": "ES256" })), encode(&claims));
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, self.key.serialized_der(), &random)
                .map_err(|_| ring::error::Unspecified)?;
        let signature = key.sign(&random, signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    fn sender() -> (tempfile::TempDir, Sender) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()));
        home.create().unwrap();
        let more = vec!["https://push.example:8443".into()];
        let sender = Sender::open(&home, "mailto:a@example.org".into(), more).unwrap();
        (dir, sender)
    }

    #[test]
    fn only_push_services_are_called() {
        let (_dir, sender) = sender();
        for good in [
            "https://fcm.googleapis.com/fcm/send/abc",
            "https://updates.push.services.mozilla.com/wpush/v2/x",
            "https://web.push.apple.com/Qx",
            "https://wns2-db5p.notify.windows.com/w/?token=x",
            "https://push.example:8443/x",
        ] {
            assert!(sender.allowed(good).is_some(), "{good}");
        }
        for bad in [
            "http://fcm.googleapis.com/x",
            "https://fcm.googleapis.com.evil.example/x",
            "https://fcm.googleapis.com:8443/x",
            "https://user@fcm.googleapis.com/x",
            "https://192.168.1.1/x",
            "https://127.0.0.1:18789/x",
            "https://notify.windows.com.evil.example/",
            "https://push.example/x",
            "file:///etc/passwd",
            "",
        ] {
            assert!(sender.allowed(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_permission_is_signed_for_one_service_and_a_limited_time() {
        let (_dir, sender) = sender();
        let token = sender.permission(&"https://push.example:8443/x".parse().unwrap()).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let key = UnparsedPublicKey::new(
            &ECDSA_P256_SHA256_FIXED,
            URL_SAFE_NO_PAD.decode(sender.public_key()).unwrap(),
        );
        key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["aud"], "https://push.example:8443");
        let left = claims["exp"].as_u64().unwrap() - now_ms() / 1000;
        assert!(left <= 12 * 3600 && left > 11 * 3600, "{left}");
    }
}
