//! A graph of values over time as SVG, with the table of its figures beside it.
//!
//! The graph has the width of its container: the axis of values is a drawing of a fixed width, times have positions
//! in percent, and the lines stretch. A phone therefore shows the same graph without scrolling.

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use longhaul_chart::traffic::TrafficUnit;
use longhaul_chart::{Scale, time_ticks};
use maud::{Markup, PreEscaped, html};

use crate::clock::MINUTE;
use crate::words;

/// A value at a time. `None` is a gap: a run without a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mark {
    /// The time in ms since 1970.
    pub(super) at_ms: i64,
    /// The value.
    pub(super) value: Option<f64>,
    /// The lowest and highest value that the mark stands for.
    pub(super) range: Option<(f64, f64)>,
}

/// The quantity of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Rates in bit/s.
    Rate,
    /// Times in ms.
    Time,
    /// Shares of one.
    Share,
    /// Sizes in bytes.
    Size,
    /// Things per second, such as "packets".
    Events(&'static str),
}

/// The time by which the samples of an agent can be late, in ms: in a large fleet its uploads are up to
/// five minutes apart, and the hub adds samples to intervals once a minute.
const LATE_MS: i64 = 6 * MINUTE;

impl Quantity {
    fn text(self, value: f64) -> String {
        match self {
            Quantity::Rate => words::rate(value),
            Quantity::Time => words::milliseconds(value),
            Quantity::Share => words::percent(value),
            Quantity::Size => words::bytes(value),
            Quantity::Events(_) if value == 0.0 => "0 /s".to_owned(),
            Quantity::Events(_) if value < 100.0 => format!("{value:.2} /s"),
            Quantity::Events(_) => TrafficUnit::Packets.text(value).replace("p/s", "/s"),
        }
    }

    /// Returns the value of one unit of the axis, and the unit.
    fn scaled(self, greatest: f64) -> (f64, String) {
        match self {
            Quantity::Rate => TrafficUnit::Bits.scaled(greatest),
            Quantity::Time => (1.0, "ms".to_owned()),
            Quantity::Share => (0.01, "%".to_owned()),
            Quantity::Size => binary(greatest),
            Quantity::Events(things) => {
                let (divisor, unit) = TrafficUnit::Packets.scaled(greatest);
                (divisor, unit.replace("packets", things))
            }
        }
    }

    /// Returns the least value at the top, so that a graph of small values does not magnify their noise.
    fn least_top(self) -> f64 {
        match self {
            Quantity::Rate | Quantity::Time => 0.0,
            Quantity::Share => 0.001,
            Quantity::Size => 1024.0,
            Quantity::Events(_) => 1.0,
        }
    }
}

/// A graph.
pub(super) struct Plot<'a> {
    /// The title.
    pub(super) title: &'a str,
    /// The quantity of the values.
    pub(super) quantity: Quantity,
    /// The range of times in ms since 1970.
    pub(super) window_ms: (i64, i64),
    /// The greatest distance of two marks that a line connects, in ms.
    pub(super) joined_ms: i64,
    /// The series with their names; at most three.
    pub(super) series: Vec<(&'a str, Vec<Mark>)>,
    /// The expected value, drawn as a line.
    pub(super) expected: Option<f64>,
}

/// The height of the drawings in pixels.
const HEIGHT: f64 = 220.0;
/// The width of the drawing of the axis of values in pixels.
const AXIS: f64 = 46.0;
const TOP: f64 = 12.0;
/// The lower end of the graph, above the times.
const BASE: f64 = HEIGHT - 26.0;
/// The length of the window in the units of the lines, which stretch to the width of the graph.
const LENGTH: f64 = 1000.0;
/// The maximum number of times on the axis. A phone shows every other one.
const TICKS: usize = 8;

/// The axis of values.
struct ValueAxis {
    unit: String,
    /// The value of one unit.
    divisor: f64,
    scale: Scale,
}

impl ValueAxis {
    /// Returns the position of a value in pixels.
    fn y(&self, value: f64) -> f64 {
        BASE - self.scale.place(value / self.divisor).clamp(0.0, 1.0) * (BASE - TOP)
    }

    /// Returns the positions of round values with texts that state them exactly.
    fn ticks(&self) -> Vec<(f64, String)> {
        let ticks = self.scale.ticks().into_iter();
        ticks.map(|(value, text)| (self.y(value * self.divisor), text)).collect()
    }
}

impl Plot<'_> {
    /// Returns the figure with its table.
    pub(super) fn figure(&self) -> Markup {
        let (from, to) = self.window_ms;
        let axis = self.axis();
        html! {
            figure.plot data-from=(from) data-to=(to) role="figure" aria-label=(self.title) {
                figcaption { (self.title) span.soft { " in " (axis.unit) } }
                div.graph { (PreEscaped(axis_svg(&axis))) (PreEscaped(self.area_svg(&axis))) }
                (self.table())
            }
        }
    }

    fn axis(&self) -> ValueAxis {
        let values = self.series.iter().flat_map(|(_, marks)| marks);
        let highs = values.filter_map(|mark| mark.range.map(|range| range.1).or(mark.value));
        let most = highs.chain(self.expected).fold(self.quantity.least_top(), f64::max);
        let (divisor, unit) = self.quantity.scaled(most);
        ValueAxis { unit, divisor, scale: Scale::from_zero(&[most / divisor]) }
    }

    /// Returns the times of the axis with their texts: round times, or seconds in a short range.
    fn ticks(&self) -> Vec<(i64, String)> {
        let (from, to) = self.window_ms;
        let round = time_ticks((from.div_euclid(1000), to.div_euclid(1000)), &TimeZone::UTC, TICKS);
        if round.len() > 2 {
            return round.into_iter().map(|(second, text)| (second * 1000, text)).collect();
        }
        let second = |at: i64| (at, words::utc(at)[11..19].to_owned());
        [from, from + (to - from) / 2, to].map(second).to_vec()
    }

    /// Returns the position of a time as a share of the window.
    #[allow(clippy::cast_precision_loss)]
    fn x(&self, at_ms: i64) -> f64 {
        let (from, to) = self.window_ms;
        (at_ms - from) as f64 / (to - from).max(1) as f64
    }

    /// Draws the graph without the axis of values.
    fn area_svg(&self, axis: &ValueAxis) -> String {
        let mut svg = format!("<svg class=\"area\" height=\"{HEIGHT}\" aria-hidden=\"true\">");
        let mut level = |class: &str, y: f64| {
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"0\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
        };
        for (y, _) in axis.ticks() {
            level("grid", y);
        }
        if let Some(expected) = self.expected {
            level("expected", axis.y(expected));
        }
        for (index, (at, text)) in self.ticks().into_iter().enumerate() {
            let x = self.x(at) * 100.0;
            let (anchor, other) = (if x > 95.0 { " end" } else { "" }, ["", " odd"][index % 2]);
            let _ = write!(
                svg,
                "<line class=\"tick\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{BASE}\" y2=\"{}\"/>\
                 <text class=\"time{anchor}{other}\" x=\"{x:.2}%\" y=\"{}\">{text}</text>",
                BASE + 4.0,
                HEIGHT - 6.0
            );
        }
        let _ = write!(
            svg,
            "<svg class=\"lines\" width=\"100%\" height=\"{HEIGHT}\" viewBox=\"0 0 {LENGTH} {HEIGHT}\" \
             preserveAspectRatio=\"none\" aria-hidden=\"true\">"
        );
        for (index, (_, marks)) in self.series.iter().enumerate() {
            self.draw(&mut svg, (index, marks), axis);
        }
        svg += "</svg>";
        for mark in
            self.series.iter().flat_map(|(_, marks)| marks).filter(|mark| mark.value.is_none())
        {
            let x = self.x(mark.at_ms) * 100.0;
            let _ =
                write!(svg, "<text class=\"gap\" x=\"{x:.2}%\" y=\"{}\">\u{d7}</text>", BASE - 1.0);
        }
        svg + "</svg>"
    }

    /// Draws the ranges, the line and the dots of a series, each as one path.
    fn draw(&self, svg: &mut String, (index, marks): (usize, &[Mark]), axis: &ValueAxis) {
        let (mut ranges, mut line, mut dots) = (String::new(), String::new(), String::new());
        let mut last: Option<i64> = None;
        let few = marks.len() <= 200;
        for mark in marks {
            let x = self.x(mark.at_ms) * LENGTH;
            let Some(value) = mark.value else {
                last = None;
                continue;
            };
            if let Some((low, high)) = mark.range.filter(|(low, high)| high > low) {
                let _ = write!(ranges, "M{x:.1} {:.1}V{:.1}", axis.y(low), axis.y(high));
            }
            let y = axis.y(value);
            let joined = last.is_some_and(|last| mark.at_ms - last <= self.joined_ms);
            let _ = write!(line, "{}{x:.1} {y:.1}", if joined { "L" } else { "M" });
            if few || !joined {
                // A line without length has round ends, so the dot is round at any width.
                let _ = write!(dots, "M{x:.1} {y:.1}h0");
            }
            last = Some(mark.at_ms);
        }
        for (class, path) in [("range", ranges), ("line", line), ("dot", dots)] {
            if !path.is_empty() {
                let _ = write!(svg, "<path class=\"{class} s{index}\" d=\"{path}\"/>");
            }
        }
    }

    /// Returns the latest value, unless it is older than a gap.
    fn current(&self, marks: &[Mark]) -> Option<f64> {
        let last = marks.last()?;
        let age = self.window_ms.1 - last.at_ms;
        last.value.filter(|_| age <= 2 * self.joined_ms + LATE_MS)
    }

    /// Returns the maximum, average, minimum and current value of each series.
    fn table(&self) -> Markup {
        let text = |value: Option<f64>| {
            value.map_or("no data".to_owned(), |value| self.quantity.text(value))
        };
        html! {
            div.scroll { table.small {
                thead { tr {
                    th scope="col" { "Series" }
                    @for name in ["Maximum", "Average", "Minimum", "Current", "Values"] {
                        th.figure scope="col" { (name) }
                    }
                } }
                tbody { @for (index, (name, marks)) in self.series.iter().enumerate() {
                    @let values: Vec<f64> = marks.iter().filter_map(|mark| mark.value).collect();
                    @let high = marks.iter().filter_map(|mark| mark.range.map(|r| r.1).or(mark.value)).reduce(f64::max);
                    @let low = marks.iter().filter_map(|mark| mark.range.map(|r| r.0).or(mark.value)).reduce(f64::min);
                    tr {
                        th scope="row" { span class=(format!("key s{index}")) {} " " (name) }
                        td.figure { (text(high)) }
                        td.figure { (text(average(&values))) }
                        td.figure { (text(low)) }
                        td.figure { (text(self.current(marks))) }
                        td.figure { (values.len()) " of " (marks.len()) }
                    }
                } }
            } }
        }
    }
}

/// Returns a divisor for sizes up to `greatest`, and its unit.
fn binary(greatest: f64) -> (f64, String) {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let at =
        (0..units.len()).rev().find(|at| greatest >= 1024f64.powi(*at as i32 + 1)).unwrap_or(0);
    (1024f64.powi(at as i32 + 1), units[at].to_owned())
}

/// Draws the axis of values.
fn axis_svg(axis: &ValueAxis) -> String {
    let mut svg =
        format!("<svg class=\"axis\" width=\"{AXIS}\" height=\"{HEIGHT}\" aria-hidden=\"true\">");
    for (y, text) in axis.ticks() {
        let _ = write!(
            svg,
            "<text class=\"y\" x=\"{}\" y=\"{:.1}\">{text}</text>",
            AXIS - 6.0,
            y + 4.0
        );
    }
    let _ = write!(svg, "<text x=\"0\" y=\"{}\">UTC</text></svg>", HEIGHT - 6.0);
    svg
}

#[allow(clippy::cast_precision_loss)]
fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(quantity: Quantity, marks: Vec<Mark>) -> Plot<'static> {
        let series = vec![("a", marks)];
        Plot { title: "x", quantity, window_ms: (0, 100), joined_ms: 20, series, expected: None }
    }

    fn mark(at_ms: i64, value: Option<f64>) -> Mark {
        Mark { at_ms, value, range: None }
    }

    #[test]
    fn a_gap_breaks_the_line_and_counts() {
        let values = [(0, Some(1e9)), (10, None), (20, Some(2e9)), (90, Some(3e9))];
        let plot = plot(Quantity::Rate, values.map(|(at, value)| mark(at, value)).to_vec());
        let svg = plot.area_svg(&plot.axis());
        assert!(svg.contains("<text class=\"gap\" x=\"10.00%\""), "{svg}");
        let line = svg.split("class=\"line s0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.matches('M').count(), 3, "{line}");
        let table = plot.table().into_string();
        assert!(table.contains("3 of 4") && table.contains("2.00 Gb/s"), "{table}");
    }

    #[test]
    fn an_old_value_is_not_the_current_one() {
        let plot = plot(Quantity::Size, Vec::new());
        let at = |at_ms| plot.current(&[mark(at_ms, Some(7.0))]);
        assert_eq!(at(100 - LATE_MS - 40), Some(7.0));
        assert_eq!(at(100 - LATE_MS - 41), None);
    }

    #[test]
    fn the_axis_states_its_values_exactly() {
        let all = [
            Quantity::Rate,
            Quantity::Time,
            Quantity::Share,
            Quantity::Size,
            Quantity::Events("packets"),
        ];
        for quantity in all {
            for exponent in -3..11 {
                for factor in [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.7, 7.5, 9.9] {
                    let value = factor * 10f64.powi(exponent);
                    let most = match quantity {
                        Quantity::Rate => 1e11,
                        Quantity::Time => 1e5,
                        Quantity::Share => 1.0,
                        Quantity::Size | Quantity::Events(_) => 1e11,
                    };
                    if value > most {
                        continue;
                    }
                    let axis = plot(quantity, vec![mark(0, Some(value))]).axis();
                    let ticks = axis.ticks();
                    assert!((3..=7).contains(&ticks.len()), "{quantity:?} {value}: {ticks:?}");
                    assert!(axis.y(value) >= TOP - 1e-6, "{quantity:?} {value}: {ticks:?}");
                    for (y, text) in ticks {
                        let stated: f64 = text.parse().unwrap();
                        let error = axis.y(stated * axis.divisor) - y;
                        assert!(
                            error.abs() < 1e-6 && text.len() <= 6,
                            "{quantity:?} {value}: {text}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_loss_has_a_round_axis() {
        let axis = plot(Quantity::Share, vec![mark(0, Some(0.0))]).axis();
        let texts: Vec<String> = axis.ticks().into_iter().map(|(_, text)| text).collect();
        assert_eq!(
            (texts.join(" "), axis.unit),
            ("0 0.02 0.04 0.06 0.08 0.1".to_owned(), "%".to_owned())
        );
    }
}
