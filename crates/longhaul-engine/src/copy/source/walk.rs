//! Walks the roots of a copy and describes what it finds as entries.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::plan::filter::Filters;
use longhaul_core::plan::{CopyOptions, SubsetContent, SyncLevel};
use longhaul_core::units::Bytes;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{CopyKey, ENTRIES_BATCH_BYTES, Entry, EntryKind, TOP_DIRECTORY};
use rustix::io::Errno;

use super::SourceRoot;
use super::file::SourceFile;
use super::place::{ParentDirs, SourcePlace, link_target, lookup_in};
use super::subset::RemainingSubset;
use crate::copy::digest::whole_digest;
use crate::copy::journal::HostFiles;
use crate::copy::metadata::Capture;
use crate::copy::names::{is_reserved, journal_name};
use crate::copy::tree::{FileKind, Metadata, Tree, list_at};
use crate::error::Result;

/// The maximum number of entries in one batch: so few that the first blocks are sent at once.
const BATCH_ENTRIES: usize = 64;
/// The longest path that is walked (linux/limits.h: `PATH_MAX`), which bounds how deep a tree is.
const PATH_MAX: usize = 4096;
/// The maximum number of roots with an open directory until all of their files are read. Files of
/// further roots are opened by path, and compared with the walk like all files.
const OPEN_ROOTS: usize = 64;

/// Receives the findings of a walk; each call fails only if the copy is over.
pub(super) trait WalkSink {
    /// Entries in the order of their numbers, with the files among them.
    fn announce(&mut self, entries: Vec<Entry>, files: Vec<Arc<SourceFile>>) -> Result<()>;
    /// Reports a path that cannot be copied.
    fn failed(&mut self, path: &Path, reason: &str) -> Result<()>;
    /// Reports a path that is not copied by design.
    fn skipped(&mut self, path: &Path, reason: &str) -> Result<()>;
}

/// Walks the roots of a copy, parents before children.
pub(super) struct Walk<'a, S> {
    pub(super) tree: &'a Tree,
    pub(super) options: &'a CopyOptions,
    pub(super) filters: Filters,
    capture: Capture,
    /// The directory from which the files of the present root are opened.
    pub(super) place: SourcePlace,
    /// The number of roots with an open directory.
    open_roots: usize,
    /// The name of the journal of this copy.
    own_journal: Option<PathBuf>,
    /// Names files to a sink on this host.
    identities: Option<HostFiles>,
    above: ParentDirs,
    pub(super) sink: &'a mut S,
    /// The id and path of the first name of each file with several names.
    several_names: HashMap<(u64, u64), (u64, FilePath)>,
    subset: Option<RemainingSubset>,
    entries: Vec<Entry>,
    files: Vec<Arc<SourceFile>>,
    batch_bytes: usize,
    next_id: u64,
}

/// A path that the walk has found and not yet announced.
pub(super) struct FoundPath<'p> {
    /// The path at the source.
    pub(super) path: &'p Path,
    /// The path in the copy.
    pub(super) name: &'p Path,
    /// `None` for a regular file of which only the metadata are needed.
    pub(super) handle: Option<OwnedFd>,
    pub(super) metadata: Metadata,
}

impl FoundPath<'_> {
    fn handle(&self) -> std::io::Result<&OwnedFd> {
        self.handle.as_ref().ok_or_else(|| Errno::BADF.into())
    }
}

impl<'a, S: WalkSink> Walk<'a, S> {
    pub(super) fn new(tree: &'a Tree, options: &'a CopyOptions, sink: &'a mut S) -> Self {
        Walk {
            tree,
            options,
            filters: Filters::new(&options.tree.filters),
            capture: Capture::new(&options.tree),
            place: SourcePlace::of(tree),
            open_roots: 0,
            own_journal: None,
            identities: None,
            above: ParentDirs::default(),
            sink,
            several_names: HashMap::new(),
            subset: options.subset.map(RemainingSubset::new),
            entries: Vec::new(),
            files: Vec::new(),
            batch_bytes: 0,
            next_id: 0,
        }
    }

    /// Prepares the walk for the copy `key`: a directory with its journal is its target and is not
    /// walked. With `identities`, entries have the numbers of their files.
    pub(super) fn for_copy(self, key: Option<&CopyKey>, identities: Option<HostFiles>) -> Self {
        let own_journal = key.map(|key| PathBuf::from(journal_name(key)));
        Walk { own_journal, identities, ..self }
    }

    /// Walks all `roots` and returns how many entries were announced.
    pub(super) fn run(mut self, roots: &[SourceRoot]) -> Result<u64> {
        let memory = self.subset.as_ref().and_then(RemainingSubset::memory).map(SourceRoot::Zero);
        for root in memory.as_ref().map_or(roots, std::slice::from_ref) {
            match root {
                SourceRoot::Zero(size) => {
                    let block_bytes = self.options.block_bytes.get();
                    let file = SourceFile::zero(self.next_id, size.get(), block_bytes);
                    let kind = EntryKind::File { size_bytes: *size };
                    let zero = FilePath::new("zero").expect("the name holds no NUL");
                    let entry = Entry::new(zero, kind, 0o644);
                    self.push(entry, Some(file))?;
                }
                SourceRoot::Feed(feed) => {
                    let block_bytes = self.options.block_bytes.get();
                    let file = SourceFile::feed(self.next_id, feed, block_bytes);
                    let name = FilePath::new("stdin").expect("the name holds no NUL");
                    let mut entry = Entry::new(name, EntryKind::Stream, 0o644);
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    entry.mtime_seconds = now.as_secs() as i64;
                    entry.mtime_ns = now.subsec_nanos();
                    entry.stamp = feed.stamp();
                    self.push(entry, Some(file))?;
                }
                SourceRoot::Listed { base, names } => self.listed(base, names)?,
                SourceRoot::Path(path) => self.root(path, roots.len() == 1)?,
            }
        }
        self.flush()?;
        Ok(self.next_id)
    }

    /// Announces the root at `path`. If the contents of a directory are copied, its attributes go
    /// with them if attributes are kept and it is the `only` root.
    fn root(&mut self, path: &Path, only: bool) -> Result<()> {
        // A slash at the end follows a link, as everywhere in Unix.
        let follow = !self.options.tree.keep_links || path.as_os_str().as_bytes().ends_with(b"/");
        let (handle, metadata) = match self.tree.lookup(path, follow) {
            Ok(found) => found,
            Err(error) => return self.sink.failed(path, &format!("cannot open it: {error}")),
        };
        self.place = self.place_of(path, &handle, &metadata);
        if SourceRoot::is_contents(path) && metadata.kind == FileKind::Directory {
            if !self.options.recursive {
                return self.sink.failed(path, NEEDS_RECURSIVE);
            }
            let (name, handle) = (Path::new(TOP_DIRECTORY), Some(handle));
            let found = FoundPath { path, name, handle, metadata };
            let announced = only && self.options.preserve;
            return self.directory(found, announced, Path::new(""));
        }
        let Some(name) = path.file_name() else {
            return self.sink.failed(
                path,
                "the path ends without a name; add '/.' to copy the \
                contents",
            );
        };
        if is_reserved(name.as_bytes()) {
            return self.sink.failed(path, RESERVED_ROOT);
        }
        self.visit(FoundPath { path, name: Path::new(name), handle: Some(handle), metadata })
    }

    /// Returns the directory from which the files of the root at `path` are opened; `handle` is on
    /// the root.
    pub(super) fn place_of(
        &mut self,
        path: &Path,
        handle: &OwnedFd,
        metadata: &Metadata,
    ) -> SourcePlace {
        let is_dir = metadata.kind == FileKind::Directory;
        if !is_dir || !self.options.tree.keep_links || self.open_roots >= OPEN_ROOTS {
            return SourcePlace::of(self.tree);
        }
        self.open_roots += 1;
        SourcePlace::beneath(handle, path).unwrap_or_else(|_| SourcePlace::of(self.tree))
    }

    pub(super) fn visit(&mut self, found: FoundPath<'_>) -> Result<()> {
        let Metadata { kind, identity, .. } = found.metadata;
        let is_dir = kind == FileKind::Directory;
        if self.filters.leaves_out(found.name.as_os_str().as_bytes(), is_dir) {
            return Ok(());
        }
        let kind = match kind {
            FileKind::Directory if !self.options.recursive => {
                return self.sink.failed(found.path, NEEDS_RECURSIVE);
            }
            FileKind::Directory if self.above.contains(identity) => {
                let reason = "a link leads back to a directory above it";
                return self.sink.skipped(found.path, reason);
            }
            FileKind::Directory => {
                let name = found.name;
                return self.directory(found, true, name);
            }
            FileKind::File => EntryKind::File { size_bytes: Bytes::new(found.metadata.size) },
            FileKind::Symlink => match found.handle().and_then(link_target) {
                Ok(target) => match FilePath::new(target.into_bytes()) {
                    Some(target) => EntryKind::Symlink { target },
                    None => return Ok(()),
                },
                Err(error) => {
                    let reason = format!("cannot read the link: {error}");
                    return self.sink.failed(found.path, &reason);
                }
            },
            _ if !self.options.tree.specials => {
                return self.sink.skipped(found.path, "not a regular file or directory");
            }
            FileKind::Fifo => EntryKind::Fifo,
            FileKind::Socket => EntryKind::Socket,
            FileKind::CharDevice(device) => EntryKind::CharDevice(device),
            FileKind::BlockDevice(device) => EntryKind::BlockDevice(device),
        };
        self.announce(&found, kind)
    }

    /// Walks a directory, whose contents get `name` as their prefix. The directory itself is
    /// announced if `announced`.
    pub(super) fn directory(
        &mut self,
        found: FoundPath<'_>,
        announced: bool,
        name: &Path,
    ) -> Result<()> {
        let children = found.handle().and_then(list_at);
        let is_own = |names: &Vec<PathBuf>| {
            self.own_journal.as_ref().is_some_and(|own| names.binary_search(own).is_ok())
        };
        if children.as_ref().is_ok_and(is_own) {
            return self.sink.failed(found.path, OWN_TARGET);
        }
        if announced {
            self.announce(&found, EntryKind::Directory)?;
        }
        let FoundPath { path, handle, metadata, .. } = found;
        let (children, handle) = match children.map(|children| (children, handle)) {
            Ok((children, Some(handle))) => (children, handle),
            Ok((_, None)) => return Ok(()),
            Err(error) => return self.sink.failed(path, &format!("cannot list it: {error}")),
        };
        self.above.push(metadata.identity, handle);
        let done = self.children(path, name, children);
        self.above.pop();
        done
    }

    fn children(&mut self, path: &Path, name: &Path, children: Vec<PathBuf>) -> Result<()> {
        for child in children {
            if self.subset.as_ref().is_some_and(RemainingSubset::is_full) {
                break;
            }
            let (path, name) = (path.join(&child), name.join(&child));
            if is_reserved(child.as_os_str().as_bytes()) {
                self.sink.skipped(&path, RESERVED_CHILD)?;
                continue;
            }
            match self.lookup(&path, &child) {
                Ok((handle, metadata)) => {
                    self.visit(FoundPath { path: &path, name: &name, handle, metadata })?;
                }
                Err(error) => self.sink.failed(&path, &format!("cannot open it: {error}"))?,
            }
        }
        Ok(())
    }

    /// Returns a handle on `child` of the present directory, which is at `path`, and its metadata.
    /// A link is followed unless links are kept. A regular file has a handle only if its extended
    /// attributes are copied.
    fn lookup(
        &mut self,
        path: &Path,
        child: &Path,
    ) -> std::io::Result<(Option<OwnedFd>, Metadata)> {
        if path.as_os_str().len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let (tree, place) = (self.tree, &self.place);
        let follow = !self.options.tree.keep_links;
        let dir = path.parent().unwrap_or(Path::new(""));
        let dir = self.above.present(|| place.lookup(dir, follow))?;
        let found = lookup_in(dir, child, self.options.tree.xattrs)?;
        match found.1.kind {
            FileKind::Symlink if follow => {
                tree.lookup(path, true).map(|(handle, metadata)| (Some(handle), metadata))
            }
            _ => Ok(found),
        }
    }

    /// Announces a path as `kind`, or as another name of a file that was announced before.
    pub(super) fn announce(&mut self, found: &FoundPath<'_>, kind: EntryKind) -> Result<()> {
        let FoundPath { path, name, handle, metadata } = found;
        let kind = match (kind, &mut self.subset) {
            (EntryKind::File { size_bytes }, Some(subset)) => match subset.take(size_bytes) {
                Some(size_bytes) => EntryKind::File { size_bytes },
                None => return Ok(()),
            },
            (kind, _) => kind,
        };
        // A path from the file system holds no NUL.
        let Some(name) = FilePath::new(name.as_os_str().as_bytes()) else { return Ok(()) };
        let kind = match self.earlier_name(&kind, metadata, &name) {
            Some((first, path)) => EntryKind::HardLink { first, path },
            None => kind,
        };
        let mut entry = Entry::new(name, kind, metadata.mode);
        entry.mtime_seconds = metadata.mtime_seconds;
        entry.mtime_ns = metadata.mtime_ns;
        entry.stamp = metadata.stamp();
        entry.identities = self.identities_of(path, metadata);
        if self.options.tree.sync_level == Some(SyncLevel::Checksum)
            && matches!(entry.kind, EntryKind::File { .. })
        {
            // A file that cannot be read fails when its data are read.
            entry.digest = self.digest(path);
        }
        if !matches!(entry.kind, EntryKind::HardLink { .. }) {
            entry.owner = self.capture.owner(metadata);
            let xattrs = handle.as_ref().map(|handle| self.capture.xattrs(handle, metadata));
            match xattrs.transpose() {
                Ok(xattrs) => entry.xattrs = xattrs.unwrap_or_default(),
                Err(error) => {
                    let reason = format!("its extended attributes cannot be read: {error}");
                    self.sink.skipped(path, &reason)?;
                }
            }
        }
        let file = match entry.kind {
            EntryKind::File { size_bytes } => {
                let block_bytes = self.options.block_bytes.get();
                let size = size_bytes.get();
                Some(match self.options.subset.map(|subset| subset.content) {
                    Some(SubsetContent::Zeros) => SourceFile::zero(self.next_id, size, block_bytes),
                    _ => {
                        let (path, place) = ((*path).to_owned(), self.place.clone());
                        SourceFile::new(self.next_id, place, path, *metadata, block_bytes)
                            .cut_to(size)
                    }
                })
            }
            _ => None,
        };
        // An ordered output needs zeros for holes.
        if !self.options.tree.ordered {
            entry.holes = file.as_ref().and_then(SourceFile::leave_holes_out);
        }
        self.push(entry, file)
    }

    fn digest(&self, path: &Path) -> Option<[u8; 32]> {
        let mut file = self.place.open_file(path).ok()?;
        whole_digest(&mut file, |_| true).ok().map(|(digest, _)| digest)
    }

    /// Returns the number of the file at `path`, and of the file that it leads to if it is a link,
    /// for a sink on this host.
    fn identities_of(&self, path: &Path, metadata: &Metadata) -> Vec<u64> {
        let Some(files) = self.identities else { return Vec::new() };
        let target = match metadata.kind {
            FileKind::Directory => return Vec::new(),
            FileKind::Symlink => self.tree.metadata(path).ok(),
            _ => None,
        };
        let found = std::iter::once(metadata).chain(target.as_ref());
        found.map(|found| files.number(found.identity)).collect()
    }

    /// Returns the first name of a file with several names, if hard links are kept and this is a
    /// later one.
    fn earlier_name(
        &mut self,
        kind: &EntryKind,
        metadata: &Metadata,
        name: &FilePath,
    ) -> Option<(u64, FilePath)> {
        let several = metadata.names > 1 && !matches!(kind, EntryKind::Directory);
        if !several || !self.options.tree.hard_links {
            return None;
        }
        let earlier = self.several_names.get(&metadata.identity).cloned();
        if earlier.is_none() {
            self.several_names.insert(metadata.identity, (self.next_id, name.clone()));
        }
        earlier
    }

    fn push(&mut self, mut entry: Entry, file: Option<SourceFile>) -> Result<()> {
        entry.id = self.next_id;
        let extra: usize = entry
            .xattrs
            .iter()
            .map(|xattr| 3 * xattr.name.as_bytes().len() + 2 * xattr.value.len())
            .sum();
        let target = match &entry.kind {
            EntryKind::Symlink { target: path } | EntryKind::HardLink { path, .. } => {
                path.as_bytes().len()
            }
            _ => 0,
        };
        let holes = entry.holes.as_ref().map_or(0, Vec::len) * 24;
        self.batch_bytes += (entry.path.as_bytes().len() + target) * 3 + 300 + extra + holes;
        self.entries.push(entry);
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

const OWN_TARGET: &str = "it is the target of this copy, or contains the target";
pub(super) const RESERVED_CHILD: &str = "it is one of longhaul's own files";
const RESERVED_ROOT: &str = "it is one of longhaul's own files; rename it to copy it";
const NEEDS_RECURSIVE: &str = "it is a directory, and the copy is not recursive";

impl SourceRoot {
    /// Returns whether `path` means the contents of a directory: `.`, `dir/.`, `..`.
    pub fn is_contents(path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        matches!(bytes, b"." | b".." | b"./" | b"../" | b"/")
            || bytes.ends_with(b"/.")
            || bytes.ends_with(b"/..")
            || bytes.ends_with(b"/./")
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod changing;

#[cfg(test)]
mod tests {
    use longhaul_core::plan::TreeOptions;

    use super::*;

    #[derive(Default)]
    struct Walked {
        paths: Vec<String>,
        kinds: Vec<EntryKind>,
        failed: Vec<String>,
        skipped: Vec<String>,
    }

    impl WalkSink for Walked {
        fn announce(&mut self, entries: Vec<Entry>, _: Vec<Arc<SourceFile>>) -> Result<()> {
            self.paths.extend(entries.iter().map(|entry| entry.path.to_string()));
            self.kinds.extend(entries.into_iter().map(|entry| entry.kind));
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

    fn walk(options: &CopyOptions, roots: &[PathBuf]) -> Walked {
        let mut found = Walked::default();
        let roots: Vec<_> = roots.iter().cloned().map(SourceRoot::Path).collect();
        Walk::new(&Tree::anywhere(), options, &mut found).run(&roots).unwrap();
        found
    }

    fn recursive() -> CopyOptions {
        CopyOptions { recursive: true, ..CopyOptions::default() }
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
        let found = walk(&recursive(), std::slice::from_ref(&top));
        assert_eq!(found.paths, ["top", "top/empty", "top/sub", "top/sub/file"]);
        assert_eq!(found.skipped, ["loop"]);
        assert_eq!(found.failed.len(), 1);
        let contents = [top.join(".")];
        assert_eq!(walk(&recursive(), &contents).paths, ["empty", "sub", "sub/file"]);
        let preserving = CopyOptions { preserve: true, ..recursive() };
        assert_eq!(walk(&preserving, &contents).paths, [".", "empty", "sub", "sub/file"]);
        let two = [top.join("."), top.join(".")];
        assert!(!walk(&preserving, &two).paths.contains(&".".to_owned()));
    }

    #[test]
    fn a_directory_needs_the_flag() {
        let dir = tempfile::tempdir().unwrap();
        let found =
            walk(&CopyOptions::default(), &[dir.path().to_owned(), dir.path().join("missing")]);
        assert_eq!((found.paths.len(), found.failed.len()), (0, 2));
    }

    #[test]
    fn links_fifos_and_second_names_are_kept_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), "x").unwrap();
        std::fs::hard_link(at("a"), at("b")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("c")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("d"), 0o600.into()).unwrap();
        let options = CopyOptions { tree: TreeOptions::archive(), ..recursive() };
        let found = walk(&options, &[at(".")]);
        assert_eq!(found.paths, ["a", "b", "c", "d"]);
        assert!(found.failed.is_empty() && found.skipped.is_empty());
        let path = |name: &str| FilePath::new(name).unwrap();
        let [_, kinds @ ..] = found.kinds.as_slice() else { panic!("four were found") };
        assert_eq!(
            kinds,
            [
                EntryKind::HardLink { first: 0, path: path("a") },
                EntryKind::Symlink { target: path("nowhere") },
                EntryKind::Fifo,
            ]
        );
    }

    #[test]
    fn excluded_directories_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        std::fs::create_dir_all(top.join("build/deep")).unwrap();
        std::fs::write(top.join("build/deep/keep.c"), "x").unwrap();
        std::fs::write(top.join("a.o"), "x").unwrap();
        std::fs::write(top.join("a.c"), "x").unwrap();
        let mut list = longhaul_core::plan::filter::FilterList::default();
        list.add(b"keep.c", true).unwrap();
        list.add(b"build/", false).unwrap();
        list.add(b"*.o", false).unwrap();
        let mut options = recursive();
        options.tree.filters = list.into_rules();
        assert_eq!(walk(&options, &[top]).paths, ["top", "top/a.c"]);
    }
}
