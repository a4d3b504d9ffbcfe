//! Walks of trees that change meanwhile, are deep, or hold longhaul's own files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::plan::TreeOptions;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

/// The entries of a walk; each file is read at once.
#[derive(Default)]
struct Read {
    paths: Vec<String>,
    contents: Vec<Vec<u8>>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl WalkSink for Read {
    fn announce(&mut self, entries: Vec<Entry>, files: Vec<Arc<SourceFile>>) -> Result<()> {
        self.paths.extend(entries.iter().map(|entry| entry.path.to_string()));
        for file in files {
            let mut buffer = vec![0; file.size as usize];
            let Ok(Some(open)) = file.open_small() else { continue };
            if file.read_small(&open, &mut buffer).is_ok() {
                self.contents.push(buffer);
            }
        }
        Ok(())
    }
    fn failed(&mut self, path: &Path, _: &str) -> Result<()> {
        self.failed.push(path.display().to_string());
        Ok(())
    }
    fn skipped(&mut self, path: &Path, _: &str) -> Result<()> {
        self.skipped.push(path.file_name().unwrap_or_default().display().to_string());
        Ok(())
    }
}

fn archive() -> CopyOptions {
    CopyOptions { recursive: true, tree: TreeOptions::archive(), ..CopyOptions::default() }
}

fn read(root: &Path, key: Option<&CopyKey>) -> Read {
    read_with(&archive(), root, key)
}

fn read_with(options: &CopyOptions, root: &Path, key: Option<&CopyKey>) -> Read {
    let mut found = Read::default();
    let tree = Tree::anywhere();
    let roots = [SourceRoot::Path(root.to_owned())];
    Walk::new(&tree, options, &mut found).for_copy(key, None).run(&roots).unwrap();
    found
}

#[test]
fn a_directory_exchanged_for_a_link_leads_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (top, content) in [("tree/moving/sub", "inside"), ("outside/sub", "SECRET")] {
        fs::create_dir_all(at(top)).unwrap();
        for number in 0..20 {
            fs::write(at(top).join(format!("{number}")), content).unwrap();
            fs::write(at(top).join(format!("../{number}")), content).unwrap();
        }
    }
    fs::write(at("outside/only-outside"), "SECRET").unwrap();
    symlink(at("outside"), at("link")).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let (real, link) = (at("tree/moving"), at("link"));
                renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let leaked = (0..600).find_map(|turn| {
            let mut options = archive();
            // With and without a handle on each file.
            options.tree.xattrs = turn % 2 == 0;
            let found = read_with(&options, &at("tree"), None);
            let secret = found.contents.iter().any(|content| content != b"inside");
            let named = found.paths.iter().any(|path| path.contains("only-outside"));
            (secret || named).then_some(found.paths)
        });
        over.store(true, Ordering::Relaxed);
        assert_eq!(leaked, None);
    });
}

#[test]
fn a_deep_tree_is_walked_with_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().join("t");
    let depth = 300;
    for _ in 0..depth {
        fs::create_dir(&path).unwrap();
        // Visited after everything below it.
        fs::write(path.join("z"), "z").unwrap();
        path.push("d");
    }
    let found = read(&dir.path().join("t"), None);
    assert_eq!((found.failed.len(), found.contents.len()), (0, depth));
    assert_eq!(found.paths.len(), 2 * depth);
}

#[test]
fn a_path_that_is_too_long_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let name = "n".repeat(200);
    let mut at = openat_dir(CWD, dir.path());
    for _ in 0..25 {
        rustix::fs::mkdirat(&at, &name, 0o700.into()).unwrap();
        at = openat_dir(&at, Path::new(&name));
    }
    fs::write(dir.path().join("z"), "z").unwrap();
    let found = read(dir.path(), None);
    assert_eq!((found.failed.len(), found.contents.len()), (1, 1));
}

fn openat_dir(dir: impl std::os::fd::AsFd, name: &Path) -> OwnedFd {
    use rustix::fs::{Mode, OFlags, openat};
    openat(dir, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

#[test]
fn own_files_and_the_target_are_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let key = CopyKey::new(7);
    fs::create_dir_all(dir.path().join("t/target/sub")).unwrap();
    for name in [".longhaul-x.journal", ".f.longhaul-00000000-0.part", "f"] {
        fs::write(dir.path().join("t").join(name), "x").unwrap();
    }
    fs::write(dir.path().join("t/target").join(journal_name(&key)), "x").unwrap();
    let found = read(&dir.path().join("t"), Some(&key));
    assert_eq!(found.paths, ["t", "t/f"]);
    assert_eq!(found.skipped, [".f.longhaul-00000000-0.part", ".longhaul-x.journal"]);
    assert_eq!(found.failed, [dir.path().join("t/target").display().to_string()]);
    let found = read(&dir.path().join("t/target"), Some(&key));
    assert!(found.paths.is_empty() && found.failed.len() == 1);
    let found = read(&dir.path().join("t"), None);
    assert_eq!(found.paths, ["t", "t/f", "t/target", "t/target/sub"]);
}
