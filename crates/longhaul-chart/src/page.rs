//! The HTML document around charts and tables: one file without network references and scripts, for
//! screens of any width, in light and dark mode, and for print.

use longhaul_core::text::escape_lines;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use crate::style::STYLE;

/// The style sheet of a page with text, tables and charts.
pub const PAGE_STYLE: &str = include_str!("page.css");

/// Returns a page with the content `main` that uses no network and no script.
pub fn document(title: &str, main: &Markup) -> String {
    let document = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(PAGE_STYLE)) (PreEscaped(STYLE)) }
            }
            body { main { (main) } }
        }
    };
    // Maud escapes markup, but not characters that hide or reorder text.
    escape_lines(&document.into_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_escaped_and_the_page_is_one_file() {
        let page = document("<b>\u{202e}", &markup! { p { "x" } });
        assert!(page.contains("<title>&lt;b&gt;%E2%80%AE</title>"), "{page}");
        for outside in ["<script", "<link", "src=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
