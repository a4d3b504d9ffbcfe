//! `--json-stream`: a line per second and per event of a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::result::{COPY_SCHEMA, CopyResult};
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::copy::CopyProgress;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::Coded;
use crate::output::{print_document, print_document_line, print_notes, print_result};

/// The time between two progress lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// The stream for results: standard output, or standard error if standard output carries the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printer {
    pub(super) to_stderr: bool,
}

impl Printer {
    /// Prints `text` and ends the line.
    pub(super) fn text(self, text: &str) -> Result<(), Coded> {
        let line = format!("{text}\n");
        if !self.to_stderr {
            return print_result(&line);
        }
        print_notes(&line);
        Ok(())
    }

    /// Prints `value` as one document.
    pub(super) fn document(self, value: &impl Serialize) -> Result<(), Coded> {
        if self.to_stderr {
            self.text(&serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?)
        } else {
            print_document(value)
        }
    }

    fn event(self, name: &str, data: &Value) -> Result<(), Coded> {
        let event = json!({ "schema": COPY_SCHEMA, "event": name, "data": data });
        if self.to_stderr { self.text(&event.to_string()) } else { print_document_line(&event) }
    }
}

/// The thread that prints the progress of a copy.
pub(super) struct Events {
    printer: Printer,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Events {
    /// Starts to print `progress`.
    pub(super) fn start(progress: Arc<CopyProgress>, printer: Printer) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = over.clone();
            move || print_progress(&progress, printer, &over)
        });
        Events { printer, over, thread }
    }

    /// Prints that a connection was lost.
    pub(super) fn lost(printer: Printer, reason: &str) {
        let _ = printer.event("lost", &json!({ "reason": reason }));
    }

    /// Stops the thread and prints the result, if there is one.
    ///
    /// # Errors
    /// The result was not printed. Earlier lines that were not printed are ignored, so that they
    /// do not stop the copy.
    pub(super) fn finish(self, result: Option<&CopyResult>) -> Result<(), Coded> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
        match result {
            Some(result) => self.printer.event("result", &json!(result)),
            None => Ok(()),
        }
    }
}

fn print_progress(progress: &CopyProgress, printer: Printer, over: &AtomicBool) {
    let start = Instant::now();
    let (mut printed, mut before) = (start, Bytes::new(0));
    loop {
        thread::park_timeout(INTERVAL.saturating_sub(printed.elapsed()));
        if over.load(Ordering::Relaxed) {
            return;
        }
        if printed.elapsed() < INTERVAL {
            continue;
        }
        let (now, moved) = (Instant::now(), progress.moved());
        let gained = Bytes::new(moved.get().saturating_sub(before.get()));
        let rate = Rate::mean(gained, now - printed);
        let left = progress.total().get().saturating_sub(moved.get());
        let seconds_left =
            (progress.listed() && rate.bps() > 0).then(|| left as f64 * 8.0 / rate.bps() as f64);
        let _ = printer.event(
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
        (printed, before) = (now, moved);
    }
}
