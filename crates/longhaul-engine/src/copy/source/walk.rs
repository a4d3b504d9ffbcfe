use std::path::Path;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_core::wire::WirePath;
use longhaul_core::wire::copy::{ENTRIES_BATCH_BYTES, Entry, EntryKind};
use std::os::unix::ffi::OsStrExt;

use super::file::SourceFile;
use super::run::SourceRoot;
use crate::copy::tree::{FileKind, Metadata, Tree};
use crate::error::Result;

/// Entries in one batch at the most: few enough that the first blocks go out at once.
const BATCH_ENTRIES: usize = 64;

/// Takes what the walk finds; each call may fail only because the copy is over.
pub(super) trait WalkSink {
    /// Entries in the order of their numbers, with the files among them.
    fn announce(&mut self, entries: Vec<Entry>, files: Vec<Arc<SourceFile>>) -> Result<()>;
    /// Something that should have been copied and cannot be.
    fn failed(&mut self, path: &Path, reason: &str) -> Result<()>;
    /// Something that is not copied by design.
    fn skipped(&mut self, path: &Path, reason: &str) -> Result<()>;
}

/// Walks the roots of a copy, parents before children.
pub(super) struct Walk<'a, S> {
    tree: &'a Tree,
    recursive: bool,
    block_bytes: u64,
    sink: &'a mut S,
    entries: Vec<Entry>,
    files: Vec<Arc<SourceFile>>,
    batch_bytes: usize,
    next_id: u64,
}

impl<'a, S: WalkSink> Walk<'a, S> {
    pub(super) fn new(tree: &'a Tree, recursive: bool, block_bytes: u64, sink: &'a mut S) -> Self {
        Walk {
            tree,
            recursive,
            block_bytes,
            sink,
            entries: Vec::new(),
            files: Vec::new(),
            batch_bytes: 0,
            next_id: 0,
        }
    }

    /// Walks all `roots` and returns how many entries were announced.
    pub(super) fn run(mut self, roots: &[SourceRoot]) -> Result<u64> {
        for root in roots {
            match root {
                SourceRoot::Zero(size) => {
                    let id = self.next_id;
                    let file = SourceFile::zero(id, size.get(), self.block_bytes);
                    let now = Metadata {
                        kind: FileKind::File,
                        size: size.get(),
                        mode: 0o644,
                        mtime_seconds: 0,
                        mtime_ns: 0,
                        identity: (0, 0),
                    };
                    self.push(Path::new("zero"), now, Some(file))?;
                }
                SourceRoot::Path(path) => self.root(path)?,
            }
        }
        self.flush()?;
        Ok(self.next_id)
    }

    fn root(&mut self, path: &Path) -> Result<()> {
        let metadata = match self.tree.metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => return self.sink.failed(path, &format!("cannot open it: {error}")),
        };
        if SourceRoot::is_contents(path) && metadata.kind == FileKind::Directory {
            if !self.recursive {
                return self.sink.failed(path, "it is a directory; use -r to copy directories");
            }
            return self.children(path, Path::new(""), &mut vec![metadata.identity]);
        }
        let Some(name) = path.file_name() else {
            return self.sink.failed(path, "it has no name of its own; add '/.' for its contents");
        };
        self.visit(path, Path::new(name), metadata, &mut Vec::new())
    }

    fn visit(
        &mut self,
        path: &Path,
        name: &Path,
        metadata: Metadata,
        ancestors: &mut Vec<(u64, u64)>,
    ) -> Result<()> {
        match metadata.kind {
            FileKind::File => {
                let file = SourceFile::new(
                    self.next_id,
                    self.tree,
                    path.to_owned(),
                    metadata,
                    self.block_bytes,
                );
                self.push(name, metadata, Some(file))
            }
            FileKind::Directory if !self.recursive => {
                self.sink.failed(path, "it is a directory; use -r to copy directories")
            }
            FileKind::Directory if ancestors.contains(&metadata.identity) => {
                self.sink.skipped(path, "a link leads back to a directory above it")
            }
            FileKind::Directory => {
                self.push(name, metadata, None)?;
                ancestors.push(metadata.identity);
                let done = self.children(path, name, ancestors);
                ancestors.pop();
                done
            }
            FileKind::Other => self.sink.skipped(path, "not a regular file or directory"),
        }
    }

    fn children(
        &mut self,
        path: &Path,
        name: &Path,
        ancestors: &mut Vec<(u64, u64)>,
    ) -> Result<()> {
        let children = match self.tree.list(path) {
            Ok(children) => children,
            Err(error) => return self.sink.failed(path, &format!("cannot list it: {error}")),
        };
        for child in children {
            let (path, name) = (path.join(&child), name.join(&child));
            match self.tree.metadata(&path) {
                Ok(metadata) => self.visit(&path, &name, metadata, ancestors)?,
                Err(error) => self.sink.failed(&path, &format!("cannot open it: {error}"))?,
            }
        }
        Ok(())
    }

    fn push(&mut self, name: &Path, metadata: Metadata, file: Option<SourceFile>) -> Result<()> {
        // A path from the file system holds no NUL.
        let Some(path) = WirePath::new(name.as_os_str().as_bytes()) else { return Ok(()) };
        let kind = match &file {
            Some(file) => EntryKind::File { size_bytes: Bytes::new(file.size) },
            None => EntryKind::Directory,
        };
        self.batch_bytes += path.as_bytes().len() * 3 + 200;
        self.entries.push(Entry {
            id: self.next_id,
            path,
            kind,
            mode: metadata.mode,
            mtime_seconds: metadata.mtime_seconds,
            mtime_ns: metadata.mtime_ns,
        });
        self.files.extend(file.map(Arc::new));
        self.next_id += 1;
        if self.entries.len() >= BATCH_ENTRIES || self.batch_bytes >= ENTRIES_BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.batch_bytes = 0;
        if self.entries.is_empty() {
            return Ok(());
        }
        self.sink.announce(std::mem::take(&mut self.entries), std::mem::take(&mut self.files))
    }
}

impl SourceRoot {
    /// Whether `path` means what is in a directory, not the directory: `.`, `dir/.`, `..`.
    pub fn is_contents(path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        matches!(bytes, b"." | b".." | b"./" | b"../" | b"/")
            || bytes.ends_with(b"/.")
            || bytes.ends_with(b"/..")
            || bytes.ends_with(b"/./")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[derive(Default)]
    struct Found {
        paths: Vec<String>,
        failed: Vec<String>,
        skipped: Vec<String>,
    }

    impl WalkSink for Found {
        fn announce(&mut self, entries: Vec<Entry>, _: Vec<Arc<SourceFile>>) -> Result<()> {
            self.paths.extend(entries.iter().map(|entry| entry.path.to_string()));
            Ok(())
        }
        fn failed(&mut self, path: &Path, _: &str) -> Result<()> {
            self.failed.push(path.display().to_string());
            Ok(())
        }
        fn skipped(&mut self, path: &Path, _: &str) -> Result<()> {
            self.skipped.push(path.file_name().unwrap().display().to_string());
            Ok(())
        }
    }

    fn walk(recursive: bool, roots: &[PathBuf]) -> Found {
        let mut found = Found::default();
        let roots: Vec<_> = roots.iter().cloned().map(SourceRoot::Path).collect();
        Walk::new(&Tree::anywhere(), recursive, 1 << 20, &mut found).run(&roots).unwrap();
        found
    }

    #[test]
    fn parents_come_before_children_and_loops_end() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        std::fs::create_dir_all(top.join("sub")).unwrap();
        std::fs::write(top.join("sub/file"), "x").unwrap();
        std::fs::write(top.join("empty"), "").unwrap();
        std::os::unix::fs::symlink("..", top.join("sub/loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", top.join("dangling")).unwrap();
        let found = walk(true, std::slice::from_ref(&top));
        assert_eq!(found.paths, ["top", "top/empty", "top/sub", "top/sub/file"]);
        assert_eq!(found.skipped, ["loop"]);
        assert_eq!(found.failed.len(), 1);
        assert_eq!(walk(true, &[top.join(".")]).paths, ["empty", "sub", "sub/file"]);
    }

    #[test]
    fn a_directory_needs_the_flag() {
        let dir = tempfile::tempdir().unwrap();
        let found = walk(false, &[dir.path().to_owned(), dir.path().join("missing")]);
        assert_eq!((found.paths.len(), found.failed.len()), (0, 2));
    }
}
