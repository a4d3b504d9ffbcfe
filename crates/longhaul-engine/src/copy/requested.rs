//! The names that a client requests from a server.
//!
//! A server that announces other names could create files that the user does not expect, such as
//! `.bashrc` in a home directory. The client therefore accepts only the requested names, and what is
//! below them.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::copy::source::{SourceRoot, plain_name};

/// The names in the copy that a client requests.
#[derive(Debug)]
pub(super) struct Requested(BTreeSet<PathBuf>);

impl Requested {
    /// Returns the names in a copy of `paths`, or of `names` in the directory that is the only path;
    /// `None` if all contents of a directory are requested, whose names only the server knows.
    pub(super) fn of(paths: &[PathBuf], names: Option<&[PathBuf]>) -> Option<Self> {
        if let Some(names) = names {
            // A source does not send a name with '..'.
            let names = names.iter().filter_map(|name| plain_name(name));
            let names: BTreeSet<_> = names.collect();
            return (!names.contains(Path::new(""))).then_some(Requested(names));
        }
        if paths.iter().any(|path| SourceRoot::is_contents(path)) {
            return None;
        }
        let names = paths.iter().filter_map(|path| path.file_name());
        Some(Requested(names.map(PathBuf::from).collect()))
    }

    /// Returns whether an entry with this path is a requested one, below a requested one, or a
    /// directory above one.
    pub(super) fn contains(&self, path: &Path) -> bool {
        let from = (Bound::Included(path), Bound::Unbounded);
        let next = self.0.range::<Path, _>(from).next();
        next.is_some_and(|next| next.starts_with(path))
            || path.ancestors().any(|above| self.0.contains(above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn only_requested_names_and_those_below_count() {
        let requested = Requested::of(&paths(&["/data/run17", "b/", "../c"]), None).unwrap();
        for (path, counts) in [
            ("run17", true),
            ("run17/a/b", true),
            ("b", true),
            ("c", true),
            ("run1", false),
            ("run170", false),
            ("data/run17", false),
            (".bashrc", false),
            (".ssh/authorized_keys", false),
        ] {
            assert_eq!(requested.contains(Path::new(path)), counts, "{path}");
        }
        assert!(Requested::of(&paths(&["a", "b/."]), None).is_none());
    }

    #[test]
    fn names_of_a_list_count_with_the_directories_above() {
        let names = paths(&["a/b/c", "./d//e", "../f", "/g"]);
        let requested = Requested::of(&paths(&["dir"]), Some(&names)).unwrap();
        for (path, counts) in [
            ("a", true),
            ("a/b", true),
            ("a/b/c/d", true),
            ("a/x", false),
            ("d/e", true),
            ("d/x", false),
            ("f", false),
            ("g", true),
        ] {
            assert_eq!(requested.contains(Path::new(path)), counts, "{path}");
        }
        assert!(Requested::of(&paths(&["dir"]), Some(&paths(&["a", "."]))).is_none());
    }
}
