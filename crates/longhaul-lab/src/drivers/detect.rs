//! Finds the programs of tools and their versions.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longhaul_core::result::ToolOutput;

/// The result of looking for a tool on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detected {
    /// The tool is installed.
    Installed {
        /// The first line of the version that it reports.
        version: String,
    },
    /// A program that the tool needs is missing.
    Missing {
        /// The name of that program.
        program: &'static str,
    },
}

/// The directories of servers that an ordinary user's PATH omits.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the full path of a program on PATH or in the system's directories.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| is_executable(candidate))
}

/// Returns the full path of a program, or its bare name: an attempt to start that name reports that
/// the program is missing.
pub(super) fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| PathBuf::from(name))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Looks for all of `programs`, and runs the first one with `argument` to get its version.
pub(super) fn detect(programs: &[&'static str], argument: &str) -> Detected {
    if let Some(program) = programs.iter().find(|program| find(program).is_none()) {
        return Detected::Missing { program };
    }
    Detected::Installed {
        version: programs.first().map_or_else(String::new, |p| version(&program(p), argument)),
    }
}

/// The largest program in which [`stored_version`] searches.
const MOST_BYTES: u64 = 64 << 20;

/// Returns the first line that `program argument` prints on standard output or standard error. An
/// error message about the argument is no version.
pub(super) fn version(program: &Path, argument: &str) -> String {
    version_from(program, argument, "")
}

/// Returns the rest of the first line with `mark` that `program argument` prints on standard output
/// or standard error, from `mark` on.
pub(super) fn version_from(program: &Path, argument: &str, mark: &str) -> String {
    let Ok(output) = Command::new(program).arg(argument).stdin(Stdio::null()).output() else {
        return UNKNOWN.to_owned();
    };
    let printed = [output.stdout, output.stderr];
    let printed = printed.each_ref().map(|stream| String::from_utf8_lossy(stream));
    let mut lines = printed.iter().flat_map(|text| text.lines());
    let found = lines.find_map(|line| line.find(mark).map(|from| &line[from..]).filter(is_text));
    found.filter(|line| !is_refusal(line)).map_or_else(|| UNKNOWN.to_owned(), plain)
}

/// Returns the text from `mark` on that the file of a program contains, for programs that have no
/// option to print their version.
pub(super) fn stored_version(program: &Path, mark: &str) -> String {
    let mut bytes = Vec::new();
    let read = File::open(program).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    let found = read.ok().and_then(|_| memmem(&bytes, mark.as_bytes())).map(|from| {
        let text = bytes[from..].split(|byte| !(b' '..=b'~').contains(byte)).next();
        plain(&String::from_utf8_lossy(text.unwrap_or_default()))
    });
    found.unwrap_or_else(|| UNKNOWN.to_owned())
}

const UNKNOWN: &str = "unknown";

fn memmem(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len().max(1)).position(|window| window == wanted)
}

fn is_text(line: &&str) -> bool {
    !line.trim().is_empty()
}

/// Returns whether a line refuses an option instead of stating a version.
fn is_refusal(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["invalid option", "illegal option", "unknown option", "unrecognized option"]
        .iter()
        .any(|refusal| line.contains(refusal))
}

/// Removes padding: rsync pads its line and adds its protocol version.
fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parses the JSON output of a tool, or returns the error for output that is not JSON.
pub(super) fn json(output: &ToolOutput) -> Result<serde_json::Value, String> {
    serde_json::from_str(&output.stdout)
        .map_err(|error| format!("its output is not valid JSON ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        assert_eq!(
            detect(&["sh", "no-such-program-here"], "--version"),
            Detected::Missing { program: "no-such-program-here" }
        );
    }

    #[test]
    fn a_version_is_one_line_from_either_stream() {
        let sh = find("sh").unwrap();
        assert!(sh.is_absolute());
        // The argument of sh is a script.
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("tool");
        let says = |text: &str| {
            std::fs::write(&script, format!("{text}\n")).unwrap();
            script.to_str().unwrap().to_owned()
        };
        assert_eq!(version(&sh, &says("echo; echo ' tool   1.2 '; echo more")), "tool 1.2");
        assert_eq!(version(&sh, &says("echo tool 1.2 >&2")), "tool 1.2");
        assert_eq!(version(&sh, &says("echo \"tool: invalid option -- '?'\" >&2")), "unknown");
        assert_eq!(version(&sh, &says("true")), "unknown");
        let two = says("echo library 3.0; echo 'own: Tool version 1.2' >&2");
        assert_eq!(version_from(&sh, &two, "Tool version"), "Tool version 1.2");
        assert_eq!(version_from(&sh, &two, "Other version"), "unknown");
    }

    #[test]
    fn a_version_is_found_in_the_file_of_a_program() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"\x7fELF\0Invalid version\0Tool version 4.2  (C) x\0y")
            .unwrap();
        assert_eq!(stored_version(file.path(), "Tool version "), "Tool version 4.2 (C) x");
        assert_eq!(stored_version(file.path(), "Other "), "unknown");
        assert_eq!(stored_version(Path::new("/nonexistent"), "Tool"), "unknown");
    }
}
