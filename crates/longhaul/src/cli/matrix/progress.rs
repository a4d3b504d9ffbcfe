use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use longhaul_core::result::{Outcome, RunRecord};
use longhaul_lab::runner::{Event, Progress};

/// Shows how far a matrix is, on standard error: a bar under the finished runs on a terminal, a
/// line for each run elsewhere.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn new() -> Self {
        let bar = stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:28} {pos}/{len}  {msg}");
            let bar = ProgressBar::new(0);
            // The template is a constant, and valid.
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Bar { bar }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::MakingData => self.line("longhaul: making the data file"),
            Event::NotInstalled { tool, program } => {
                self.line(&format!("longhaul: {tool} is not installed ({program} is not found)"));
            }
            Event::Started { row, condition, progress, .. } => {
                let left = left(progress.left);
                let (label, path) = (&row.label, condition.label());
                if let Some(bar) = &self.bar {
                    bar.set_length(progress.total as u64);
                    bar.set_position(progress.done as u64);
                    bar.set_message(format!("about {left} left; {label} at {path}"));
                }
            }
            Event::Finished { run, progress } => {
                let line = finished(run, progress, self.bar.is_none());
                self.line(&line);
                if let Some(bar) = &self.bar {
                    bar.set_position(progress.done as u64);
                }
            }
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }
}

/// `[ 7/32] scp at 90 ms: 570 Mb/s`
fn finished(run: &RunRecord, progress: &Progress, with_left: bool) -> String {
    let Progress { done, total, left: time } = progress;
    let width = total.to_string().len();
    let (label, path) = (&run.label, run.condition.label());
    let figure = run.throughput_bps.map_or(String::new(), |rate| rate.to_string());
    let said = match &run.outcome {
        Outcome::Ok => figure,
        Outcome::Failed { reason } => format!("failed: {reason}"),
        Outcome::Invalid { reason } => format!("{figure}, invalid: {reason}"),
    };
    let rest = if with_left && done < total {
        format!(" (about {} left)", left(*time))
    } else {
        String::new()
    };
    format!("[{done:>width$}/{total}] {label} at {path}: {said}{rest}")
}

/// `3 m 20 s`, to five seconds: it is a guess.
fn left(time: Duration) -> String {
    let seconds = time.as_secs().div_ceil(5) * 5;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} m {seconds:02} s"),
    }
}
