//! What a person is told, and how much of it leaves the house.

use crate::config::NotifyLanguage;
use hearth_shared::identity::display_safe;
use serde::Serialize;

/// Characters of a detail.
const MAX_DETAIL: usize = 200;

/// Why a person is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A request waits for a yes or no.
    Approval,
    /// A device wants in, or a node declares something new.
    Pairing,
    /// Something is wrong.
    Alarm,
    /// Asked for by a person who tries it.
    Test,
}

impl Kind {
    /// Its name in payloads and environment variables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Pairing => "pairing",
            Self::Alarm => "alarm",
            Self::Test => "test",
        }
    }
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// Why.
    pub kind: Kind,
    /// Of the approval; empty for others.
    pub id: String,
    /// What exactly. Only told when the configuration lets it ([`Notice::limited`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Notice {
    /// A notice; the detail is escaped and cut.
    #[must_use]
    pub fn new(kind: Kind, id: impl Into<String>, detail: Option<&str>) -> Self {
        Self { kind, id: id.into(), detail: detail.map(|d| display_safe(d, MAX_DETAIL)) }
    }

    /// Without what must not leave the house.
    #[must_use]
    pub fn limited(mut self, details: bool) -> Self {
        if !details {
            self.detail = None;
        }
        self
    }

    /// One line. It begins with words of ours, never with those of others.
    #[must_use]
    pub fn text(&self, language: NotifyLanguage) -> String {
        let words = match (language, self.kind) {
            (NotifyLanguage::En, Kind::Approval) => "A request waits for your yes or no",
            (NotifyLanguage::En, Kind::Pairing) => "A device asks to be let in",
            (NotifyLanguage::En, Kind::Alarm) => "The hub needs your attention",
            (NotifyLanguage::En, Kind::Test) => "Notifications from your hub work",
            (NotifyLanguage::Zh, Kind::Approval) => "有一个请求在等你批准或拒绝",
            (NotifyLanguage::Zh, Kind::Pairing) => "有设备请求加入",
            (NotifyLanguage::Zh, Kind::Alarm) => "中枢需要你查看",
            (NotifyLanguage::Zh, Kind::Test) => "中枢的通知可以送达",
        };
        match &self.detail {
            Some(detail) => format!("{words}: {detail}"),
            None => words.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_stay_at_home_unless_allowed_and_never_lead() {
        let notice = Notice::new(Kind::Approval, "abc", Some("--unlock\nthe door"));
        assert!(notice.text(NotifyLanguage::En).starts_with("A request waits"));
        assert!(!notice.text(NotifyLanguage::En).contains('\n'));
        let limited = notice.limited(false);
        for text in [
            limited.text(NotifyLanguage::En),
            limited.text(NotifyLanguage::Zh),
            serde_json::to_string(&limited).unwrap(),
        ] {
            assert!(!text.contains("door"), "{text}");
        }
    }
}
