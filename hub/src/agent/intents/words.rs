//! A sentence as the grammar sees it: folded, cut into words, each marked once a rule has used it.
//!
//! Latin text is cut at spaces and marks, digits from letters (`20s` is `20`, `s`); every Han character
//! is a word of its own, so that a phrase of either script is a run of words.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// Words of a sentence that are looked at; more is no request to a node.
const MAX_WORDS: usize = 256;

/// Language of a reply: that of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lang {
    /// English.
    En,
    /// Chinese.
    Zh,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) used: bool,
}

/// A sentence.
#[derive(Debug, Clone)]
pub(super) struct Words {
    pub(super) words: Vec<Word>,
    pub(super) lang: Lang,
    /// It ends like a question.
    pub(super) question: bool,
}

pub(super) fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Cuts a text into folded words.
pub(super) fn cut(text: &str) -> Vec<String> {
    let folded: Vec<char> =
        text.nfkd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase).collect();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for (i, &c) in folded.iter().enumerate() {
        let next = folded.get(i + 1).copied().unwrap_or(' ');
        let before = i.checked_sub(1).map_or(' ', |j| folded[j]);
        let digits = word.starts_with(|c: char| c.is_ascii_digit() || c == '-') && word != "-";
        if is_han(c) {
            flush(&mut words, &mut word);
            words.push(c.to_string());
        } else if c == '.' && digits && next.is_ascii_digit() && !word.contains('.') {
            word.push(c);
        } else if c == '-' && next.is_ascii_digit() && !before.is_alphanumeric() {
            flush(&mut words, &mut word);
            word.push(c);
        } else if (c == '\'' || c == '\u{2019}') && before.is_alphanumeric() && next == 's' {
            // `night's`: the s goes with the mark.
            flush(&mut words, &mut word);
            word.push('\'');
        } else if c.is_alphanumeric() {
            let number = word.is_empty() || digits || word == "-";
            if !word.is_empty() && c.is_ascii_digit() != number {
                flush(&mut words, &mut word);
            }
            word.push(c);
        } else {
            flush(&mut words, &mut word);
        }
    }
    flush(&mut words, &mut word);
    words
}

fn flush(words: &mut Vec<String>, word: &mut String) {
    let done = std::mem::take(word);
    if !done.is_empty() && done != "'s" && done != "-" && words.len() < MAX_WORDS {
        words.push(done.trim_start_matches('\'').to_owned());
    }
}

impl Words {
    pub(super) fn new(text: &str) -> Self {
        let words: Vec<Word> = cut(text).into_iter().map(|text| Word { text, used: false }).collect();
        let han = words.iter().any(|w| w.text.starts_with(is_han));
        let ends =
            text.trim_end().ends_with(['?', '？', '吗', '呢', '么']) || text.contains(['吗', '?', '？']);
        Self { words, lang: if han { Lang::Zh } else { Lang::En }, question: ends }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    pub(super) fn get(&self, i: usize) -> &str {
        self.words.get(i).map_or("", |w| w.text.as_str())
    }

    /// Where a phrase stands first; a long Latin word may hold a slip of the finger.
    pub(super) fn find(&self, phrase: &str) -> Option<Range<usize>> {
        let wanted = cut(phrase);
        if wanted.is_empty() || wanted.len() > self.len() {
            return None;
        }
        (0..=self.len() - wanted.len())
            .find(|&at| wanted.iter().enumerate().all(|(i, w)| alike(w, self.get(at + i))))
            .map(|at| at..at + wanted.len())
    }

    pub(super) fn has(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|p| self.find(p).is_some())
    }

    /// Marks every phrase that is there as used, and says whether one was.
    pub(super) fn take(&mut self, phrases: &[&str]) -> bool {
        let mut found = false;
        for phrase in phrases {
            if let Some(range) = self.find(phrase) {
                self.mark(range);
                found = true;
            }
        }
        found
    }

    pub(super) fn mark(&mut self, range: Range<usize>) {
        for word in self.words.iter_mut().take(range.end).skip(range.start) {
            word.used = true;
        }
    }

    /// Words that no rule used and that mean something.
    pub(super) fn left(&self) -> Vec<(usize, &str)> {
        self.words
            .iter()
            .enumerate()
            .filter(|(_, w)| !w.used && !STOP.contains(&w.text.as_str()))
            .map(|(i, w)| (i, w.text.as_str()))
            .collect()
    }

    /// What is left, as text for a reply: the words behind `in`, `of`, `is` and the like; in Chinese any
    /// two characters in a row. This is what somebody named and nobody knows.
    pub(super) fn unknown_name(&self) -> Option<String> {
        let left = self.left();
        let mut names: Vec<(usize, String)> = Vec::new();
        for (i, text) in left {
            let han = text.starts_with(is_han);
            match names.last_mut() {
                Some((end, name)) if *end == i => {
                    if !han {
                        name.push(' ');
                    }
                    name.push_str(text);
                    *end = i + 1;
                }
                _ if han || CUES.contains(&self.get(i.wrapping_sub(1))) => names.push((i + 1, text.into())),
                _ => {}
            }
        }
        names.into_iter().map(|(_, n)| n).find(|n| !n.starts_with(is_han) || n.chars().count() >= 2)
    }
}

/// Equal, or a long word with one slip.
pub(super) fn alike(a: &str, b: &str) -> bool {
    a == b
        || (a.len() >= 6
            && b.len() >= 5
            && a.is_ascii()
            && b.is_ascii()
            && strsim::normalized_damerau_levenshtein(a, b) >= 0.83)
}

const CUES: &[&str] =
    &["in", "of", "from", "at", "inside", "the", "my", "our", "is", "are", "was", "it", "on", "by", "for"];

/// Words that say nothing about what is wanted.
const STOP: &[&str] = &[
    "the",
    "a",
    "an",
    "of",
    "in",
    "on",
    "at",
    "my",
    "our",
    "me",
    "us",
    "please",
    "pls",
    "can",
    "could",
    "would",
    "you",
    "will",
    "i",
    "we",
    "to",
    "is",
    "are",
    "was",
    "were",
    "be",
    "been",
    "what",
    "which",
    "how",
    "who",
    "does",
    "do",
    "did",
    "it",
    "its",
    "this",
    "that",
    "there",
    "now",
    "currently",
    "current",
    "right",
    "just",
    "tell",
    "give",
    "get",
    "let",
    "for",
    "with",
    "from",
    "and",
    "or",
    "hey",
    "hi",
    "hello",
    "hearth",
    "check",
    "see",
    "know",
    "want",
    "like",
    "need",
    "some",
    "any",
    "much",
    "many",
    "ok",
    "okay",
    "then",
    "so",
    "by",
    "inside",
    "here",
    "thanks",
    "all",
    "take",
    "s",
    "if",
    "than",
    "moment",
    "as",
    "have",
    "has",
    "value",
    "reading",
    "go",
    "out",
    "thank",
    "的",
    "了",
    "吗",
    "呢",
    "吧",
    "啊",
    "在",
    "里",
    "请",
    "帮",
    "我",
    "你",
    "您",
    "一",
    "下",
    "个",
    "张",
    "把",
    "给",
    "现",
    "是",
    "多",
    "有",
    "这",
    "那",
    "到",
    "们",
    "面",
    "想",
    "要",
    "看",
    "能",
    "可",
    "以",
    "会",
    "来",
    "去",
    "都",
    "和",
    "么",
    "什",
    "着",
    "将",
    "让",
    "为",
    "内",
    "中",
    "边",
    "过",
    "得",
    "很",
    "今",
    "查",
    "问",
    "告",
    "诉",
    "就",
    "当",
    "前",
    "值",
    "它",
    "他",
    "哪",
    "些",
    "几",
    "道",
    "知",
    "应",
    "该",
    "需",
    "度",
    "热",
    "冷",
    "次",
    "少",
    "每",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_scripts_numbers_and_units() {
        for (text, words) in [
            ("Turn it on for 20s", "turn it on for 20 s"),
            ("last night's minimum?", "last night minimum"),
            ("把水泵打开２０秒", "把 水 泵 打 开 20 秒"),
            ("above -1.5°C", "above -1.5 c"),
            ("Café Lüftung", "cafe luftung"),
            ("a-b_c.d 3.x", "a b c d 3 x"),
            ("pump2", "pump 2"),
        ] {
            assert_eq!(cut(text).join(" "), words, "{text}");
        }
    }

    #[test]
    fn slips_are_forgiven_in_long_words_only() {
        assert!(Words::new("temprature").find("temperature").is_some());
        assert!(Words::new("minimum").find("maximum").is_none());
        assert!(Words::new("on").find("off").is_none());
    }
}
