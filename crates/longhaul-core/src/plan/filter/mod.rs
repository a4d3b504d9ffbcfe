//! The selection of files by rsync's include and exclude rules.
//!
//! Rules are tried in order, and the first one with a matching pattern decides; a path without a
//! match is copied. An excluded directory is not read. Paths are those of the copy: relative to the
//! target, starting with the name given on the command line (or with the directory's contents for
//! `dir/.`), like rsync's transfer root.
//!
//! Not supported: rsync's merge files, protect and hide rules, and modifiers.

mod list;
mod pattern;

pub use list::{FilterError, FilterList, FilterRule, Filters};
