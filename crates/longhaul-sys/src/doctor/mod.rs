//! Reads the facts that `longhaul doctor` judges: settings, interfaces, buses, processors, disks,
//! clock.
//!
//! Every read uses a [`FactSource`]: this host, or a [recording](longhaul_core::doctor::HostRecording) of a
//! host, so that fixtures test the same code. This module changes nothing, and reports unreadable
//! facts by name.

mod disk;
mod host;
mod interface;
mod path;
mod pci;
mod processor;

use std::cell::RefCell;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use longhaul_core::doctor::{Cause, FactResult, HostRecording, RecordedAnswer, UnknownFact};

pub use host::{Query, read_facts};

/// The largest size of a file to read; `/proc/PID/mountinfo` on a container host may be long.
const FILE_LIMIT: u64 = 4 << 20;

/// The source of a host's facts.
#[derive(Debug)]
pub struct FactSource {
    from: From,
    notes: RefCell<HostRecording>,
}

#[derive(Debug)]
enum From {
    Host,
    Recording(HostRecording),
}

impl FactSource {
    /// Returns this host, in the calling thread's namespaces.
    pub fn host() -> Self {
        FactSource { from: From::Host, notes: RefCell::default() }
    }

    /// Returns the host of a recording.
    pub fn recorded(recording: HostRecording) -> Self {
        FactSource { from: From::Recording(recording), notes: RefCell::default() }
    }

    /// Returns all questions and answers so far.
    pub fn recording(&self) -> HostRecording {
        self.notes.borrow().clone()
    }

    /// Returns a file's trimmed text; `path` has no leading slash.
    fn text(&self, path: &str) -> FactResult<String> {
        self.ask("file", path, || Ok(read(path)?.trim().to_owned()))
    }

    /// Returns the first paragraph of a file.
    fn head(&self, path: &str) -> FactResult<String> {
        self.ask("head", path, || {
            Ok(read(path)?.split("\n\n").next().unwrap_or_default().trim().to_owned())
        })
    }

    /// Returns the integer in a file.
    fn number<T: std::str::FromStr>(&self, path: &str) -> FactResult<T> {
        let text = self.text(path)?;
        text.parse().map_err(|_| UnknownFact::not_understood(format!("/{path}"), &text))
    }

    /// Returns a file's list of numbers in the kernel's format: `0-3,8`
    /// (Documentation/admin-guide/cputopology.rst).
    fn list(&self, path: &str) -> FactResult<Vec<u32>> {
        let text = self.text(path)?;
        parse_list(&text).ok_or_else(|| UnknownFact::not_understood(format!("/{path}"), &text))
    }

    /// Returns the names in a directory, sorted.
    fn names(&self, path: &str) -> FactResult<Vec<String>> {
        let text = self.ask("list", path, || {
            let names = fs::read_dir(Path::new("/").join(path))?
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let mut names: Vec<String> = names.collect();
            names.sort();
            Ok(names.join("\n"))
        })?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns the resolved path of a link, without the leading slash.
    fn real(&self, path: &str) -> FactResult<String> {
        self.ask("link", path, || {
            let real = fs::canonicalize(Path::new("/").join(path))?;
            Ok(real.to_string_lossy().trim_start_matches('/').to_owned())
        })
    }

    /// Returns the last component of a link's target.
    fn target(&self, path: &str) -> FactResult<String> {
        let real = self.real(path)?;
        Ok(real.rsplit('/').next().unwrap_or(&real).to_owned())
    }

    /// Returns a file's bytes.
    fn bytes(&self, path: &str) -> FactResult<Vec<u8>> {
        let text = self.ask("file", path, || {
            let bytes = fs::read(Path::new("/").join(path))?;
            Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        })?;
        let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        bytes.ok_or_else(|| UnknownFact::not_understood(format!("/{path}"), &text))
    }

    /// Returns the result of a system call as text; `name` identifies the call in recordings.
    fn call(&self, name: &str, live: impl FnOnce() -> io::Result<String>) -> FactResult<String> {
        self.ask("call", name, live)
    }

    /// Returns the numerical results of a system call, recorded under `keys`.
    fn numbers<const N: usize>(
        &self,
        name: &str,
        keys: [&str; N],
        live: impl FnOnce() -> io::Result<[u64; N]>,
    ) -> FactResult<[u64; N]> {
        let text = self.call(name, || {
            let lines = keys.iter().zip(live()?).map(|(key, number)| format!("{key} {number}"));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        })?;
        let mut numbers = [0; N];
        for (number, key) in numbers.iter_mut().zip(keys) {
            let found = text.lines().find_map(|line| {
                let (name, value) = line.split_once(' ')?;
                (name == key).then(|| value.parse().ok())?
            });
            *number = found.ok_or_else(|| UnknownFact::not_understood(name, &text))?;
        }
        Ok(numbers)
    }

    fn ask(
        &self,
        kind: &str,
        name: &str,
        live: impl FnOnce() -> io::Result<String>,
    ) -> FactResult<String> {
        let answer = match &self.from {
            From::Host => live().map_err(|error| cause(&error)),
            From::Recording(recording) => match recording.get(kind, name) {
                Some(RecordedAnswer::Text(text)) => Ok(text.clone()),
                Some(RecordedAnswer::Denied) => Err(Cause::Denied),
                Some(RecordedAnswer::Failed(how)) => Err(Cause::Failed(how.clone())),
                None => Err(Cause::Absent),
            },
        };
        self.notes.borrow_mut().note(kind, name, answer.as_deref());
        let slash = if kind == "call" { "" } else { "/" };
        answer.map_err(|cause| UnknownFact { what: format!("{slash}{name}"), cause })
    }
}

fn read(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(Path::new("/").join(path))?.take(FILE_LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn cause(error: &io::Error) -> Cause {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Cause::Denied,
        // Drivers return the last four errors for missing features: the rate of an interface that
        // is down, a ring that does not exist, a protocol that the kernel was built without.
        Some(
            libc::ENOENT
            | libc::ENOTDIR
            | libc::ENODEV
            | libc::EINVAL
            | libc::EOPNOTSUPP
            | libc::EPROTONOSUPPORT,
        ) => Cause::Absent,
        _ if error.kind() == ErrorKind::NotFound => Cause::Absent,
        _ => Cause::Failed(error.to_string()),
    }
}

fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        found.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_answers_are_read_again() {
        let host = FactSource::host();
        let kernel = host.text("proc/sys/kernel/osrelease").unwrap();
        let nodes = host.names("proc/self/task").unwrap();
        let zeros = host.bytes("proc/self/cmdline").unwrap();
        assert!(host.text("proc/no such file").is_err());
        let four = host.numbers("four", ["two", "and"], || Ok([2, 4])).unwrap();
        let refused = || Err(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(host.call("secret", refused).unwrap_err().cause, Cause::Denied);

        let text = host.recording().to_string();
        let again = FactSource::recorded(text.parse().unwrap());
        assert_eq!(again.text("proc/sys/kernel/osrelease").unwrap(), kernel);
        assert_eq!(again.names("proc/self/task").unwrap(), nodes);
        assert_eq!(again.bytes("proc/self/cmdline").unwrap(), zeros);
        assert_eq!(again.text("proc/no such file").unwrap_err().cause, Cause::Absent);
        let never = || -> io::Result<_> { panic!("a recording asks nobody") };
        assert_eq!(again.numbers("four", ["two", "and"], never).unwrap(), four);
        assert!(again.numbers("four", ["three"], || Ok([0])).is_err());
        assert_eq!(again.call("secret", || unreachable!()).unwrap_err().cause, Cause::Denied);
    }

    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(parse_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!((parse_list(""), parse_list("x")), (Some(vec![]), None));
    }
}
