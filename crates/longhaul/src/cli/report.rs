use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use longhaul_core::diagnosis::judge;
use longhaul_core::result::Diagnosis;
use longhaul_lab::archive::{Archive, Contents};
use longhaul_lab::change::Change;
use longhaul_lab::report;
use longhaul_lab::table::Table;
use serde_json::json as value;

use super::matrix::{certificate, coded};
use crate::exit::{self, Coded};
use crate::output::{answer, diagnosis_text, json, say};

/// Render the table and the report of a matrix again, from its archive; or those of a diagnosis,
/// from its JSON document
///
/// Exit codes: 0, 2 bad arguments, 5 there is no archive, or it is damaged.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Directory of the matrix, or the document that 'longhaul diagnose --json' printed
    #[arg(value_name = "DIR|FILE")]
    dir: PathBuf,
    /// What to print; the default also writes report.html and its figures into DIR
    /// again
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print what changed since this earlier matrix instead
    #[arg(long, value_name = "DIR")]
    since: Option<PathBuf>,
    /// Show this proof of the emulator's accuracy instead of the archive's (longhaul wan selftest
    /// --json)
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
    /// The report, one self-contained document
    Html,
    /// Every run, a row each
    Csv,
    /// Everything, one document (longhaul.matrix/1)
    Json,
}

/// Prints what was asked for.
pub(super) fn run(args: ReportArgs) -> Result<u8, Coded> {
    let format = if args.json { Format::Json } else { args.format };
    let text = match &args.since {
        Some(earlier) => since(&args.dir, earlier, format)?,
        None if args.dir.is_file() => diagnosis(&args.dir, format)?,
        None => rendered(&args, format)?,
    };
    match format {
        Format::Json => json(&text)?,
        // RFC 4180 ends its lines so; other carriage returns are escaped where they are.
        Format::Csv => answer(&text.replace("\r\n", "\n"))?,
        Format::Text | Format::Markdown | Format::Html => answer(&text)?,
    }
    Ok(exit::OK)
}

fn read(dir: &Path) -> Result<(Contents, Table), Coded> {
    let contents = Archive::open(dir).and_then(|archive| archive.contents()).map_err(coded)?;
    let table = Table::fold(&contents);
    Ok((contents, table))
}

/// A diagnosis, judged by this version.
fn diagnosis(path: &Path, format: Format) -> Result<String, Coded> {
    let read = std::fs::read(path)
        .map_err(anyhow::Error::from)
        .and_then(|text| Ok(serde_json::from_slice::<Diagnosis>(&text)?))
        .with_context(|| format!("cannot read the diagnosis {}", path.display()))
        .map_err(|error| Coded::new(exit::FILES, error))?;
    let diagnosis = judge(read);
    match format {
        Format::Text => Ok(diagnosis_text(&diagnosis)),
        Format::Html => Ok(report::diagnosis_html(&diagnosis)),
        Format::Json => {
            Ok(serde_json::to_string_pretty(&diagnosis).map_err(anyhow::Error::from)? + "\n")
        }
        Format::Markdown | Format::Csv => {
            Err(Coded::new(exit::USAGE, anyhow!("a diagnosis is text, html or json")))
        }
    }
}

fn since(dir: &Path, earlier: &Path, format: Format) -> Result<String, Coded> {
    let ((then, then_table), (now, now_table)) = (read(earlier)?, read(dir)?);
    let change = Change::between((&then.header, &then_table), (&now.header, &now_table));
    match format {
        Format::Text => Ok(report::change_text(&change)),
        Format::Json => {
            let document = value!({ "schema": "longhaul.change/1", "change": change });
            Ok(format!("{document:#}\n"))
        }
        _ => Err(Coded::new(exit::USAGE, anyhow!("--since prints text or json"))),
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
            say(format_args!("report: {}", html.display()));
            report::text(&contents, &table)
        }
        Format::Markdown => report::markdown(&contents, &table),
        Format::Html => report::html(&contents, &table),
        Format::Csv => report::csv(&contents),
        Format::Json => report::json(&contents, &table),
    })
}
