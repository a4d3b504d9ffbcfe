//! Copies at the far end of a real path: one directory per run, created and removed by sh(1)
//! scripts over ssh, and the check of free space.
//!
//! Invariants: a script removes only the directory that mktemp(1) created for the run, and first
//! kills the processes that still use it. The scripts need GNU coreutils and find.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use longhaul_core::plan::{DataStore, RealPath};
use longhaul_core::units::Bytes;

use super::listing::{self, Listing};
use super::script::run_script;
use crate::LabError;
use crate::data::{CopyData, with_margin};
use crate::network::{FarHost, Network, NetworkError};

/// The mount point of a memory file system that every user can write (shm_overview(7)).
const MEMORY: &str = "/dev/shm";
/// The name template of run directories for mktemp(1).
const TEMPLATE: &str = "longhaul-run-XXXXXXXXXX";
/// The time limit for the far half of a tool to end after its near half, in tenths of a second.
const PATIENCE: u32 = 20;

/// A directory at the far end for the copies of one run.
#[derive(Debug)]
pub(super) struct FarDir {
    path: String,
}

impl FarDir {
    /// Creates the directory below the far end's directory or in its memory.
    pub(super) fn make(far: &dyn FarHost, store: DataStore) -> Result<Self, NetworkError> {
        // This script is never aborted: an unknown directory could not be removed.
        let said = far.run(&make_script(base(far, store)), &|| false)?;
        let path = said.lines().last().unwrap_or_default().trim().to_owned();
        let name = TEMPLATE.trim_end_matches('X');
        if !path.starts_with('/') || !path.contains(name) || !RealPath::is_plain(&path) {
            let advice = "name a directory of letters, digits and /._-+@,= in the plan's [real]";
            return Err(format!("'{path}' cannot hold copies; {advice}").into());
        }
        Ok(FarDir { path })
    }

    /// Returns the absolute path, which every shell reads as a single word.
    pub(super) fn path(&self) -> &Path {
        Path::new(&self.path)
    }

    /// Syncs the directory's file system and returns the duration of the sync at the far end,
    /// without the time of ssh.
    pub(super) fn settle(
        &self,
        far: &dyn FarHost,
        stop: &AtomicBool,
    ) -> Result<Duration, NetworkError> {
        let said = far.run(&settle_script(&self.path), &|| stop.load(Ordering::Relaxed))?;
        let nanoseconds = said.lines().last().and_then(|line| line.trim().parse().ok());
        Ok(Duration::from_nanos(nanoseconds.ok_or("date(1) at the far end prints no nanoseconds")?))
    }

    /// Compares copies in the directory with their source and describes the first difference.
    pub(super) fn compare(
        &self,
        far: &dyn FarHost,
        source: &Path,
        copies: &[String],
        stop: &AtomicBool,
    ) -> Result<Option<String>, NetworkError> {
        let give_up = || stop.load(Ordering::Relaxed);
        let parsed = |text: &str, root: &str| Listing::parse(text, root);
        thread::scope(|scope| {
            // Both ends read at the same time.
            let here = scope.spawn(|| {
                let root = source.to_string_lossy();
                let text = run_script(Command::new("sh"), &listing::script(&root), &give_up)?;
                Ok::<_, NetworkError>(parsed(&text, &root)?)
            });
            let mut there = Vec::new();
            for copy in copies {
                let root = format!("{}/{copy}", self.path);
                let text = far.run(&listing::script(&root), &give_up)?;
                there.push(parsed(&text, &root)?);
            }
            let here = here.join().map_err(|_| "the listing of the source failed")??;
            Ok(there.iter().find_map(|copy| here.difference(copy, source)))
        })
    }

    /// Kills the processes that still use the directory, removes it, and returns the names of the
    /// killed processes.
    pub(super) fn remove(
        self,
        far: &dyn FarHost,
        stop: &AtomicBool,
    ) -> Result<Vec<String>, NetworkError> {
        let patience = if stop.load(Ordering::Relaxed) { 0 } else { PATIENCE };
        let ended = far.run(&remove_script(&self.path, patience), &|| false);
        let ended = ended.map_err(|error| {
            format!("cannot remove {} at {}: {error}", self.path, far.ssh_name())
        })?;
        Ok(ended.lines().map(str::to_owned).collect())
    }
}

/// Checks that the far end of a real path has space for the copies of the largest of `sources`,
/// each with its number of simultaneous clients. Other paths end on this host and need no check.
///
/// # Errors
/// The space is insufficient or unknown.
pub fn check_far_room<'a>(
    network: &mut dyn Network,
    plan: &longhaul_core::plan::MatrixPlan,
    sources: impl IntoIterator<Item = (&'a CopyData, u32)> + Clone,
) -> Result<(), LabError> {
    let conditions = plan.conditions();
    let Some(condition) = conditions.first().filter(|path| path.real.is_some()) else {
        return Ok(());
    };
    let largest = |store: DataStore| {
        let there = sources.clone().into_iter().filter(|(source, _)| source.to == store);
        there.map(|(source, clients)| source.bytes.get().saturating_mul(clients.into())).max()
    };
    let unreachable = |source| LabError::Network { source };
    let mut path = None;
    for store in [DataStore::Disk, DataStore::Memory] {
        let Some(needed) = largest(store).map(with_margin).map(Bytes::new) else { continue };
        if path.is_none() {
            path = Some(network.open(condition, 0).map_err(unreachable)?);
        }
        let Some(far) = path.as_ref().and_then(|path| path.far_host()) else { break };
        let directory = base(far, store);
        let said = far.run(&room_script(directory), &|| false).map_err(unreachable)?;
        let free = free_room(&said).ok_or_else(|| {
            unreachable(
                format!("df of {directory} at {} printed no free space", far.ssh_name()).into(),
            )
        })?;
        if free < needed {
            let (host, directory) = (far.ssh_name().to_owned(), directory.to_owned());
            return Err(LabError::NoFarRoom { host, directory, free, needed });
        }
    }
    if let Some(path) = path {
        path.close();
    }
    Ok(())
}

fn base(far: &dyn FarHost, store: DataStore) -> &str {
    match store {
        DataStore::Disk => far.directory(),
        DataStore::Memory => MEMORY,
    }
}

fn make_script(base: &str) -> String {
    format!(
        "umask 077 && mkdir -p -- '{base}' && cd -- '{base}' && mktemp -d \"$(pwd -P)/{TEMPLATE}\"\n"
    )
}

/// Returns a script that checks the nearest existing ancestor, because the directory may not exist
/// yet.
fn room_script(base: &str) -> String {
    format!(
        "d='{base}'\n\
         while [ ! -d \"$d\" ]; do\n\
         case $d in /*/*|[!/]*/*) d=${{d%/*}} ;; /*) d=/ ;; *) d=. ;; esac\n\
         done\n\
         LC_ALL=C df -Pk -- \"$d\" | tail -n 1\n"
    )
}

fn settle_script(dir: &str) -> String {
    format!(
        "cd -- '{dir}' || exit 1\n\
         a=$(date +%s%N); sync -f . 2>/dev/null || sync; b=$(date +%s%N)\n\
         echo $((b - a))\n"
    )
}

/// Returns a script that kills the processes that use the directory, and removes it. A process uses
/// the directory if it is its current directory or if it has a file in it open. A tool may leave
/// directories without write permission.
fn remove_script(dir: &str, patience: u32) -> String {
    format!(
        "d='{dir}'; n=0\n\
         at_work() {{\n\
         find /proc/[0-9]*/cwd /proc/[0-9]*/fd -lname \"$d*\" 2>/dev/null | cut -d/ -f3 | sort -u\n\
         }}\n\
         p=$(at_work)\n\
         while [ -n \"$p\" ] && [ $n -lt {patience} ]; do\n\
         n=$((n + 1)); sleep 0.1; p=$(at_work)\n\
         done\n\
         for one in $p; do cat /proc/$one/comm 2>/dev/null; kill -9 $one 2>/dev/null; done\n\
         rm -rf -- \"$d\" 2>/dev/null || {{ chmod -R u+rwX -- \"$d\"; rm -rf -- \"$d\"; }}\n"
    )
}

/// Parses the available blocks of 1024 bytes in the last line of `df -Pk`. The number precedes the
/// first percentage; fields are not counted because names may contain blanks.
fn free_room(df: &str) -> Option<Bytes> {
    let words: Vec<&str> = df.lines().last()?.split_whitespace().collect();
    let share = words.iter().position(|word| word.ends_with('%'))?;
    words.get(share.checked_sub(1)?)?.parse().ok().map(Bytes::kib)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A far end that is a directory of this host.
    struct LocalFarHost {
        login: PathBuf,
        directory: String,
    }

    impl FarHost for LocalFarHost {
        fn ssh_name(&self) -> &str {
            "me@dtn"
        }

        fn directory(&self) -> &str {
            &self.directory
        }

        fn run(&self, script: &str, give_up: &dyn Fn() -> bool) -> Result<String, NetworkError> {
            let mut sh = Command::new("sh");
            sh.current_dir(&self.login);
            run_script(sh, script, give_up)
        }
    }

    fn host(login: &Path, directory: &str) -> LocalFarHost {
        LocalFarHost { login: login.to_owned(), directory: directory.to_owned() }
    }

    static GO: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_directory_is_made_used_compared_and_removed_with_nothing_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let far = host(home.path(), "new/matrix");
        fs::create_dir(home.path().join("new")).unwrap();
        fs::write(home.path().join("new/mine"), b"mine").unwrap();
        let dir = FarDir::make(&far, DataStore::Disk).unwrap();
        let other = FarDir::make(&far, DataStore::Disk).unwrap();
        assert_ne!(dir.path(), other.path());
        assert!(dir.path().starts_with(home.path().canonicalize().unwrap().join("new/matrix")));

        let source = home.path().join("source");
        fs::write(&source, [5; 100_000]).unwrap();
        fs::copy(&source, dir.path().join("copy")).unwrap();
        fs::write(dir.path().join("copy-2"), [5; 99_999]).unwrap();
        assert!(dir.settle(&far, &GO).unwrap() < Duration::from_secs(600));
        let compare = |copies: &[&str]| {
            let copies: Vec<String> = copies.iter().map(|name| (*name).to_owned()).collect();
            dir.compare(&far, &source, &copies, &GO).unwrap()
        };
        assert_eq!(compare(&["copy"]), None);
        assert!(compare(&["copy", "copy-2"]).unwrap().contains("99999 bytes instead of 100000"));
        assert!(compare(&["copy-3"]).unwrap().contains("was not copied"));

        let gone = dir.path().to_owned();
        assert_eq!(dir.remove(&far, &GO).unwrap(), Vec::<String>::new());
        assert!(!gone.exists() && other.path().exists());
        other.remove(&far, &GO).unwrap();
        assert_eq!(fs::read(home.path().join("new/mine")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(home.path().join("new/matrix")).unwrap().count(), 0);
    }

    #[test]
    fn processes_in_the_directory_are_ended_and_named() {
        let home = tempfile::tempdir().unwrap();
        let far = host(home.path(), "m");
        let dir = FarDir::make(&far, DataStore::Disk).unwrap();
        let script = "sleep 300 9> held & exec sleep 300 >/dev/null";
        let mut left = Command::new("sh")
            .args(["-c", script])
            .current_dir(dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while !dir.path().join("held").exists() {
            thread::sleep(Duration::from_millis(5));
        }
        let gone = dir.path().to_owned();
        let stopped = AtomicBool::new(true);
        assert_eq!(dir.remove(&far, &stopped).unwrap(), ["sleep", "sleep"]);
        assert!(!left.wait().unwrap().success());
        assert!(!gone.exists());
    }

    #[test]
    fn a_directory_that_a_shell_would_change_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let odd = home.path().join("a b");
        fs::create_dir(&odd).unwrap();
        let error = FarDir::make(&host(&odd, "m"), DataStore::Disk).unwrap_err().to_string();
        assert!(error.contains("a b/m/longhaul-run-") && error.contains("[real]"), "{error}");
        fs::write(home.path().join("file"), b"").unwrap();
        let error = FarDir::make(&host(home.path(), "file/m"), DataStore::Disk).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }

    #[test]
    fn free_space_is_that_of_the_disk_of_the_directory() {
        let home = tempfile::tempdir().unwrap();
        for directory in ["not/there/yet", "plain", "/no/such", "/none", "/", "."] {
            let far = host(home.path(), directory);
            let free = free_room(&far.run(&room_script(directory), &|| false).unwrap());
            assert!(free.is_some(), "{directory}");
        }
        assert!(!home.path().join("not").exists());
        let line = "//srv/my share  4096 1024 3072 25% /data and more";
        assert_eq!(free_room(&format!("Filesystem\n{line}\n")), Some(Bytes::kib(3072)));
        assert_eq!(free_room("df: no such file"), None);
    }
}
