//! The findings of the doctor as text: problems first, each with the
//! command that fixes it, and the totals last.

use std::fmt::Write;

use longhaul_core::result::{DoctorReport, Finding, FindingVerdict, Measurement};
use longhaul_core::units::format_span;

use super::style::{Style, styled};
use super::test::words::{count, wrap};
use super::{text_columns, with_escaped_text};

/// The indentation of the text of a finding.
const INDENT: usize = 12;
/// The widths of the columns for findings without problems.
const SUBJECT: usize = 20;
const TITLE: usize = 27;

/// Returns the text of a report.
pub(crate) fn doctor_text(report: &DoctorReport, colour: bool) -> String {
    let report = &with_escaped_text(report);
    let mut text = head(report);
    for section in &SECTIONS {
        section.write(&mut text, report, colour);
    }
    if !report.measurements.is_empty() {
        let _ = writeln!(text, "{}\n", styled(Style::Measured, "MEASURED", colour));
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
    fn write(&self, text: &mut String, report: &DoctorReport, colour: bool) {
        if report.of(self.verdict).next().is_none() {
            return;
        }
        let _ = writeln!(text, "{}\n", styled(self.style, self.heading, colour));
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
    let _ = writeln!(text, "  {:<9} {subject}{}", finding.area.to_string(), finding.title);
    for (name, part) in
        [("seen", &finding.seen), ("wanted", &finding.wanted), ("why", &finding.why)]
    {
        if !part.is_empty() {
            let lines = wrap(part, text_columns() - INDENT - 8);
            let mut lines = lines.lines();
            let _ = writeln!(text, "{:INDENT$}{name:<8}{}", "", lines.next().unwrap_or_default());
            lines.for_each(|line| {
                let _ = writeln!(text, "{:1$}{line}", "", INDENT + 8);
            });
        }
    }
    // Commands are not wrapped, so that they can be copied.
    for (command, name) in
        finding.commands.iter().zip(["run"].into_iter().chain(std::iter::repeat("")))
    {
        let _ = writeln!(text, "{:INDENT$}{name:<8}{command}", "");
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
    let column = left.chars().count();
    let lines = wrap(&finding.seen, text_columns().saturating_sub(column).max(24));
    let mut lines = lines.lines();
    let _ = writeln!(text, "{left}{}", lines.next().unwrap_or_default());
    lines.for_each(|line| {
        let _ = writeln!(text, "{:column$}{line}", "");
    });
}

fn measurement(text: &mut String, one: &Measurement) {
    let rate = one.throughput_bps.map_or("failed".to_owned(), |rate| {
        format!("{rate} ({:.2} GB/s)", rate.bps() as f64 / 8e9)
    });
    let _ = writeln!(text, "  {:<28} {rate}", one.title);
    for line in wrap(&one.note, text_columns() - 31).lines() {
        let _ = writeln!(text, "{:31}{line}", "");
    }
}

fn sum(report: &DoctorReport) -> String {
    let number = |verdict| report.of(verdict).count() as u64;
    let host = report.host.as_ref().map_or(String::new(), |host| format!("{host}: "));
    format!(
        "{host}{}, {} of advice, {} unknown, {} ok, in {:.2} s\n",
        count(number(FindingVerdict::Problem), "problem"),
        count(number(FindingVerdict::Advice), "piece"),
        number(FindingVerdict::Unseen),
        number(FindingVerdict::Ok),
        report.seconds
    )
}
