//! The report as one HTML document that needs no network and no script, for screens of any width,
//! in light and dark mode, and for print.

mod best;
mod diagnosis;
mod figure;
mod network;
mod published;
mod repeat;
mod runs;
mod summary;
mod throughput;

use longhaul_chart::sealed_document;
use maud::{Markup, html as markup};

use crate::archive::Contents;
use crate::report::figures::figures;
use crate::table::Table;

pub use diagnosis::diagnosis_html;

/// Sorts and searches the runs, exports figures, and shows that a table continues. The page is
/// complete without it.
const SCRIPT: &str = include_str!("report.js");

/// Renders the report.
pub fn html(contents: &Contents, table: &Table) -> String {
    let plan = &contents.header.plan;
    let figures = figures(contents, table);
    let main = markup! {
        (summary::head(contents, table))
        (section("throughput", "Throughput, Gb/s", &throughput::tables(contents, table)))
        (best::section(contents, table))
        (throughput::ratios(table))
        @if !figures.is_empty() {
            (section("figures", "Figures", &figure::all(&figures)))
        }
        (section("published", "Published figures", &published::section(table)))
        @if let Some(paths) = network::paths(contents) {
            (section("paths", "The paths", &paths))
        }
        (section("emulator", "The emulator", &network::certificate(contents)))
        (section("repeat", "Reproduction", &repeat::section(contents)))
        (section("runs", "All runs", &runs::section(contents, table)))
        footer {
            "Written by longhaul " (env!("CARGO_PKG_VERSION")) " from the archive in "
            "the same directory, which has every run with its samples and output."
        }
    };
    sealed_document(&format!("longhaul matrix: {}", plan.name), &main, Some(SCRIPT))
}

fn section(id: &str, title: &str, body: &Markup) -> Markup {
    markup! { section id=(id) { h2 { (title) } (body) } }
}

/// The number of visible lines of a table; longer tables are collapsed.
const SHOWN: usize = 24;

/// Returns a table, which is collapsed below its title if it has many lines.
fn folded(title: &str, lines: usize, table: &Markup) -> Markup {
    markup! {
        @if lines > SHOWN {
            details.more {
                summary { (title) ": " (lines) " lines" }
                (table)
            }
        } @else {
            h3 { (title) }
            (table)
        }
    }
}

/// Returns a text without line breaks at hyphens, as in `--cleartext`, and between a number and its
/// unit or a short option and its value.
fn label(text: &str) -> Markup {
    let mut parts: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match parts.last_mut() {
            Some(last) if belong_together(last.rsplit(' ').next().unwrap_or_default(), word) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => parts.push(word.to_owned()),
        }
    }
    markup! {
        @for (place, part) in parts.iter().enumerate() {
            @if place > 0 { " " }
            @if part.contains(['-', ' ']) { span.word { (part) } } @else { (part) }
        }
    }
}

fn belong_together(word: &str, next: &str) -> bool {
    let is_unit = next.starts_with(|c: char| c.is_alphabetic() || c == '%');
    let is_short_option = word.len() == 2 && word.starts_with('-') && word != "--";
    (is_unit && word.parse::<f64>().is_ok_and(f64::is_finite))
        || (is_short_option && !next.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_number_stays_with_its_unit_and_an_option_with_its_value() {
        let word = |text: &str| format!("<span class=\"word\">{text}</span>");
        for (text, parts) in [
            ("longhaul cp --cleartext", vec!["longhaul".into(), "cp".into(), word("--cleartext")]),
            ("Disk, 90 ms", vec!["Disk,".into(), word("90 ms")]),
            ("scp -P 8, 2 streams", vec!["scp".into(), word("-P 8,"), word("2 streams")]),
            ("iperf3 far", vec!["iperf3".into(), "far".into()]),
        ] {
            assert_eq!(label(text).into_string(), parts.join(" "));
        }
    }

    #[test]
    fn the_report_is_one_file_with_all_sections() {
        let contents = fixture::contents();
        let page = html(&contents, &Table::fold(&contents));
        for outside in ["<link", "src=", "url(", "@import", "href=\"http"] {
            assert!(!page.contains(outside), "{outside} in the report");
        }
        for said in [
            "reached <span class=\"word\">9.40 Gb/s</span> and rsync",
            "(medians of <span class=\"word\">2 runs;</span> a ratio needs six passes)",
            "not installed",
            "dropped 7 packets",
            "encrypted",
            "near$ scp far",
            "rsync &lt;odd&gt;",
            "No certificate is attached",
            "Throughput against round-trip time",
            "Hoot Thompson",
            "[[entries]]",
            "not measured: no server listens on port 5210",
        ] {
            assert!(page.contains(said), "'{said}' is not in the report");
        }
        let ids = page.matches(" id=\"").count();
        let unique: std::collections::HashSet<&str> =
            page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(unique.len(), ids, "an anchor is not unique");
    }
}
