//! The findings of the doctor as text: problems first, each with the
//! command that fixes it, and the totals last.

use std::fmt::Write;

use longhaul_core::result::{DoctorReport, Finding, FindingVerdict, Measurement};
use longhaul_core::units::format_span;

use super::style::{Style, styled};
use super::test::words::{beside, command_lines, count, wrap};
use super::{command_columns, text_columns, with_escaped_text};

/// The indentation of the text of a finding.
const INDENT: usize = 12;
/// The widths of the columns for findings without problems.
const SUBJECT: usize = 20;
const TITLE: usize = 27;
/// The minimum width of the value beside both columns; otherwise it is below the title.
const LEAST_SEEN: usize = 24;

/// Returns the text of a report.
pub(crate) fn doctor_text(report: &DoctorReport, color: bool) -> String {
    let report = &with_escaped_text(report);
    let mut text = head(report);
    for section in &SECTIONS {
        section.write(&mut text, report, color);
    }
    if !report.measurements.is_empty() {
        let _ = writeln!(text, "{}\n", styled(Style::Measured, "MEASURED", color));
        report.measurements.iter().for_each(|one| measurement(&mut text, one));
        text.push('\n');
    }
    text.push_str(&sum(report));
    text
}

/// Returns the examined host and the target.
fn head(report: &DoctorReport) -> String {
    let (about, target) = (&report.about, &report.target);
    let known = [
        about.processors.zip(about.processor.clone()).map(|(n, model)| format!("{n} x {model}")),
        about.nodes.filter(|nodes| *nodes > 1).map(|nodes| format!("{nodes} NUMA nodes")),
        about.memory_bytes.map(|memory| format!("{memory} of memory")),
        about.kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
        about.virtual_machine.filter(|is| *is).map(|_| "a virtual machine".to_owned()),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let host = report.host.as_deref().unwrap_or("this host");
    let rtt = std::time::Duration::from_nanos((target.rtt_ms * 1e6).round() as u64);
    let to = target.to.as_ref().map_or(String::new(), |to| format!(" to {to}"));
    let examined = format!(
        "for {} ({}) over {} ({}){to}: bandwidth-delay product {}",
        target.rate_bps,
        target.rate_from,
        format_span(rtt),
        target.rtt_from,
        target.bdp_bytes
    );
    let host = wrap(&format!("{host}: {}", known.join(", ")), text_columns());
    format!("{host}\n{}\n\n", wrap(&examined, text_columns()))
}

/// The part of a report with all findings of one verdict.
struct Section {
    verdict: FindingVerdict,
    heading: &'static str,
    style: Style,
    show: fn(&mut String, &Finding),
}

const SECTIONS: [Section; 4] = [
    Section {
        verdict: FindingVerdict::Problem,
        heading: "PROBLEMS",
        style: Style::Problems,
        show: full,
    },
    Section {
        verdict: FindingVerdict::Advice,
        heading: "ADVICE",
        style: Style::Advice,
        show: full,
    },
    Section {
        verdict: FindingVerdict::Unseen,
        heading: "UNKNOWN",
        style: Style::Unseen,
        show: full,
    },
    Section { verdict: FindingVerdict::Ok, heading: "OK", style: Style::InOrder, show: row },
];

impl Section {
    fn write(&self, text: &mut String, report: &DoctorReport, color: bool) {
        if report.of(self.verdict).next().is_none() {
            return;
        }
        let _ = writeln!(text, "{}\n", styled(self.style, self.heading, color));
        report.of(self.verdict).for_each(|finding| (self.show)(text, finding));
        if self.verdict == FindingVerdict::Ok {
            text.push('\n');
        }
    }
}

/// Appends a finding with a line or more per part.
fn full(text: &mut String, finding: &Finding) {
    let subject = match finding.subject.as_str() {
        "" => String::new(),
        subject => format!("{subject}: "),
    };
    let area = format!("  {:<9} ", finding.area.to_string());
    let title = format!("{subject}{}", finding.title);
    text.push_str(&beside(&area, &title, INDENT, text_columns()));
    for (name, part) in
        [("present", &finding.present), ("advised", &finding.wanted), ("why", &finding.why)]
    {
        if !part.is_empty() {
            let name = format!("{:INDENT$}{name:<8}", "");
            text.push_str(&beside(&name, part, INDENT, text_columns()));
        }
    }
    for (command, name) in
        finding.commands.iter().zip(["run"].into_iter().chain(std::iter::repeat("")))
    {
        let name = format!("{:INDENT$}{name:<8}", "");
        let room = |at: usize| command_columns().saturating_sub(at);
        let mut lines = command_lines(command, room(INDENT + 8));
        // A long word has more room below.
        let mut at = INDENT + 8;
        if lines.iter().any(|line| line.chars().count() > room(at)) {
            if !name.trim().is_empty() {
                let _ = writeln!(text, "{}", name.trim_end());
            }
            (at, lines) = (4, command_lines(command, room(4)));
        }
        for (number, line) in lines.iter().enumerate() {
            let name = if number == 0 && at > 4 { &*name } else { "" };
            let _ = writeln!(text, "{name:<at$}{line}");
        }
    }
    text.push('\n');
}

/// Appends a finding without a problem, on one line if it fits.
fn row(text: &mut String, finding: &Finding) {
    let about = match finding.subject.as_str() {
        "" => finding.area.to_string(),
        subject => format!("{} {subject}", finding.area),
    };
    let left = format!("  {about:<SUBJECT$} {:<TITLE$} ", finding.title);
    if text_columns().saturating_sub(left.chars().count()) >= LEAST_SEEN {
        text.push_str(&beside(&left, &finding.present, INDENT, text_columns()));
        return;
    }
    let subject = format!("  {about:<SUBJECT$} ");
    text.push_str(&beside(&subject, &finding.title, SUBJECT + 3, text_columns()));
    for line in wrap(&finding.present, text_columns() - SUBJECT - 3).lines() {
        let _ = writeln!(text, "{:1$}{line}", "", SUBJECT + 3);
    }
}

fn measurement(text: &mut String, one: &Measurement) {
    let rate = one.throughput_bps.map_or("failed".to_owned(), |rate| {
        format!("{rate} ({:.2} GB/s)", rate.bps() as f64 / 8e9)
    });
    let title = format!("  {:<28} ", one.title);
    text.push_str(&beside(&title, &rate, 4, text_columns()));
    for line in wrap(&one.note, text_columns() - 31).lines() {
        let _ = writeln!(text, "{:31}{line}", "");
    }
}

fn sum(report: &DoctorReport) -> String {
    let number = |verdict| report.of(verdict).count() as u64;
    let host = report.host.as_ref().map_or(String::new(), |host| format!("{host}: "));
    let sum = format!(
        "{host}{}, {} of advice, {} unknown, {} ok, in {:.2} s",
        count(number(FindingVerdict::Problem), "problem"),
        count(number(FindingVerdict::Advice), "piece"),
        number(FindingVerdict::Unseen),
        number(FindingVerdict::Ok),
        report.seconds
    );
    format!("{}\n", wrap(&sum, text_columns()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{complete_doctor, on_columns};

    const RECORDED: &str = include_str!("../../../longhaul-core/tests/fixtures/doctor-1.json");

    #[test]
    fn lines_fit_the_terminal_and_words_are_whole() {
        let mut report: DoctorReport = serde_json::from_str(RECORDED).unwrap();
        complete_doctor(&mut report);
        let words = |text: &str| {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            words.retain(|word| !["\\", "#"].contains(&word.as_str()));
            words.sort();
            words.dedup();
            words
        };
        let wide = on_columns(200, || doctor_text(&report, false));
        for columns in [60, 70, 80, 100] {
            let text = on_columns(columns, || doctor_text(&report, false));
            let long = text.lines().find(|line| line.chars().count() > columns);
            assert_eq!(long, None, "{columns}:\n{text}");
            assert_eq!(words(&text), words(&wide), "{columns}:\n{text}");
        }
    }

    #[test]
    fn a_command_is_one_line_without_a_terminal() {
        let report: DoctorReport = serde_json::from_str(RECORDED).unwrap();
        let text = doctor_text(&report, false);
        let commands = report.findings.iter().flat_map(|finding| &finding.commands);
        for command in commands {
            assert!(text.lines().any(|line| line.ends_with(command)), "{command}\n{text}");
        }
    }
}
