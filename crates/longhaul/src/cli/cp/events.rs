//! `--json-stream`: a line for each second and event of a copy.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::result::{COPY_SCHEMA, CopyResult};
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::copy::Progress;
use serde_json::{Value, json};

/// How often it is told how far the copy is.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where results go: standard output, or standard error where that takes the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printer {
    pub(super) to_stderr: bool,
}

impl Printer {
    /// Prints `text` and ends the line. Nobody needs to read it for the copy to go on.
    pub(super) fn line(self, text: &str) {
        let _ = match self.to_stderr {
            true => writeln!(std::io::stderr().lock(), "{text}"),
            false => writeln!(std::io::stdout().lock(), "{text}"),
        };
    }

    fn event(self, name: &str, data: &Value) {
        self.line(&json!({ "schema": COPY_SCHEMA, "event": name, "data": data }).to_string());
    }
}

/// Tells of a copy while it runs.
pub(super) struct Events {
    printer: Printer,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Events {
    /// Tells how far `progress` is, from now on.
    pub(super) fn start(progress: Arc<Progress>, printer: Printer) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = over.clone();
            move || tell(&progress, printer, &over)
        });
        Events { printer, over, thread }
    }

    /// Tells that a connection was lost.
    pub(super) fn lost(printer: Printer, reason: &str) {
        printer.event("lost", &json!({ "reason": reason }));
    }

    /// Ends, with the whole if there is one.
    pub(super) fn finish(self, result: Option<&CopyResult>) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
        if let Some(result) = result {
            self.printer.event("result", &json!(result));
        }
    }
}

fn tell(progress: &Progress, printer: Printer, over: &AtomicBool) {
    let start = Instant::now();
    let (mut told, mut before) = (start, Bytes::new(0));
    loop {
        thread::park_timeout(INTERVAL.saturating_sub(told.elapsed()));
        if over.load(Ordering::Relaxed) {
            return;
        }
        if told.elapsed() < INTERVAL {
            continue;
        }
        let (now, moved) = (Instant::now(), progress.moved());
        let gained = Bytes::new(moved.get().saturating_sub(before.get()));
        let rate = Rate::mean(gained, now - told);
        let left = progress.total().get().saturating_sub(moved.get());
        let seconds_left =
            (progress.listed() && rate.bps() > 0).then(|| left as f64 * 8.0 / rate.bps() as f64);
        printer.event(
            "progress",
            &json!({
                "seconds": (now - start).as_secs_f64(),
                "bytes": moved,
                "resumed_bytes": progress.resumed(),
                "files": progress.files(),
                "total_bytes": progress.total(),
                "total_files": progress.total_files(),
                "listed": progress.listed(),
                "throughput_bps": rate,
                "left_seconds": seconds_left,
                "limit": progress.busiest(),
                "rate_limit_bps": progress.limit(),
            }),
        );
        (told, before) = (now, moved);
    }
}
