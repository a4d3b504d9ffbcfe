//! Plans as text: the plans that ship, and the parser of TOML files into a checked
//! [`MatrixPlan`], with line and column in every error.

mod shipped;

use std::ops::Range;
use std::path::Path;
use std::{fs, mem};

use longhaul_core::plan::{
    Conditions, Constraint, Content, DocumentStep, MatrixPlan, MatrixRow, RealPath,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use twox_hash::XxHash3_128;

use crate::drivers::Driver;
use crate::{LabError, Place};

pub use shipped::{SHIPPED, Shipped};

/// Reads and checks the plan file at `path`.
///
/// # Errors
/// The file cannot be read, is not a plan, or is an invalid plan.
pub fn load(path: &Path, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, LabError> {
    let text = fs::read_to_string(path).map_err(LabError::file("read the plan", path))?;
    parse(&path.display().to_string(), &text, drivers)
}

/// Parses and checks a plan's text; `file` is its name in errors.
///
/// # Errors
/// The text is not a plan or is an invalid plan.
pub fn parse(file: &str, text: &str, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, LabError> {
    let syntax = |error: toml::de::Error| LabError::PlanSyntax {
        place: at_offset(file, text, error.span().map_or(0, |span| span.start)),
        message: error.message().trim().replace('\n', "; "),
    };
    // Result documents contain plans and accept unknown fields. A plan file rejects them: an
    // unknown field is a typing error.
    let mut unknown = None;
    let document = toml::Deserializer::parse(text).map_err(syntax)?;
    let plan: Result<MatrixPlan, _> = serde_ignored::deserialize(document, |path| {
        unknown.get_or_insert_with(|| steps_of(&path));
    });
    // The unknown field is reported first: a mistyped name often causes a second error about a
    // missing value.
    if let Some(steps) = unknown {
        let name = match steps.last() {
            Some(DocumentStep::Key(name)) => name.as_ref(),
            _ => "",
        };
        return Err(LabError::PlanSyntax {
            place: place_of_key(file, text, &steps),
            message: format!("unknown field `{name}`"),
        });
    }
    let plan = plan.map_err(syntax)?;
    check_at(&plan, drivers, |steps| place_of(file, text, steps))?;
    Ok(plan)
}

/// Returns the steps from the root of a plan to `path`.
fn steps_of(path: &serde_ignored::Path) -> Vec<DocumentStep> {
    use serde_ignored::Path;
    let (parent, step) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(DocumentStep::Index(*index))),
        Path::Map { parent, key } => (parent, Some(DocumentStep::Key(key.clone().into()))),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => (parent, None),
    };
    let mut steps = steps_of(parent);
    steps.extend(step);
    steps
}

/// Checks a plan that does not come from a text, for example one made from arguments.
///
/// # Errors
/// The plan is invalid.
pub fn check(plan: &MatrixPlan, drivers: &[Box<dyn Driver>]) -> Result<(), LabError> {
    check_at(plan, drivers, |_| Place { file: format!("plan {}", plan.name), line_column: None })
}

fn check_at(
    plan: &MatrixPlan,
    drivers: &[Box<dyn Driver>],
    place: impl Fn(&[DocumentStep]) -> Place,
) -> Result<(), LabError> {
    plan.check().map_err(|fault| LabError::PlanFault { place: place(&fault.at()), fault })?;
    let at = |index, key| {
        place(&[DocumentStep::key("entries"), DocumentStep::Index(index), DocumentStep::key(key)])
    };
    for row in plan.rows() {
        let entry = &plan.entries[row.entry];
        let Some(driver) = drivers.iter().find(|driver| driver.name() == entry.tool) else {
            return Err(LabError::UnknownTool {
                place: at(row.entry, "tool"),
                tool: entry.tool.clone(),
                known: join(drivers.iter().map(|driver| driver.name())),
            });
        };
        let tool = || entry.tool.clone();
        if !driver.does(row.work.workload()) {
            return Err(LabError::WrongWorkload {
                place: at(row.entry, "workload"),
                tool: tool(),
                workload: row.work.workload().label(),
            });
        }
        if is_tree(&row) && !driver.trees() {
            let place = at(row.entry, "workload");
            return Err(LabError::NoTrees { place, tool: tool(), workload: row.work.name });
        }
        let unable = |key, setting| {
            Err(LabError::NoSetting { place: at(row.entry, key), tool: tool(), setting })
        };
        if row.streams.is_some_and(|count| driver.streams(count).is_none()) {
            return unable("streams", "parallel streams");
        }
        if row.window.is_some_and(|size| driver.window(size).is_none()) {
            return unable("windows_bytes", "the window");
        }
        if row.message.is_some_and(|size| driver.message(size).is_none()) {
            return unable("messages_bytes", "the size of each write");
        }
        if row.clients > 1 && !driver.many_clients() {
            return unable("clients", "several clients at one server");
        }
        if plan.real.is_some() && !driver.goes_far() {
            return Err(LabError::NotReal { place: at(row.entry, "tool"), tool: tool() });
        }
    }
    Ok(())
}

/// Returns whether a row is known to copy a directory.
fn is_tree(row: &MatrixRow) -> bool {
    match row.work.content {
        Content::Files { files, .. } => files > 1,
        Content::Mixed { .. } => true,
        _ => false,
    }
}

/// Keeps only the entries that match an element of `wanted`: the row's name, the tool (`longhaul
/// cp`), or the program (`longhaul`).
///
/// # Errors
/// An element of `wanted` matches no entry.
pub fn select(plan: &mut MatrixPlan, wanted: &[String]) -> Result<(), LabError> {
    for name in wanted {
        if !plan.entries.iter().any(|entry| entry.is_called(name)) {
            return Err(LabError::UnknownEntry {
                wanted: name.clone(),
                known: join(plan.entries.iter().map(|entry| entry.label())),
            });
        }
    }
    plan.entries.retain(|entry| wanted.iter().any(|name| entry.is_called(name)));
    remove_unmatched_rules(plan);
    Ok(())
}

/// Replaces the emulated paths of a plan by the real path to the host `far`, and returns the tools
/// whose entries were removed, because their servers need files that only emulated paths have.
pub fn over_real_path(
    plan: &mut MatrixPlan,
    far: &str,
    drivers: &[Box<dyn Driver>],
) -> Vec<String> {
    plan.conditions = Conditions::default();
    plan.real = Some(RealPath { far: far.to_owned(), address: None, directory: None });
    let goes_far = |tool: &str| drivers.iter().any(|d| d.name() == tool && d.goes_far());
    let mut removed: Vec<String> = Vec::new();
    for entry in plan.entries.iter().filter(|entry| !goes_far(&entry.tool)) {
        if !removed.contains(&entry.tool) {
            removed.push(entry.tool.clone());
        }
    }
    plan.entries.retain(|entry| goes_far(&entry.tool));
    // Constraints on emulated paths do not apply to the real path.
    plan.only.retain(|rule| rule.path.is_empty());
    plan.except.retain(|rule| rule.path.is_empty());
    remove_unmatched_rules(plan);
    removed
}

/// Removes the constraints whose tools have no entry in the plan.
fn remove_unmatched_rules(plan: &mut MatrixPlan) {
    let named = |rule: &Constraint| {
        let all = rule.tool.iter();
        rule.tool.is_empty() || all.clone().any(|n| plan.entries.iter().any(|e| e.is_called(n)))
    };
    let (only, except) = (mem::take(&mut plan.only), mem::take(&mut plan.except));
    let (only, except) =
        (only.into_iter().filter(named).collect(), except.into_iter().filter(named).collect());
    (plan.only, plan.except) = (only, except);
}

/// Returns a digest of the plan as sixteen hexadecimal digits.
pub fn fingerprint(plan: &MatrixPlan) -> String {
    // Serialization cannot fail: a plan consists of numbers, texts and lists of these.
    let text = serde_json::to_string(plan).unwrap_or_default();
    format!("{:016x}", XxHash3_128::oneshot(text.as_bytes()) as u64)
}

fn join<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    names.map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

/// Returns the place `offset` bytes into `text`.
pub(super) fn at_offset(file: &str, text: &str, offset: usize) -> Place {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    Place { file: file.to_owned(), line_column: Some((line, column)) }
}

/// Returns the place of the value at `steps` in the plan `text`, or of its nearest parent in the
/// text. For a default value only the file is named.
pub(super) fn place_of(file: &str, text: &str, steps: &[DocumentStep]) -> Place {
    let nowhere = || Place { file: file.to_owned(), line_column: None };
    let Ok(root) = DeTable::parse(text) else { return nowhere() };
    match find(root.get_ref(), steps) {
        Some(span) => at_offset(file, text, span.start),
        None => nowhere(),
    }
}

/// Returns the place of the key at the end of `steps`, or of its nearest parent in the text.
pub(super) fn place_of_key(file: &str, text: &str, steps: &[DocumentStep]) -> Place {
    let (Ok(root), Some((DocumentStep::Key(key), above))) =
        (DeTable::parse(text), steps.split_last())
    else {
        return place_of(file, text, steps);
    };
    let table = match above {
        [] => Some(root.get_ref()),
        above => find_value(root.get_ref(), above).and_then(|value| value.get_ref().as_table()),
    };
    match table.and_then(|table| table.get_key_value(key.as_ref())) {
        Some((name, _)) => at_offset(file, text, name.span().start),
        None => place_of(file, text, steps),
    }
}

fn find(root: &DeTable<'_>, steps: &[DocumentStep]) -> Option<Range<usize>> {
    find_value(root, steps).map(Spanned::span)
}

/// Returns the value at `steps`, or its nearest parent.
fn find_value<'t, 'i>(
    root: &'t DeTable<'i>,
    steps: &[DocumentStep],
) -> Option<&'t Spanned<DeValue<'i>>> {
    let (first, rest) = steps.split_first()?;
    let DocumentStep::Key(key) = first else { return None };
    let mut value = look_up(root, key)?;
    for step in rest {
        let inner = match (step, value.get_ref()) {
            (DocumentStep::Key(key), DeValue::Table(table)) => look_up(table, key),
            (DocumentStep::Index(index), DeValue::Array(array)) => array.get(*index),
            _ => None,
        };
        match inner {
            Some(inner) => value = inner,
            None => break,
        }
    }
    Some(value)
}

/// Looks up a key. A quantity may be written with or without its unit (`size` for `size_bytes`),
/// and a list of workloads under the singular name.
fn look_up<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
    let short = key.strip_suffix("_bytes").or_else(|| key.strip_suffix("_bps"));
    let plural = (key == "workload").then_some("workloads");
    [Some(key), short, plural].into_iter().flatten().find_map(|name| table.get(name))
}

#[cfg(test)]
mod tests {
    use crate::drivers;

    use super::*;

    fn read(text: &str) -> Result<MatrixPlan, LabError> {
        parse("my.toml", text, &drivers::all(Path::new("longhaul")))
    }

    const GOOD: &str = r#"name = "mine"
[conditions]
rtt = ["0ms", "90ms"]
rate = ["10G"]
[disk]
size = "2GiB"
[[entries]]
tool = "scp"
workload = "disk"
"#;

    #[test]
    fn an_error_names_line_and_column() {
        for (from, to, expected) in [
            ("\"90ms\"", "\"90 parsecs\"", "my.toml:3:15: '90 parsecs' has the unknown unit"),
            ("\"90ms\"", "\"0ms\"", "my.toml:3:15: conditions.rtt has 0ms twice"),
            ("\"10G\"", "\"0\"", "my.toml:4:9: a rate of 0.00 b/s is below"),
            ("\"2GiB\"", "0", "my.toml:6:8: disk.size is 0"),
            ("\"scp\"", "\"scpp\"", "my.toml:8:8: unknown tool 'scpp'"),
            ("\"disk\"", "\"memory\"", "my.toml:9:12: scp does not support"),
            ("\"disk\"", "\"disc\"", "my.toml:9:12: the plan has no workload 'disc'"),
            ("\"disk\"", "\"disk\"\nmessages = \"1KiB\"", "my.toml:10:12: scp has no option for"),
            ("\"disk\"", "\"disk\"\nstreams = 4", "my.toml:10:11: scp has no option for"),
            ("rate =", "lose = [1]\nrate =", "my.toml:4:9: there is no link option 'lose'"),
            ("rate =", "loss = [\"0\", \"9\"]\nrate =", "my.toml:4:14: loss cannot be '9'"),
            ("[disk]", "[[workloads]]\nname = \"w\"\n[disk]", "my.toml:5:"),
            ("[disk]", "[[except]]\ntool = \"ftp\"\n[disk]", "my.toml:5:1: no cell of the"),
            ("size =", "syze =", "my.toml:6:1: unknown field `syze`"),
            ("tool =", "option = []\ntool =", "my.toml:8:1: unknown field `option`"),
            (
                "[disk]",
                "[[workloads]]\nname = \"w\"\nmixed = { median = 1, sigma = 1, mean = 2 }\n[disk]",
                "my.toml:7:34: unknown field `mean`",
            ),
            ("name =", "seeds = 1\nname =", "my.toml:1:1: unknown field `seeds`"),
            ("[disk]", "[disk", "my.toml:5:"),
            ("name =", "scale = 0\nname =", "my.toml:1:9: scale is 0"),
            ("name =", "repeats = 0\nname =", "my.toml:1:11: repeats is 0"),
        ] {
            let error = read(&GOOD.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(read(GOOD).is_ok());
    }

    #[test]
    fn a_plan_of_emulated_paths_runs_over_a_real_one() {
        let all = drivers::all(Path::new("longhaul"));
        let plan = |name: &str| Shipped::named(name).unwrap().plan(&all).unwrap();
        let mut tune = plan("tune");
        assert_eq!(over_real_path(&mut tune, "me@dtn", &all), ["globus-url-copy"]);
        check(&tune, &all).unwrap();
        assert_eq!(tune.conditions().len(), 1);
        assert_eq!(tune.conditions()[0].label(), "dtn");
        let mut sc10 = plan("sc10");
        over_real_path(&mut sc10, "me@dtn", &all);
        check(&sc10, &all).unwrap();
        assert!(sc10.except.is_empty(), "the constraint names round-trip times");
    }

    #[test]
    fn entries_are_selected_by_row_tool_or_program() {
        let all = drivers::all(Path::new("longhaul"));
        let quick = Shipped::named("quick").unwrap().plan(&all).unwrap();
        for (wanted, rows) in [
            (vec!["longhaul"], 3),
            (vec!["longhaul cp"], 2),
            (vec!["longhaul cp --cleartext", "scp"], 2),
        ] {
            let mut some = quick.clone();
            let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
            select(&mut some, &wanted).unwrap();
            assert_eq!(some.entries.len(), rows, "{wanted:?}");
        }
        let error = select(&mut quick.clone(), &["ftp".into()]).unwrap_err().to_string();
        assert!(error.starts_with("the plan has no entry 'ftp'; its entries: longhaul test,"));
    }
}
