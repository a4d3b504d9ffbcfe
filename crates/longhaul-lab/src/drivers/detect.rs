//! Finds the programs of tools and their versions.

use std::env;
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

/// Returns the first line that `program argument` prints on standard output or standard error.
pub(super) fn version(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let text = match &output {
        Ok(output) if !output.stdout.is_empty() => String::from_utf8_lossy(&output.stdout),
        Ok(output) => String::from_utf8_lossy(&output.stderr),
        Err(_) => return "unknown".to_owned(),
    };
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown");
    // Removes padding and line breaks: rsync pads its line and adds its protocol version.
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
        // dash and bash both print one line about an unknown option.
        assert!(!version(&sh, "--no-such-option").contains('\n'));
    }
}
