//! Names: which node, camera, pin or sensor a sentence means.

use super::words::{Words, alike, cut, is_han};
use super::{Choice, Intent};
use std::collections::BTreeSet;

/// What people call things in the other language; a node named `pump` is also 水泵.
const TRANSLATIONS: &[(&str, &str)] = &[
    ("车库", "garage"),
    ("温室", "greenhouse"),
    ("大棚", "greenhouse"),
    ("水泵", "pump"),
    ("泵", "pump"),
    ("花园", "garden"),
    ("院子", "yard"),
    ("厨房", "kitchen"),
    ("客厅", "living room"),
    ("卧室", "bedroom"),
    ("浴室", "bathroom"),
    ("办公室", "office"),
    ("书房", "study"),
    ("地下室", "basement"),
    ("地下室", "cellar"),
    ("阁楼", "attic"),
    ("阳台", "balcony"),
    ("走廊", "hall"),
    ("门口", "entrance"),
    ("大门", "gate"),
    ("门", "door"),
    ("窗", "window"),
    ("台灯", "lamp"),
    ("灯", "light"),
    ("灯", "lamp"),
    ("风扇", "fan"),
    ("加热器", "heater"),
    ("暖气", "heating"),
    ("阀门", "valve"),
    ("水阀", "valve"),
    ("继电器", "relay"),
    ("按钮", "button"),
    ("开关", "switch"),
    ("插座", "socket"),
    ("插座", "plug"),
    ("水箱", "tank"),
    ("鱼缸", "aquarium"),
    ("鸡舍", "coop"),
    ("棚", "shed"),
    ("前", "front"),
    ("后", "back"),
    ("室外", "outdoor"),
    ("室外", "outside"),
    ("室内", "indoor"),
    ("土壤", "soil"),
    ("处理器", "cpu"),
    ("温度", "temperature"),
    ("湿度", "humidity"),
];

/// Something a sentence may mean.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Node name.
    pub(super) node: String,
    /// Names and id of the part; empty for the node itself.
    pub(super) part: Vec<String>,
    /// The part for people.
    pub(super) shown: String,
    /// What would be done.
    pub(super) intent: Intent,
    /// Only when its own name was said: temperature of a processor, for example.
    pub(super) aside: bool,
}

/// Result of choosing.
#[derive(Debug)]
pub(super) enum Pick {
    /// This one.
    One(Intent),
    /// One of these: ask.
    Many(Vec<Choice>),
    /// A name was said that fits none.
    NoSuch(String),
    /// There is nothing of the kind.
    Nothing,
}

/// How sure a choice must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mention {
    /// The only one there is may be meant without a name.
    Optional,
    /// What moves something is never guessed: its name must be said, or a question is asked.
    Part,
}

/// Score of a name in a sentence, 0 when it is not meant, and the words that carried it.
pub(super) fn score(words: &Words, name: &str) -> (f64, Vec<usize>) {
    let direct = score_words(words, &cut(name));
    translations(name)
        .into_iter()
        .map(|other| score_words(words, &cut(&other)))
        .fold(direct, |best, next| if next.0 > best.0 { next } else { best })
}

/// The name with its known parts in the other language.
fn translations(name: &str) -> Vec<String> {
    let folded = cut(name);
    let joined = folded.join(" ");
    let han: String = folded.iter().filter(|w| w.starts_with(is_han)).map(String::as_str).collect();
    let mut found = Vec::new();
    for (zh, en) in TRANSLATIONS {
        if folded.iter().any(|w| w == en) || (en.contains(' ') && joined.contains(en)) {
            found.push((*zh).to_owned());
        }
        if han.contains(zh) {
            found.push((*en).to_owned());
        }
    }
    found
}

fn score_words(words: &Words, name: &[String]) -> (f64, Vec<usize>) {
    if name.is_empty() {
        return (0.0, Vec::new());
    }
    if name.iter().all(|w| w.starts_with(is_han)) {
        return score_han(words, name);
    }
    let mut hits = Vec::new();
    let mut sum = 0.0;
    for wanted in name {
        // The 1 of `for 1 minute` is not that of `valve 1`.
        let free = |i: usize| wanted.parse::<f64>().is_err() || !words.words[i].used;
        let hit = (0..words.len()).find(|&i| free(i) && same_name(wanted, words.get(i)));
        if let Some(i) = hit {
            hits.push(i);
            sum += if words.get(i) == wanted { 1.0 } else { 0.9 };
        }
    }
    // A number alone (`2` of `pump 2`) or a word every name has is no mention.
    let telling =
        hits.iter().any(|&i| !GENERIC.contains(&words.get(i)) && words.get(i).parse::<f64>().is_err());
    let share = sum / name.len() as f64;
    if (telling || hits.len() == name.len()) && share >= 0.45 {
        (share + 0.1 * hits.len() as f64, hits)
    } else {
        (0.0, Vec::new())
    }
}

const GENERIC: &[&str] = &["camera", "sensor", "pin", "node", "pi", "board", "the", "in", "of", "a", "cam"];

fn same_name(wanted: &str, said: &str) -> bool {
    alike(wanted, said)
        || (wanted.len() >= 3 && said.strip_suffix('s') == Some(wanted))
        || (wanted.len() >= 3 && wanted.strip_suffix('s') == Some(said))
        || (wanted.len() >= 4
            && said.len() >= 4
            && !(wanted.is_empty() || said.is_empty())
            && wanted.chars().next() == said.chars().next()
            && (strsim::normalized_damerau_levenshtein(wanted, said) >= 0.8 || swapped(wanted, said)))
}

/// The same letters, two neighbours in the wrong order: a slip of the fingers even in a short word.
fn swapped(a: &str, b: &str) -> bool {
    a.len() == b.len() && strsim::damerau_levenshtein(a, b) == 1 && strsim::levenshtein(a, b) == 2
}

/// The whole name in a row, or most of its pairs of neighbours.
fn score_han(words: &Words, name: &[String]) -> (f64, Vec<usize>) {
    let run = |part: &[String]| -> Option<usize> {
        (0..(words.len() + 1).saturating_sub(part.len()))
            .find(|&at| part.iter().enumerate().all(|(i, w)| w == words.get(at + i)))
    };
    if let Some(at) = run(name) {
        return (1.0 + 0.1 * name.len() as f64, (at..at + name.len()).collect());
    }
    if name.len() < 3 {
        return (0.0, Vec::new());
    }
    let pairs = name.len() - 1;
    let found: Vec<usize> = name.windows(2).filter_map(run).collect();
    let share = found.len() as f64 / pairs as f64;
    if share >= 0.5 {
        let hits: BTreeSet<usize> = found.iter().flat_map(|&at| [at, at + 1]).collect();
        (share, hits.into_iter().collect())
    } else {
        (0.0, Vec::new())
    }
}

/// Chooses among candidates, and marks the words that named the choice as used.
pub(super) fn pick(words: &mut Words, candidates: Vec<Candidate>, mention: Mention) -> Pick {
    if candidates.is_empty() {
        return Pick::Nothing;
    }
    let mut used = BTreeSet::new();
    let mut scored: Vec<(f64, f64, Candidate)> = Vec::new();
    for candidate in candidates {
        let (node, node_hits) = score(words, &candidate.node);
        let (part, part_hits) = candidate
            .part
            .iter()
            .map(|name| score(words, name))
            .fold((0.0, Vec::new()), |best, next| if next.0 > best.0 { next } else { best });
        if node > 0.0 {
            used.extend(node_hits);
        }
        if part > 0.0 {
            used.extend(part_hits);
        }
        let part = if candidate.aside && part < 0.9 { part * 0.5 - 0.05 } else { part };
        scored.push((node + part, part, candidate));
    }
    for i in used {
        words.mark(i..i + 1);
    }
    let best = scored.iter().map(|s| s.0).fold(f64::MIN, f64::max);
    if best <= 0.0
        && let Some(name) = words.unknown_name()
    {
        return Pick::NoSuch(name);
    }
    let part_said = scored.iter().any(|s| s.1 > 0.0);
    let close: Vec<Candidate> = scored.into_iter().filter(|s| s.0 > best - 0.05).map(|s| s.2).collect();
    if mention == Mention::Part
        && !part_said
        && let Some(name) = words.unknown_name()
    {
        return Pick::NoSuch(name);
    }
    match <[Candidate; 1]>::try_from(close) {
        Ok([only]) if mention == Mention::Optional || part_said => Pick::One(only.intent),
        Ok([only]) => Pick::Many(vec![choice(only)]),
        Err(close) => Pick::Many(close.into_iter().take(9).map(choice).collect()),
    }
}

fn choice(candidate: Candidate) -> Choice {
    let label = candidate.label();
    let Candidate { node, part: mut names, intent, .. } = candidate;
    names.push(node);
    Choice { label, names, intent }
}

impl Candidate {
    /// `Front camera (greenhouse)`, or the node's name.
    pub(super) fn label(&self) -> String {
        if self.shown.is_empty() || self.shown == self.node {
            self.node.clone()
        } else {
            format!("{} ({})", self.shown, self.node)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(text: &str, name: &str) -> f64 {
        score(&Words::new(text), name).0
    }

    #[test]
    fn names_are_found_in_both_scripts_with_slips() {
        for (text, name) in [
            ("picture in the garage", "garage"),
            ("picture in the garag", "garage"),
            ("how warm is my green house", "green-house"),
            ("拍一张车库的照片", "garage"),
            ("open the pump", "水泵"),
            ("二号温室的温度", "二号温室"),
            ("温室二号", "二号温室"),
            ("turn on the lights", "light"),
            ("turn the pmup on", "pump"),
            ("Lüfter an", "lufter"),
            ("living room lamp", "Living Room"),
        ] {
            assert!(hit(text, name) > 0.0, "{text} / {name}");
        }
        for (text, name) in [
            ("picture in the kitchen", "garage"),
            ("turn on the lamp", "pump"),
            ("the camera", "front camera"),
            ("拍一张厨房的照片", "车库"),
            ("pump 2", "relay 2"),
        ] {
            assert!(hit(text, name) <= 0.0, "{text} / {name}");
        }
    }

    #[test]
    fn the_whole_name_beats_a_part_of_it() {
        assert!(hit("garage", "garage") > hit("garage", "garage door"));
        assert!(hit("garage door", "garage door") > hit("garage door", "garage"));
    }
}
