//! Line charts.

use crate::scale::spread;
use crate::svg::{At, Drawing, Svg, name_lines, width_of};
use crate::{Axis, Width};

/// A line chart of one or more panels with the same axes.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// The title.
    pub title: String,
    /// The description below the title.
    pub subtitle: String,
    /// The horizontal axis of every panel.
    pub x: Axis,
    /// The vertical axis of every panel.
    pub y: Axis,
    /// The panels, in reading order.
    pub panels: Vec<Panel>,
    /// The names of the series; a series looks the same in every panel.
    pub names: Vec<String>,
    /// The palette index of each series, which selects its color, marker and dash pattern. A series
    /// without an entry has its position as the index.
    pub palette: Vec<usize>,
}

/// One pair of axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The title of the panel; empty in a chart of one panel.
    pub title: String,
    /// The lines; later ones are drawn over earlier ones.
    pub lines: Vec<Line>,
    /// Published figures, drawn as crosses.
    pub references: Vec<LinePoint>,
    /// The vertical axis of this panel, if it differs from that of the chart.
    pub y: Option<Axis>,
}

/// One line of a panel.
#[derive(Debug, Clone)]
pub struct Line {
    /// The index in the names of the series.
    pub series: usize,
    /// The style.
    pub kind: LineKind,
    /// The points in order of x.
    pub points: Vec<LinePoint>,
}

/// The style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// A marker and a range per point.
    Points,
    /// Many points in time: markers only at the last point and at points with a title.
    Trace,
}

/// One point.
#[derive(Debug, Clone, Default)]
pub struct LinePoint {
    /// The value on the horizontal axis.
    pub x: f64,
    /// The value on the vertical axis.
    pub y: f64,
    /// The range of the figures.
    pub range: Option<(f64, f64)>,
    /// The text of the tooltip.
    pub title: String,
    /// True if figures between this point and the previous one are missing.
    pub after_gap: bool,
}

const LEFT: f64 = 56.0;
/// The space right of a panel: half of the last tick's text.
const SIDE: f64 = 30.0;
/// The space below a panel: ticks and axis label.
const FOOT: f64 = 50.0;
/// The largest width of a name with its figure at the end of a line.
const NAMES: f64 = 290.0;
/// The space between the panel and the names, and after the names.
const BEFORE_NAMES: f64 = 18.0;
const AFTER_NAMES: f64 = 8.0;
/// The distance between the baselines of two names.
const NAME: f64 = 17.0;
/// The distance between the two lines of a name.
const NAME_LINE: f64 = 14.0;
/// The height of a single panel on a page.
const HEIGHT: f64 = 300.0;
/// The maximum number of names that fit at the ends of the lines.
const AT_ENDS: usize = 16;
/// The minimum space between the texts of two ticks.
const TICK: f64 = 24.0;

/// The layout of names at the ends of the lines.
struct EndNames {
    /// The width of the widest line of a name.
    width: f64,
    /// The maximum number of lines of a name.
    lines: usize,
}

/// The position of a panel.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl LineChart {
    /// Draws the chart.
    pub fn draw(&self, width: Width) -> Drawing {
        let total = width.units();
        let (mut svg, mut y) = Svg::headed(&self.title, &self.subtitle, total);
        let at_ends = self.end_names(width);
        y += 6.0;
        if at_ends.is_none() {
            let names = self.drawn();
            let names: Vec<(usize, &str)> = names
                .into_iter()
                .map(|(series, name)| (self.palette_index(series), name))
                .collect();
            y = legend(&mut svg, &names, 16.0, y + 4.0, total - 32.0);
        }
        let columns = if self.panels.len() > 1 && width == Width::Page { 2 } else { 1 };
        let right = at_ends.as_ref().map_or(SIDE, |names| BEFORE_NAMES + names.width + AFTER_NAMES);
        let inner = total - right - LEFT * columns as f64 - SIDE * (columns - 1) as f64;
        let panel_width = inner / columns as f64;
        let panel_height = if columns == 1 && width == Width::Page { HEIGHT } else { 220.0 };
        let titles = self.panels.iter().map(|panel| name_lines(&panel.title, panel_width, 3).len());
        let more = titles.max().unwrap_or(1) - 1;
        let head = if self.panels.len() > 1 { 26.0 + more as f64 * NAME_LINE } else { 10.0 };
        let mut bottom = y;
        for (index, panel) in self.panels.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let top = y + row as f64 * (head + panel_height + FOOT) + head;
            let left = LEFT + column as f64 * (LEFT + panel_width + SIDE);
            let place = Frame { left, top, width: panel_width, height: panel_height };
            self.panel(&mut svg, panel, &place, at_ends.as_ref());
            bottom = top + panel_height + FOOT;
        }
        svg.finish(&format!("{}: {}", self.title, self.subtitle), total, bottom + 4.0)
    }

    /// Returns the layout of names at the ends of the lines, if a single panel has space for them;
    /// otherwise the names are above the panels.
    fn end_names(&self, width: Width) -> Option<EndNames> {
        let [panel] = &self.panels[..] else { return None };
        if width != Width::Page || panel.lines.len() > AT_ENDS {
            return None;
        }
        let widest = |most: usize| {
            let widths = panel.lines.iter().map(|line| {
                let lines = self.end_name(line, most);
                lines.iter().map(|text| width_of(text)).fold(0.0, f64::max)
            });
            widths.fold(0.0, f64::max)
        };
        if panel.lines.iter().all(|line| self.end_name(line, usize::MAX).len() <= 1) {
            return Some(EndNames { width: widest(1), lines: 1 });
        }
        let two = panel.lines.iter().all(|line| self.end_name(line, usize::MAX).len() <= 2);
        let height = panel.lines.len() as f64 * (NAME + NAME_LINE);
        (two && height <= HEIGHT).then(|| EndNames { width: widest(2), lines: 2 })
    }

    /// Returns the name and the last figure of a line in at most `most` lines of text.
    fn end_name(&self, line: &Line, most: usize) -> Vec<String> {
        let (Some(point), Some(name)) = (line.points.last(), self.names.get(line.series)) else {
            return Vec::new();
        };
        let figure = format!("  {}", significant(point.y));
        let mut lines = name_lines(name, NAMES - width_of(&figure), most);
        if let Some(last) = lines.last_mut() {
            last.push_str(&figure);
        }
        lines
    }

    fn palette_index(&self, series: usize) -> usize {
        self.palette.get(series).copied().unwrap_or(series)
    }

    /// Returns the index and name of every series with a line in a panel.
    fn drawn(&self) -> Vec<(usize, &str)> {
        let has = |series: usize| {
            let mut lines = self.panels.iter().flat_map(|panel| &panel.lines);
            lines.any(|line| line.series == series)
        };
        let named = self.names.iter().enumerate().filter(|(series, _)| has(*series));
        named.map(|(series, name)| (series, name.as_str())).collect()
    }

    fn panel(&self, svg: &mut Svg, panel: &Panel, place: &Frame, at_ends: Option<&EndNames>) {
        let Frame { left, top, width, height } = *place;
        let base = top + height;
        if !panel.title.is_empty() {
            let title = name_lines(&panel.title, width, 3);
            let first = top - 10.0 - (title.len() - 1) as f64 * NAME_LINE;
            svg.text_lines("head", (left, first), &title, NAME_LINE);
        }
        let axis = panel.y.as_ref().unwrap_or(&self.y);
        for (value, text) in &axis.ticks {
            let y = base - axis.scale.place(*value) * height;
            svg.line("grid", (left, y), (left + width, y));
            svg.text("soft end", (left - 8.0, y + 4.0), text);
        }
        svg.line("axis", (left, base), (left + width, base));
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &self.x.ticks {
            let x = left + self.x.scale.place(*value) * width;
            svg.line("axis", (x, base), (x, base + 5.0));
            let half = crate::svg::width_of(text) / 2.0;
            if x - half >= free {
                svg.text("soft middle", (x, base + 19.0), text);
                free = x + half.max(TICK / 2.0) + 4.0;
            }
        }
        svg.text("soft middle", (left + width / 2.0, base + 38.0), &self.x.label);
        svg.text("soft up", (left - 42.0, top + height / 2.0), &axis.label);
        let at = |point: &LinePoint| self.at(point, axis, place);
        let ends: Vec<f64> = panel
            .lines
            .iter()
            .map(|line| line.points.last().map_or(0.0, |point| at(point).1 - top))
            .collect();
        let lines = at_ends.map_or(1, |names| names.lines);
        let names = spread(&ends, NAME + (lines - 1) as f64 * NAME_LINE, height);
        for (line, name_y) in panel.lines.iter().zip(names) {
            svg.begin_series(self.palette_index(line.series));
            self.line(svg, line, axis, place);
            if at_ends.is_some() {
                self.name(svg, line, (axis, place), name_y + top);
            }
            svg.end_series();
        }
        for point in &panel.references {
            svg.cross(at(point), &point.title);
        }
    }

    fn at(&self, point: &LinePoint, axis: &Axis, place: &Frame) -> At {
        (
            place.left + self.x.scale.place(point.x) * place.width,
            place.top + place.height * (1.0 - axis.scale.place(point.y).clamp(0.0, 1.0)),
        )
    }

    fn line(&self, svg: &mut Svg, line: &Line, axis: &Axis, place: &Frame) {
        let places: Vec<At> = line.points.iter().map(|point| self.at(point, axis, place)).collect();
        if line.kind == LineKind::Trace {
            svg.path("line trace", &places);
        } else {
            for (pair, points) in places.windows(2).zip(line.points.windows(2)) {
                // The line is dotted if a figure between the two points is missing.
                let class = if points[1].after_gap { "line gap" } else { "line" };
                svg.line(class, pair[0], pair[1]);
            }
        }
        for (point, &(x, y)) in line.points.iter().zip(&places) {
            if let Some((low, high)) = point.range {
                let end =
                    |y| self.at(&LinePoint { x: point.x, y, ..LinePoint::default() }, axis, place);
                svg.line("range", end(low), end(high));
            }
            if line.kind == LineKind::Points || !point.title.is_empty() {
                svg.mark(self.palette_index(line.series), (x, y), &point.title);
            }
        }
    }

    /// Draws the name and the last figure of a line at its end.
    fn name(&self, svg: &mut Svg, line: &Line, (axis, place): (&Axis, &Frame), y: f64) {
        let Some(point) = line.points.last() else { return };
        let (x, end_y) = self.at(point, axis, place);
        let start = place.left + place.width + BEFORE_NAMES;
        svg.line("leader", (x + 7.0, end_y), (start - 4.0, y));
        let lines = self.end_name(line, 2);
        let first = y + 4.0 - lines.len().saturating_sub(1) as f64 * NAME_LINE / 2.0;
        svg.text_lines("name", (start, first), &lines, NAME_LINE);
    }
}

/// Formats a value with three significant digits.
pub(crate) fn significant(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The height of a row.
const ROW: f64 = 20.0;
/// The width of a swatch with its marker and the space after it.
const SWATCH: f64 = 32.0;

/// Draws the names of series with their markers in rows of `width`, from `top` down. Returns the
/// lower end of the rows.
pub(crate) fn legend(
    svg: &mut Svg,
    names: &[(usize, &str)],
    left: f64,
    top: f64,
    width: f64,
) -> f64 {
    let (mut x, mut y) = (left, top);
    for (series, name) in names {
        let lines = name_lines(name, width - SWATCH, 3);
        let widest = lines.iter().map(|line| width_of(line)).fold(0.0, f64::max);
        let needed = SWATCH + widest + 14.0;
        if x > left && x + needed > left + width {
            (x, y) = (left, y + ROW);
        }
        svg.begin_series(*series);
        svg.line("line", (x, y), (x + 26.0, y));
        svg.mark(*series, (x + 13.0, y), "");
        svg.text_lines("name", (x + SWATCH, y + 4.0), &lines, NAME_LINE);
        svg.end_series();
        x += needed;
        if lines.len() > 1 {
            // A name of several lines has its rows alone.
            (x, y) = (left + width, y + (lines.len() - 1) as f64 * NAME_LINE);
        }
    }
    if names.is_empty() { top } else { y + ROW }
}

#[cfg(test)]
mod tests {
    use crate::Scale;

    use super::*;

    fn chart(panels: usize) -> LineChart {
        let point = |x: f64, y: f64| LinePoint {
            x,
            y,
            range: Some((y * 0.9, y * 1.1)),
            title: format!("{y} Gb/s"),
            after_gap: x > 100.0,
        };
        let line = |series: usize, y: f64| Line {
            series,
            kind: LineKind::Points,
            points: [0.0, 15.0, 180.0].map(|x| point(x, y - x / 100.0)).to_vec(),
        };
        let panel = |index: usize| Panel {
            title: if panels > 1 { format!("panel {index}") } else { String::new() },
            lines: vec![line(0, 9.0), line(1, 5.0)],
            references: vec![point(90.0, 7.0)],
            y: None,
        };
        let x = Scale::from_zero(&[180.0]);
        LineChart {
            title: "Throughput".into(),
            subtitle: "goodput".into(),
            x: Axis {
                ticks: vec![(0.0, "0".into()), (180.0, "180".into())],
                ..Axis::new("RTT, ms", x)
            },
            y: Axis::new("Gb/s", Scale::for_values(&[9.0, 3.0])),
            panels: (0..panels).map(panel).collect(),
            names: vec!["one".into(), "two".into()],
            palette: Vec::new(),
        }
    }

    #[test]
    fn one_panel_names_its_lines_at_their_ends() {
        insta::assert_snapshot!(chart(1).draw(Width::Page).document());
    }

    #[test]
    fn long_names_are_complete() {
        let long = "longhaul test (iperf3 server), 16 streams, window 4.00 MiB, cubic";
        let mut chart = chart(1);
        chart.names[0] = long.to_owned();
        let texts = |chart: &LineChart, width| {
            let text = chart.draw(width).embedded("");
            text.split("class=\"name\"")
                .skip(1)
                .filter_map(|part| part.split(['>', '<']).nth(1))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let at_ends = texts(&chart, Width::Page);
        assert!(at_ends.contains(&format!("{long}  7.20")), "{at_ends}");
        let phone = texts(&chart, Width::Phone);
        assert!(phone.contains(long), "{phone}");
        // Three lines at the end are too many, so the names are above the panel.
        chart.names[0] = [long; 2].join(", ");
        let above = texts(&chart, Width::Page);
        assert!(above.contains(&chart.names[0]) && !above.contains("7.20"), "{above}");
    }

    #[test]
    fn a_panel_may_have_its_own_scale_and_a_series_another_look() {
        let mut chart = chart(2);
        chart.panels[1].y = Some(Axis::new("Mb/s", Scale::from_zero(&[9000.0])));
        chart.palette = vec![3, 1];
        let text = chart.draw(Width::Page).embedded("");
        assert!(text.contains(">Mb/s<") && text.contains(">8000<"), "{text}");
        assert!(text.contains("class=\"s3 d3\"") && !text.contains("class=\"s0 d0\""), "{text}");
    }

    #[test]
    fn panels_share_a_legend_and_stack_on_a_phone() {
        insta::assert_snapshot!(chart(3).draw(Width::Phone).embedded("narrow"));
        let page = chart(3).draw(Width::Page);
        assert!(page.height < chart(3).draw(Width::Phone).height);
    }
}
