//! Expands wildcards of remote sources (`host:'*.h5'`), as scp does: by the shell of that host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_core::plan::Location;
use longhaul_engine::{EngineError, Result};

use super::ssh::{SshOptions, remote_shell};

/// The maximum number of bytes of the paths that a pattern matches.
const LIMIT: u64 = 16 << 20;

/// Returns `places` with the matches in place of each remote path that has wildcards.
///
/// # Errors
/// ssh cannot be started, or a pattern matches too many files.
pub(crate) fn expand(places: &[Location], ssh: &SshOptions) -> Result<Vec<Location>> {
    let mut found = Vec::with_capacity(places.len());
    for place in places {
        match place {
            Location::Ssh { destination, path } if has_wildcard(path) => {
                let paths = matches(destination, path, ssh)?;
                let at = |path| Location::Ssh { destination: destination.clone(), path };
                found.extend(paths.into_iter().map(at));
            }
            other => found.push(other.clone()),
        }
    }
    Ok(found)
}

fn has_wildcard(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// Returns the matches of a pattern, or the pattern if it has none: it may be a name.
fn matches(destination: &str, pattern: &Path, ssh: &SshOptions) -> Result<Vec<PathBuf>> {
    let command = format!("printf '%s\\0' {}", quoted_except_wildcards(pattern));
    let output = remote_shell(destination, ssh, &command, LIMIT)?;
    if output.len() as u64 >= LIMIT {
        return Err(EngineError::Failed {
            peer: destination.to_owned(),
            reason: format!("more than 16 MiB of paths match {}", pattern.display()),
            again: false,
        });
    }
    let paths = output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let paths: Vec<PathBuf> = paths.map(|path| OsStr::from_bytes(path).into()).collect();
    Ok(if paths.is_empty() { vec![pattern.to_owned()] } else { paths })
}

/// Quotes a pattern for the shell of the remote host, except its wildcards. A pattern that begins
/// with '-' gets './', so that it is not an option.
fn quoted_except_wildcards(pattern: &Path) -> String {
    let text = pattern.to_string_lossy();
    let mut quoted = if text.starts_with('-') { "./".to_owned() } else { String::new() };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "/._-+*?[]!".contains(c) {
            quoted.push(c);
        } else if c == '\'' {
            quoted.push_str("\"'\"");
        } else {
            quoted.extend(['\'', c, '\'']);
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wildcards_reach_the_remote_shell() {
        let quoted = |pattern: &str| quoted_except_wildcards(Path::new(pattern));
        assert_eq!(quoted("run[0-9]/*.h5"), "run[0-9]/*.h5");
        assert_eq!(quoted("-*"), "./-*");
        for pattern in ["a b;$(touch x)*", "it's `x` *", "*\nrm -r /", "~root/*"] {
            let text = format!("printf '%s' {}", quoted(pattern));
            let output = std::process::Command::new("sh").args(["-c", &text]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), pattern, "{text}");
        }
    }

    #[test]
    fn places_without_wildcards_need_no_ssh() {
        let places: Vec<Location> =
            ["a*", "host:x", "lh://h/*"].iter().map(|text| text.parse().unwrap()).collect();
        let ssh = SshOptions {
            rsh: "/no/such/ssh".parse().unwrap(),
            far_longhaul: "longhaul".to_owned(),
            via_ssh: false,
        };
        assert_eq!(expand(&places, &ssh).unwrap(), places);
        let pattern = ["host:x*".parse().unwrap()];
        assert!(matches!(expand(&pattern, &ssh), Err(EngineError::Spawn { .. })));
    }
}
