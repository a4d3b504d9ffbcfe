//! The HTML document around charts and tables: one file without network references and scripts, for
//! screens of any width, in light and dark mode, and for print.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use longhaul_core::text::escape_lines;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use sha2::{Digest, Sha256};

use crate::style::STYLE;

/// The style sheet of a page with text, tables and charts.
pub const PAGE_STYLE: &str = include_str!("page.css");

/// Returns a page with the content `main` that uses no network and no script.
pub fn document(title: &str, main: &Markup) -> String {
    frame(title, main, &markup! {}, None)
}

/// Returns a page with the content `main` and a Content-Security-Policy: the page loads nothing,
/// and the browser applies no style and runs no script except these by their digests. `script` must
/// be a constant of the program.
pub fn sealed_document(title: &str, main: &Markup, script: Option<&'static str>) -> String {
    let style = digest(&[PAGE_STYLE, STYLE].concat());
    let script_source = script.map_or_else(|| "'none'".to_owned(), digest);
    // Images: a script draws figures from blobs to export them.
    let policy = format!(
        "default-src 'none'; style-src {style}; script-src {script_source}; img-src blob: data:; \
         base-uri 'none'; form-action 'none'"
    );
    let head = markup! { meta http-equiv="Content-Security-Policy" content=(policy); };
    frame(title, main, &head, script)
}

/// Returns the source expression of an inline element (CSP level 3, section 2.3.1).
fn digest(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text.as_bytes())))
}

fn frame(title: &str, main: &Markup, head: &Markup, script: Option<&'static str>) -> String {
    let document = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                (head)
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(PAGE_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                main { (main) }
                @if let Some(script) = script { script { (PreEscaped(script)) } }
            }
        }
    };
    // Maud escapes markup, but not characters that hide or reorder text.
    escape_lines(&document.into_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_page_permits_its_own_style_and_script_only() {
        let page = sealed_document("t", &markup! {}, Some("let a = 1;"));
        // printf 'let a = 1;' | openssl dgst -sha256 -binary | base64
        let expected = "script-src 'sha256-xY6QKfH9PRsQnLz56nj6MBwiK5oHg+im1Jkpdp1x/Ck='";
        assert!(page.contains(expected), "{page}");
        let style = page.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next());
        assert!(page.contains(&digest(style.unwrap())), "the digest is that of the style");
        assert!(sealed_document("t", &markup! {}, None).contains("script-src 'none'"));
    }

    #[test]
    fn a_title_is_escaped_and_the_page_is_one_file() {
        let page = document("<b>\u{202e}", &markup! { p { "x" } });
        assert!(page.contains("<title>&lt;b&gt;%E2%80%AE</title>"), "{page}");
        for outside in ["<script", "<link", "src=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
