//! Writes the HTML report and its figures to a directory.

use std::fs;
use std::path::{Path, PathBuf};

use longhaul_chart::Width;

use super::figures::figures;
use super::page::html;
use crate::LabError;
use crate::archive::Contents;
use crate::table::Table;

/// Writes `report.html` into `dir`, and its figures as separate files into `figures/`. Returns the
/// path of the report.
///
/// # Errors
/// The disk cannot be written.
pub fn write(dir: &Path, contents: &Contents, table: &Table) -> Result<PathBuf, LabError> {
    let beside = dir.join("figures");
    fs::create_dir_all(&beside).map_err(LabError::file("create", &beside))?;
    for figure in figures(contents) {
        if let Some(chart) = figure.chart {
            let drawing = chart.draw(Width::Page);
            save(&beside.join(format!("{}.svg", figure.id)), &drawing.document())?;
        }
    }
    let report = dir.join("report.html");
    save(&report, &html(contents, table))?;
    Ok(report)
}

/// Writes a file atomically, so that no reader sees a partial file.
fn save(path: &Path, text: &str) -> Result<(), LabError> {
    let part = path.with_extension("part");
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, path))
        .map_err(LabError::file("write", path))
}
