//! `--json-stream`: a line for each second and event of a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::result::{COPY_SCHEMA, CopyResult};
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::copy::Progress;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::Coded;
use crate::output::{answer, document, document_line, remark_text};

/// How often it is told how far the copy is.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where results go: standard output, or standard error where that takes the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printer {
    pub(super) to_stderr: bool,
}

impl Printer {
    /// Prints `text` and ends the line.
    pub(super) fn text(self, text: &str) -> Result<(), Coded> {
        match self.to_stderr {
            true => {
                remark_text(&format!("{text}\n"));
                Ok(())
            }
            false => answer(&format!("{text}\n")),
        }
    }

    /// Prints `value` as one document.
    pub(super) fn document(self, value: &impl Serialize) -> Result<(), Coded> {
        match self.to_stderr {
            true => self.text(&serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?),
            false => document(value),
        }
    }

    fn event(self, name: &str, data: &Value) -> Result<(), Coded> {
        let event = json!({ "schema": COPY_SCHEMA, "event": name, "data": data });
        match self.to_stderr {
            true => self.text(&event.to_string()),
            false => document_line(&event),
        }
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
        let _ = printer.event("lost", &json!({ "reason": reason }));
    }

    /// Ends, with the whole if there is one.
    ///
    /// # Errors
    /// The whole was not printed. That an event before it was not is no reason to stop the copy.
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
        (told, before) = (now, moved);
    }
}
