//! The log of a server: a line per session, transfer, refusal and reload.
//!
//! Events become records, and a thread writes them, so that a full disk or a blocked standard error
//! delays no session. Events of clients without an authorized key are rate limited; suppressed
//! events are counted.

mod flood;
mod record;
mod writer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use longhaul_core::result::{AuditEvent, AuditRecord};
use longhaul_engine::serve::ServeEvent;

use self::flood::Flood;
pub(super) use self::record::out_of_reach_words;
use self::writer::{Target, Writer};
use crate::exit::{self, Coded};

/// The length of the queue of records. Paths and errors are clipped, so it needs a few megabytes.
const WAITING: usize = 1024;
/// The time limit for writing the last records.
const FINISH_TIME: Duration = Duration::from_secs(2);

/// The file and format of the log.
#[derive(Debug, clap::Args)]
pub(super) struct LogArgs {
    /// Append the log to this file instead of standard error; SIGHUP reopens it
    #[arg(long, value_name = "FILE", conflicts_with = "stdio")]
    log: Option<PathBuf>,
    /// Format of the log: text, or one JSON document per line (longhaul.audit/1)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// An open log without its thread.
pub(super) struct OpenLog {
    target: Target,
    format: Format,
}

/// The log of a running server.
pub(super) struct Log {
    flood: Arc<Flood>,
    shared: Arc<Shared>,
    queue: SyncSender<Message>,
}

/// A message to the writer thread.
enum Message {
    Record(Box<AuditRecord>),
    End,
}

/// State shared by the log and its thread.
#[derive(Debug, Default)]
struct Shared {
    /// The number of records that did not fit in the queue.
    lost: AtomicU64,
    /// The server ends: records that cannot be written are dropped.
    ending: AtomicBool,
    /// All queued records are written or dropped.
    ended: AtomicBool,
}

impl LogArgs {
    /// Returns the directory of the log, in which the server reopens the file.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        let file = self.log.as_deref()?;
        let above = file.parent().filter(|above| !above.as_os_str().is_empty());
        Some(above.unwrap_or(Path::new(".")).to_owned())
    }

    /// Checks that write access to the directory of the log does not include `config`, the
    /// directory of the keys.
    ///
    /// # Errors
    /// The directory of the keys is the directory of the log, or below it.
    pub(super) fn check_apart_from(&self, config: &Path) -> Result<(), Coded> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !real(config).starts_with(real(&directory)) {
            return Ok(());
        }
        let reason = anyhow!(
            "--log: {} contains the keys in {}, and the server needs write access to it; put the log \
             in another directory, or use --landlock off",
            directory.display(),
            config.display()
        );
        Err(Coded::new(exit::HOST, reason))
    }

    /// Opens the log.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(&self) -> Result<OpenLog, Coded> {
        let target = match &self.log {
            Some(file) => Target::file(file),
            None => Target::standard_error(),
        };
        let target = target.map_err(|error| Coded::new(exit::HOST, error))?;
        Ok(OpenLog { target, format: self.log_format })
    }
}

impl OpenLog {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(self, address: SocketAddr) -> Result<Log, Coded> {
        let (queue, messages) = sync_channel(WAITING);
        let (flood, shared) = (Arc::new(Flood::default()), Arc::new(Shared::default()));
        let OpenLog { target, format } = self;
        let mut writer = Writer::new(target, format, flood.clone(), shared.clone());
        thread::Builder::new()
            .name("log".into())
            .spawn(move || writer.run(&messages))
            .map_err(|error| Coded::new(exit::HOST, error))?;
        let log = Log { flood, shared, queue };
        log.put(record::server(AuditEvent::Start, Some(address)));
        Ok(log)
    }
}

impl Log {
    /// Records `event`, unless its kind exceeds its rate. Never blocks.
    pub(super) fn record(&self, event: ServeEvent) {
        if self.flood.admit(flood::Kind::of(&event), Instant::now()) {
            self.put(record::of(event));
        }
    }

    fn put(&self, record: AuditRecord) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Record(Box::new(record))) {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the queued records and the end of the server, within a time limit.
    pub(super) fn finish(&self) {
        self.put(record::server(AuditEvent::Stop, None));
        self.shared.ending.store(true, Ordering::Release);
        let until = Instant::now() + FINISH_TIME;
        let mut sent = false;
        while !self.shared.ended.load(Ordering::Acquire) && Instant::now() < until {
            sent = sent || self.queue.try_send(Message::End).is_ok();
            thread::sleep(Duration::from_millis(5));
        }
    }
}
