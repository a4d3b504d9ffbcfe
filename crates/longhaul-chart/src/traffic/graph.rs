//! The graph of the traffic of an interface.

use jiff::tz::TimeZone;

use super::period::{Period, TrafficUnit, span_words};
use super::{Bin, TrafficFigures, runs};
use crate::Width;
use crate::scale::{Axis, Scale};
use crate::svg::{Drawing, Svg, width_of};
use crate::time_axis::time_ticks;

/// The traffic of an interface in both directions over time.
#[derive(Debug, Clone)]
pub struct TrafficGraph {
    /// The title, such as the name of the interface.
    pub title: String,
    /// The description below the title.
    pub subtitle: String,
    /// The incoming traffic, in order of time.
    pub inbound: Vec<Bin>,
    /// The outgoing traffic, in order of time.
    pub outbound: Vec<Bin>,
    /// The length of a bin in seconds.
    pub step_seconds: i64,
    /// The start and the end of the graph in Unix seconds.
    pub window: (i64, i64),
    /// The unit of all values.
    pub unit: TrafficUnit,
    /// The capacity of each direction in the unit of the graph.
    pub capacity: Option<f64>,
    /// The interval of the samples that the minima and maxima of bins belong to; `None` if bins have no
    /// values of shorter intervals.
    pub sample_seconds: Option<f64>,
    /// The zone of the times on the axis.
    pub time_zone: TimeZone,
}

/// The space left of the graph, for ticks and the label of the axis.
const LEFT: f64 = 62.0;
/// The space right of the graph.
const RIGHT: f64 = 22.0;
/// The width of a swatch of the legend with the space after it.
const SWATCH: f64 = 22.0;
/// The share of the capacity above which the graph extends to the capacity.
const NEAR_CAPACITY: f64 = 0.5;

/// The position of the graph in the drawing.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    base: f64,
    scale: Scale,
    divisor: f64,
    window: (i64, i64),
}

impl Frame {
    fn x(&self, time: i64) -> f64 {
        let (from, to) = self.window;
        self.left + (time - from) as f64 / (to - from).max(1) as f64 * self.width
    }

    fn y(&self, value: f64) -> f64 {
        let share = self.scale.place(value / self.divisor).clamp(0.0, 1.0);
        self.base - share * (self.base - self.top)
    }
}

impl TrafficGraph {
    /// Creates a graph without data for `period`, up to the bin of `now` (Unix seconds), in UTC.
    pub fn new(period: Period, now: i64, unit: TrafficUnit) -> Self {
        let step = period.step_seconds();
        TrafficGraph {
            title: String::new(),
            subtitle: format!("{} ({} average)", period.name(), span_words(step as f64)),
            inbound: Vec::new(),
            outbound: Vec::new(),
            step_seconds: step,
            window: period.window(now),
            unit,
            capacity: None,
            sample_seconds: None,
            time_zone: TimeZone::UTC,
        }
    }

    /// Returns the figures of incoming traffic.
    pub fn inbound_figures(&self) -> TrafficFigures {
        self.figures(&self.inbound)
    }

    /// Returns the figures of outgoing traffic.
    pub fn outbound_figures(&self) -> TrafficFigures {
        self.figures(&self.outbound)
    }

    fn figures(&self, bins: &[Bin]) -> TrafficFigures {
        TrafficFigures::of(self.visible(bins), self.step_seconds, self.window.1)
    }

    /// Returns `value` as a percentage of the capacity with a decimal; `None` without capacity.
    pub fn percent(&self, value: f64) -> Option<String> {
        let capacity = self.capacity.filter(|capacity| *capacity > 0.0)?;
        Some(format!("{:.1} %", value / capacity * 100.0))
    }

    /// Returns the bins that lie in the window.
    fn visible<'a>(&self, bins: &'a [Bin]) -> &'a [Bin] {
        let (from, to) = self.window;
        let first = bins.partition_point(|bin| bin.start < from);
        let end = bins.partition_point(|bin| bin.start.saturating_add(self.step_seconds) <= to);
        bins.get(first..end).unwrap_or_default()
    }

    /// Draws the graph with the newest data on the right.
    pub fn draw(&self, width: Width) -> Drawing {
        let total = width.units();
        let (mut svg, y) = Svg::headed(&self.title, &self.subtitle, total);
        let (inbound, outbound) = (self.visible(&self.inbound), self.visible(&self.outbound));
        let top = y + 4.0;
        let height = if width == Width::Page { 170.0 } else { 150.0 };
        let greatest = self.greatest(inbound.iter().chain(outbound));
        let (divisor, unit) = self.unit.scaled(greatest);
        let axis = Axis::new(&unit, Scale::from_zero(&[greatest / divisor]));
        let frame = Frame {
            left: LEFT,
            top,
            width: total - LEFT - RIGHT,
            base: top + height,
            scale: axis.scale,
            divisor,
            window: self.window,
        };
        self.mark_gaps(&mut svg, &frame);
        self.axes(&mut svg, &axis, &frame, width);
        self.areas(&mut svg, inbound, &frame);
        self.lines(&mut svg, outbound, &frame);
        self.levels(&mut svg, &frame);
        let bottom = self.legend(&mut svg, frame.base + 44.0, total);
        let label = format!("{}: {}", self.title, self.subtitle);
        svg.finish(&label, total, bottom + 6.0).described(&self.description())
    }

    /// Returns the highest value to draw.
    fn greatest<'a>(&self, bins: impl Iterator<Item = &'a Bin>) -> f64 {
        let peaks = self.sample_seconds.is_some();
        let value = |bin: &Bin| if peaks { bin.maximum } else { bin.average };
        let greatest = bins.map(value).fold(0.0, f64::max);
        match self.capacity {
            Some(capacity) if greatest > capacity * NEAR_CAPACITY => greatest.max(capacity),
            _ => greatest,
        }
    }

    /// Marks the times without data.
    fn mark_gaps(&self, svg: &mut Svg, frame: &Frame) {
        for (from, to) in self.gaps() {
            let (left, right) = (frame.x(from), frame.x(to));
            svg.rect("void", (left, frame.top), right - left, frame.base - frame.top);
        }
    }

    /// Returns the intervals of the window in which neither direction has data.
    fn gaps(&self) -> Vec<(i64, i64)> {
        let mut starts: Vec<i64> =
            self.visible(&self.inbound).iter().map(|bin| bin.start).collect();
        starts.extend(self.visible(&self.outbound).iter().map(|bin| bin.start));
        starts.sort_unstable();
        starts.push(self.window.1);
        let (mut gaps, mut end) = (Vec::new(), self.window.0);
        for start in starts {
            if start > end {
                gaps.push((end, start));
            }
            end = end.max(start.saturating_add(self.step_seconds));
        }
        gaps
    }

    fn areas(&self, svg: &mut Svg, bins: &[Bin], frame: &Frame) {
        if self.sample_seconds.is_some() {
            self.steps(svg, bins, frame, ("in-peak", |bin| bin.maximum));
        }
        self.steps(svg, bins, frame, ("in", |bin| bin.average));
    }

    fn lines(&self, svg: &mut Svg, bins: &[Bin], frame: &Frame) {
        if self.sample_seconds.is_some() {
            self.steps(svg, bins, frame, ("out-peak", |bin| bin.maximum));
        }
        self.steps(svg, bins, frame, ("out", |bin| bin.average));
    }

    /// Draws a step per bin: the value that the function returns, in the given class.
    fn steps(
        &self,
        svg: &mut Svg,
        bins: &[Bin],
        frame: &Frame,
        (class, value): (&str, fn(&Bin) -> f64),
    ) {
        let base = class.starts_with("in").then_some(frame.base);
        for run in runs(bins, self.step_seconds) {
            let Some(first) = run.first() else { continue };
            let width = frame.x(first.start + self.step_seconds) - frame.x(first.start);
            let tops: Vec<f64> = run.iter().map(|bin| frame.y(value(bin))).collect();
            svg.steps(class, (frame.x(first.start), width), &tops, base);
        }
    }

    fn axes(&self, svg: &mut Svg, axis: &Axis, frame: &Frame, width: Width) {
        let right = frame.left + frame.width;
        for (value, text) in &axis.ticks {
            let y = frame.y(value * frame.divisor);
            svg.line("grid", (frame.left, y), (right, y));
            svg.text("soft end", (frame.left - 7.0, y + 4.0), text);
        }
        svg.line("axis", (frame.left, frame.base), (right, frame.base));
        let most = if width == Width::Page { 12 } else { 5 };
        for (time, text) in time_ticks(self.window, &self.time_zone, most) {
            let x = frame.x(time);
            svg.line("grid", (x, frame.top), (x, frame.base));
            svg.line("axis", (x, frame.base), (x, frame.base + 5.0));
            let half = width_of(&text) / 2.0;
            if x - half > 0.0 && x + half < right + RIGHT {
                svg.text("soft middle", (x, frame.base + 19.0), &text);
            }
        }
        svg.text("soft up", (16.0, (frame.top + frame.base) / 2.0), &axis.label);
    }

    /// Draws the levels of the 95th percentiles, and of the capacity if it lies in the graph.
    fn levels(&self, svg: &mut Svg, frame: &Frame) {
        let right = frame.left + frame.width;
        let percentiles = [
            ("in-high", self.inbound_figures().percentile_95),
            ("out-high", self.outbound_figures().percentile_95),
        ];
        for (class, value) in percentiles {
            let Some(value) = value else { continue };
            svg.line(class, (frame.left, frame.y(value)), (right, frame.y(value)));
        }
        if let Some(capacity) = self.drawn_capacity() {
            svg.line("capacity", (frame.left, frame.y(capacity)), (right, frame.y(capacity)));
        }
    }

    fn drawn_capacity(&self) -> Option<f64> {
        let bins = self.visible(&self.inbound).iter().chain(self.visible(&self.outbound));
        let greatest = self.greatest(bins);
        self.capacity.filter(|capacity| *capacity > 0.0 && *capacity <= greatest)
    }

    /// Draws the names of the shapes in rows from `top` down. Returns the lower end.
    fn legend(&self, svg: &mut Svg, top: f64, total: f64) -> f64 {
        let peak = self.sample_seconds.map(span_words);
        let mut names = vec![("in", "In".to_owned()), ("out", "Out".to_owned())];
        if let Some(peak) = peak {
            names.push(("in-peak", format!("In, max of {peak}")));
            names.push(("out-peak", format!("Out, max of {peak}")));
        }
        names.push(("in-high", "95th percentile".to_owned()));
        if self.drawn_capacity().is_some() {
            names.push(("capacity", "capacity".to_owned()));
        }
        let (mut x, mut y) = (16.0, top);
        for (class, name) in names {
            let needed = SWATCH + width_of(&name) + 12.0;
            if x > 16.0 && x + needed > total - 16.0 {
                (x, y) = (16.0, y + 18.0);
            }
            if matches!(class, "in" | "in-peak") {
                svg.rect(class, (x, y - 9.0), 15.0, 10.0);
            } else {
                svg.line(class, (x, y - 4.0), (x + 15.0, y - 4.0));
            }
            svg.text("soft", (x + SWATCH, y), &name);
            x += needed;
        }
        y + 8.0
    }

    /// Returns the figures and gaps in words, for readers who do not see the graph.
    fn description(&self) -> String {
        let direction =
            |name: &str, figures: TrafficFigures| match (figures.maximum, figures.average) {
                (Some(maximum), Some(average)) => format!(
                    "{name}: maximum {} of {} averages, average {}.",
                    self.with_percent(maximum),
                    span_words(self.step_seconds as f64),
                    self.with_percent(average)
                ),
                _ => format!("{name}: no data."),
            };
        let gaps = self.gaps();
        let missing: i64 = gaps.iter().map(|(from, to)| to - from).sum();
        let gaps = match (gaps.len(), missing.checked_div(self.step_seconds).unwrap_or(0)) {
            (0, _) => "No gaps.".to_owned(),
            (1, bins) => format!("One gap of {bins} bins without data."),
            (count, bins) => format!("{count} gaps with {bins} bins without data."),
        };
        let (inbound, outbound) = (self.inbound_figures(), self.outbound_figures());
        format!("{} {} {gaps}", direction("In", inbound), direction("Out", outbound))
    }

    fn with_percent(&self, value: f64) -> String {
        let text = self.unit.text(value);
        match self.percent(value) {
            Some(percent) => format!("{text} ({percent})"),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(starts: &[i64], average: f64) -> Vec<Bin> {
        let bin = |start: &i64| Bin {
            start: *start,
            covered_seconds: 300.0,
            average,
            minimum: 0.0,
            maximum: average * 2.0,
        };
        starts.iter().map(bin).collect()
    }

    fn graph() -> TrafficGraph {
        let now = 1_800_000_000;
        let (_, end) = Period::Day.window(now);
        TrafficGraph {
            title: "eth0 <uplink>".into(),
            inbound: bins(&[end - 1500, end - 1200, end - 600, end - 300], 3e9),
            outbound: bins(&[end - 1500, end - 1200, end - 600, end - 300], 1e9),
            capacity: Some(10e9),
            sample_seconds: Some(1.0),
            ..TrafficGraph::new(Period::Day, now, TrafficUnit::Bits)
        }
    }

    #[test]
    fn a_gap_interrupts_every_shape() {
        let page = graph().draw(Width::Page).document();
        for class in ["in", "in-peak", "out", "out-peak"] {
            let shapes = page.matches(&format!("<path class=\"{class}\"")).count();
            assert_eq!(shapes, 2, "{class} in {page}");
        }
        // The time before the first bin, and the gap.
        assert_eq!(page.matches("<rect class=\"void\"").count(), 2);
        assert_eq!(graph().gaps().len(), 2);
    }

    #[test]
    fn the_drawing_has_a_title_and_a_description() {
        let page = graph().draw(Width::Phone).embedded("narrow");
        assert!(
            page.contains("<title>eth0 &lt;uplink&gt;: Daily (5 min average)</title>"),
            "{page}"
        );
        let words =
            "<desc>In: maximum 3.00 Gb/s (30.0 %) of 5 min averages, average 3.00 Gb/s (30.0 %).";
        assert!(page.contains(words), "{page}");
        assert!(page.contains("2 gaps with 396 bins without data."), "{page}");
    }

    #[test]
    fn values_outside_the_window_are_in_no_figure() {
        let mut graph = graph();
        graph.inbound.insert(0, bins(&[graph.window.0 - 300], 9e9)[0]);
        graph.inbound.extend(bins(&[graph.window.1], 9e9));
        assert_eq!(graph.inbound_figures().maximum, Some(3e9));
    }

    #[test]
    fn an_empty_graph_is_one_gap() {
        let graph = TrafficGraph::new(Period::Year, 0, TrafficUnit::Packets);
        let page = graph.draw(Width::Page).document();
        assert!(page.contains("In: no data. Out: no data. One gap of 400 bins"), "{page}");
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }

    #[test]
    fn the_capacity_is_drawn_if_it_is_near() {
        let capacity = |capacity: f64| TrafficGraph { capacity: Some(capacity), ..graph() };
        let drawn = |graph: TrafficGraph| {
            graph.draw(Width::Page).embedded("").contains("<line class=\"capacity\"")
        };
        assert!(drawn(capacity(10e9)), "the peak is 60 %");
        assert!(!drawn(capacity(100e9)));
    }
}
