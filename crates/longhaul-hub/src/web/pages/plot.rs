//! A graph of values over time as SVG, with the table of its figures beside it.

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use longhaul_chart::time_ticks;
use maud::{Markup, PreEscaped, html};

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

/// A graph.
pub(super) struct Plot<'a> {
    /// The title.
    pub(super) title: &'a str,
    /// The function that formats a value.
    pub(super) text: fn(f64) -> String,
    /// The range of times in ms since 1970.
    pub(super) window_ms: (i64, i64),
    /// The greatest distance of two marks that a line connects, in ms.
    pub(super) step_ms: i64,
    /// The series with their names; at most three.
    pub(super) series: Vec<(&'a str, Vec<Mark>)>,
    /// The expected value, drawn as a line.
    pub(super) expected: Option<f64>,
    /// The least value at the top, so that a graph of small values does not magnify their noise.
    pub(super) least_top: f64,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const FOOT: f64 = 26.0;
/// The most times of the axis.
const TICKS: usize = 8;

impl Plot<'_> {
    /// Returns the figure with its table.
    pub(super) fn figure(&self) -> Markup {
        let (from, to) = self.window_ms;
        html! {
            figure.plot data-from=(from) data-to=(to) data-left=(LEFT) data-right=(RIGHT) data-width=(WIDTH)
                role="figure" aria-label=(self.title) {
                figcaption { (self.title) }
                div.scroll { (PreEscaped(self.svg())) }
                (self.table())
            }
        }
    }

    fn highest(&self) -> f64 {
        let values = self.series.iter().flat_map(|(_, marks)| marks);
        let highs = values.filter_map(|mark| mark.range.map(|range| range.1).or(mark.value));
        let most = highs.chain(self.expected).fold(self.least_top, f64::max);
        if most <= 0.0 {
            return 1.0;
        }
        // The next of 1, 2, 5 and 10 times a power of ten.
        let power = 10f64.powf(most.log10().floor());
        [1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|top| *top >= most)
            .unwrap_or(most)
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

    fn svg(&self) -> String {
        let top = self.highest();
        let (from, to) = self.window_ms;
        #[allow(clippy::cast_precision_loss)]
        let x = |at: i64| {
            LEFT + (at - from) as f64 / (to - from).max(1) as f64 * (WIDTH - LEFT - RIGHT)
        };
        let y = |value: f64| HEIGHT - FOOT - (value / top).clamp(0.0, 1.0) * (HEIGHT - FOOT - TOP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" aria-hidden=\"true\">"
        );
        for quarter in 0..=4 {
            let value = top * f64::from(quarter) / 4.0;
            let at = y(value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                (self.text)(value)
            );
        }
        for (at, text) in self.ticks() {
            let at = x(at);
            let anchor = if at > WIDTH - 40.0 { "end" } else { "middle" };
            let _ = write!(
                svg,
                "<line class=\"tick\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
                HEIGHT - FOOT,
                HEIGHT - FOOT + 4.0,
                HEIGHT - 6.0
            );
        }
        let _ = write!(svg, "<text class=\"zone\" x=\"4\" y=\"{:.1}\">UTC</text>", HEIGHT - 6.0);
        if let Some(expected) = self.expected {
            let at = y(expected);
            let _ = write!(
                svg,
                "<line class=\"expected\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                WIDTH - RIGHT
            );
        }
        for (index, (_, marks)) in self.series.iter().enumerate() {
            self.draw(&mut svg, (index, marks), &x, &y);
        }
        svg + "</svg>"
    }

    fn draw(
        &self,
        svg: &mut String,
        (index, marks): (usize, &[Mark]),
        x: &dyn Fn(i64) -> f64,
        y: &dyn Fn(f64) -> f64,
    ) {
        let mut path = String::new();
        let mut last: Option<i64> = None;
        let few = marks.len() <= 200;
        for mark in marks {
            let at = x(mark.at_ms);
            let Some(value) = mark.value else {
                let base = HEIGHT - FOOT;
                let _ = write!(
                    svg,
                    "<path class=\"gap\" d=\"M{:.1} {:.1}l6 -6m0 6l-6 -6\"/>",
                    at - 3.0,
                    base
                );
                last = None;
                continue;
            };
            if let Some((low, high)) = mark.range.filter(|(low, high)| high > low) {
                let _ = write!(
                    svg,
                    "<line class=\"range s{index}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    y(low),
                    y(high)
                );
            }
            let joined = last.is_some_and(|last| mark.at_ms - last <= 2 * self.step_ms);
            let _ = write!(path, "{}{at:.1} {:.1}", if joined { "L" } else { "M" }, y(value));
            if few || !joined {
                let _ = write!(
                    svg,
                    "<circle class=\"s{index}\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"2.5\"/>",
                    y(value)
                );
            }
            last = Some(mark.at_ms);
        }
        let _ = write!(svg, "<path class=\"line s{index}\" d=\"{path}\"/>");
    }

    /// Returns the maximum, average, minimum and current value of each series.
    fn table(&self) -> Markup {
        let text = |value: Option<f64>| value.map_or("no data".to_owned(), self.text);
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
                        td.figure { (text(marks.last().and_then(|mark| mark.value))) }
                        td.figure { (values.len()) " of " (marks.len()) }
                    }
                } }
            } }
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_breaks_the_line_and_counts() {
        let mark = |at_ms, value| Mark { at_ms, value, range: None };
        let plot = Plot {
            title: "x",
            text: words::rate,
            window_ms: (0, 100),
            step_ms: 10,
            series: vec![(
                "a",
                vec![mark(0, Some(1e9)), mark(10, None), mark(20, Some(2e9)), mark(90, Some(3e9))],
            )],
            expected: None,
            least_top: 0.0,
        };
        let svg = plot.svg();
        assert!(svg.contains("class=\"gap\""), "{svg}");
        let line = svg.split("class=\"line s0\" d=\"").nth(1).unwrap();
        assert_eq!(line.matches('M').count(), 3, "{line}");
        let table = plot.table().into_string();
        assert!(table.contains("3 of 4") && table.contains("2.00 Gb/s"), "{table}");
    }
}
