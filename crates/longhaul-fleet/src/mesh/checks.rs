//! Checks of single values of a mesh file, with their places.

use longhaul_core::units::Rate;
use toml::Spanned;

use super::error::{Fault, MeshFault};
use super::raw::Named;

/// Returns the entries in the order of the file.
pub(super) fn in_order<T>(named: &Named<T>) -> Vec<(&Spanned<String>, &T)> {
    let mut entries: Vec<_> = named.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

/// Returns a valid name.
pub(super) fn checked_name(what: &'static str, name: &Spanned<String>) -> Result<String, Fault> {
    let text = name.get_ref();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !first || text.len() > 63 || !text.bytes().all(good) {
        return Err(Fault::at(&name.span(), MeshFault::Name { what, name: text.clone() }));
    }
    Ok(text.clone())
}

/// Returns a rate above zero.
pub(super) fn positive(field: &'static str, rate: &Spanned<Rate>) -> Result<Rate, Fault> {
    match rate.get_ref().bps() {
        0 => Err(out_of_range(field, rate, "a rate above 0")),
        _ => Ok(*rate.get_ref()),
    }
}

/// Returns the error of a value outside its range.
pub(super) fn out_of_range<T: std::fmt::Display>(
    field: &'static str,
    value: &Spanned<T>,
    accepted: &'static str,
) -> Fault {
    let fault = MeshFault::OutOfRange { field, value: value.get_ref().to_string(), accepted };
    Fault::at(&value.span(), fault)
}
