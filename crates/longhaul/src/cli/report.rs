use std::path::PathBuf;

use clap::Args;
use longhaul_lab::archive::Archive;
use longhaul_lab::report;
use longhaul_lab::table::Table;

use super::matrix::{coded, print};
use crate::exit::{self, Coded};

/// Render the table and the report of a matrix again, from its archive
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Directory of the matrix
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print one JSON document (longhaul.matrix/1) instead of the table
    #[arg(long)]
    json: bool,
}

/// Writes `report.html` and its plots, and prints the table.
pub(super) fn run(args: ReportArgs) -> Result<u8, Coded> {
    let contents =
        Archive::open(&args.dir).and_then(|archive| archive.contents()).map_err(coded)?;
    let table = Table::fold(&contents);
    let html = report::write(&args.dir, &contents, &table).map_err(coded)?;
    print(&contents, &table, args.json)?;
    eprintln!("longhaul: report: {}", html.display());
    Ok(exit::OK)
}
