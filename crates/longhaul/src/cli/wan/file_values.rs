//! The values of topology files, and the errors of the files.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::plan::link::LINK_OPTIONS;
use longhaul_core::plan::{LinkPlanError, TopologyFault};
use longhaul_core::text::nearest;
use longhaul_core::units::parse_span;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error of a topology file.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// The file cannot be read.
    #[error(
        "cannot read the topology file {}; 'longhaul wan up --list' lists the shipped topologies",
        .path.display()
    )]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is invalid at this position.
    #[error("{file}:{line}:{column}: {reason}")]
    At { file: String, line: usize, column: usize, reason: Reason },
}

/// The error at a position of a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Reason {
    #[error("{0}")]
    Syntax(String),
    #[error("'{key}' must be {wanted}")]
    Type { key: String, wanted: &'static str },
    #[error("unknown key '{key}'; the keys are {known}")]
    UnknownKey { key: String, known: &'static str },
    #[error("unknown key '{key}'; did you mean '{near}'?")]
    Misspelled { key: String, near: String },
    #[error("'{key}' is missing here")]
    Missing { key: &'static str },
    #[error(transparent)]
    Link(LinkPlanError),
    #[error(transparent)]
    Topology(TopologyFault),
}

/// A range of the text and its error.
pub(super) type Fault = (Range<usize>, Reason);

pub(super) fn unknown(span: Range<usize>, key: &str, known: &'static str) -> Fault {
    (span, Reason::UnknownKey { key: key.to_owned(), known })
}

/// Returns the error for a key of a link that is neither its own nor a link option.
pub(super) fn unknown_link_key(span: Range<usize>, key: &str) -> Fault {
    let known = ["name", "between", "count"].into_iter();
    let (prefix, stem) = match key.split_once('-') {
        Some(("up", stem)) => ("up-", stem),
        Some(("down", stem)) => ("down-", stem),
        _ => ("", key),
    };
    match nearest(stem, known.chain(LINK_OPTIONS.iter().map(|option| option.name))) {
        Some(near) => {
            let (key, near) = (key.to_owned(), format!("{prefix}{near}"));
            (span, Reason::Misspelled { key, near })
        }
        None => unknown(span, key, "name, between, count and the options of 'longhaul wan run'"),
    }
}

pub(super) fn wrong_type(key: &str, value: &Spanned<DeValue<'_>>, wanted: &'static str) -> Fault {
    (value.span(), Reason::Type { key: key.to_owned(), wanted })
}

pub(super) fn string<'t>(key: &str, value: &'t Spanned<DeValue<'_>>) -> Result<&'t str, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => Err(wrong_type(key, value, "a text in quotation marks")),
    }
}

pub(super) fn whole_number(key: &str, value: &Spanned<DeValue<'_>>) -> Result<u64, Fault> {
    match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
    .ok_or_else(|| wrong_type(key, value, "a whole number that is not negative"))
}

/// Returns the value of a link option, as on the command line.
pub(super) fn scalar(key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err(wrong_type(key, value, "a number, or a text such as \"10G\" or \"90ms\"")),
    }
}

pub(super) fn two_names(value: &Spanned<DeValue<'_>>) -> Result<[String; 2], Fault> {
    let wrong = || wrong_type("between", value, "the names of two sites: [\"here\", \"there\"]");
    let DeValue::Array(names) = value.get_ref() else { return Err(wrong()) };
    let name = |index: usize| match names.get(index).map(Spanned::get_ref) {
        Some(DeValue::String(name)) => Ok(name.to_string()),
        _ => Err(wrong()),
    };
    if names.len() != 2 {
        return Err(wrong());
    }
    Ok([name(0)?, name(1)?])
}

pub(super) fn tables<'t, 'i>(
    key: &str,
    value: &'t Spanned<DeValue<'i>>,
) -> Result<impl Iterator<Item = &'t Spanned<DeValue<'i>>>, Fault> {
    match value.get_ref() {
        DeValue::Array(tables) => Ok(tables.iter()),
        _ => Err(wrong_type(key, value, "a list of tables, each under [[site]] or [[link]]")),
    }
}

pub(super) fn table<'t, 'i>(
    key: &str,
    value: &'t Spanned<DeValue<'i>>,
) -> Result<&'t DeTable<'i>, Fault> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => Err(wrong_type(key, value, "a table")),
    }
}

pub(super) fn boolean(key: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, Fault> {
    match value.get_ref() {
        DeValue::Boolean(value) => Ok(*value),
        _ => Err(wrong_type(key, value, "true or false")),
    }
}

/// Returns a time with its unit.
pub(super) fn span(key: &str, value: &Spanned<DeValue<'_>>) -> Result<Duration, Fault> {
    let parsed = string(key, value).ok().and_then(|text| parse_span(text).ok());
    parsed.ok_or_else(|| wrong_type(key, value, "a time such as \"50ms\""))
}

/// Returns the names of sites.
pub(super) fn names(key: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Fault> {
    let wrong = || wrong_type(key, value, "a list of the names of sites");
    let DeValue::Array(names) = value.get_ref() else { return Err(wrong()) };
    let name = |name: &Spanned<DeValue<'_>>| match name.get_ref() {
        DeValue::String(name) => Ok(name.to_string()),
        _ => Err(wrong()),
    };
    names.iter().map(name).collect()
}
