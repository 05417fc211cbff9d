//! From Markdown to the HTML that Telegram takes: bold, italic, struck out, code, quotes, links. Everything
//! else stays as it was written. What would hide words (a spoiler) cannot come out of it.

/// Escapes what HTML would read.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// A text in HTML.
pub(super) fn html(markdown: &str) -> String {
    let mut out = String::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(info) = fence(line) {
            let language: String =
                info.chars().filter(|c| c.is_ascii_alphanumeric() || "+-#".contains(*c)).collect();
            let mut code = Vec::new();
            for inner in lines.by_ref() {
                if fence(inner).is_some() {
                    break;
                }
                code.push(inner);
            }
            let code = escape(&code.join("\n"));
            if language.is_empty() {
                out.push_str(&format!("<pre>{code}</pre>"));
            } else {
                out.push_str(&format!(
                    "<pre><code class=\"language-{}\">{code}</code></pre>",
                    escape(&language)
                ));
            }
        } else if let Some(title) = heading(line) {
            out.push_str(&format!("<b>{}</b>", escape(title)));
        } else if let Some(item) = line.trim_start().strip_prefix("* ") {
            let indent = &line[..line.len() - line.trim_start().len()];
            out.push_str(&format!("{indent}• {}", inline(item)));
        } else {
            out.push_str(&inline(line));
        }
        if lines.peek().is_some() {
            out.push('\n');
        }
    }
    out
}

fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("```").or_else(|| line.strip_prefix("~~~")).map(str::trim)
}

fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    ((1..=6).contains(&level) && title.starts_with(' ')).then(|| title.trim())
}

/// One line. Marks count only in pairs, and not in the middle of words.
fn inline(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    let mut before = ' ';
    'next: while let Some(c) = rest.chars().next() {
        if c == '`'
            && let Some(end) = rest[1..].find('`').filter(|n| *n > 0)
        {
            out.push_str(&format!("<code>{}</code>", escape(&rest[1..=end])));
            (rest, before) = (&rest[end + 2..], '`');
            continue;
        }
        if c == '['
            && let Some((words, address, after)) = link(rest)
        {
            out.push_str(&format!("<a href=\"{}\">{}</a>", escape(address), escape(words)));
            (rest, before) = (after, ')');
            continue;
        }
        if !before.is_alphanumeric() {
            for (mark, tag) in [("**", "b"), ("__", "b"), ("~~", "s"), ("*", "i"), ("_", "i")] {
                if let Some((inner, after)) = pair(rest, mark) {
                    out.push_str(&format!("<{tag}>{}</{tag}>", inline(inner)));
                    (rest, before) = (after, ' ');
                    continue 'next;
                }
            }
        }
        out.push_str(&escape(&rest[..c.len_utf8()]));
        (rest, before) = (&rest[c.len_utf8()..], c);
    }
    out
}

/// `**inner**`, closed before a character that is no letter, with nothing empty inside.
fn pair<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let body = text.strip_prefix(mark)?;
    if body.starts_with(char::is_whitespace) || body.starts_with(&mark[..1]) {
        return None;
    }
    let mut from = 0;
    while let Some(found) = body[from..].find(mark) {
        let at = from + found;
        let (inner, after) = (&body[..at], &body[at + mark.len()..]);
        let opens_another = mark.len() == 1 && after.starts_with(mark);
        let inside_word = after.starts_with(|c: char| c.is_alphanumeric());
        let closes =
            !(inner.is_empty() || inner.ends_with(char::is_whitespace) || inside_word || opens_another);
        if closes {
            return Some((inner, after));
        }
        from = at + mark.len();
    }
    None
}

/// A link to a page: `[words](https://…)`. Other schemes are no links.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let middle = text.find("](")?;
    let words = &text[1..middle];
    let rest = &text[middle + 2..];
    let end = rest.find(')')?;
    let address = &rest[..end];
    let page = address.starts_with("https://") || address.starts_with("http://");
    let plain = !address.chars().any(|c| c.is_whitespace() || c.is_control());
    (page && plain && !words.is_empty() && !words.contains(['[', '\n'])).then_some((
        words,
        address,
        &rest[end + 1..],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_assistants_write() {
        for (markdown, wanted) in [
            ("plain & <b>x</b>", "plain &amp; &lt;b&gt;x&lt;/b&gt;"),
            ("**bold** and *thin* and ~~gone~~", "<b>bold</b> and <i>thin</i> and <s>gone</s>"),
            ("**a *b* c**", "<b>a <i>b</i> c</b>"),
            ("snake_case_name 2*3*4 a * b", "snake_case_name 2*3*4 a * b"),
            ("`a <b>` x", "<code>a &lt;b&gt;</code> x"),
            ("[here](https://e.org/?a=1&b=2)", "<a href=\"https://e.org/?a=1&amp;b=2\">here</a>"),
            ("[no](javascript:x)", "[no](javascript:x)"),
            ("[no](https://e.org/\"onclick=\"x)", "<a href=\"https://e.org/&quot;onclick=&quot;x\">no</a>"),
            ("# Title\n* one\n- two", "<b>Title</b>\n• one\n- two"),
            (
                "```rust\nlet a = 1 < 2;\n```\nend",
                "<pre><code class=\"language-rust\">let a = 1 &lt; 2;</code></pre>\nend",
            ),
            ("```\"><b>\nx", "<pre><code class=\"language-b\">x</code></pre>"),
            ("||spoiler||", "||spoiler||"),
            ("**open", "**open"),
            ("", ""),
        ] {
            assert_eq!(html(markdown), wanted, "{markdown}");
        }
    }

    proptest! {
        #[test]
        fn tags_are_ours_and_nest(text in "[a-c*_~`\\[\\]()<>&\"# \n]{0,80}") {
            let html = html(&text);
            let mut open = Vec::new();
            let mut rest = html.as_str();
            while let Some(at) = rest.find('<') {
                let end = rest[at..].find('>').map(|e| at + e);
                prop_assert!(end.is_some(), "{html}");
                let tag = &rest[at + 1..end.unwrap()];
                if let Some(name) = tag.strip_prefix('/') {
                    prop_assert_eq!(open.pop(), Some(name.to_owned()), "{}", html);
                } else {
                    let name = tag.split(' ').next().unwrap();
                    prop_assert!(["b", "i", "s", "a", "code", "pre"].contains(&name), "{}", html);
                    open.push(name.to_owned());
                }
                rest = &rest[end.unwrap() + 1..];
            }
            prop_assert!(open.is_empty(), "{}", html);
        }
    }
}
