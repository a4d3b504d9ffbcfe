//! Renders a [`Table`] as text for the terminal, as Markdown, as JSON, and as
//! one self-contained HTML file with plots; renders the runs as CSV.
//!
//! The same archive gives the same bytes. Only `figures` computes: it aggregates runs for the
//! charts.

mod change;
mod data;
mod figures;
#[cfg(test)]
pub(crate) mod fixture;
mod flow;
mod markdown;
mod page;
mod text;
mod words;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use figures::figures;
use longhaul_chart::Width;

use crate::LabError;
use crate::archive::Contents;
use crate::table::Table;

pub use change::change_text;
pub use data::{csv, json};
pub use markdown::markdown;
pub use page::{diagnosis_html, html};
pub use text::text;

/// Writes `report.html` into `dir`, and its figures as separate files into `figures/`. Returns the
/// path of the report.
///
/// # Errors
/// The disk cannot be written.
pub fn write(dir: &Path, contents: &Contents, table: &Table) -> Result<PathBuf, LabError> {
    let beside = dir.join("figures");
    fs::create_dir_all(&beside).map_err(LabError::file("create", &beside))?;
    for figure in figures(contents, table) {
        if let Some(drawing) = figure.draw(Width::Page) {
            save(&beside.join(format!("{}.svg", figure.id)), &drawing.document())?;
        }
    }
    let report = dir.join("report.html");
    save(&report, &html(contents, table))?;
    Ok(report)
}

/// Writes a file atomically, so that no reader sees a partial file.
fn save(path: &Path, text: &str) -> Result<(), LabError> {
    let part = path.with_extension(format!("part-{}", std::process::id()));
    // A file that others put there is removed, not followed.
    let _ = fs::remove_file(&part);
    let written = fs::File::create_new(&part).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&part);
        LabError::file("write", path)(error)
    })
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::Outcome;
    use longhaul_core::text::is_hostile;

    use super::*;
    use crate::archive::Contents;
    use crate::table::Table;

    /// Returns the output of every renderer of a matrix.
    fn rendered(contents: &Contents) -> [String; 5] {
        let table = Table::fold(contents);
        [
            text(contents, &table),
            markdown(contents, &table),
            html(contents, &table),
            csv(contents).replace("\r\n", "\n"),
            json(contents, &table),
        ]
    }

    #[test]
    fn nothing_that_a_tool_printed_moves_the_cursor_or_begins_a_line() {
        let hostile = "x\x1b[2J\r\u{9b}\u{202e}\u{2028}\u{200b}\n| forged |<script>";
        let plain = "x[2J| forged |<script>";
        let contents = |words: &str| {
            let mut contents = fixture::contents();
            contents.header.plan.name = words.to_owned();
            for run in &mut contents.runs {
                run.tool_version = words.to_owned();
                if let Outcome::Failed { reason } | Outcome::Invalid { reason } = &mut run.outcome {
                    *reason = words.to_owned();
                }
            }
            contents
        };
        let pairs = rendered(&contents(hostile)).into_iter().zip(rendered(&contents(plain)));
        for ((found, expected), name) in pairs.zip(["text", "markdown", "html", "csv", "json"]) {
            // The program escapes control characters in JSON when it prints the document.
            if name != "json" {
                let left = found.chars().find(|c| *c != '\n' && is_hostile(*c));
                assert_eq!(left, None, "{name}");
            }
            let lines = found.lines().count();
            assert!(name == "html" || lines == expected.lines().count(), "{name}: {found}");
            assert!(name != "html" || found.matches("<script").count() == 1, "{name}");
        }
    }
}
