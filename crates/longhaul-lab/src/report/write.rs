use std::fs;
use std::path::{Path, PathBuf};

use longhaul_core::plan::Workload;

use super::{html, throughput};
use crate::LabError;
use crate::archive::Contents;
use crate::table::Table;

/// Writes `report.html` and its plots, as files of their own for use elsewhere, into `dir`.
/// Returns the report's path.
///
/// # Errors
/// The disk's.
pub fn write(dir: &Path, contents: &Contents, table: &Table) -> Result<PathBuf, LabError> {
    for (workload, name) in
        [(Workload::Memory, "throughput-memory.svg"), (Workload::Disk, "throughput-disk.svg")]
    {
        if let Some(plot) = throughput(table, workload) {
            save(&dir.join(name), &plot)?;
        }
    }
    let report = dir.join("report.html");
    save(&report, &html(contents, table))?;
    Ok(report)
}

fn save(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(LabError::file("write", path))
}
