//! Which files of a tree are copied, by rsync's include and exclude rules.
//!
//! The rules are tried in order and the first whose pattern matches decides; a path that none
//! matches is copied. A directory that is left out is not looked into. Paths are those of the
//! copy: relative to the target, beginning with the name given on the command line (with the
//! directory's contents for `dir/.`), as rsync has its transfer root.
//!
//! What this does not do: rsync's merge files, protect and hide rules, and modifiers.

mod list;
mod pattern;

pub use list::{FilterError, FilterList, FilterRule, Filters};
