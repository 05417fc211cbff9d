//! What a channel can show, and what becomes of the rest: a picture turns into a line that names it, a
//! button into a command to type.

use super::message::{ApprovalPrompt, Reply};
use crate::nodes::Media;

/// What is counted for a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Unicode characters.
    Chars,
    /// UTF-16 code units, as Telegram and many web clients count.
    Utf16,
    /// Bytes of UTF-8.
    Bytes,
}

/// Longest text of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// So many.
    pub max: usize,
    /// Of these.
    pub unit: Unit,
}

impl Limit {
    /// How long a text is in this limit's unit.
    #[must_use]
    pub fn measure(self, text: &str) -> usize {
        match self.unit {
            Unit::Chars => text.chars().count(),
            Unit::Utf16 => text.encode_utf16().count(),
            Unit::Bytes => text.len(),
        }
    }

    /// Whether a text is short enough.
    #[must_use]
    pub fn fits(self, text: &str) -> bool {
        self.measure(text) <= self.max
    }
}

/// What a channel declares. The conformance suite holds it against the facets that its adapter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Longest text of a message.
    pub text: Limit,
    /// Pictures in the conversation, with captions up to this length.
    pub pictures: Option<Limit>,
    /// Buttons under a message.
    pub buttons: bool,
    /// Its clients show approvals as cards of their own: nothing needs to be sent.
    pub own_cards: bool,
    /// A message that was sent can get another text.
    pub edits: bool,
    /// "Is writing" can be shown.
    pub typing: bool,
    /// Files that people send can be fetched.
    pub files: bool,
    /// Conversations of several people.
    pub groups: bool,
    /// Whether a message whose sending was cut short can be found again.
    pub recovery: bool,
}

impl Capabilities {
    /// The plainest channel there is: words.
    pub const PLAIN: Self = Self {
        text: Limit { max: 4000, unit: Unit::Chars },
        pictures: None,
        buttons: false,
        own_cards: false,
        edits: false,
        typing: false,
        files: false,
        groups: false,
        recovery: false,
    };

    /// The text of a reply here: pictures that cannot be shown become a line each.
    #[must_use]
    pub fn text_of(&self, reply: &Reply) -> String {
        let mut text = reply.text.clone();
        if self.pictures.is_none() {
            for media in &reply.media {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(&in_words(media));
            }
        }
        text
    }

    /// How a person decides here: nothing to say where there are buttons, else the command to type.
    #[must_use]
    pub fn how_to_decide(&self, prompt: &ApprovalPrompt) -> Option<String> {
        (!self.buttons && !self.own_cards).then(|| typed_decision(&prompt.id))
    }

    /// For programs: the names of what it can do.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        [
            ("pictures", self.pictures.is_some()),
            ("buttons", self.buttons),
            ("own-cards", self.own_cards),
            ("edits", self.edits),
            ("typing", self.typing),
            ("files", self.files),
            ("groups", self.groups),
            ("recovery", self.recovery),
        ]
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect()
    }
}

/// A picture in words.
#[must_use]
pub fn in_words(media: &Media) -> String {
    format!("{} ({}, {} KB)", media.path.display(), media.mime, media.size.div_ceil(1024))
}

/// The command that decides an approval.
#[must_use]
pub fn typed_decision(approval: &str) -> String {
    let short = approval.get(..8).unwrap_or(approval);
    format!("/approve {short} allow-once | allow-always | deny")
}

/// What a channel can do, by its name; of one that is not known, the least.
#[must_use]
pub fn can(channel: &str) -> Capabilities {
    super::DECLARED.iter().find(|(name, _)| *name == channel).map_or(Capabilities::PLAIN, |(_, can)| *can)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_channel_cannot_show_becomes_words() {
        let media = Media {
            id: "m".into(),
            path: "/x/a.jpg".into(),
            mime: "image/jpeg".into(),
            size: 2000,
            sha256: hearth_shared::identity::Digest([0; 32]),
        };
        let reply = Reply { text: "Here.".into(), media: vec![media], failure: None };
        assert_eq!(can("terminal").text_of(&reply), "Here.\n/x/a.jpg (image/jpeg, 2 KB)");
        assert_eq!(can("webchat").text_of(&reply), "Here.");
        assert_eq!(can("no such channel"), Capabilities::PLAIN);
        let prompt = ApprovalPrompt { id: "0123456789abcdef".into(), sentence: "x".into() };
        assert!(can("terminal").how_to_decide(&prompt).unwrap().starts_with("/approve 01234567 "));
        assert!(can("webchat").how_to_decide(&prompt).is_none());
        assert_eq!(reply.content()[1]["mediaId"], "m");
    }

    #[test]
    fn units_count_as_their_platforms_do() {
        let limit = |unit| Limit { max: 4, unit };
        let text = "aé😀";
        assert_eq!(limit(Unit::Chars).measure(text), 3);
        assert_eq!(limit(Unit::Utf16).measure(text), 4);
        assert!(!limit(Unit::Bytes).fits(text));
    }
}
