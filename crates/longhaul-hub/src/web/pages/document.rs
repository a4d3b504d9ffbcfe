//! A JSON document of an agent in a page, as indented text of a bounded length.

use std::io::{self, Write};

use maud::{Markup, html};
use serde_json::Value as Json;

/// The maximum number of bytes of the text. A hostile document of nested lists has 85 times the bytes of
/// its compact form, and a page has several copies of its texts in memory.
const MOST_BYTES: usize = 1 << 20;

/// Returns the text of a document that a reader can open. A long text is cut.
pub(super) fn details(summary: &str, document: &Json) -> Markup {
    let (text, is_cut) = indented(document, MOST_BYTES);
    html! {
        details.more { summary { (summary) }
            pre { (text) }
            @if is_cut { p.soft { "The page has the first " (MOST_BYTES >> 10) " KiB of the document." } }
        }
    }
}

/// Returns at most `most` bytes of the indented text of a document, and whether it is longer.
fn indented(document: &Json, most: usize) -> (String, bool) {
    let mut text = Bounded { text: Vec::new(), most };
    let is_cut = serde_json::to_writer_pretty(&mut text, document).is_err();
    let mut text = text.text;
    if let Err(error) = std::str::from_utf8(&text) {
        // The end is within a character.
        text.truncate(error.valid_up_to());
    }
    (String::from_utf8(text).unwrap_or_default(), is_cut)
}

/// Keeps the first bytes that are written, and fails at the next one.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.most.saturating_sub(self.text.len()).min(bytes.len());
        self.text.extend_from_slice(&bytes[..room]);
        if room > 0 || bytes.is_empty() { Ok(room) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_a_document_is_bounded() {
        let small = json!({"a": [1, "<b>"]});
        let whole = serde_json::to_string_pretty(&small).unwrap();
        assert_eq!(indented(&small, whole.len()), (whole.clone(), false));
        assert_eq!(indented(&small, whole.len() - 1), (whole[..whole.len() - 1].to_owned(), true));
        assert_eq!(indented(&json!("\u{20ac}\u{20ac}"), 6), ("\"\u{20ac}".to_owned(), true));
        // A text of 24 kB becomes one of 2 MB without the limit.
        let nested = format!("{}[]{}", "[".repeat(120), "]".repeat(120));
        let nested = nested.replace("[]", &vec!["[]"; 8000].join(","));
        let nested: Json = serde_json::from_str(&nested).unwrap();
        assert!(
            serde_json::to_string_pretty(&nested).unwrap().len()
                > 80 * nested.to_string().len() / 2
        );
        let shown = details("All facts", &nested).into_string();
        assert!(shown.len() < MOST_BYTES + 1000 && shown.contains("first 1024 KiB"));
    }
}
