//! `longhaul report`: prints the table of a matrix and writes its report from the archive, or
//! prints a diagnosis from its JSON document.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use longhaul_core::diagnosis::judge;
use longhaul_core::result::Diagnosis;
use longhaul_lab::archive::{Archive, Contents};
use longhaul_lab::change::TableComparison;
use longhaul_lab::report;
use longhaul_lab::table::Table;
use serde_json::json as value;

use super::matrix::{certificate, coded};
use crate::exit::{self, Coded};
use crate::output::{complete_diagnosis, diagnosis_text, print_json, print_message, print_result};

/// Print the table and write the report of a matrix from its archive, or print a diagnosis from its
/// JSON document
///
/// Exit codes: 0 done, 2 invalid arguments, 5 the archive is missing or damaged.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Directory of the matrix, or the JSON document of 'longhaul diagnose --json'
    #[arg(value_name = "DIR|FILE")]
    dir: PathBuf,
    /// Output format; 'text' also writes report.html and its figures into DIR
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print the changes since this earlier matrix instead
    #[arg(long, value_name = "DIR")]
    since: Option<PathBuf>,
    /// Show this certificate of the emulator's accuracy instead of that in the archive (the output
    /// of 'longhaul wan selftest --json')
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    certificate: Option<PathBuf>,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The table
    Text,
    /// The table in Markdown
    Markdown,
    /// The report as one self-contained document
    Html,
    /// All runs, one row per run
    Csv,
    /// Everything as one document (longhaul.matrix/1)
    Json,
}

/// Prints the report in the requested format.
pub(super) fn run(args: ReportArgs) -> Result<u8, Coded> {
    let format = if args.json { Format::Json } else { args.format };
    let text = match &args.since {
        Some(earlier) => since(&args.dir, earlier, format)?,
        None if args.dir.is_file() => diagnosis(&args.dir, format)?,
        None => rendered(&args, format)?,
    };
    match format {
        Format::Json => print_json(&text)?,
        // RFC 4180 ends lines with CRLF. Other carriage returns are escaped in the fields.
        Format::Csv => print_result(&text.replace("\r\n", "\n"))?,
        Format::Text | Format::Markdown | Format::Html => print_result(&text)?,
    }
    Ok(exit::OK)
}

fn read(dir: &Path) -> Result<(Contents, Table), Coded> {
    let contents = Archive::open(dir).and_then(|archive| archive.contents()).map_err(coded)?;
    let table = Table::fold(&contents);
    Ok((contents, table))
}

/// Returns a diagnosis, evaluated by the rules of this version.
fn diagnosis(path: &Path, format: Format) -> Result<String, Coded> {
    let read = std::fs::read(path)
        .map_err(anyhow::Error::from)
        .and_then(|text| Ok(serde_json::from_slice::<Diagnosis>(&text)?))
        .with_context(|| format!("cannot read the diagnosis {}", path.display()))
        .map_err(|error| Coded::new(exit::FILES, error))?;
    let mut diagnosis = judge(read);
    complete_diagnosis(&mut diagnosis);
    match format {
        Format::Text => Ok(diagnosis_text(&diagnosis)),
        Format::Html => Ok(report::diagnosis_html(&diagnosis)),
        Format::Json => {
            Ok(serde_json::to_string_pretty(&diagnosis).map_err(anyhow::Error::from)? + "\n")
        }
        Format::Markdown | Format::Csv => Err(Coded::new(
            exit::USAGE,
            anyhow!("the formats of a diagnosis are text, html and json"),
        )),
    }
}

fn since(dir: &Path, earlier: &Path, format: Format) -> Result<String, Coded> {
    let ((then, then_table), (now, now_table)) = (read(earlier)?, read(dir)?);
    let change = TableComparison::between((&then.header, &then_table), (&now.header, &now_table));
    match format {
        Format::Text => Ok(report::change_text(&change)),
        Format::Json => {
            let document = value!({ "schema": "longhaul.change/1", "change": change });
            Ok(format!("{document:#}\n"))
        }
        _ => Err(Coded::new(exit::USAGE, anyhow!("the formats of --since are text and json"))),
    }
}

fn rendered(args: &ReportArgs, format: Format) -> Result<String, Coded> {
    let (mut contents, table) = read(&args.dir)?;
    if let Some(path) = &args.certificate {
        contents.certificate = Some(certificate(path)?);
    }
    Ok(match format {
        Format::Text => {
            let html = report::write(&args.dir, &contents, &table).map_err(coded)?;
            print_message(format_args!("report: {}", html.display()));
            report::text(&contents, &table)
        }
        Format::Markdown => report::markdown(&contents, &table),
        Format::Html => report::html(&contents, &table),
        Format::Csv => report::csv(&contents),
        Format::Json => report::json(&contents, &table),
    })
}
