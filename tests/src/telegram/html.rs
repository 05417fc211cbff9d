//! Telegram's HTML: which tags there are, that they nest, and what is seen of them.

/// The words that people see; an error as the real one words it.
pub(super) fn visible(html: &str) -> Result<String, String> {
    const TAGS: [&str; 9] = ["b", "i", "u", "s", "a", "code", "pre", "blockquote", "tg-spoiler"];
    let fail = |why: &str| Err(format!("Bad Request: can't parse entities: {why}"));
    let mut text = String::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = html;
    while let Some(c) = rest.chars().next() {
        match c {
            '<' => {
                let Some(end) = rest.find('>') else { return fail("Unclosed start tag") };
                let tag = &rest[1..end];
                if let Some(name) = tag.strip_prefix('/') {
                    if open.pop().as_deref() != Some(name) {
                        return fail("Unmatched end tag");
                    }
                } else {
                    let name = tag.split_whitespace().next().unwrap_or_default();
                    if !TAGS.contains(&name) {
                        return fail(&format!("Unsupported start tag \"{name}\""));
                    }
                    open.push(name.into());
                }
                rest = &rest[end + 1..];
            }
            '&' => {
                let known = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"')];
                match known.iter().find(|(entity, _)| rest.starts_with(entity)) {
                    Some((entity, c)) => {
                        text.push(*c);
                        rest = &rest[entity.len()..];
                    }
                    None => {
                        text.push('&');
                        rest = &rest[1..];
                    }
                }
            }
            c => {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    if open.is_empty() { Ok(text) } else { fail("Can't find end tag") }
}
