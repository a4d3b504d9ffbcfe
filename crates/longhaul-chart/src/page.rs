//! The style sheets of drawings and pages, and the HTML page around drawings.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use longhaul_core::text::escape_lines;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};
use sha2::{Digest, Sha256};

/// The style sheet of a drawing in light and dark mode; the drawing or its page must contain it.
///
/// The palette is that of Okabe and Ito ("Color Universal Design", 2008), with yellow and sky blue
/// darkened to be legible on white, and lightened counterparts on dark. Print is always light.
pub const STYLE: &str = "\
.plot{--ground:#fff;--ink:#1c2430;--soft:#5b6675;--grid:#e4e8ee;--edge:#d5dbe3;\
--c0:#0072b2;--c1:#d55e00;--c2:#00805d;--c3:#b5508d;--c4:#8a6d00;--c5:#2f86b8;--c6:#444b55;--c7:#a33b20;\
font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
@media screen and (prefers-color-scheme:dark){.plot{--ground:#161b22;--ink:#e6eaf0;--soft:#9aa6b5;\
--grid:#2a323d;--edge:#2f3945;--c0:#56b4e9;--c1:#ff8a3d;--c2:#2ec99b;--c3:#e38fc3;--c4:#f0c93a;\
--c5:#8fc7ea;--c6:#c3cad3;--c7:#f0856a}}\
.plot .ground{fill:var(--ground);stroke:var(--edge)}\
.plot text{fill:var(--ink)}.plot .title{font-size:16px;font-weight:600}\
.plot .head{font-weight:600}\
.plot .soft{fill:var(--soft);font-size:12px}.plot .end{text-anchor:end}\
.plot .middle{text-anchor:middle}\
.plot .up{text-anchor:middle;transform-box:fill-box;transform-origin:center;transform:rotate(-90deg)}\
.plot line{stroke:var(--grid);stroke-width:1}.plot .axis{stroke:var(--soft)}\
.plot polyline{fill:none;stroke-linejoin:round}\
.plot .line{stroke:var(--c);stroke-width:2.2;stroke-linecap:butt}\
.plot .d1 .line{stroke-dasharray:8 4}.plot .d2 .line{stroke-dasharray:2.5 3.5}\
.plot .d3 .line{stroke-dasharray:10 3 2.5 3}\
.plot .trace{stroke-width:1.8}.plot .gap{stroke-dasharray:1 7;stroke-opacity:.6}\
.plot .range{stroke:var(--c);stroke-width:5;stroke-opacity:.28;stroke-linecap:round}\
.plot .leader{stroke:var(--c);stroke-opacity:.55}\
.plot .mark{fill:var(--c);stroke:var(--ground);stroke-width:1.2}\
.plot .open{fill:var(--ground);stroke:var(--c);stroke-width:2}\
.plot .cross{fill:none;stroke:var(--ink);stroke-width:1.8}\
.plot .dark{fill:#10151c;font-weight:600}.plot .light{fill:#fff;font-weight:600}\
.plot .bar{fill:var(--c);fill-opacity:.85}\
.plot .name{fill:var(--c);font-weight:600;white-space:pre}\
.plot .s0{--c:var(--c0)}.plot .s1{--c:var(--c1)}.plot .s2{--c:var(--c2)}.plot .s3{--c:var(--c3)}\
.plot .s4{--c:var(--c4)}.plot .s5{--c:var(--c5)}.plot .s6{--c:var(--c6)}.plot .s7{--c:var(--c7)}\
.plot .in{fill:var(--c2);fill-opacity:.5;stroke:var(--c2);stroke-width:1}\
.plot .in-peak{fill:var(--c2);fill-opacity:.17}\
.plot .out{fill:none;stroke:var(--c0);stroke-width:1.7;stroke-linejoin:round}\
.plot .out-peak{fill:none;stroke:var(--c3);stroke-width:1;stroke-linejoin:round}\
.plot .in-high{stroke:var(--c2);stroke-width:1.2;stroke-dasharray:2 4}\
.plot .out-high{stroke:var(--c0);stroke-width:1.2;stroke-dasharray:2 4}\
.plot .capacity{stroke:var(--c1);stroke-width:1.2;stroke-dasharray:9 4}\
.plot .void{fill:var(--soft);fill-opacity:.13}";

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
