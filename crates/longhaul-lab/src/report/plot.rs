//! The plot of throughput against round-trip time, as SVG.
//!
//! The throughput axis is logarithmic and says so: the question is how many times faster one
//! tool is than another, and an equal factor is an equal distance everywhere, so that 0.5 and
//! 1 Gb/s are as far apart as 10 and 20. The RTT axis is linear from zero. Lines are labelled at
//! their ends, so that no legend has to be matched by colour; each has a marker of its own as
//! well, so that they are told apart in grey.
//!
//! The drawing carries its style: it looks the same inside the report and as a file of its own,
//! in light and in dark.

use std::fmt::Write;

use longhaul_core::plan::{Condition, Workload};
use longhaul_core::units::Rate;

use super::scale::{Linear, Log, spread};
use crate::table::{CellFigure, Row, Table};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 248.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 52.0;
/// Between the baselines of two labels.
const LINE: f64 = 17.0;

/// One line of the plot.
struct Series<'a> {
    label: String,
    points: Vec<(f64, &'a CellFigure, Rate)>,
    /// Round-trip times of its conditions without a figure.
    skipped: Vec<f64>,
}

/// Throughput against RTT for the rows of one workload; `None` when none has a figure.
pub fn throughput(table: &Table, workload: Workload) -> Option<String> {
    let series: Vec<Series<'_>> =
        table.rows_of(workload).flat_map(|row| lines_of(row, &table.conditions)).collect();
    let rates: Vec<f64> = series
        .iter()
        .flat_map(|series| &series.points)
        .flat_map(|(_, figure, median)| [figure.min_bps, figure.max_bps, Some(*median)])
        .flatten()
        .map(|rate| (rate.bps() as f64).max(1.0))
        .collect();
    if rates.is_empty() {
        return None;
    }
    let longest = table.conditions.iter().map(milliseconds).fold(0.0, f64::max);
    let plot = Plot {
        x: Linear::new(longest, WIDTH - LEFT - RIGHT),
        y: Log::around(&rates, HEIGHT - TOP - BOTTOM),
    };
    let mut svg = plot.frame(workload);
    plot.axes(&mut svg, &table.conditions);
    plot.series(&mut svg, &series);
    svg.push_str("</svg>\n");
    Some(svg)
}

/// The lines of one row: one, or one for each rate where the conditions have several.
fn lines_of<'a>(row: &'a Row, conditions: &[Condition]) -> Vec<Series<'a>> {
    let mut lines: Vec<(Option<Rate>, Series<'a>)> = Vec::new();
    for (condition, figure) in conditions.iter().zip(&row.cells) {
        let index =
            lines.iter().position(|(rate, _)| *rate == condition.rate).unwrap_or_else(|| {
                let label = match condition.rate {
                    Some(rate) => format!("{} @ {rate}", row.label),
                    None => row.label.clone(),
                };
                let empty = Series { label, points: Vec::new(), skipped: Vec::new() };
                lines.push((condition.rate, empty));
                lines.len() - 1
            });
        let (_, line) = &mut lines[index];
        match figure.median_bps {
            Some(median) => line.points.push((milliseconds(condition), figure, median)),
            None => line.skipped.push(milliseconds(condition)),
        }
    }
    lines.retain(|(_, line)| !line.points.is_empty());
    let mut lines: Vec<Series<'a>> = lines.into_iter().map(|(_, line)| line).collect();
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

fn milliseconds(condition: &Condition) -> f64 {
    condition.rtt.as_secs_f64() * 1e3
}

struct Plot {
    x: Linear,
    y: Log,
}

impl Plot {
    fn at_x(&self, ms: f64) -> f64 {
        LEFT + self.x.place(ms)
    }

    fn at_y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(rate)
    }

    fn frame(&self, workload: Workload) -> String {
        let (title, what) = match workload {
            Workload::Memory => ("Memory to memory", "goodput at the receiver"),
            other => (other.label(), "bytes over the wall-clock time of the command"),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             class=\"plot\" role=\"img\" aria-label=\"{title}: throughput against round-trip \
             time\">\n<style>{STYLE}</style>\n\
             <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n\
             <text class=\"title\" x=\"16\" y=\"26\">{title}</text>\n\
             <text class=\"soft\" x=\"16\" y=\"44\">Gb/s (logarithmic), {what}</text>\n"
        )
    }

    fn axes(&self, svg: &mut String, conditions: &[Condition]) {
        let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.y.ticks() {
            let y = self.at_y(tick);
            line(svg, "grid", (LEFT, y), (right, y));
            label(svg, "soft end", LEFT - 9.0, y + 4.0, &(tick / 1e9).to_string());
        }
        line(svg, "axis", (LEFT, base), (right, base));
        let mut seen: Vec<f64> = Vec::new();
        for ms in conditions.iter().map(milliseconds) {
            if !seen.contains(&ms) {
                let x = self.at_x(ms);
                line(svg, "axis", (x, base), (x, base + 5.0));
                label(svg, "soft middle", x, base + 19.0, &ms.to_string());
                seen.push(ms);
            }
        }
        let middle = (LEFT + right) / 2.0;
        label(svg, "soft middle", middle, HEIGHT - 13.0, "Round-trip time, ms");
    }

    fn series(&self, svg: &mut String, series: &[Series<'_>]) {
        let ends: Vec<f64> = series
            .iter()
            .map(|line| line.points.last().map_or(0.0, |point| self.at_y(point.2.bps() as f64)))
            .collect();
        let places: Vec<f64> = ends.iter().map(|end| end - TOP).collect();
        let places = spread(&places, LINE, HEIGHT - BOTTOM - TOP);
        for (index, line) in series.iter().enumerate() {
            self.line(svg, index, line, places[index] + TOP);
        }
    }

    fn line(&self, svg: &mut String, index: usize, series: &Series<'_>, label_y: f64) {
        let color = index % COLORS;
        let _ = writeln!(svg, "<g class=\"s{color}\">");
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|(ms, _, median)| (self.at_x(*ms), self.at_y(median.bps() as f64)))
            .collect();
        for (pair, ends) in points.windows(2).zip(series.points.windows(2)) {
            // Dashed where a figure in between is missing: nothing was measured there.
            let between = |ms: &f64| ends[0].0 < *ms && *ms < ends[1].0;
            let class = if series.skipped.iter().any(between) { "line gap" } else { "line" };
            line(svg, class, pair[0], pair[1]);
        }
        for (&(x, y), (_, figure, _)) in points.iter().zip(&series.points) {
            if let (Some(min), Some(max)) = (figure.min_bps, figure.max_bps)
                && figure.runs > 1
            {
                let from = (x, self.at_y(min.bps() as f64));
                line(svg, "range", from, (x, self.at_y(max.bps() as f64)));
            }
            marker(svg, index, x, y);
        }
        if let (Some(&(x, y)), Some((_, _, last))) = (points.last(), series.points.last()) {
            let start = WIDTH - RIGHT + 20.0;
            line(svg, "leader", (x + 7.0, y), (start - 5.0, label_y));
            let name = shorten(&series.label);
            let text = format!("{name}  {}", super::text::gbps(*last));
            label(svg, "name", start, label_y + 4.0, &text);
        }
        svg.push_str("</g>\n");
    }
}

fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn label(svg: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

/// A point's shape: another for each line.
fn marker(svg: &mut String, index: usize, x: f64, y: f64) {
    let polygon = |corners: &[(f64, f64)]| {
        let at = |(dx, dy): &(f64, f64)| format!("{:.1},{:.1}", x + dx, y + dy);
        let points: Vec<String> = corners.iter().map(at).collect();
        format!("<polygon class=\"mark\" points=\"{}\"/>", points.join(" "))
    };
    let shape = match index % 5 {
        0 => format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.2\"/>"),
        1 => polygon(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
        2 => polygon(&[(0.0, -5.2), (4.8, 3.6), (-4.8, 3.6)]),
        3 => polygon(&[(0.0, -5.6), (5.6, 0.0), (0.0, 5.6), (-5.6, 0.0)]),
        _ => polygon(&[(0.0, 5.2), (4.8, -3.6), (-4.8, -3.6)]),
    };
    svg.push_str(&shape);
    svg.push('\n');
}

/// A label that fits beside the plot.
fn shorten(label: &str) -> String {
    const MOST: usize = 24;
    if label.chars().count() <= MOST {
        return label.to_owned();
    }
    let start: String = label.chars().take(MOST - 3).collect();
    format!("{}...", start.trim_end())
}

/// Distinct colours in [`STYLE`]; lines beyond them repeat colours with other markers.
const COLORS: usize = 8;

/// Okabe and Ito's palette ("Color Universal Design", 2008) with its yellow and sky blue darkened
/// to be legible on white, and lightened counterparts on dark.
const STYLE: &str = "\
.plot{--ground:#fff;--ink:#1c2430;--soft:#5b6675;--grid:#e4e8ee;--edge:#d5dbe3;\
--c0:#0072b2;--c1:#d55e00;--c2:#008f68;--c3:#b5508d;--c4:#8a6d00;--c5:#2f86b8;--c6:#444b55;--c7:#a33b20;\
font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
@media (prefers-color-scheme:dark){.plot{--ground:#161b22;--ink:#e6eaf0;--soft:#9aa6b5;\
--grid:#2a323d;--edge:#2f3945;--c0:#56b4e9;--c1:#ff8a3d;--c2:#2ec99b;--c3:#e38fc3;--c4:#f0c93a;\
--c5:#8fc7ea;--c6:#c3cad3;--c7:#f0856a}}\
.plot .ground{fill:var(--ground);stroke:var(--edge)}\
.plot text{fill:var(--ink)}.plot .title{font-size:16px;font-weight:600}\
.plot .soft{fill:var(--soft);font-size:12px}.plot .end{text-anchor:end}\
.plot .middle{text-anchor:middle}\
.plot line{stroke:var(--grid);stroke-width:1}.plot .axis{stroke:var(--soft)}\
.plot .line{stroke:var(--c);stroke-width:2.2;stroke-linecap:round}\
.plot .gap{stroke-dasharray:2 6;stroke-opacity:.6}\
.plot .range{stroke:var(--c);stroke-width:5;stroke-opacity:.28;stroke-linecap:round}\
.plot .leader{stroke:var(--c);stroke-opacity:.55}\
.plot .mark{fill:var(--c);stroke:var(--ground);stroke-width:1.4}\
.plot .name{fill:var(--c);font-weight:600;white-space:pre}\
.plot .s0{--c:var(--c0)}.plot .s1{--c:var(--c1)}.plot .s2{--c:var(--c2)}.plot .s3{--c:var(--c3)}\
.plot .s4{--c:var(--c4)}.plot .s5{--c:var(--c5)}.plot .s6{--c:var(--c6)}.plot .s7{--c:var(--c7)}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_plot_is_the_same_every_time() {
        let mut contents = sample::contents();
        let table = Table::fold(&contents);
        insta::assert_snapshot!(throughput(&table, Workload::Disk).unwrap());

        contents.runs.retain(|run| run.workload == Workload::Memory);
        assert_eq!(throughput(&Table::fold(&contents), Workload::Disk), None);
    }

    #[test]
    fn a_name_cannot_break_the_drawing() {
        let contents = sample::contents();
        let svg = throughput(&Table::fold(&contents), Workload::Disk).unwrap();
        assert!(svg.contains("rsync &lt;odd&gt; &amp;"));
        assert!(!svg.contains("<odd>"));
    }
}
