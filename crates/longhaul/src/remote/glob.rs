//! Expands wildcards of remote sources (`host:'*.h5'`), as scp does: by the shell of that host.
//! Every path that the host returns must match.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_core::plan::Location;
use longhaul_engine::{EngineError, Result};

use super::ssh::{SshOptions, remote_shell};
use super::wildcard::Wildcard;

/// Returns `places` with the matches in place of each remote path that has wildcards.
///
/// # Errors
/// ssh cannot be started, a pattern matches too many files, or the host returns other paths.
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
    let output = remote_shell(destination, ssh, &command)?;
    let paths = output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let paths = checked(paths, pattern).map_err(|path| {
        let path = String::from_utf8_lossy(path);
        let reason = format!("it returned {path}, which is no match of {}", pattern.display());
        EngineError::Failed { peer: destination.to_owned(), reason, again: false }
    })?;
    Ok(if paths.is_empty() { vec![pattern.to_owned()] } else { paths })
}

/// Returns the paths that a host has returned for a pattern, or the first one that does not match
/// it. The host may be hostile: a name such as `.bashrc` or `../x` would be copied to a place that
/// the user does not expect.
fn checked<'a>(
    paths: impl Iterator<Item = &'a [u8]>,
    pattern: &Path,
) -> std::result::Result<Vec<PathBuf>, &'a [u8]> {
    let pattern = Wildcard::new(pattern.as_os_str().as_bytes());
    let mut found = Vec::new();
    for path in paths.filter(|path| !pattern.is_dots(path)) {
        if !pattern.matches(path) {
            return Err(path);
        }
        found.push(OsStr::from_bytes(path).into());
    }
    Ok(found)
}

/// Quotes a pattern for the shell of the remote host, except its wildcards. A pattern that begins
/// with '-' gets './', so that it is not an option.
fn quoted_except_wildcards(pattern: &Path) -> String {
    let text = pattern.to_string_lossy();
    let mut quoted = if text.starts_with('-') { "./".to_owned() } else { String::new() };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "/._-+*?[]!:".contains(c) {
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
    fn paths_that_do_not_match_are_refused() {
        let returned = |paths: &[&'static str], pattern: &str| {
            checked(paths.iter().map(|path| path.as_bytes()), Path::new(pattern))
        };
        let all = ["a.h5", "b.h5"];
        assert_eq!(returned(&all, "*.h5").unwrap(), all.map(PathBuf::from));
        for bad in ["../a.h5", "/a.h5", "x/a.h5", ".a.h5", "a.txt", "..", ".h5"] {
            let paths = ["b.h5", bad];
            assert_eq!(returned(&paths, "*.h5"), Err(bad.as_bytes()), "{bad}");
        }
        // Some shells return both for this pattern.
        let hidden = [".", "..", ".profile"];
        assert_eq!(returned(&hidden, ".*").unwrap(), [PathBuf::from(".profile")]);
    }

    #[test]
    fn a_host_that_returns_other_paths_is_an_error() {
        let pattern = ["host:*.h5".parse().unwrap()];
        let ssh = |script: &str| SshOptions {
            rsh: format!("sh -c \"{script}\"").parse().unwrap(),
            far_longhaul: "longhaul".to_owned(),
            via_ssh: false,
        };
        let error = expand(&pattern, &ssh(r"printf '.bashrc\0'")).unwrap_err();
        assert!(matches!(&error, EngineError::Failed { reason, .. } if reason.contains(".bashrc")));
        let found = expand(&pattern, &ssh(r"printf 'a.h5\0b.h5\0'")).unwrap();
        assert_eq!(found, ["host:a.h5", "host:b.h5"].map(|place| place.parse().unwrap()));
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
