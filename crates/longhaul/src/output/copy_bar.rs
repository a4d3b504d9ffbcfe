//! The progress of a copy on a terminal: a line for the whole copy, and a line per large file of a
//! copy of few files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::text::escape;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::copy::{CopyProgress, FileProgress};

use super::{error_is_terminal, error_size};

/// The time between two updates of the bar.
const REDRAW: Duration = Duration::from_millis(200);
/// The number of updates that the shown rate covers: 3 s, steadier than the rate of one update.
const RATE_WINDOW: usize = 15;
/// The maximum number of files of a copy with a line per file. Lines of many files would change too
/// fast.
const FEW_FILES: u64 = 64;
/// The maximum number of lines of files at a time.
const FILE_LINES: usize = 4;
/// The columns of the percentage, beside the message.
const PERCENT_COLUMNS: usize = 8;
/// The width of a terminal that does not report it.
const COLUMNS: usize = 80;

/// A progress display on standard error, if that is a terminal.
pub(crate) struct CopyBar {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CopyBar {
    /// Starts to draw `progress`, unless `quiet` is set or standard error is not a terminal.
    pub(crate) fn start(progress: Arc<CopyProgress>, quiet: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let shown = !quiet && error_is_terminal();
        let thread = shown.then(|| {
            let over = over.clone();
            thread::spawn(move || draw(&progress, &over))
        });
        CopyBar { over, thread }
    }

    /// Removes the display.
    pub(crate) fn finish(mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn draw(progress: &CopyProgress, over: &AtomicBool) {
    let mut lines = Lines::new();
    let mut recent = vec![(Instant::now(), Bytes::new(0))];
    while !over.load(Ordering::Relaxed) {
        let (moved, now) = (progress.moved(), Instant::now());
        recent.push((now, moved));
        if recent.len() > RATE_WINDOW {
            recent.remove(0);
        }
        let (since, before) = recent[0];
        let gained = Bytes::new(moved.get().saturating_sub(before.get()));
        lines.show(progress, moved, Rate::mean(gained, now - since));
        thread::park_timeout(REDRAW);
    }
    lines.clear();
}

/// The lines of the display.
struct Lines {
    all: MultiProgress,
    copy_line: ProgressBar,
    files: Vec<ProgressBar>,
}

impl Lines {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let copy_line = all.add(ProgressBar::new(0));
        copy_line.set_style(style("{wide_bar} {percent:>3} %  {msg}"));
        Lines { all, copy_line, files: Vec::new() }
    }

    fn show(&mut self, progress: &CopyProgress, moved: Bytes, rate: Rate) {
        let columns = error_size().map_or(COLUMNS, |(columns, _)| columns);
        let files = shown_files(progress.total_files(), progress.moving_files());
        while self.files.len() > files.len() {
            if let Some(line) = self.files.pop() {
                line.finish_and_clear();
                self.all.remove(&line);
            }
        }
        while self.files.len() < files.len() {
            let line = self.all.insert_before(&self.copy_line, ProgressBar::new(1));
            line.set_style(style("{wide_msg}"));
            self.files.push(line);
        }
        for (line, file) in self.files.iter().zip(&files) {
            line.set_message(file_line(file, columns));
        }
        let total = progress.total();
        self.copy_line.set_length(total.get());
        self.copy_line.set_position(moved.get());
        let parts = parts(progress, moved, total, rate);
        self.copy_line.set_message(fitting(&parts, columns.saturating_sub(PERCENT_COLUMNS)));
    }

    fn clear(self) {
        for line in self.files {
            line.finish_and_clear();
        }
        self.copy_line.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Returns the files with a line: those of a copy of several, but few files.
fn shown_files(total: u64, mut moving: Vec<FileProgress>) -> Vec<FileProgress> {
    if !(2..=FEW_FILES).contains(&total) {
        return Vec::new();
    }
    moving.truncate(FILE_LINES);
    moving
}

/// Returns the line of a file, of at most `columns` characters. A long path loses its beginning.
fn file_line(file: &FileProgress, columns: usize) -> String {
    let percent = 100.0 * file.moved.get() as f64 / file.size.get().max(1) as f64;
    let figures = format!("{percent:>3.0} %  {} of {}  ", file.moved, file.size);
    let path = file.path.display().to_string();
    let path = escape(&path);
    let room = columns.saturating_sub(figures.chars().count() + 1);
    let count = path.chars().count();
    if count <= room {
        return figures + &path;
    }
    let end: String = path.chars().skip(count - room.saturating_sub(2)).collect();
    format!("{figures}..{end}")
}

/// Returns the parts of the line of the whole copy, the most important first.
fn parts(progress: &CopyProgress, moved: Bytes, total: Bytes, rate: Rate) -> Vec<String> {
    let more = if progress.listed() { "" } else { "+" };
    // Standard input has no total before its end.
    let of = if total < moved { String::new() } else { format!(" of {total}{more}") };
    let mut parts = vec![format!("{moved}{of}"), rate.to_string()];
    // Without the total or a rate the remaining time is unknown.
    if let (true, speed @ 1..) = (progress.listed(), rate.bytes_per_second()) {
        let seconds = total.get().saturating_sub(moved.get()) / speed;
        parts.push(format!("{}:{:02} left", seconds / 60, seconds % 60));
    }
    if let total @ 2.. = progress.total_files() {
        parts.push(format!("{}/{total} files", progress.files()));
    }
    match (progress.limit(), progress.busiest()) {
        (Some(limit), _) => parts.push(format!("(limit {limit})")),
        (None, Some(stage)) => parts.push(format!("(limit: {})", stage.as_str())),
        (None, None) => {}
    }
    parts
}

/// Joins the first parts that fit into `columns` characters.
fn fitting(parts: &[String], columns: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { "" } else { "  " };
        if text.chars().count() + gap.len() + part.chars().count() > columns {
            break;
        }
        text = text + gap + part;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, moved: u64) -> FileProgress {
        FileProgress { path: path.into(), size: Bytes::gib(2), moved: Bytes::mib(moved) }
    }

    #[test]
    fn only_few_files_have_lines() {
        let moving = |count: u64| (0..count).map(|i| file("x", i)).collect::<Vec<_>>();
        assert_eq!(shown_files(1, moving(1)).len(), 0, "the line of the copy is that of the file");
        assert_eq!(shown_files(2, moving(2)).len(), 2);
        assert_eq!(shown_files(64, moving(64)).len(), FILE_LINES);
        assert_eq!(shown_files(65, moving(64)).len(), 0);
    }

    #[test]
    fn a_line_fits_the_terminal() {
        assert_eq!(file_line(&file("run/a.h5", 512), 60), " 25 %  512 MiB of 2.00 GiB  run/a.h5");
        let long = "deep/".repeat(30) + "detector.h5";
        for columns in [60, 80, 120] {
            let line = file_line(&file(&long, 512), columns);
            assert_eq!(line.chars().count(), columns - 1, "{line}");
            assert!(line.ends_with("/detector.h5") && line.contains("  .."), "{line}");
        }
        assert!(!file_line(&file("a\x1b[2J\n", 1), 60).contains(['\x1b', '\n']));
        let parts = ["10.0 GiB of 20.0 GiB+", "1.23 Gb/s", "1:23 left", "1/20 files"];
        let parts = parts.map(str::to_owned);
        assert_eq!(fitting(&parts, 52), "10.0 GiB of 20.0 GiB+  1.23 Gb/s  1:23 left");
        assert_eq!(fitting(&parts, 5), "");
    }
}
