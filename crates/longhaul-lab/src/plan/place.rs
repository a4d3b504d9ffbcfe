//! Finds the line and column of a value in a plan's text.

use std::ops::Range;

use longhaul_core::plan::Step;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Place;

/// Returns the place `offset` bytes into `text`.
pub(super) fn at_offset(file: &str, text: &str, offset: usize) -> Place {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    Place { file: file.to_owned(), line_column: Some((line, column)) }
}

/// Returns the place of the value at `steps` in the plan `text`, or of its nearest parent in the
/// text. A default has no place, so only the file is named.
pub(super) fn of(file: &str, text: &str, steps: &[Step]) -> Place {
    let nowhere = || Place { file: file.to_owned(), line_column: None };
    let Ok(root) = DeTable::parse(text) else { return nowhere() };
    match find(root.get_ref(), steps) {
        Some(span) => at_offset(file, text, span.start),
        None => nowhere(),
    }
}

/// Returns the place of the key at the end of `steps`, or of its nearest parent in the text.
pub(super) fn of_key(file: &str, text: &str, steps: &[Step]) -> Place {
    let (Ok(root), Some((Step::Key(key), above))) = (DeTable::parse(text), steps.split_last())
    else {
        return of(file, text, steps);
    };
    let table = match above {
        [] => Some(root.get_ref()),
        above => find_value(root.get_ref(), above).and_then(|value| value.get_ref().as_table()),
    };
    match table.and_then(|table| table.get_key_value(key.as_ref())) {
        Some((name, _)) => at_offset(file, text, name.span().start),
        None => of(file, text, steps),
    }
}

fn find(root: &DeTable<'_>, steps: &[Step]) -> Option<Range<usize>> {
    find_value(root, steps).map(Spanned::span)
}

/// Returns the value at `steps`, or its nearest parent.
fn find_value<'t, 'i>(root: &'t DeTable<'i>, steps: &[Step]) -> Option<&'t Spanned<DeValue<'i>>> {
    let (first, rest) = steps.split_first()?;
    let Step::Key(key) = first else { return None };
    let mut value = look_up(root, key)?;
    for step in rest {
        let inner = match (step, value.get_ref()) {
            (Step::Key(key), DeValue::Table(table)) => look_up(table, key),
            (Step::Index(index), DeValue::Array(array)) => array.get(*index),
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
/// and a list of workloads under the name of one.
fn look_up<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
    let short = key.strip_suffix("_bytes").or_else(|| key.strip_suffix("_bps"));
    let plural = (key == "workload").then_some("workloads");
    [Some(key), short, plural].into_iter().flatten().find_map(|name| table.get(name))
}
