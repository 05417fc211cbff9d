//! Who may talk with the hub on a channel, and which conversation that is: pure rules.
//!
//! | who, where | what happens |
//! | --- | --- |
//! | a known person, directly | admitted; decides approvals only if he is listed for that |
//! | an unknown person, directly | by `direct`: a pairing code and nothing else, or silence, or admitted |
//! | anybody in a listed group | admitted when the hub is spoken to; never decides |
//! | forwards, anonymous administrators, other bots | never decide |

use super::keys::{self, DmScope};
use crate::channels::message::{ConversationKind, Incoming};
use crate::config::{AccessConfig, DirectPolicy, GroupPolicy};

/// What the hub knows of a sender beside the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// He was let in.
    pub allowed: bool,
    /// He was let in as one who may decide.
    pub may_decide: bool,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on to the router.
    Admit {
        /// Long form.
        session: String,
        /// Whether this message may decide an approval.
        may_decide: bool,
    },
    /// The sender gets a pairing code and nothing else.
    Knock,
    /// Nothing; the reason is for the log.
    Ignore(&'static str),
}

/// Whether a person may decide approvals on a channel at all (in the direct chat).
#[must_use]
pub fn may_decide(rules: &AccessConfig, person: &str, known: Known) -> bool {
    rules.direct != DirectPolicy::Disabled
        && (known.may_decide || rules.approvers.iter().any(|a| a == person))
}

/// Judges a message.
#[must_use]
pub fn judge(rules: &AccessConfig, known: Known, channel: &str, message: &Incoming) -> Verdict {
    match message.conversation.kind {
        ConversationKind::Direct => judge_direct(rules, known, channel, message),
        ConversationKind::Group => judge_group(rules, channel, message),
    }
}

fn judge_direct(rules: &AccessConfig, known: Known, channel: &str, message: &Incoming) -> Verdict {
    let person = &message.sender.id;
    let decides = may_decide(rules, person, known);
    let allowed = decides || known.allowed || rules.allow.iter().any(|a| a == person);
    match rules.direct {
        DirectPolicy::Disabled => return Verdict::Ignore("direct messages are off"),
        DirectPolicy::Allowlist if !allowed => return Verdict::Ignore("not on the list"),
        DirectPolicy::Pairing if !allowed => return Verdict::Knock,
        _ => {}
    }
    let scope = rules.sessions.unwrap_or(if decides { DmScope::Main } else { DmScope::PerChannelPeer });
    // Who is not known never shares the owner's conversation, whatever the setting.
    let scope = if allowed { scope } else { scope.max(DmScope::PerChannelPeer) };
    let session = keys::direct(scope, channel, "default", person);
    Verdict::Admit { session, may_decide: decides && message.genuine }
}

fn judge_group(rules: &AccessConfig, channel: &str, message: &Incoming) -> Verdict {
    match rules.groups {
        GroupPolicy::Disabled => return Verdict::Ignore("groups are off"),
        GroupPolicy::Allowlist if !rules.allow_groups.contains(&message.conversation.id) => {
            return Verdict::Ignore("the group is not on the list");
        }
        _ => {}
    }
    if rules.mention && !message.addressed {
        return Verdict::Ignore("not spoken to");
    }
    let thread = message.conversation.thread.as_deref();
    Verdict::Admit { session: keys::group(channel, &message.conversation.id, thread), may_decide: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::message::{Conversation, Person};

    fn direct(person: &str) -> Incoming {
        Incoming {
            id: "1".into(),
            conversation: Conversation::direct(person),
            sender: Person { id: person.into(), name: "Ann".into() },
            text: "hello".into(),
            attachments: Vec::new(),
            addressed: true,
            genuine: true,
        }
    }

    fn in_group(person: &str, addressed: bool) -> Incoming {
        let conversation =
            Conversation { id: "-5".into(), kind: ConversationKind::Group, thread: Some("7".into()) };
        Incoming { conversation, addressed, ..direct(person) }
    }

    fn rules(change: impl FnOnce(&mut AccessConfig)) -> AccessConfig {
        let mut rules = AccessConfig { approvers: vec!["1".into()], ..AccessConfig::default() };
        rules.allow = vec!["2".into()];
        change(&mut rules);
        rules
    }

    fn admitted(session: &str, may_decide: bool) -> Verdict {
        Verdict::Admit { session: session.into(), may_decide }
    }

    #[test]
    fn by_default_only_known_people_talk_and_only_listed_ones_decide() {
        let rules = rules(|_| {});
        let judge = |message: &Incoming| judge(&rules, Known::default(), "t", message);
        assert_eq!(judge(&direct("1")), admitted("agent:main:main", true));
        assert_eq!(judge(&direct("2")), admitted("agent:main:t:direct:2", false));
        assert_eq!(judge(&direct("3")), Verdict::Knock);
        assert!(matches!(judge(&in_group("1", true)), Verdict::Ignore(_)));
    }

    #[test]
    fn forwards_and_the_like_never_decide() {
        let message = Incoming { genuine: false, ..direct("1") };
        assert_eq!(
            judge(&rules(|_| {}), Known::default(), "t", &message),
            admitted("agent:main:main", false)
        );
    }

    #[test]
    fn a_group_is_listed_spoken_to_and_never_decides() {
        let rules = rules(|r| r.allow_groups = vec!["-5".into()]);
        let judge = |message: &Incoming| judge(&rules, Known::default(), "t", message);
        assert_eq!(judge(&in_group("1", true)), admitted("agent:main:t:group:-5:thread:7", false));
        assert_eq!(judge(&in_group("9", true)), admitted("agent:main:t:group:-5:thread:7", false));
        assert!(matches!(judge(&in_group("1", false)), Verdict::Ignore(_)));
    }

    #[test]
    fn policies() {
        let one = |policy| rules(|r| r.direct = policy);
        let known = Known { allowed: true, may_decide: false };
        let judge = |rules: &AccessConfig, known, person| judge(rules, known, "t", &direct(person));
        assert!(matches!(judge(&one(DirectPolicy::Disabled), known, "1"), Verdict::Ignore(_)));
        assert!(matches!(judge(&one(DirectPolicy::Allowlist), Known::default(), "3"), Verdict::Ignore(_)));
        assert!(matches!(judge(&one(DirectPolicy::Allowlist), known, "3"), Verdict::Admit { .. }));
        assert_eq!(
            judge(&one(DirectPolicy::Open), Known::default(), "3"),
            admitted("agent:main:t:direct:3", false)
        );
        assert!(!may_decide(&one(DirectPolicy::Disabled), "1", Known::default()));
    }

    #[test]
    fn a_stranger_never_shares_the_owners_conversation() {
        let rules = rules(|r| {
            r.direct = DirectPolicy::Open;
            r.sessions = Some(DmScope::Main);
        });
        assert_eq!(
            judge(&rules, Known::default(), "t", &direct("3")),
            admitted("agent:main:t:direct:3", false)
        );
        assert_eq!(judge(&rules, Known::default(), "t", &direct("2")), admitted("agent:main:main", false));
    }
}
