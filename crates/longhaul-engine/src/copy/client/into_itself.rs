//! Refuses a copy within this host of a file or directory onto or into itself, as cp(1) does.
//!
//! Files are compared by device and inode, so that other names and links of a file are found. A
//! file that is created while the copy runs is not: the walk recognizes a target by its journal,
//! and the sink recognizes a file of the source by its identity.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_core::plan::CopyOptions;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use crate::copy::source::{SourcePlan, SourceRoot};

/// The reason why a copy is refused before it begins.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfCopy {
    /// A file, or a directory, would replace itself.
    #[error("'{}' and '{}' are the same file", .0.display(), .1.display())]
    Same(PathBuf, PathBuf),
    /// A directory would hold a copy of itself.
    #[error("cannot copy the directory '{}' into itself, '{}'", .0.display(), .1.display())]
    Within(PathBuf, PathBuf),
}

/// The maximum number of directories from a target up to the root of the file system.
const DEPTH_LIMIT: usize = 4096;

/// Checks a copy of `plan` to the path `target`, both of this host.
///
/// # Errors
/// It would copy something onto or into itself.
pub fn check_apart(
    plan: &SourcePlan,
    target: &Path,
    options: &CopyOptions,
) -> Result<(), SelfCopy> {
    let target_is_dir = fs::metadata(target).is_ok_and(|found| found.is_dir());
    plan.roots.iter().try_for_each(|root| match root {
        SourceRoot::Path(path) => check_root(path, target, target_is_dir, options),
        SourceRoot::Listed { base, .. } => match (fs::metadata(base), fs::metadata(target)) {
            (Ok(one), Ok(other)) if identity(&one) == identity(&other) => {
                Err(SelfCopy::Same(base.clone(), target.to_owned()))
            }
            _ => Ok(()),
        },
        SourceRoot::Zero(_) | SourceRoot::Feed(_) => Ok(()),
    })
}

fn check_root(
    path: &Path,
    target: &Path,
    target_is_dir: bool,
    options: &CopyOptions,
) -> Result<(), SelfCopy> {
    let follow = !options.tree.keep_links || path.as_os_str().as_bytes().ends_with(b"/");
    let found = if follow { fs::metadata(path) } else { fs::symlink_metadata(path) };
    // The copy reports a missing source.
    let Ok(found) = found else { return Ok(()) };
    let contents = SourceRoot::is_contents(path);
    let place = match path.file_name().filter(|_| target_is_dir && !contents) {
        Some(name) => target.join(name),
        None => target.to_owned(),
    };
    let there = [fs::symlink_metadata(&place), fs::metadata(&place)];
    if there.iter().flatten().any(|there| identity(there) == identity(&found)) {
        return Err(SelfCopy::Same(path.to_owned(), place));
    }
    let above = match target.parent().filter(|_| !target_is_dir) {
        None => target,
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    if found.is_dir() && options.recursive && is_within(above, identity(&found)) {
        Err(SelfCopy::Within(path.to_owned(), place))
    } else {
        Ok(())
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns whether the directory `dir` has the identity `outer` or lies in that directory.
fn is_within(dir: &Path, outer: (u64, u64)) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let climb = || -> io::Result<bool> {
        let mut at = openat(CWD, dir, flags, Mode::empty())?;
        let mut below = None;
        for _ in 0..DEPTH_LIMIT {
            let stat = fstat(&at)?;
            let here = (stat.st_dev, stat.st_ino);
            if here == outer {
                return Ok(true);
            }
            // The root's parent is the root.
            if below.replace(here) == Some(here) {
                return Ok(false);
            }
            at = openat(&at, "..", flags, Mode::empty())?;
        }
        Ok(false)
    };
    climb().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use longhaul_core::plan::TreeOptions;

    use super::*;
    use crate::copy::tree::Tree;

    fn check(dir: &Path, source: &str, target: &str) -> Result<(), SelfCopy> {
        let join = |name: &str| PathBuf::from(format!("{}/{name}", dir.display()));
        let roots = vec![SourceRoot::Path(join(source))];
        let plan = SourcePlan { tree: Tree::anywhere(), roots };
        for tree in [TreeOptions::default(), TreeOptions::archive()] {
            let options = CopyOptions { recursive: true, tree, ..CopyOptions::default() };
            check_apart(&plan, &join(target), &options)?;
        }
        Ok(())
    }

    #[test]
    fn copies_that_cp_refuses_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir_all(dir.join("run/sub/deep")).unwrap();
        fs::write(dir.join("f"), "x").unwrap();
        fs::hard_link(dir.join("f"), dir.join("second")).unwrap();
        symlink("f", dir.join("link")).unwrap();
        symlink("run/sub", dir.join("inside")).unwrap();
        symlink("run", dir.join("alias")).unwrap();
        for (source, target) in [
            ("f", "f"),
            ("f", "."),
            ("f", "second"),
            ("f", "link"),
            ("run", "."),
            ("run/.", "run"),
            ("run", "run/../run/."),
        ] {
            let refused = check(dir, source, target);
            let same = matches!(refused, Err(SelfCopy::Same(..)));
            let within = matches!(refused, Err(SelfCopy::Within(..)));
            assert!(same || within && target == "run/../run/.", "{source} {target}: {refused:?}");
        }
        for (source, target) in [
            ("run", "run/"),
            ("run", "run/new"),
            ("run", "run/sub/deep"),
            ("run", "inside"),
            ("run", "alias"),
            ("alias/", "run/sub"),
            (".", "run/sub"),
            ("./.", "run/new"),
        ] {
            let refused = check(dir, source, target);
            assert!(matches!(refused, Err(SelfCopy::Within(..))), "{source} {target}");
        }
    }

    #[test]
    fn copies_that_cp_makes_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir_all(dir.join("run/sub")).unwrap();
        fs::create_dir_all(dir.join("runner")).unwrap();
        fs::write(dir.join("f"), "x").unwrap();
        for (source, target) in [
            ("f", "g"),
            ("f", "run"),
            ("run", "runner"),
            ("run", "new"),
            ("run/sub", "."),
            ("run/sub", "runner"),
            ("missing", "f"),
        ] {
            assert_eq!(check(dir, source, target), Ok(()), "{source} {target}");
        }
    }
}
