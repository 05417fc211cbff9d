//! From a reply to the messages that carry it.

use super::capabilities::{Capabilities, Limit, in_words};
use super::message::{Part, Reply, Text};
use super::split::split;

/// The messages of a reply, in order. `begun`: its first words stand in the conversation already, as a
/// message that will be edited; then the first part is a text.
#[must_use]
pub fn parts(reply: &Reply, can: &Capabilities, begun: bool) -> Vec<Part> {
    let Some(caption) = can.pictures else { return texts(&can.text_of(reply), can.text, can.text) };
    let (shown, named): (Vec<_>, Vec<_>) = reply.media.iter().partition(|m| m.mime.starts_with("image/"));
    let mut text = reply.text.clone();
    for media in named {
        text.push('\n');
        text.push_str(&in_words(media));
    }
    let mut pictures = shown.into_iter().cloned();
    let first = if begun { None } else { pictures.next() };
    let mut parts = match first {
        None => texts(&text, can.text, can.text),
        Some(picture) => {
            // The words go under the first picture as far as they fit, the rest follows.
            let mut pieces = split(&text, caption, can.text).into_iter();
            let caption = Text::markdown(pieces.next().unwrap_or_default());
            let rest = pieces.map(|body| Part::Text { text: Text::markdown(body) });
            std::iter::once(Part::Picture { picture, caption }).chain(rest).collect()
        }
    };
    parts.extend(pictures.map(|picture| Part::Picture { picture, caption: Text::plain("") }));
    parts
}

fn texts(text: &str, first: Limit, further: Limit) -> Vec<Part> {
    split(text, first, further).into_iter().map(|body| Part::Text { text: Text::markdown(body) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::capabilities::Unit;
    use super::*;
    use crate::nodes::Media;

    const CAN: Capabilities = Capabilities {
        text: Limit { max: 40, unit: Unit::Chars },
        pictures: Some(Limit { max: 10, unit: Unit::Chars }),
        ..Capabilities::PLAIN
    };

    fn reply(text: &str, pictures: usize) -> Reply {
        let media = (0..pictures)
            .map(|i| Media {
                id: i.to_string(),
                path: format!("/m/{i}.jpg").into(),
                mime: "image/jpeg".into(),
                size: 1,
                sha256: hearth_shared::identity::Digest([0; 32]),
            })
            .collect();
        Reply { text: text.into(), media, failure: None }
    }

    fn shape(parts: &[Part]) -> Vec<String> {
        let one = |p: &Part| match p {
            Part::Picture { picture, caption } => format!("#{} {}", picture.id, caption.body),
            other => other.text().body.clone(),
        };
        parts.iter().map(one).collect()
    }

    #[test]
    fn words_go_under_the_first_picture_and_what_is_too_long_follows() {
        assert_eq!(shape(&parts(&reply("Here.", 2), &CAN, false)), ["#0 Here.", "#1 "]);
        assert_eq!(
            shape(&parts(&reply("Here it is, taken now", 1), &CAN, false)),
            ["#0 Here it", "is, taken now"]
        );
    }

    #[test]
    fn what_was_streamed_stays_a_text() {
        assert_eq!(shape(&parts(&reply("Here.", 1), &CAN, true)), ["Here.", "#0 "]);
    }

    #[test]
    fn without_pictures_there_are_words() {
        let plain = Capabilities { pictures: None, ..CAN };
        assert_eq!(shape(&parts(&reply("Here.", 1), &plain, false)), ["Here.\n/m/0.jpg (image/jpeg, 1 KB)"]);
        assert!(parts(&reply("", 0), &CAN, false).is_empty());
    }
}
