//! The page of a diagnosis: the answer, a chart of the measurements, the limits and their remedies.

use longhaul_chart::{StepBar, StepChart, Width, sealed_document};
use longhaul_core::result::{
    Bottleneck, BusyThread, Cure, Diagnosis, DiagnosisStep, StepReport, StepRound,
};
use longhaul_core::text::capitalized;
use longhaul_core::units::Rate;
use maud::{Markup, PreEscaped, html as markup};

/// Renders the page.
pub fn diagnosis_html(diagnosis: &Diagnosis) -> String {
    let title = format!("{} \u{2192} {}", diagnosis.source, diagnosis.target);
    let chart = chart(diagnosis);
    let main = markup! {
        header {
            p.kind { "What limits this copy" }
            h1 { (title) }
            p.soft { (about(diagnosis)) }
            p.lead { (diagnosis.sentence) "." }
            (tiles(diagnosis))
        }
        section id="chart" {
            h2 { "Measurements" }
            figure {
                (PreEscaped(chart.draw(Width::Page).embedded("wide")))
                (PreEscaped(chart.draw(Width::Phone).embedded("narrow")))
            }
        }
        @if !diagnosis.limits.is_empty() {
            section id="limits" {
                h2 { "Limits and remedies" }
                @for (number, limit) in diagnosis.limits.iter().enumerate() {
                    (bottleneck(number, limit))
                }
            }
        }
        section id="steps" {
            h2 { "All measurements" }
            (steps(diagnosis))
        }
        @if !diagnosis.gaps.is_empty() {
            section id="gaps" {
                h2 { "Not measured" }
                ul { @for (what, why) in diagnosis.gaps_by_reason() {
                    li { b { (what) } ": " (why) }
                } }
            }
        }
        footer {
            "Written by longhaul " (diagnosis.version) ". Nothing was changed: read commands "
            "before you run them."
        }
    };
    sealed_document(&format!("longhaul diagnose: {title}"), &main, None)
}

fn about(diagnosis: &Diagnosis) -> String {
    let mut parts = Vec::new();
    if let Some(rtt) = diagnosis.rtt_ms {
        parts.push(format!("round trip {rtt:.1} ms"));
    }
    let subset = &diagnosis.subset;
    if subset.files > 0 {
        let more = if subset.more { " and more" } else { "" };
        let files = if subset.files == 1 { "file" } else { "files" };
        parts.push(format!("{} in {} {files}{more}", subset.bytes, subset.files));
    }
    parts.push(format!("measured in {:.0} s", diagnosis.seconds));
    if diagnosis.interrupted {
        parts.push("ended early".to_owned());
    }
    parts.join(" \u{b7} ")
}

fn tiles(diagnosis: &Diagnosis) -> Markup {
    let first = diagnosis.limits.first();
    let whole = diagnosis.rate(DiagnosisStep::Whole);
    let all = [
        whole.map(|rate| (rate.to_string(), "the whole copy".to_owned())),
        first.map(|limit| (limit.resource.to_string(), "limits it".to_owned())),
        first.and_then(|limit| Some((limit.without_bps?.to_string(), "next limit".to_owned()))),
        first.and_then(|limit| {
            let sample = limit.gain_sample();
            let name = format!("estimated gain without the first limit ({sample})");
            Some((format!("\u{d7} {:.1}", limit.gain?), name))
        }),
    ];
    markup! {
        div.tiles { @for (figure, name) in all.into_iter().flatten() {
            div { b { (figure) } span { (name) } }
        } }
    }
}

fn chart(diagnosis: &Diagnosis) -> StepChart {
    let limit = diagnosis.limits.first().map(|limit| limit.step);
    let gigabits = |rate: Rate| rate.bps() as f64 / 1e9;
    let step = |report: &StepReport| {
        let rates = || report.rounds.iter().map(|round| gigabits(round.throughput_bps));
        let (low, high) = (rates().reduce(f64::min), rates().reduce(f64::max));
        StepBar {
            name: report.title.clone(),
            value: report.throughput_bps.map(|rate| (gigabits(rate), rate.to_string())),
            range: low.zip(high).filter(|(low, high)| low < high),
            mark: (limit == Some(report.step)).then(|| "limit".to_owned()),
        }
    };
    StepChart {
        title: "Each part separately, and the whole copy".to_owned(),
        subtitle: "Median of the rounds, with a line from the lowest to the highest".to_owned(),
        label: "Gb/s".to_owned(),
        steps: diagnosis.steps.iter().map(step).collect(),
    }
}

fn bottleneck(number: usize, limit: &Bottleneck) -> Markup {
    markup! {
        h3 {
            @if number == 0 { "The limit: " } @else { "Next: " }
            (limit.resource) ", at " (limit.allows_bps)
        }
        p { (capitalized(&limit.sentence)) "." }
        @if let (Some(without), Some(gain @ 1.05..)) = (limit.without_bps, limit.gain) {
            p.soft { "Without this limit " (without) ", an estimated " (format!("{gain:.1}")) " times the rate (" (limit.gain_sample()) ")." }
        }
        @if !limit.cures.is_empty() {
            div.scroll {
                table.small {
                    thead { tr {
                        th { "What to do" }
                        th { "Host" }
                        th { "Now" }
                        th { "Proposed" }
                        th { "Takes" }
                    } }
                    tbody { @for cure in &limit.cures { (line(cure)) } }
                }
            }
        }
    }
}

fn line(cure: &Cure) -> Markup {
    markup! {
        tr {
            td.wrap {
                (cure.what)
                @if !cure.command.is_empty() { br; code { (cure.command) } }
            }
            td { (cure.host) }
            td.wrap { (cure.present) }
            td.wrap { (cure.proposed) }
            td { (cure.kind) }
        }
    }
}

fn steps(diagnosis: &Diagnosis) -> Markup {
    let share = |share: f64| format!("{:.0} %", 100.0 * share);
    let busy = |round: &StepRound| {
        let hosts = [("source", round.source_host), ("sink", round.sink_host)];
        let known = hosts.into_iter().filter_map(|(name, host)| Some((name, host?)));
        let said: Vec<_> =
            known.map(|(name, host)| format!("{name} {}", share(host.busy))).collect();
        said.join(", ")
    };
    markup! {
        div.scroll {
            table.small {
                thead { tr {
                    th { "Step" }
                    th.figure { "Median" }
                    th.figure { "Rounds" }
                    th { "Processors busy" }
                    th { "Details" }
                } }
                tbody { @for report in &diagnosis.steps {
                    tr {
                        th scope="row" { (report.title) }
                        td.figure {
                            @match report.throughput_bps {
                                Some(rate) => (rate),
                                None => span.none { "not measured" },
                            }
                        }
                        td.figure {
                            @for round in &report.rounds {
                                (round.throughput_bps) @if round.cut { " (cut)" } br;
                            }
                        }
                        td { @if let Some(round) = report.median() { (busy(round)) } }
                        td.wrap { (own_words(report)) }
                    }
                } }
            }
        }
    }
}

fn own_words(report: &StepReport) -> String {
    let Some(round) = report.median() else { return report.note.clone() };
    if let Some(reason) = &round.reason {
        return reason.sentence.clone();
    }
    let thread = |end: &str, busy: &BusyThread| {
        format!(
            "{end}: busiest {} thread ran {:.0} %, waited for a core {:.0} %",
            busy.role.as_str(),
            busy.running_percent,
            busy.waiting_percent
        )
    };
    if let Some(copy) = &round.copy {
        let threads = [("source", copy.source.end.busiest), ("sink", copy.sink.end.busiest)];
        let limit = copy.limit.map(|limit| format!("limit: {}", limit.as_str()));
        let threads = threads.into_iter().filter_map(|(end, busy)| Some(thread(end, &busy?)));
        return limit.into_iter().chain(threads).collect::<Vec<_>>().join("; ");
    }
    report.note.clone()
}
