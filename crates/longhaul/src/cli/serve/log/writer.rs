//! The thread that writes the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use longhaul_core::result::{AuditEvent, AuditRecord};
use longhaul_core::text::escape_json;
use rustix::fs::OFlags;
use signal_hook::consts::SIGHUP;

use super::flood::Flood;
use super::{Format, Message, Shared, record};
use crate::output::{print_message, raw_error};

/// The interval at which signals and counts are checked.
const CHECK: Duration = Duration::from_millis(250);
/// The time between two attempts to write a line.
const RETRY: Duration = Duration::from_secs(1);

/// The destination of lines.
pub(super) struct Target {
    file: File,
    kind: Kind,
}

enum Kind {
    Error,
    /// Standard error is connected to the systemd journal, which adds the time and reads a
    /// priority.
    Journal,
    Named {
        path: PathBuf,
        /// Set by SIGHUP.
        reopen: Arc<AtomicBool>,
        /// The last write failed and the failure was reported.
        failing: bool,
        /// The last line is incomplete.
        torn: bool,
    },
}

impl Target {
    /// Opens `path` for appending. A new file is readable only by this user.
    pub(super) fn file(path: &Path) -> anyhow::Result<Self> {
        let file =
            append(path).with_context(|| format!("cannot open the log {}", path.display()))?;
        let reopen = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, reopen.clone()).context("cannot handle SIGHUP")?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Target { file, kind: Kind::Named { path, reopen, failing: false, torn: false } })
    }

    /// Writes to standard error.
    pub(super) fn standard_error() -> anyhow::Result<Self> {
        let file = File::from(raw_error().context("cannot write to standard error")?);
        let stream = std::env::var("JOURNAL_STREAM").ok();
        let kind = if is_journal(&file, stream.as_deref()) { Kind::Journal } else { Kind::Error };
        Ok(Target { file, kind })
    }
}

/// Opens a file for appending. A named pipe without a reader does not block.
fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Returns whether the variable `JOURNAL_STREAM` has the device and inode of `file`
/// (systemd.exec(5)).
fn is_journal(file: &File, stream: Option<&str>) -> bool {
    let named = stream.and_then(|stream| {
        let (device, inode) = stream.split_once(':')?;
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    let own = rustix::fs::fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino));
    named.is_some() && named == own
}

pub(super) struct Writer {
    target: Target,
    format: Format,
    flood: Arc<Flood>,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn new(
        target: Target,
        format: Format,
        flood: Arc<Flood>,
        shared: Arc<Shared>,
    ) -> Self {
        Writer { target, format, flood, shared }
    }

    /// Writes records until the end.
    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(CHECK) {
                Ok(Message::Record(record)) => self.write(&record),
                Err(RecvTimeoutError::Timeout) => self.reopen_if_asked(),
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.write_counts(false);
        }
        self.write_counts(true);
        self.shared.ended.store(true, Ordering::Release);
    }

    /// Writes the numbers of suppressed and lost lines.
    fn write_counts(&mut self, all: bool) {
        for (what, count) in self.flood.suppressed(Instant::now(), all) {
            self.write(&record::missing(AuditEvent::Suppressed, count, what));
        }
        let lost = self.shared.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let what = "the log could not be written in time";
            self.write(&record::missing(AuditEvent::Lost, lost, what));
        }
    }

    /// Writes a line. Retries a file until it succeeds or the server ends, and standard error
    /// never.
    fn write(&mut self, record: &AuditRecord) {
        let line = self.line(record);
        loop {
            self.reopen_if_asked();
            let Err(error) = self.target.append(&line) else {
                self.target.works();
                return;
            };
            if !self.target.fails(&error) || self.shared.ending.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(RETRY);
        }
    }

    fn line(&self, record: &AuditRecord) -> String {
        let body = match self.format {
            Format::Text => record.text(),
            Format::Json => {
                let json = serde_json::to_string(record).unwrap_or_default();
                escape_json(&json).into_owned()
            }
        };
        match (&self.target.kind, self.format) {
            (Kind::Journal, _) => format!("<{}>{body}\n", priority(record)),
            (_, Format::Json) => format!("{body}\n"),
            (_, Format::Text) => format!("{} {body}\n", record.time),
        }
    }

    fn reopen_if_asked(&mut self) {
        if let Kind::Named { path, reopen, torn, .. } = &mut self.target.kind
            && reopen.swap(false, Ordering::AcqRel)
        {
            match append(path) {
                Ok(file) => {
                    self.target.file = file;
                    *torn = false;
                }
                Err(error) => {
                    let path = path.display();
                    print_message(format_args!(
                        "cannot reopen the log {path}: {error}; logging continues in the old file"
                    ));
                }
            }
        }
    }
}

impl Target {
    /// Appends `line` in one write, so that lines of several writers do not mix.
    fn append(&mut self, line: &str) -> io::Result<()> {
        let Kind::Named { torn, .. } = &mut self.kind else {
            return self.file.write_all(line.as_bytes());
        };
        let line = if *torn { format!("\n{line}") } else { line.to_owned() };
        let written = self.file.write(line.as_bytes())?;
        *torn = false;
        if written < line.len() {
            // The disk has just become full.
            *torn = true;
            self.file.write_all(&line.as_bytes()[written..])?;
            *torn = false;
        }
        Ok(())
    }

    fn works(&mut self) {
        if let Kind::Named { path, failing, .. } = &mut self.kind
            && std::mem::take(failing)
        {
            print_message(format_args!("the log {} is writable again", path.display()));
        }
    }

    /// Reports a failure once, and returns whether to retry.
    fn fails(&mut self, error: &io::Error) -> bool {
        let Kind::Named { path, failing, .. } = &mut self.kind else { return false };
        if !std::mem::replace(failing, true) {
            let path = path.display();
            print_message(format_args!(
                "cannot write the log {path}: {error}; transfers continue, and longhaul retries"
            ));
        }
        true
    }
}

/// Returns the priority of a record, as in syslog(3).
fn priority(record: &AuditRecord) -> u8 {
    const ERROR: u8 = 3;
    const WARNING: u8 = 4;
    const NOTICE: u8 = 5;
    const INFO: u8 = 6;
    match (record.event, record.result.as_deref()) {
        (AuditEvent::KeysKept, _) => ERROR,
        (AuditEvent::Lost | AuditEvent::Suppressed, _) => WARNING,
        (_, Some("failed" | "lost" | "partial")) => WARNING,
        (
            AuditEvent::Refused
            | AuditEvent::Handshake
            | AuditEvent::Dropped
            | AuditEvent::KeyDenied,
            _,
        ) => NOTICE,
        (_, Some("refused" | "revoked")) => NOTICE,
        _ => INFO,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn written(target: Target, format: Format) -> Writer {
        let mut writer = Writer::new(target, format, Arc::default(), Arc::default());
        writer.write(&record::missing(AuditEvent::Lost, 7, "x"));
        writer
    }

    #[test]
    fn a_log_file_is_private_and_reopened_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut writer = written(Target::file(&path).unwrap(), Format::Json);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::rename(&path, dir.path().join("audit.log.1")).unwrap();
        let Kind::Named { reopen, .. } = &writer.target.kind else { panic!("not a file") };
        reopen.store(true, Ordering::Release);
        writer.write(&record::missing(AuditEvent::Lost, 8, "y"));
        let line = std::fs::read_to_string(&path).unwrap();
        let read: AuditRecord = serde_json::from_str(line.trim_end()).unwrap();
        assert_eq!((read.event, read.count), (AuditEvent::Lost, Some(8)));
    }

    #[test]
    fn a_full_disk_is_reported_and_ends_no_server() {
        let shared = Arc::new(Shared::default());
        shared.ending.store(true, Ordering::Release);
        let target = Target::file(Path::new("/dev/full")).unwrap();
        let mut writer = Writer::new(target, Format::Text, Arc::default(), shared);
        writer.write(&record::missing(AuditEvent::Lost, 7, "x"));
        assert!(matches!(writer.target.kind, Kind::Named { failing: true, .. }));
    }

    #[test]
    fn journal_lines_have_a_priority_and_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stream");
        let file = File::create(&path).unwrap();
        let stat = std::fs::metadata(&path).unwrap();
        let stream = format!("{}:{}", stat.dev(), stat.ino());
        assert!(is_journal(&file, Some(&stream)));
        for other in [None, Some("1:2"), Some(""), Some("x:y")] {
            assert!(!is_journal(&file, other));
        }
        written(Target { file, kind: Kind::Journal }, Format::Text);
        let line = std::fs::read_to_string(&path).unwrap();
        assert_eq!(line, "<4>lost count=7 error=\"x\"\n");
    }
}
