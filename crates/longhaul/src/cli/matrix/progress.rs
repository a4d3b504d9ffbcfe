//! The progress of a matrix on standard error: a live table on a terminal, lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use longhaul_core::plan::MatrixPlan;
use longhaul_core::result::{Outcome, RunRecord};
use longhaul_core::text::escape;
use longhaul_lab::runner::{MatrixEvent, MatrixProgress};

use super::live::LiveTable;
use crate::output::{error_is_terminal, error_size, print_note};

/// The time between two updates of the line below the table.
const TICK: Duration = Duration::from_millis(250);

/// Prints the progress of a matrix: a live table on a terminal, or a line per run.
pub(super) struct ProgressPrinter<'a> {
    plan: &'a MatrixPlan,
    live: Option<Live>,
    /// The missing programs.
    missing: Vec<String>,
}

/// The table on a terminal.
struct Live {
    table: LiveTable,
    bar: ProgressBar,
    /// The time of the last estimate of the remaining time.
    estimated: Instant,
}

impl<'a> ProgressPrinter<'a> {
    /// Starts the display with the runs of earlier sessions.
    pub(super) fn new(plan: &'a MatrixPlan, earlier: &[RunRecord]) -> Self {
        let live = error_is_terminal().then(|| {
            let mut table = LiveTable::new(plan);
            earlier.iter().for_each(|run| table.add(run));
            let bar = ProgressBar::new(0);
            bar.enable_steady_tick(TICK);
            Live { table, bar, estimated: Instant::now() }
        });
        ProgressPrinter { plan, live, missing: Vec::new() }
    }

    pub(super) fn event(&mut self, event: &MatrixEvent<'_>) {
        match event {
            MatrixEvent::MakingData => self.line("longhaul: generating the data"),
            MatrixEvent::MeasuringPath { condition } => {
                let what = format!("measuring the path: {}", condition.label());
                match &self.live {
                    Some(live) => live.bar.set_message(escape(&what).into_owned()),
                    None => self.line(&format!("longhaul: {what}")),
                }
            }
            MatrixEvent::NotInstalled { tool, program } => {
                if let Some(live) = &mut self.live {
                    live.table.missing(self.plan, tool);
                }
                self.missing.push((*program).to_owned());
                self.line(&format!("longhaul: {tool} is not installed ({program} not found)"));
            }
            MatrixEvent::Started { cell, row, condition, progress } => {
                if let Some(live) = &mut self.live {
                    live.table.started(cell.row, cell.condition);
                    let now = format!("{} at {}", row.label, condition.label());
                    live.draw(progress, Some(&now));
                }
            }
            MatrixEvent::Finished { run, progress } => {
                if let Some(live) = &mut self.live {
                    live.table.add(run);
                    live.draw(progress, None);
                }
                // The table shows figures only, so failures are printed above it.
                if self.live.is_none() || run.outcome != Outcome::Ok {
                    self.line(&finished(run, progress, self.live.is_none()));
                }
            }
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(live) = self.live.take() {
            live.bar.finish_and_clear();
        }
        if let Some(command) = install_command(&std::mem::take(&mut self.missing)) {
            print_note(format_args!(
                "longhaul: tools that are not installed have no figures; on Debian or Ubuntu, \
                 '{command}' installs them"
            ));
        }
    }

    fn line(&self, text: &str) {
        match &self.live {
            Some(live) => live.bar.println(escape(text)),
            None => print_note(text),
        }
    }
}

/// The Debian packages of programs.
const PACKAGES: &[(&str, &str)] = &[
    ("iperf3", "iperf3"),
    ("iperf", "iperf"),
    ("nuttcp", "nuttcp"),
    ("scp", "openssh-client"),
    ("ssh", "openssh-client"),
    ("sftp", "openssh-client"),
    ("sshd", "openssh-server"),
    ("rsync", "rsync"),
    ("globus-url-copy", "globus-gass-copy-progs"),
    ("globus-gridftp-server", "globus-gridftp-server-progs"),
    ("rclone", "rclone"),
    ("lftp", "lftp"),
    ("curl", "curl"),
    ("wget", "wget"),
    ("aria2c", "aria2"),
    ("squid", "squid"),
];

/// Returns the command that installs the packages of `programs`; `None` if no package is known.
fn install_command(programs: &[impl AsRef<str>]) -> Option<String> {
    let package = |program: &str| PACKAGES.iter().find(|(name, _)| *name == program);
    let found = programs.iter().filter_map(|program| package(program.as_ref()));
    let mut packages: Vec<&str> = found.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    (!packages.is_empty()).then(|| format!("apt install {}", packages.join(" ")))
}

impl Live {
    fn draw(&mut self, progress: &MatrixProgress, now: Option<&str>) {
        self.estimated = Instant::now();
        let (width, height) = terminal_size();
        // One empty line above the table, two below it, and one for the cursor.
        let lines = self.table.lines(width.saturating_sub(1), height.saturating_sub(5).max(2));
        let lines: Vec<_> = lines.iter().map(|line| escape(line)).collect();
        let text = format!("\n{}\n\n", lines.join("\n"));
        self.bar.set_style(style(progress.left, self.estimated));
        self.bar.set_length(progress.total as u64);
        self.bar.set_position(progress.done as u64);
        self.bar.set_prefix(text);
        self.bar.set_message(escape(now.unwrap_or_default()).into_owned());
    }
}

/// Returns the style with table, bar and remaining time, which counts down between two estimates.
fn style(remaining_time: Duration, estimated: Instant) -> ProgressStyle {
    let remaining = move |_: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
        // Errors of the terminal are ignored.
        let _ = out.write_str(&left(remaining_time.saturating_sub(estimated.elapsed())));
    };
    let template = "{prefix}{bar:24} {pos}/{len}, about {remaining} left  {spinner} {wide_msg}";
    // The template is a constant, and valid.
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("remaining", remaining)
}

/// Returns the columns and lines of the terminal of standard error.
fn terminal_size() -> (usize, usize) {
    error_size().unwrap_or((80, 24))
}

/// Returns a line such as `[ 7/32] scp at 90 ms: 570 Mb/s`.
fn finished(run: &RunRecord, progress: &MatrixProgress, with_left: bool) -> String {
    let MatrixProgress { done, total, left: time } = progress;
    let width = total.to_string().len();
    let (label, path) = (&run.label, run.condition.label());
    let figure = run.throughput_bps.map_or(String::new(), |rate| rate.to_string());
    let outcome = match &run.outcome {
        Outcome::Ok => figure,
        Outcome::Failed { reason } => format!("failed: {reason}"),
        Outcome::Invalid { reason } => format!("{figure}, invalid: {reason}"),
    };
    let rest = if with_left && done < total {
        format!(" (about {} left)", left(*time))
    } else {
        String::new()
    };
    format!("[{done:>width$}/{total}] {label} at {path}: {outcome}{rest}")
}

/// Returns a time such as `3 m 20 s`, rounded up to five seconds because it is an estimate.
fn left(time: Duration) -> String {
    let seconds = time.as_secs().div_ceil(5) * 5;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} m {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_have_one_command() {
        let command = install_command(&["scp", "sshd", "ssh", "unknown"]).unwrap();
        assert_eq!(command, "apt install openssh-client openssh-server");
        assert_eq!(install_command(&["unknown"]), None);
    }

    #[test]
    fn remaining_time_is_rounded_to_five_seconds() {
        for (seconds, text) in
            [(0, "0 s"), (3, "5 s"), (61, "1 m 05 s"), (299, "5 m 00 s"), (5400, "1 h 30 m")]
        {
            assert_eq!(left(Duration::from_secs(seconds)), text);
        }
    }
}
