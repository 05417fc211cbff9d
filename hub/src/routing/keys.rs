//! Session keys: which conversation a message belongs to.
//!
//! | conversation | key |
//! | --- | --- |
//! | the owner's main chat | `agent:main:main` |
//! | direct messages, by [`DmScope`] | `agent:main:direct:PEER`, `agent:main:CHANNEL:direct:PEER`, `agent:main:CHANNEL:ACCOUNT:direct:PEER` |
//! | a group, and a thread in it | `agent:main:CHANNEL:group:ID`, `…:thread:ID` |

use serde::{Deserialize, Serialize};

/// Longest key.
pub const MAX_KEY: usize = 512;

/// How direct messages are kept apart, the widest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DmScope {
    /// All of them share the main chat.
    #[default]
    Main,
    /// One conversation a person, over all channels.
    PerPeer,
    /// One a person and channel.
    PerChannelPeer,
    /// One a person, channel and account of ours there.
    PerAccountChannelPeer,
}

/// A key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is no session key: {why}; use `main` or `agent:main:…`")]
pub struct KeyError {
    key: String,
    why: &'static str,
}

/// The key of a direct message.
#[must_use]
pub fn direct(scope: DmScope, channel: &str, account: &str, peer: &str) -> String {
    let (channel, account, peer) = (part(channel), part(account), part(peer));
    match scope {
        DmScope::Main => "agent:main:main".into(),
        DmScope::PerPeer => format!("agent:main:direct:{peer}"),
        DmScope::PerChannelPeer => format!("agent:main:{channel}:direct:{peer}"),
        DmScope::PerAccountChannelPeer => format!("agent:main:{channel}:{account}:direct:{peer}"),
    }
}

/// The key of a group, or of a thread in it.
#[must_use]
pub fn group(channel: &str, id: &str, thread: Option<&str>) -> String {
    let key = format!("agent:main:{}:group:{}", part(channel), part(id));
    match thread {
        Some(thread) => format!("{key}:thread:{}", part(thread)),
        None => key,
    }
}

/// One part of a key: lower case, and never a colon, so that no peer can choose another's conversation.
fn part(text: &str) -> String {
    let text = text.trim().to_lowercase();
    let plain = |c: char| c.is_alphanumeric() || "-_.+@".contains(c);
    if !text.is_empty() && text.chars().count() <= 64 && text.chars().all(plain) {
        return text;
    }
    let clean: String = text.chars().map(|c| if plain(c) { c } else { '_' }).take(40).collect();
    // What was cut or replaced is told apart by a digest: two people never share one key.
    format!("{clean}~{}", &hearth_shared::identity::Digest::of(text.as_bytes()).to_string()[..16])
}

/// `main` (or nothing) becomes `agent:main:main`, another short name `agent:main:NAME`; long forms are
/// checked and stay.
///
/// # Errors
/// [`KeyError`].
pub fn resolve(text: &str) -> Result<String, KeyError> {
    let text = text.trim();
    let bad = |why| KeyError { key: hearth_shared::identity::display_safe(text, 64), why };
    if text.is_empty() || text == "main" {
        return Ok("agent:main:main".into());
    }
    if text.len() > MAX_KEY {
        return Err(bad("longer than 512 bytes"));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || hearth_shared::identity::is_deceptive(c)) {
        return Err(bad("it holds a space or an invisible character"));
    }
    let long = if text.starts_with("agent:") { text.to_owned() } else { format!("agent:main:{text}") };
    let mut parts = long.split(':').skip(1);
    if parts.next() != Some("main") {
        return Err(bad("there is only the agent `main`"));
    }
    let rest: Vec<&str> = parts.collect();
    if rest.is_empty() || rest.iter().any(|p| p.is_empty()) {
        return Err(bad("a part is empty"));
    }
    Ok(long)
}

/// `main`, `direct`, `group` or `thread`.
#[must_use]
pub fn kind_of(key: &str) -> &'static str {
    let has = |wanted: &str| key.split(':').skip(2).any(|p| p == wanted);
    if has("thread") {
        "thread"
    } else if has("group") {
        "group"
    } else if has("direct") {
        "direct"
    } else {
        "main"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_forms_become_long_and_long_forms_stay() {
        for (text, key) in [
            ("main", "agent:main:main"),
            ("", "agent:main:main"),
            ("kitchen", "agent:main:kitchen"),
            ("agent:main:direct:ann", "agent:main:direct:ann"),
        ] {
            assert_eq!(resolve(text).unwrap(), key);
        }
        for bad in ["agent:other:main", "agent:main:", "agent:main", "a b", "agent:main:a::b", "x\u{202e}y"] {
            assert!(resolve(bad).is_err(), "{bad}");
        }
        assert!(resolve(&"x".repeat(600)).is_err());
    }

    #[test]
    fn scopes_keep_people_apart_as_far_as_they_say() {
        let key = |scope| direct(scope, "Telegram", "bot1", "Ann");
        assert_eq!(key(DmScope::Main), "agent:main:main");
        assert_eq!(key(DmScope::PerPeer), "agent:main:direct:ann");
        assert_eq!(key(DmScope::PerChannelPeer), "agent:main:telegram:direct:ann");
        assert_eq!(key(DmScope::PerAccountChannelPeer), "agent:main:telegram:bot1:direct:ann");
        assert_eq!(
            serde_json::to_string(&DmScope::PerAccountChannelPeer).unwrap(),
            r#""per-account-channel-peer""#
        );
    }

    #[test]
    fn kinds() {
        assert_eq!(kind_of("agent:main:main"), "main");
        assert_eq!(kind_of("agent:main:telegram:direct:1"), "direct");
        assert_eq!(kind_of("agent:main:telegram:group:1:thread:2"), "thread");
    }

    proptest! {
        #[test]
        fn no_peer_name_reaches_another_conversation(peer in ".{0,80}", other in "[a-z]{1,8}") {
            let key = direct(DmScope::PerPeer, "c", "a", &peer);
            prop_assert_eq!(key.split(':').count(), 4);
            prop_assert_eq!(resolve(&key), Ok(key.clone()));
            if peer.trim().to_lowercase() != other {
                prop_assert_ne!(key, direct(DmScope::PerPeer, "c", "a", &other));
            }
            let _ = resolve(&peer);
        }
    }
}
