//! Long texts in pieces that a platform takes.
//!
//! A cut is looked for in the second half of what fits: best between paragraphs, then between lines (and so
//! between the items of a list), after a sentence, between words. Links and inline code stay whole. A code
//! block that has to be cut is closed at the end of a piece and opened again, with its language, at the
//! beginning of the next.

use super::capabilities::Limit;

/// What closes a block that is cut, with the line break before it.
const CLOSE: &str = "\n```";
/// Links longer than this many bytes are cut like anything else.
const LONGEST_LINK: usize = 2048;

/// Splits Markdown. The first piece may have a limit of its own (a caption). Nothing but white space at the
/// cuts is lost. An empty text has no pieces.
#[must_use]
pub fn split(text: &str, first: Limit, further: Limit) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text.trim_end();
    // The line that opened the block which the last cut went through.
    let mut block: Option<String> = None;
    while !rest.trim().is_empty() {
        let limit = if pieces.is_empty() { first } else { further };
        let mut opening = block.as_ref().map(|line| format!("{line}\n")).unwrap_or_default();
        if limit.measure(&opening) * 2 > limit.max {
            // An opening line that leaves no room for code is shortened to the fence alone.
            opening = "```\n".into();
        }
        if limit.measure(&opening) + limit.measure(rest) <= limit.max {
            pieces.push(opening + rest);
            break;
        }
        let closing = if block.is_some() || has_fence(rest) { limit.measure(CLOSE) } else { 0 };
        // Every piece takes at least one character, however small the limit.
        let room = limit.max.saturating_sub(limit.measure(&opening) + closing).max(1);
        let cut = cut_at(rest, Limit { max: room, ..limit }, block.is_some());
        let (head, tail) = rest.split_at(cut);
        let open = open_block(head, block.as_deref());
        let mut piece = opening + head.trim_end();
        if open.is_some() {
            piece.push_str(CLOSE);
        }
        if !head.trim().is_empty() {
            pieces.push(piece);
        }
        // Indentation counts in code, and nowhere else.
        rest = if open.is_some() { tail.strip_prefix('\n').unwrap_or(tail) } else { tail.trim_start() };
        block = open;
    }
    pieces
}

fn is_fence(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("```") || line.starts_with("~~~")
}

fn has_fence(text: &str) -> bool {
    text.lines().any(is_fence)
}

/// The line of the block that is open at the end of `head`, given the one open at its beginning.
fn open_block(head: &str, before: Option<&str>) -> Option<String> {
    let mut open = before.map(str::to_owned);
    for line in head.lines().filter(|l| is_fence(l)) {
        open = if open.is_some() { None } else { Some(line.trim().to_owned()) };
    }
    open
}

/// Where to cut, in bytes: more than 0.
fn cut_at(text: &str, limit: Limit, in_block: bool) -> usize {
    let end = longest_prefix(text, limit);
    if end == text.len() {
        // It fits but for what was set aside for closing a block.
        return end;
    }
    let window = &text[..end];
    let half = floor_boundary(text, end / 2).max(1);
    let whole = atoms(text, end);
    let free = |at: usize| !whole.iter().any(|(from, to)| at > *from && at < *to);
    let open_at = |at: usize| open_block(&window[..at], in_block.then_some("```")).is_some();
    // No cut inside the line of a fence: half a fence is none, and the other half another.
    let fence_line = |at: usize| {
        let start = text[..at].rfind('\n').map_or(0, |n| n + 1);
        let line = text[start..].split('\n').next().unwrap_or_default();
        at > start && at < start + line.len() && is_fence(line)
    };
    let good = |at: &usize| *at >= half && free(*at) && !fence_line(*at);

    let paragraph =
        window.match_indices("\n\n").map(|(at, _)| at).filter(|at| good(at) && !open_at(*at)).last();
    let line = || window.match_indices('\n').map(|(at, _)| at).rfind(good);
    let sentence = || {
        let ends = |at: usize, c: char| match c {
            '.' | '!' | '?' => text[at + 1..].starts_with(char::is_whitespace),
            '。' | '！' | '？' => true,
            _ => false,
        };
        let mut places =
            window.char_indices().filter(|(at, c)| ends(*at, *c)).map(|(at, c)| at + c.len_utf8());
        places.rfind(|at| *at <= end && good(at))
    };
    let word = || {
        let behind = text[end..].starts_with(char::is_whitespace).then_some(end);
        let within = window.char_indices().filter(|(_, c)| c.is_whitespace()).map(|(at, _)| at);
        within.chain(behind).rfind(good)
    };
    let cut = paragraph.or_else(line).or_else(sentence).or_else(word).unwrap_or_else(|| {
        let atom = whole.iter().find(|(from, to)| end > *from && end < *to).map(|(from, _)| *from);
        let fence = || fence_line(end).then(|| window.rfind('\n').unwrap_or(0));
        atom.or_else(fence).filter(|at| *at > 0).unwrap_or_else(|| between_characters(text, end))
    });
    // A block is not opened just to be closed again.
    let head = window[..cut].trim_end();
    let last_line = head.rfind('\n').map_or(0, |at| at + 1);
    if last_line > 0 && is_fence(&head[last_line..]) && open_at(cut) && !head[..last_line].trim().is_empty() {
        return last_line;
    }
    cut
}

/// As many bytes from the beginning as fit, and at least one character.
fn longest_prefix(text: &str, limit: Limit) -> usize {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += limit.measure(c.encode_utf8(&mut [0; 4]));
        if used > limit.max {
            return if at == 0 { c.len_utf8() } else { at };
        }
    }
    text.len()
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The nearest place before `at` where what is seen as one character is not cut: joined emoji, skin tones,
/// accents.
fn between_characters(text: &str, at: usize) -> usize {
    let joins = |c: char| matches!(c, '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' | '\u{300}'..='\u{36f}' | '\u{1f3fb}'..='\u{1f3ff}');
    let mut cut = at;
    for _ in 0..16 {
        let before = text[..cut].chars().next_back();
        if !text[cut..].starts_with(joins) && before != Some('\u{200d}') {
            return cut;
        }
        match before {
            Some(c) if cut > c.len_utf8() => cut -= c.len_utf8(),
            _ => return at,
        }
    }
    at
}

/// Ranges that begin before `end` and are not to be cut: `[words](address)`, bare addresses, `code`.
fn atoms(text: &str, end: usize) -> Vec<(usize, usize)> {
    let text = &text[..floor_boundary(text, (end + LONGEST_LINK).min(text.len()))];
    let mut found = Vec::new();
    let mut at = 0;
    while at < end {
        let here = &text[at..];
        let length = if here.starts_with("http://") || here.starts_with("https://") {
            Some(here.find(char::is_whitespace).unwrap_or(here.len()))
        } else if here.starts_with('[') {
            link(here)
        } else if here.starts_with('`') && !here.starts_with("```") {
            let line = here.split('\n').next().unwrap_or(here);
            line[1..].find('`').map(|i| i + 2)
        } else {
            None
        };
        match length {
            Some(length) if length <= LONGEST_LINK => {
                found.push((at, at + length));
                at += length;
            }
            _ => at += here.chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// Length of a link at the beginning of the text.
fn link(text: &str) -> Option<usize> {
    let line = text.split('\n').next().unwrap_or(text);
    let middle = line.find("](")?;
    if line[1..middle].contains('[') {
        return None;
    }
    line[middle..].find(')').map(|i| middle + i + 1)
}

#[cfg(test)]
mod tests {
    use super::super::capabilities::Unit;
    use super::*;
    use proptest::prelude::*;

    fn chars(max: usize) -> Limit {
        Limit { max, unit: Unit::Chars }
    }

    fn pieces(text: &str, max: usize) -> Vec<String> {
        split(text, chars(max), chars(max))
    }

    #[test]
    fn short_texts_stay_and_empty_ones_are_nothing() {
        assert_eq!(pieces("hello", 10), ["hello"]);
        assert!(pieces("  \n", 10).is_empty());
    }

    #[test]
    fn paragraphs_before_lines_before_sentences_before_words() {
        assert_eq!(pieces("one two\n\nthree\nfour", 14), ["one two", "three\nfour"]);
        assert_eq!(pieces("- alpha\n- beta\n- gamma delta", 16), ["- alpha\n- beta", "- gamma delta"]);
        assert_eq!(pieces("It is. So it goes on", 12), ["It is.", "So it goes", "on"]);
        assert_eq!(pieces("abcdefgh ijkl", 10), ["abcdefgh", "ijkl"]);
        assert_eq!(pieces("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(pieces("今天很冷。明天也很冷。", 8), ["今天很冷。", "明天也很冷。"]);
    }

    #[test]
    fn a_code_block_is_closed_and_opened_again_with_its_language() {
        let code: String = (0..20).map(|i| format!("    let x{i} = {i};\n")).collect();
        let text = format!("See:\n\n```rust\n{code}```\nDone.");
        let pieces = pieces(&text, 120);
        assert!(pieces.len() > 2);
        for piece in &pieces {
            assert!(piece.chars().count() <= 120, "{piece}");
            assert_eq!(piece.lines().filter(|l| is_fence(l)).count() % 2, 0, "{piece}");
        }
        assert!(pieces[1].starts_with("```rust\n    let x"), "{}", pieces[1]);
        let all = pieces.concat();
        for i in 0..20 {
            assert_eq!(all.matches(&format!("let x{i} = {i};")).count(), 1);
        }
    }

    #[test]
    fn links_and_inline_code_stay_whole() {
        let link = "[the manual](https://example.org/a/very/long/path?with=query)";
        let text = format!("Words before it, {link} and words behind it that go on for a while.");
        assert!(pieces(&text, 70).iter().any(|p| p.contains(link)), "{:?}", pieces(&text, 70));
        let bare = "https://example.org/0123456789/0123456789";
        assert!(pieces(&format!("abc def {bare} ghi"), 42).iter().any(|p| p.contains(bare)));
        assert!(pieces("run it with `a b c d e` now", 20).iter().any(|p| p.contains("`a b c d e`")));
    }

    #[test]
    fn what_is_seen_as_one_character_is_not_cut() {
        let family = "👨\u{200d}👩\u{200d}👧";
        for piece in split(&family.repeat(6), chars(7), chars(7)) {
            assert!(!piece.starts_with('\u{200d}') && !piece.ends_with('\u{200d}'), "{piece:?}");
        }
    }

    #[test]
    fn a_caption_may_be_shorter_than_what_follows() {
        let pieces = split(&"word ".repeat(40), chars(20), chars(100));
        assert!(pieces[0].len() <= 20 && pieces[1].len() > 20);
    }

    fn solid(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    proptest! {
        #[test]
        fn every_piece_fits_and_nothing_is_lost(
            text in "[a-zà-ü😀。.!? \n\\[\\]()/:h-]{0,400}", max in 1_usize..90, unit in 0..3
        ) {
            let unit = [Unit::Chars, Unit::Utf16, Unit::Bytes][unit as usize];
            let limit = Limit { max: max + 4, unit };
            let pieces = split(&text, limit, limit);
            for piece in &pieces {
                prop_assert!(limit.fits(piece), "{:?}", piece);
                prop_assert!(!piece.trim().is_empty());
            }
            prop_assert_eq!(solid(&pieces.concat()), solid(&text));
        }

        #[test]
        fn fences_are_balanced_in_every_piece(lines in prop::collection::vec("(```[a-z]{0,4}|[a-z ]{0,30})", 0..40)) {
            let mut text = lines.join("\n");
            if lines.iter().filter(|l| is_fence(l)).count() % 2 == 1 {
                text.push_str("\n```");
            }
            for piece in pieces(&text, 64) {
                prop_assert!(piece.chars().count() <= 64, "{:?}", piece);
                prop_assert_eq!(piece.lines().filter(|l| is_fence(l)).count() % 2, 0, "{:?}", piece);
            }
        }
    }
}
