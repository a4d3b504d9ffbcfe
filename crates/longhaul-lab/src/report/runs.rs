use longhaul_core::result::{Caches, RunRecord};
use maud::{Markup, html as markup};

use super::html::verdict;
use super::text::gbps;
use crate::archive::Contents;

/// Every run, each with what is needed to repeat it and to judge it.
pub(super) fn runs(contents: &Contents) -> Markup {
    markup! {
        div.scroll {
            @for run in &contents.runs { (one(run)) }
        }
    }
}

fn one(run: &RunRecord) -> Markup {
    let (verdict, reason) = verdict(run);
    let figure = run.throughput_bps.map(|rate| format!("{} Gb/s", gbps(rate)));
    markup! {
        details {
            summary {
                span.soft { (run.sequence) }
                span { (run.label) }
                span { (run.condition.label()) }
                span { (figure.unwrap_or_default()) }
                span.bad[reason.is_some()] { (verdict) }
            }
            div.run {
                @if let Some(reason) = reason { p.bad { (reason) } }
                p.soft { (particulars(run)) }
                @if !run.near_command.is_empty() { pre { "near$ " (run.near_command) } }
                @if let Some(command) = &run.far_command { pre { "far$ " (command) } }
                @for note in &run.notes { p.soft { (note) } }
                @if !run.path.is_null() { pre { (run.path.to_string()) } }
            }
        }
    }
}

fn particulars(run: &RunRecord) -> String {
    let mut parts = vec![format!("pass {}", run.repeat), run.started_at.clone()];
    parts.extend(run.seconds.map(|seconds| format!("command {seconds:.3} s")));
    parts.extend(run.durable_seconds.map(|seconds| format!("durable after {seconds:.3} s")));
    parts.extend(run.bytes.map(|bytes| bytes.to_string()));
    let own = run.tool_throughput_bps.filter(|own| Some(*own) != run.throughput_bps);
    parts.extend(own.map(|rate| format!("its own figure {rate}")));
    parts.extend(run.caches.map(|caches| {
        let text = match caches {
            Caches::Dropped => "caches dropped",
            Caches::Advised => "source's pages given up (caches could not be dropped)",
        };
        text.to_owned()
    }));
    parts.push(run.tool_version.clone());
    parts.join(" \u{b7} ")
}
