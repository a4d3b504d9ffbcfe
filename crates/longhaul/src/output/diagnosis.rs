//! The progress and the result of a diagnosis as text.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::result::{Bottleneck, Cure, Diagnosis, DiagnosisStep, StepReport};
use longhaul_core::units::Rate;
use longhaul_engine::diagnose::{DiagnosePlan, DiagnoseProgress};

use super::style::{Style, styled};
use super::test::words::{command_lines, wrap};
use super::{
    command_columns, error_is_terminal, output_is_colored, print_message, text_columns,
    with_escaped_text,
};

/// The width of the name of a step.
const NAME: usize = 28;
/// The width of its bar.
const BAR: usize = 10;
/// The least width of a bar.
const LEAST_BAR: usize = 3;
/// The width of a line without a bar.
const FIGURES: usize = NAME + 29;
/// The width of the mark of the limit.
const MARK: usize = 10;

/// Shows the diagnosis on standard error while it runs: bars on a terminal, else a line for each
/// step that was measured.
pub(crate) struct DiagnoseView {
    rounds: u32,
    bars: Option<Bars>,
    /// The reason why the last unmeasured step was not measured.
    reason: Mutex<String>,
}

struct Bars {
    all: MultiProgress,
    steps: Vec<(DiagnosisStep, ProgressBar)>,
    /// The highest rate so far, which has the longest bar.
    most: Mutex<u64>,
}

impl DiagnoseView {
    pub(crate) fn start(plan: &DiagnosePlan) -> Self {
        let bars = error_is_terminal().then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{prefix:28} {bar:10} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = |step: DiagnosisStep| {
                let bar = all.add(ProgressBar::new(1));
                bar.set_style(style.clone());
                bar.set_prefix(plan.title(step));
                bar.tick();
                (step, bar)
            };
            Bars { steps: plan.steps().map(bar).collect(), all: all.clone(), most: Mutex::new(1) }
        });
        DiagnoseView { rounds: plan.rounds, bars, reason: Mutex::default() }
    }

    pub(crate) fn show(&self, step: &DiagnoseProgress<'_>) {
        match (&self.bars, step) {
            (Some(bars), DiagnoseProgress::Begun { step, round, .. }) => {
                let name = format!("round {round} of {}", self.rounds);
                bars.with(*step, |bar| bar.set_message(name));
            }
            (Some(bars), DiagnoseProgress::Moving { step, rate }) => bars.set(*step, *rate, "..."),
            (Some(bars), DiagnoseProgress::Ended(report)) => match report.throughput_bps {
                Some(rate) => bars.set(report.step, rate, ""),
                None => bars.with(report.step, |bar| bar.set_message("not measured")),
            },
            (None, DiagnoseProgress::Ended(report)) if self.is_news(report) => {
                print_message(line(report));
            }
            (None, _) => {}
        }
    }

    /// Returns false for an unmeasured step with the same reason as the one before.
    fn is_news(&self, report: &StepReport) -> bool {
        if report.throughput_bps.is_some() {
            return true;
        }
        let mut reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let news = *reason != report.note;
        reason.clone_from(&report.note);
        news
    }

    /// Removes the bars. The result has its own.
    pub(crate) fn finish(self) {
        if let Some(bars) = self.bars {
            let _ = bars.all.clear();
        }
    }
}

impl Bars {
    fn with(&self, step: DiagnosisStep, change: impl FnOnce(&ProgressBar)) {
        if let Some((_, bar)) = self.steps.iter().find(|(other, _)| *other == step) {
            change(bar);
        }
    }

    fn set(&self, step: DiagnosisStep, rate: Rate, more: &str) {
        let mut most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        if rate.bps() > *most {
            *most = rate.bps();
            self.steps.iter().for_each(|(_, bar)| bar.set_length(*most));
        }
        self.with(step, |bar| {
            bar.set_position(rate.bps());
            bar.set_message(format!("{rate}{more}"));
        });
    }
}

/// Formats the line of a step.
fn line(report: &StepReport) -> String {
    match (report.rounds.last(), report.throughput_bps) {
        (Some(round), Some(_)) => format!(
            "round {}  {:<NAME$} {}{}",
            round.number,
            report.title,
            round.throughput_bps,
            if round.cut { ", shortened" } else { "" }
        ),
        _ => format!("{}: not measured: {}", report.title, report.note),
    }
}

/// Returns the text of a diagnosis.
pub(crate) fn diagnosis_text(diagnosis: &Diagnosis) -> String {
    let diagnosis = &with_escaped_text(diagnosis);
    let mut text = String::new();
    let rtt = diagnosis.rtt_ms.map_or(String::new(), |rtt| format!(" over {rtt:.1} ms"));
    let _ = writeln!(text, "{} -> {}{rtt}\n", diagnosis.source, diagnosis.target);
    steps(&mut text, diagnosis);
    match diagnosis.limits.split_first() {
        None => {}
        Some((first, rest)) => {
            limit(&mut text, &heading(Style::Problems, "LIMIT"), first);
            for next in rest.iter().take(2) {
                limit(&mut text, &heading(Style::Advice, "NEXT"), next);
            }
        }
    }
    // The sentence has the reason why no step was measured.
    if !diagnosis.gaps.is_empty() && diagnosis.unmeasured().is_none() {
        let _ = writeln!(text, "NOT MEASURED\n");
        for (what, why) in diagnosis.gaps_by_reason() {
            indented(&mut text, &format!("{what}: {why}"));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", wrap(&format!("{}.", diagnosis.sentence), text_columns()));
    text
}

fn heading(style: Style, name: &str) -> String {
    styled(style, name, output_is_colored())
}

fn steps(text: &mut String, diagnosis: &Diagnosis) {
    let most = diagnosis.steps.iter().filter_map(|report| report.throughput_bps).max();
    let most = most.map_or(1, Rate::bps).max(1);
    let limit = diagnosis.limits.first().map(|limit| limit.step);
    let widest = diagnosis.steps.iter().map(|report| files(report).chars().count()).max();
    // A narrow terminal has shorter bars, or none.
    let needed = FIGURES + widest.unwrap_or(0) + MARK;
    let (gap, width) = match text_columns().saturating_sub(needed + 1) {
        0..LEAST_BAR => ("", 0),
        width => (" ", width.min(BAR)),
    };
    let _ = writeln!(text, "{:NAME$} {:width$}{gap}   steady   overall  ramp-up", "", "");
    for report in &diagnosis.steps {
        let Some(rate) = report.throughput_bps else {
            let _ = writeln!(text, "{:<NAME$} {:<width$}{gap}not measured", report.title, "");
            continue;
        };
        let length = (rate.bps() as f64 / most as f64 * width as f64).round() as usize;
        let bar = "#".repeat(length.clamp(1, BAR).min(width));
        let files = files(report);
        let mark = if limit == Some(report.step) { "  <- limit" } else { "" };
        let figures = figures(report, rate);
        let line = format!("{:<NAME$} {bar:<width$}{gap}{figures}", report.title);
        let line = line.trim_end();
        let more = format!("{files}{mark}");
        let fits = line.chars().count() + more.chars().count() <= text_columns();
        let more = if fits || more.is_empty() {
            more
        } else {
            format!("\n{:NAME$} {}", "", more.trim_start())
        };
        let _ = writeln!(text, "{}", format!("{line}{more}").trim_end());
    }
    if diagnosis.steps.iter().any(is_short) {
        text.push_str("-: the step was too short for a steady rate\n");
    }
    match diagnosis.steps.iter().map(|report| report.rounds.len()).max() {
        None | Some(0) => {}
        Some(1) => text.push_str("one round\n"),
        Some(2) => text.push_str("rates: the mean of 2 rounds\n"),
        Some(rounds) => {
            let _ = writeln!(text, "rates: the median of {rounds} rounds");
        }
    }
    text.push('\n');
}

/// Returns the number of files per second of a step with small files, after a gap.
fn files(report: &StepReport) -> String {
    report.files_per_second.map_or(String::new(), |rate| {
        let number = format!("{rate:.0}");
        let noun = if number == "1" { "file" } else { "files" };
        format!("  {number} {noun}/s")
    })
}

/// Returns whether a step over the path had no steady part.
fn is_short(report: &StepReport) -> bool {
    report.median().is_some_and(|round| round.mean_bps.is_some() && round.ramp_up_seconds.is_none())
}

/// Returns the steady rate of a step, its rate with the ramp-up, and the duration of the ramp-up.
fn figures(report: &StepReport, rate: Rate) -> String {
    let mean = report.median_mean().map_or(String::new(), |mean| mean.to_string());
    let steady = if is_short(report) { "-".to_owned() } else { rate.to_string() };
    let seconds = report.median().and_then(|round| round.ramp_up_seconds);
    let seconds = seconds.map_or(String::new(), |seconds| format!("{seconds:.1} s"));
    format!("{steady:>9} {mean:>9} {seconds:>8}")
}

fn limit(text: &mut String, name: &str, limit: &Bottleneck) {
    let _ = writeln!(text, "{name}: {}, at {}\n", limit.resource, limit.allows_bps);
    indented(text, &limit.sentence);
    if let (Some(without), Some(gain @ 1.05..)) = (limit.without_bps, limit.gain) {
        indented(
            text,
            &format!(
                "without this limit: {without}, estimated {gain:.1} times the rate ({})",
                limit.gain_sample()
            ),
        );
    }
    text.push('\n');
    for cure in &limit.cures {
        show_cure(text, cure);
    }
}

fn show_cure(text: &mut String, cure: &Cure) {
    let values = match (cure.present.as_str(), cure.proposed.as_str()) {
        ("", "") => String::new(),
        ("", proposed) => format!(": {proposed}"),
        (present, "") => format!(" (now {present})"),
        (present, proposed) => format!(": from {present} to {proposed}"),
    };
    indented(text, &format!("[{}] on {}: {}{values}", cure.kind, cure.host, cure.what));
    if !cure.command.is_empty() {
        for line in command_lines(&cure.command, command_columns().saturating_sub(6)) {
            let _ = writeln!(text, "      {line}");
        }
    }
    text.push('\n');
}

fn indented(text: &mut String, what: &str) {
    for line in wrap(what, text_columns() - 2).lines() {
        let _ = writeln!(text, "  {line}");
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::diagnosis::judge;

    use super::*;
    use crate::output::{complete_diagnosis, on_columns};

    const RECORDED: [&str; 2] = [
        include_str!("../../../longhaul-core/tests/fixtures/diagnoses/tiny-files.json"),
        include_str!("../../../longhaul-core/tests/fixtures/diagnoses/receiver-window.json"),
    ];

    #[test]
    fn lines_fit_the_terminal() {
        for recorded in RECORDED {
            let mut diagnosis = judge(serde_json::from_str(recorded).unwrap());
            complete_diagnosis(&mut diagnosis);
            for columns in [60, 70, 80, 120] {
                for step in &mut diagnosis.steps {
                    step.files_per_second = step.files_per_second.map(|_| 1.2);
                }
                let text = on_columns(columns, || diagnosis_text(&diagnosis));
                let long = text.lines().find(|line| line.chars().count() > columns);
                assert_eq!(long, None, "{columns}:\n{text}");
                assert!(!text.contains(" ,"), "{text}");
                assert!(!text.contains(" 1 files/s"), "{text}");
                // A step is one line if the terminal is wide enough.
                let row = |line: &&str| line.contains("<- limit");
                let title = |line: &str| diagnosis.steps.iter().any(|s| line.starts_with(&s.title));
                assert!(columns < 80 || text.lines().filter(row).all(title), "{text}");
            }
        }
    }
}
