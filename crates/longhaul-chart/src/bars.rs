//! Bar charts.

use crate::lines::significant;
use crate::svg::{Drawing, SOFT, Svg, name_lines, width_of};
use crate::{Axis, Scale, Width};

/// A chart of horizontal bars from zero, in named groups.
#[derive(Debug, Clone)]
pub struct BarChart {
    /// The title.
    pub title: String,
    /// The description below the title.
    pub subtitle: String,
    /// The quantity of the bars, with its unit.
    pub label: String,
    /// The groups with their names, from top to bottom.
    pub groups: Vec<(String, Vec<Bar>)>,
    /// The palette index of each group, which selects its color. A group without an entry has its
    /// position as the index.
    pub palette: Vec<usize>,
}

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// The name of the bar within its group.
    pub name: String,
    /// The length of the bar.
    pub value: f64,
    /// The smallest and the largest figure.
    pub range: Option<(f64, f64)>,
}

const BAR: f64 = 15.0;
const GAP: f64 = 13.0;
/// The smallest and the largest width of the column of bar names.
const NAME: (f64, f64) = (92.0, 230.0);
/// The width of the column of group names on a page.
const GROUP: f64 = 168.0;
/// The distance between two lines of a name, and the maximum number of lines.
const LINE: f64 = 14.0;
const LINES: usize = 3;
/// The width for the figure after a bar.
const FIGURE: f64 = 58.0;

impl BarChart {
    /// Draws the chart.
    pub fn draw(&self, width: Width) -> Drawing {
        let total = width.units();
        let (mut svg, mut y) = Svg::headed(&self.title, &self.subtitle, total);
        // A page has the names of groups beside the bars; a phone has them above.
        let beside = width == Width::Page;
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        let longest = bars().map(|bar| width_of(&bar.name) * SOFT).fold(0.0, f64::max);
        let name = (longest + 8.0).clamp(NAME.0, NAME.1);
        // Without names of bars, the names of groups have their space, too.
        let group_width = match (beside, longest > 0.0) {
            (true, false) => GROUP + name,
            (true, true) => GROUP,
            (false, _) => total - 32.0,
        };
        let left = 16.0 + name + if beside { GROUP + 8.0 } else { 0.0 };
        let length = total - left - FIGURE;
        let values: Vec<f64> = bars()
            .map(|bar| bar.range.map_or(bar.value, |(_, high)| high.max(bar.value)))
            .collect();
        let axis = Axis::new(&self.label, Scale::from_zero(&values));
        let place = |value: f64| left + axis.scale.place(value) * length;
        let (top, mut body) = (y + 4.0, Svg::default());
        y = top + 8.0;
        for (group, (tool, bars)) in self.groups.iter().enumerate() {
            body.begin_series(self.palette.get(group).copied().unwrap_or(group));
            let lines = name_lines(tool, group_width, LINES);
            let group_end = y + lines.len() as f64 * LINE;
            body.text_lines("name", (16.0, y + 11.5), &lines, LINE);
            if !beside {
                y = group_end + 4.0;
            }
            for bar in bars {
                let lines = name_lines(&bar.name, (name - 8.0) / SOFT, LINES);
                body.text_lines("soft end", (left - 8.0, y + 11.5), &lines, LINE);
                let range = bar.range.map(|(low, high)| (place(low), place(high)));
                let end = body.value_bar((left, y + 1.0), (place(bar.value), BAR - 3.0), range);
                body.text("soft", (end + 6.0, y + 11.5), &significant(bar.value));
                y += BAR + (lines.len() - 1) as f64 * LINE;
            }
            body.end_series();
            y = y.max(group_end) + GAP;
        }
        svg.value_axis(&axis, (left, length), (top, y));
        svg.append(body);
        svg.finish(&format!("{}: {}", self.title, self.subtitle), total, y + 42.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_bars() {
        let bar = |name: &str, value: f64| Bar {
            name: name.into(),
            value,
            range: Some((value * 0.9, value * 1.2)),
        };
        let chart = BarChart {
            title: "Processor time".into(),
            subtitle: "both ends".into(),
            label: "CPU seconds a gigabyte".into(),
            groups: vec![
                ("scp".into(), vec![bar("0 ms", 2.0), bar("90 ms", 3.0)]),
                ("longhaul cp".into(), vec![bar("0 ms", 0.5)]),
            ],
            palette: Vec::new(),
        };
        insta::assert_snapshot!(chart.draw(Width::Page).document());
        assert!(chart.draw(Width::Phone).embedded("").contains("longhaul cp"));
    }
}
