//! Copies the paths in a list, each with the directories above it (`--files-from`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use longhaul_core::wire::copy::EntryKind;

use super::walk::{FoundPath, RESERVED_CHILD, Walk, WalkSink};
use crate::copy::names::has_reserved;
use crate::copy::tree::FileKind;
use crate::error::Result;

/// The error of a symbolic link in a path that must not contain one.
const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();

impl<S: WalkSink> Walk<'_, S> {
    /// Announces `names`, paths relative to the directory `base`. A directory in the list is
    /// announced without its contents, unless the copy is recursive.
    pub(super) fn listed(&mut self, base: &Path, names: &[PathBuf]) -> Result<()> {
        let (top, top_metadata) = match self.tree.lookup(base, true) {
            Ok((handle, metadata)) if metadata.kind == FileKind::Directory => (handle, metadata),
            Ok(_) => return self.sink.failed(base, "it is not a directory"),
            Err(error) => return self.sink.failed(base, &format!("cannot open it: {error}")),
        };
        self.place = self.place_of(base, &top, &top_metadata);
        let mut top = Some(top);
        // Sorted like every walk: a directory precedes its contents.
        let mut plain = Vec::with_capacity(names.len());
        for name in names {
            match plain_name(name) {
                Some(name) => plain.push(name),
                None => self.sink.failed(name, "a name in the list may not contain '..'")?,
            }
        }
        plain.sort();
        plain.dedup();
        let mut announced = HashSet::new();
        // The directory that was announced last with all that is in it.
        let mut whole: Option<PathBuf> = None;
        for name in plain {
            if whole.as_ref().is_some_and(|whole| name.starts_with(whole)) {
                continue;
            }
            if !self.above(base, &name, &mut announced)? {
                continue;
            }
            if name.as_os_str().is_empty() {
                if let Some(top) = top.take().filter(|_| self.options.recursive) {
                    let (path, name, handle) = (base, Path::new(""), Some(top));
                    let found = FoundPath { path, name, handle, metadata: top_metadata };
                    return self.directory(found, false, name);
                }
                continue;
            }
            let path = base.join(&name);
            if has_reserved(&name) {
                self.sink.skipped(&path, RESERVED_CHILD)?;
                continue;
            }
            let (handle, metadata) = match self.place.lookup(&path, !self.options.tree.keep_links) {
                Ok(found) => found,
                Err(error) => {
                    self.sink.failed(&path, &format!("cannot open it: {error}"))?;
                    continue;
                }
            };
            let handle = Some(handle);
            let found = FoundPath { path: &path, name: &name, handle, metadata };
            if metadata.kind != FileKind::Directory {
                self.visit(found)?;
            } else if self.options.recursive {
                self.visit(found)?;
                whole = Some(name);
            } else if announced.insert(name.clone()) && !self.left_out(&name, true) {
                self.announce(&found, EntryKind::Directory)?;
            }
        }
        Ok(())
    }

    /// Announces the directories above `name`; false if one of them is missing. Filters do not
    /// apply to them, as in rsync.
    fn above(
        &mut self,
        base: &Path,
        name: &Path,
        announced: &mut HashSet<PathBuf>,
    ) -> Result<bool> {
        let mut above: Vec<_> = name.ancestors().skip(1).collect();
        above.pop();
        for dir in above.into_iter().rev() {
            if announced.contains(dir) {
                continue;
            }
            let path = base.join(dir);
            match self.place.lookup(&path, true) {
                Ok((handle, metadata)) if metadata.kind == FileKind::Directory => {
                    announced.insert(dir.to_owned());
                    let handle = Some(handle);
                    let found = FoundPath { path: &path, name: dir, handle, metadata };
                    self.announce(&found, EntryKind::Directory)?;
                }
                Err(error) if error.raw_os_error() == Some(LOOP) => {
                    self.sink.failed(
                        &base.join(name),
                        "a directory above it is a symbolic link, and links are kept",
                    )?;
                    return Ok(false);
                }
                Ok(_) => {
                    self.sink.failed(&base.join(name), "a part of its path is not a directory")?;
                    return Ok(false);
                }
                Err(error) => {
                    self.sink.failed(&base.join(name), &format!("cannot open it: {error}"))?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn left_out(&self, name: &Path, is_dir: bool) -> bool {
        self.filters.leaves_out(name.as_os_str().as_bytes(), is_dir)
    }
}

/// Returns `name` without slashes at its ends and without `.`; `None` if it contains `..`.
pub(in crate::copy) fn plain_name(name: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// Returns the names of a list. There is one per line, and empty lines and lines that begin with
/// `#` or `;` are ignored. With `nul` every name ends with a NUL, and only empty names are ignored.
/// rsync ignores names that begin like a comment in both cases.
pub fn read_names(list: &[u8], nul: bool) -> Vec<PathBuf> {
    let path = |name: &[u8]| PathBuf::from(OsStr::from_bytes(name));
    if nul {
        let names = list.split(|byte| *byte == 0);
        return names.filter(|name| !name.is_empty()).map(path).collect();
    }
    list.split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !matches!(line.first(), None | Some(b'#' | b';')))
        .map(path)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_rsync_reads_them() {
        let names = |list: &[u8], nul| {
            let names = read_names(list, nul).into_iter();
            names.map(|name| name.into_os_string().into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(b"a b\n\n#no\n;no\nc/d\r\nlast", false), ["a b", "c/d", "last"]);
        assert_eq!(names(b"a\nb\0#yes\0\0c", true), ["a\nb", "#yes", "c"]);
    }

    #[test]
    fn a_name_stays_beneath() {
        let plain = |name: &str| plain_name(Path::new(name));
        assert_eq!(plain("./a//b/."), Some("a/b".into()));
        assert_eq!(plain("/a"), Some("a".into()));
        assert_eq!(plain("."), Some("".into()));
        assert_eq!(plain("a/../b"), None);
    }
}
