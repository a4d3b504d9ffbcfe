//! The chart of a diagnosis.

use crate::svg::{Drawing, Svg, name_lines};
use crate::{Axis, Scale, Width};

/// A chart of horizontal bars with one marked bar. The bars start at zero, or at the start of a
/// logarithmic axis if the longest is more than twenty times as long as the shortest.
#[derive(Debug, Clone)]
pub struct StepChart {
    /// The title.
    pub title: String,
    /// The description below the title.
    pub subtitle: String,
    /// The quantity of the bars, with its unit.
    pub label: String,
    /// The bars, from top to bottom.
    pub steps: Vec<StepBar>,
}

/// One bar.
#[derive(Debug, Clone)]
pub struct StepBar {
    /// The name of the measurement.
    pub name: String,
    /// The value and its text; `None` if it was not measured.
    pub value: Option<(f64, String)>,
    /// The smallest and the largest value.
    pub range: Option<(f64, f64)>,
    /// The text after the figure of a marked bar.
    pub mark: Option<String>,
}

const ROW: f64 = 30.0;
const BAR: f64 = 18.0;
/// The distance between two lines of a name.
const LINE: f64 = 14.0;
/// The width for names before the bars on a page; on a phone the names are above the bars.
const NAME: f64 = 236.0;
/// The width for the figure after a bar.
const FIGURE: f64 = 150.0;
/// The colors of a bar as indices into the palette (`page.rs`): blue, and orange for the marked
/// bar.
const PLAIN: usize = 0;
const MARKED: usize = 1;

impl StepChart {
    /// Draws the chart.
    pub fn draw(&self, width: Width) -> Drawing {
        let total = width.units();
        let beside = width == Width::Page;
        let (mut svg, mut y) = Svg::headed(&self.title, &self.subtitle, total);
        let left = if beside { 16.0 + NAME } else { 16.0 };
        let length = total - left - if beside { FIGURE } else { 100.0 };
        let values: Vec<f64> = self
            .steps
            .iter()
            .filter_map(|step| {
                let (value, _) = step.value.as_ref()?;
                Some(step.range.map_or(*value, |(_, high)| high.max(*value)))
            })
            .collect();
        let axis = Axis::new(&self.label, Scale::for_values(&values));
        let place = |value: f64| left + axis.scale.place(value).clamp(0.0, 1.0) * length;
        let (top, mut body) = (y + 4.0, Svg::default());
        y = top + 8.0;
        for step in &self.steps {
            let marked = step.mark.is_some();
            body.begin_series(if marked { MARKED } else { PLAIN });
            let class = if marked { "head" } else { "name" };
            if beside {
                let lines = name_lines(&step.name, NAME, 2);
                let first = y + 14.0 - (lines.len() - 1) as f64 * LINE / 2.0;
                body.text_lines(class, (16.0, first), &lines, LINE);
            } else {
                let lines = name_lines(&step.name, total - 32.0, 2);
                body.text_lines(class, (16.0, y + 11.0), &lines, LINE);
                y += 3.0 + lines.len() as f64 * LINE;
            }
            match &step.value {
                None => body.text("soft", (left + 6.0, y + 14.0), "not measured"),
                Some((value, figure)) => {
                    let range = step.range.map(|(low, high)| (place(low), place(high)));
                    let end = body.value_bar((left, y), (place(*value), BAR), range);
                    let mark = step.mark.as_ref().map_or(String::new(), |mark| format!("  {mark}"));
                    let class = if marked { "head" } else { "soft" };
                    body.text(class, (end + 6.0, y + 14.0), &format!("{figure}{mark}"));
                }
            }
            body.end_series();
            y += ROW;
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
    fn very_different_steps_have_a_logarithmic_axis() {
        let step = |value: f64| StepBar {
            name: "step".into(),
            value: Some((value, format!("{value}"))),
            range: None,
            mark: None,
        };
        let chart = |values: &[f64]| StepChart {
            title: "t".into(),
            subtitle: String::new(),
            label: "Gb/s".into(),
            steps: values.iter().map(|value| step(*value)).collect(),
        };
        let drawn = |values: &[f64]| chart(values).draw(Width::Page).document();
        assert!(drawn(&[0.02, 30.0]).contains("Gb/s (logarithmic)"));
        assert!(!drawn(&[2.0, 30.0]).contains("logarithmic"));
    }

    #[test]
    fn the_limiting_step_is_marked_and_unmeasured_steps_are_named() {
        let step = |name: &str, value: Option<f64>, mark: Option<&str>| StepBar {
            name: name.into(),
            value: value.map(|value| (value, format!("{value} Gb/s"))),
            range: value.map(|value| (value * 0.9, value * 1.1)),
            mark: mark.map(str::to_owned),
        };
        let chart = StepChart {
            title: "The diagnosis".into(),
            subtitle: "each part separately, and the whole".into(),
            label: "Gb/s".into(),
            steps: vec![
                step("source read, no network", Some(8.0), None),
                step("memory to memory", Some(0.2), Some("limit")),
                step("sink write, no network", None, None),
            ],
        };
        let page = chart.draw(Width::Page).embedded("wide");
        assert_eq!(page.matches("class=\"bar\"").count(), 2);
        assert!(page.contains("0.2 Gb/s  limit") && page.contains("not measured"), "{page}");
        assert!(page.contains("class=\"s1 d1\""), "the marked bar has another color: {page}");
        let phone = chart.draw(Width::Phone).embedded("narrow");
        assert!(phone.contains("source read, no network"));
    }
}
