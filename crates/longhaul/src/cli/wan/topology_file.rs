//! Parses topology files (TOML), and reports errors with line and column.
//!
//! docs/guide/wan.md describes the format. The keys of a link are the names of the link options, as
//! on the command line.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use longhaul_core::plan::link::derive_seed;
use longhaul_core::plan::{
    LinkOptions, LinkPlanError, TopologyFault, TopologyLink, TopologyPart, TopologyPlan,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::shipped;
use crate::cli::link::read_trace;

/// A valid topology file.
#[derive(Debug)]
pub(super) struct TopologyFile {
    pub(super) plan: TopologyPlan,
    pub(super) description: Option<String>,
}

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
    #[error("'{key}' is missing here")]
    Missing { key: &'static str },
    #[error(transparent)]
    Link(LinkPlanError),
    #[error(transparent)]
    Topology(TopologyFault),
}

/// A range of the text and its error.
type Fault = (Range<usize>, Reason);

impl TopologyFile {
    /// Loads the file at `wanted`, or the shipped topology of that name. `name` overrides the name
    /// of the file as the name of the topology.
    pub(super) fn load(wanted: &Path, name: Option<&str>) -> Result<TopologyFile, FileError> {
        if let Some(shipped) = wanted.to_str().and_then(shipped::find)
            && !wanted.exists()
        {
            let name = name.unwrap_or(shipped.name);
            return Self::parse(shipped.name, Path::new("."), shipped.text, name);
        }
        let text = fs::read_to_string(wanted)
            .map_err(|source| FileError::Read { path: wanted.to_owned(), source })?;
        let stem = wanted.file_stem().unwrap_or_default().to_string_lossy();
        let directory = wanted.parent().unwrap_or(Path::new("."));
        Self::parse(&wanted.display().to_string(), directory, &text, name.unwrap_or(&stem))
    }

    /// Parses the text of the file `file`. Relative paths in it start at `directory`.
    pub(super) fn parse(
        file: &str,
        directory: &Path,
        text: &str,
        name: &str,
    ) -> Result<TopologyFile, FileError> {
        read(text, directory, name).map_err(|(span, reason)| {
            let before = &text[..text.floor_char_boundary(span.start)];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            FileError::At { file: file.to_owned(), line, column, reason }
        })
    }
}

/// The positions of the parts of a plan in the text.
#[derive(Debug, Default)]
struct Places {
    sites: Vec<Range<usize>>,
    links: Vec<LinkPlaces>,
}

#[derive(Debug)]
struct LinkPlaces {
    whole: Range<usize>,
    name: Range<usize>,
    ends: Range<usize>,
}

fn read(text: &str, directory: &Path, name: &str) -> Result<TopologyFile, Fault> {
    let root = DeTable::parse(text).map_err(|error| {
        let message = error.message().trim().replace('\n', "; ");
        (error.span().unwrap_or_default(), Reason::Syntax(message))
    })?;
    let mut places = Places::default();
    let mut description = None;
    let mut seed = None;
    let mut plan = TopologyPlan { name: name.to_owned(), sites: Vec::new(), links: Vec::new() };
    for (key, value) in root.get_ref() {
        match &**key.get_ref() {
            "description" => description = Some(string("description", value)?.to_owned()),
            "seed" => seed = Some(whole("seed", value)?),
            "site" => {
                for site in tables("site", value)? {
                    let (name, span) = read_site(site)?;
                    plan.sites.push(name);
                    places.sites.push(span);
                }
            }
            "link" => {
                for link in tables("link", value)? {
                    let (link, files) = read_link(link, directory)?;
                    plan.links.push(link);
                    places.links.push(files);
                }
            }
            other => return Err(unknown(key.span(), other, "description, seed, site and link")),
        }
    }
    // Each link has its own seed; links with the same seed would lose the same packets.
    for (link, root) in plan.links.iter_mut().zip(seed.into_iter().cycle()) {
        link.plan.seed.get_or_insert_with(|| derive_seed(root, &[&link.name]));
    }
    plan.validate().map_err(|error| {
        let span = match error.part {
            TopologyPart::Site(index) => places.sites[index].clone(),
            TopologyPart::LinkName(index) => places.links[index].name.clone(),
            TopologyPart::LinkEnds(index) => places.links[index].ends.clone(),
            TopologyPart::LinkPlan(index) => places.links[index].whole.clone(),
            TopologyPart::Name | TopologyPart::Whole => 0..0,
        };
        (span, Reason::Topology(error.fault))
    })?;
    Ok(TopologyFile { plan, description })
}

fn read_site(site: &Spanned<DeValue<'_>>) -> Result<(String, Range<usize>), Fault> {
    let mut name = None;
    for (key, value) in table("site", site)? {
        match &**key.get_ref() {
            "name" => name = Some((string("name", value)?.to_owned(), value.span())),
            other => return Err(unknown(key.span(), other, "name")),
        }
    }
    name.ok_or((site.span(), Reason::Missing { key: "name" }))
}

fn read_link(
    link: &Spanned<DeValue<'_>>,
    directory: &Path,
) -> Result<(TopologyLink, LinkPlaces), Fault> {
    let mut name = None;
    let mut between = None;
    let mut options = LinkOptions::default();
    let table = table("link", link)?;
    for (key, value) in table {
        match &**key.get_ref() {
            "name" => name = Some((string("name", value)?.to_owned(), value.span())),
            "between" => between = Some((two_names(value)?, value.span())),
            option => options
                .set(option, scalar(option, value)?)
                .map_err(|error| (key.span(), Reason::Link(error)))?,
        }
    }
    let ([near, far], ends) = between.ok_or((link.span(), Reason::Missing { key: "between" }))?;
    let (name, name_span) = name.unwrap_or_else(|| (format!("{near}-{far}"), ends.clone()));
    let read = |file: &str| read_trace(&directory.join(file).to_string_lossy());
    let plan = options.plan(&read).map_err(|error| {
        let at_option = error.option().and_then(|option| table.get(option)).map(Spanned::span);
        (at_option.unwrap_or_else(|| link.span()), Reason::Link(error))
    })?;
    let places = LinkPlaces { whole: link.span(), name: name_span, ends };
    Ok((TopologyLink { name, near, far, plan }, places))
}

fn unknown(span: Range<usize>, key: &str, known: &'static str) -> Fault {
    (span, Reason::UnknownKey { key: key.to_owned(), known })
}

fn wrong_type(key: &str, value: &Spanned<DeValue<'_>>, wanted: &'static str) -> Fault {
    (value.span(), Reason::Type { key: key.to_owned(), wanted })
}

fn string<'t>(key: &str, value: &'t Spanned<DeValue<'_>>) -> Result<&'t str, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => Err(wrong_type(key, value, "a text in quotation marks")),
    }
}

fn whole(key: &str, value: &Spanned<DeValue<'_>>) -> Result<u64, Fault> {
    match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
    .ok_or_else(|| wrong_type(key, value, "a whole number that is not negative"))
}

/// Returns the value of a link option, as on the command line.
fn scalar(key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err(wrong_type(key, value, "a number, or a text such as \"10G\" or \"90ms\"")),
    }
}

fn two_names(value: &Spanned<DeValue<'_>>) -> Result<[String; 2], Fault> {
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

fn tables<'t, 'i>(
    key: &str,
    value: &'t Spanned<DeValue<'i>>,
) -> Result<impl Iterator<Item = &'t Spanned<DeValue<'i>>>, Fault> {
    match value.get_ref() {
        DeValue::Array(tables) => Ok(tables.iter()),
        _ => Err(wrong_type(key, value, "a list of tables, each under [[site]] or [[link]]")),
    }
}

fn table<'t, 'i>(key: &str, value: &'t Spanned<DeValue<'i>>) -> Result<&'t DeTable<'i>, Fault> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => Err(wrong_type(key, value, "a table")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::units::Rate;

    use super::*;

    const SITES: &str = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";

    fn parse(text: &str) -> Result<TopologyFile, FileError> {
        TopologyFile::parse("my.toml", Path::new("/nonexistent"), text, "mine")
    }

    #[test]
    fn link_options_apply_to_each_direction() {
        let text = format!(
            "description = 'two'\nseed = 7\n{SITES}[[link]]\nbetween = [\"a\", \"b\"]\n\
             rtt = '90ms'\nrate = '1G'\nup-rate = 10_000_000\nloss = 1e-4\n"
        );
        let TopologyFile { plan, description } = parse(&text).unwrap();
        assert_eq!(description.as_deref(), Some("two"));
        let link = &plan.links[0];
        assert_eq!((&*plan.name, &*link.name, &*link.near, &*link.far), ("mine", "a-b", "a", "b"));
        assert_eq!(link.plan.rtt(), Duration::from_millis(90));
        assert_eq!(link.plan.up.rate_bps, Some(Rate::from_bps(10_000_000)));
        assert_eq!(link.plan.down.rate_bps, Some(Rate::from_bps(1_000_000_000)));
        assert!(link.plan.up.loss.is_some());
        assert_eq!(link.plan.seed, Some(derive_seed(7, &["a-b"])));
    }

    #[test]
    fn an_invalid_file_is_reported_with_line_and_column() {
        let link = |rest: &str| format!("{SITES}[[link]]\nbetween = [\"a\", \"b\"]\n{rest}");
        for (text, expected) in [
            ("[[site]\n".to_owned(), "my.toml:1:"),
            (format!("{SITES}speed = 1"), "my.toml:5:1: unknown key 'speed'; the keys are name"),
            (SITES.to_owned(), "my.toml:1:1: a topology has 1 to 1000 links"),
            ("sites = 3\n".to_owned(), "my.toml:1:1: unknown key 'sites'"),
            ("site = 3\n".to_owned(), "my.toml:1:8: 'site' must be a list of tables"),
            ("[[site]]\nname = 3\n".to_owned(), "my.toml:2:8: 'name' must be a text"),
            ("[[site]]\n".to_owned(), "my.toml:1:1: 'name' is missing here"),
            ("[[site]]\nname = 'a b'\n[[site]]\nname = 'b'".into(), "my.toml:2:8: 'a b' cannot be"),
            (format!("{SITES}[[link]]\n"), "my.toml:5:1: 'between' is missing here"),
            (format!("{SITES}[[link]]\nbetween = ['a']"), "my.toml:6:11: 'between' must be the"),
            (format!("{SITES}[[link]]\nbetween = ['a','c']"), "my.toml:6:11: there is no site 'c'"),
            (link("rtt = '90parsecs'"), "my.toml:7:7: rtt cannot be '90parsecs'"),
            (link("rtt = true"), "my.toml:7:7: 'rtt' must be a number, or a text"),
            (link("loss = 1.5"), "my.toml:7:8: loss cannot be '1.5'"),
            (link("weather = 'rain'"), "my.toml:7:1: there is no link option 'weather'"),
            (link("loss-trace = 'none.txt'"), "my.toml:7:14: loss-trace none.txt: the file"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}\nfor {text}");
        }
    }
}
