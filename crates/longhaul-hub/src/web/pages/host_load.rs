//! The load of a host: its connections now, and the graphs of TCP, cores and queues.

use longhaul_fleet::protocol::{CoreLoad, Flow, HostSnapshot};
use maud::{Markup, html};

use super::layout::time;
use super::plot::{Mark, Plot, Quantity};
use crate::clock::{HOUR, SECOND};
use crate::records::series::{LEVELS, Series, read_series, series};
use crate::samples::{Bucket, Kind, host_metric, queue_metric};
use crate::store::{Sql, StoreError};
use crate::words;

/// The longest range whose graphs are made of samples; those of longer ranges are made of intervals.
const MOST_SAMPLED_MS: i64 = 6 * HOUR;
/// The maximum number of points of a graph.
const MOST_POINTS: i64 = 360;
/// The shortest interval of a graph: each has several samples, so a late one makes no gap.
const LEAST_STEP_MS: i64 = 10 * SECOND;

/// The lines of the graph of the busy time of the cores, with the positions of their metrics.
const BUSY_LINES: [(&str, usize); 3] = [
    ("all cores", host_metric::BUSY),
    ("busiest core", host_metric::MAX_BUSY),
    ("stolen", host_metric::STEAL),
];
/// The lines of the graph of the softirq time.
const SOFTIRQ_LINES: [(&str, usize); 2] =
    [("all cores", host_metric::SOFTIRQ), ("largest of a core", host_metric::MAX_SOFTIRQ)];

/// The load of a host in a range of times.
pub(super) struct HostLoad {
    window_ms: (i64, i64),
    /// The intervals of the host with their length; `None` if the agent has never sent samples of it.
    host: Option<(i64, Vec<Bucket>)>,
    /// The queues with a sample in the range.
    queues: Vec<Queue>,
}

struct Queue {
    interface: String,
    step_ms: i64,
    buckets: Vec<Bucket>,
}

impl HostLoad {
    /// Reads the load of a host, and the queues of these interfaces.
    pub(super) fn of(
        sql: &mut dyn Sql,
        (host, interfaces): (&str, &[Series]),
        window_ms: (i64, i64),
        now: i64,
    ) -> Result<Self, StoreError> {
        let length = window_ms.1 - window_ms.0;
        let finest = if length <= MOST_SAMPLED_MS { LEAST_STEP_MS } else { LEVELS[0].step_ms };
        let step = (length / MOST_POINTS).max(finest);
        let mut load = HostLoad { window_ms, host: None, queues: Vec::new() };
        if let Some(one) = series(sql, Kind::Host, Some(host))?.first() {
            load.host = Some(read_series(sql, one, window_ms, step, now)?);
        }
        let shown = |one: &Series| interfaces.iter().any(|interface| interface.name == one.name);
        for one in series(sql, Kind::Queue, Some(host))?.into_iter().filter(shown) {
            let (step_ms, buckets) = read_series(sql, &one, window_ms, step, now)?;
            if !buckets.is_empty() {
                load.queues.push(Queue { interface: one.name, step_ms, buckets });
            }
        }
        Ok(load)
    }

    /// Returns the graphs.
    pub(super) fn graphs(&self) -> Markup {
        let Some((step_ms, buckets)) = &self.host else {
            return html! { p { "The agent has not reported samples of TCP and the cores." } };
        };
        let plot = |title, quantity, names: &[(&'static str, usize)]| {
            self.plot((title, quantity), (*step_ms, buckets), names)
        };
        html! {
            div.plots {
                (plot("TCP retransmits", Quantity::Events("segments"), &[("segments", host_metric::RETRANSMITS)]))
                (plot("TCP segments sent", Quantity::Events("segments"), &[("segments", host_metric::SEGMENTS)]))
                (plot("Busy cores", Quantity::Share, &BUSY_LINES))
                (plot("Softirq time", Quantity::Share, &SOFTIRQ_LINES))
                @for queue in &self.queues { (self.queue(queue)) }
            }
        }
    }

    fn queue(&self, queue: &Queue) -> Markup {
        let values = (queue.step_ms, queue.buckets.as_slice());
        let title = format!("Queue of {}", queue.interface);
        let drops = format!("Drops by the queue of {}", queue.interface);
        let has_drops = queue
            .buckets
            .iter()
            .any(|one| one.spans.get(queue_metric::DROPS).is_some_and(|s| s.max > 0.0));
        html! {
            (self.plot((&title, Quantity::Size), values, &[("bytes", queue_metric::BYTES)]))
            @if has_drops {
                (self.plot((&drops, Quantity::Events("packets")), values, &[("packets", queue_metric::DROPS)]))
            }
        }
    }

    /// Returns the graph of some metrics, each with its name and its index.
    fn plot(
        &self,
        (title, quantity): (&str, Quantity),
        (step_ms, buckets): (i64, &[Bucket]),
        metrics: &[(&'static str, usize)],
    ) -> Markup {
        let mark = |bucket: &Bucket, at: usize| {
            let span = bucket.spans.get(at)?;
            let (value, range) = (Some(span.average()?), Some((span.min, span.max)));
            Some(Mark { at_ms: bucket.start_ms, value, range })
        };
        let marks = |at| buckets.iter().filter_map(|bucket| mark(bucket, at)).collect();
        // One missing interval is a gap.
        let joined_ms = step_ms * 3 / 2;
        let series = metrics.iter().map(|(name, at)| (*name, marks(*at))).collect();
        Plot { title, quantity, window_ms: self.window_ms, joined_ms, series, expected: None }
            .figure()
    }
}

/// Returns the connections and cores of a snapshot.
pub(super) fn snapshot(snapshot: &HostSnapshot) -> Markup {
    html! {
        p.soft { "At " (time(snapshot.at_ms)) ". Rates and retransmits are those since the previous listing." }
        @match snapshot.flows.as_deref() {
            None => { p { "The agent reports no list of connections." } }
            Some([]) => { p { "No TCP connection moved data." } }
            Some(flows) => { (flow_table(flows)) }
        }
        @if !snapshot.cores.is_empty() {
            p { "Cores by softirq time: " (cores(&snapshot.cores)) "." }
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn cores(cores: &[CoreLoad]) -> String {
    let share = |ppm: u64| words::percent((ppm as f64 / 1e6).min(1.0));
    let text = |core: &CoreLoad| {
        let (softirq, busy) = (share(core.softirq_ppm), share(core.busy_ppm));
        format!("core {} {softirq} (busy {busy})", core.core)
    };
    cores.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[allow(clippy::cast_precision_loss)]
fn flow_table(flows: &[Flow]) -> Markup {
    let has_programs = flows.iter().any(|flow| flow.program.is_some());
    let rate = |bps: u64| words::rate(bps as f64);
    let ms = |ns: u64| words::milliseconds(ns as f64 / 1e6);
    let bytes = |count: u64| words::bytes(count as f64);
    html! {
        div.scroll { table.small.flows {
            thead { tr {
                @if has_programs { th scope="col" { "Program" } }
                @for name in ["Local", "Peer"] { th scope="col" { (name) } }
                @for name in ["In", "Out", "Delivery rate", "RTT", "Lowest RTT", "Window", "Queued", "Retransmits"] {
                    th.figure scope="col" { (name) }
                }
                th scope="col" { "Congestion control" }
            } }
            tbody { @for flow in flows { tr {
                @if has_programs { td { (flow.program.as_deref().unwrap_or_default()) } }
                td { (flow.local) }
                td { (flow.peer) }
                td.figure { (rate(flow.in_bps)) }
                td.figure { (rate(flow.out_bps)) }
                td.figure { (rate(flow.delivery_bps)) }
                td.figure { (ms(flow.rtt_ns)) }
                td.figure { @if let Some(ns) = flow.min_rtt_ns { (ms(ns)) } }
                td.figure { (bytes(flow.congestion_window_bytes)) }
                td.figure { (bytes(flow.queued_bytes)) }
                td.figure { (flow.retransmits) }
                td { (flow.congestion) }
            } } }
        } }
    }
}
