//! Heat maps.

use crate::Width;
use crate::lines::significant;
use crate::svg::{Drawing, Svg};

/// A heat map over two dimensions. Every pair has a tile with a color and a figure, so that the
/// map is readable in gray, too.
#[derive(Debug, Clone)]
pub struct HeatMap {
    /// The title.
    pub title: String,
    /// The description below the title.
    pub subtitle: String,
    /// The quantity of the columns, and their names from left to right.
    pub x: (String, Vec<String>),
    /// The quantity of the rows, and their names from bottom to top.
    pub y: (String, Vec<String>),
    /// The figures by row and column; `None` if there is no measurement.
    pub cells: Vec<Vec<Option<f64>>>,
    /// The unit of the figures.
    pub unit: String,
}

/// The cividis map of Nunez, Anderton and Renslow (PLoS ONE 13(7), 2018) at eight equal steps. Its
/// lightness changes evenly, and it looks the same with red or green color blindness.
const CIVIDIS: [[f64; 3]; 8] = [
    [0.0, 34.0, 78.0],
    [39.0, 63.0, 108.0],
    [80.0, 89.0, 109.0],
    [112.0, 113.0, 115.0],
    [145.0, 140.0, 120.0],
    [180.0, 168.0, 111.0],
    [217.0, 199.0, 91.0],
    [254.0, 232.0, 56.0],
];

impl HeatMap {
    /// Draws the chart.
    pub fn draw(&self, width: Width) -> Drawing {
        let total = width.units();
        let (mut svg, y) = Svg::headed(&self.title, &self.subtitle, total);
        let (rows, columns) = (self.y.1.len().max(1), self.x.1.len().max(1));
        let (left, top) = (if width == Width::Page { 116.0 } else { 92.0 }, y + 8.0);
        let tile = ((total - left - 18.0) / columns as f64).min(104.0);
        let height = if width == Width::Page { 42.0 } else { 36.0 };
        let greatest = self.cells.iter().flatten().flatten().copied().fold(0.0, f64::max);
        for (row, cells) in self.cells.iter().enumerate() {
            let at_y = top + (rows - 1 - row) as f64 * height;
            let middle = at_y + height / 2.0 + 4.0;
            svg.text("soft end", (left - 8.0, middle), &self.y.1[row]);
            for (column, cell) in cells.iter().enumerate() {
                let at_x = left + column as f64 * tile;
                let Some(value) = cell else {
                    svg.text("soft middle", (at_x + tile / 2.0, middle), "-");
                    continue;
                };
                let share = if greatest > 0.0 { value / greatest } else { 0.0 };
                let title = format!(
                    "{} {}, {} {}: {} {}",
                    self.x.0,
                    self.x.1[column],
                    self.y.0,
                    self.y.1[row],
                    significant(*value),
                    self.unit
                );
                let (at, size) = ((at_x + 1.0, at_y + 1.0), (tile - 2.0, height - 2.0));
                svg.tile(&color(share), at, size, &title);
                let class = if share > 0.55 { "middle dark" } else { "middle light" };
                svg.text(class, (at_x + tile / 2.0, middle), &significant(*value));
            }
        }
        let base = top + rows as f64 * height;
        for (column, name) in self.x.1.iter().enumerate() {
            svg.text("soft middle", (left + (column as f64 + 0.5) * tile, base + 17.0), name);
        }
        let across = tile * columns as f64;
        svg.text("soft middle", (left + across / 2.0, base + 36.0), &self.x.0);
        let up = (20.0, top + rows as f64 * height / 2.0);
        svg.text("soft up", up, &self.y.0);
        self.key(&mut svg, left, base + 50.0, greatest);
        svg.finish(&format!("{}: {}", self.title, self.subtitle), total, base + 88.0)
    }

    /// Draws the scale of colors from zero to `greatest`.
    fn key(&self, svg: &mut Svg, left: f64, top: f64, greatest: f64) {
        const STEPS: usize = 24;
        for step in 0..STEPS {
            let share = step as f64 / (STEPS - 1) as f64;
            let at = (left + step as f64 * 8.0, top);
            svg.tile(&color(share), at, (8.2, 10.0), "");
        }
        svg.text("soft", (left, top + 24.0), "0");
        let end = left + STEPS as f64 * 8.0;
        svg.text(
            "soft end",
            (end, top + 24.0),
            &format!("{} {}", significant(greatest), self.unit),
        );
    }
}

/// Returns the color of a share of the scale (0 to 1).
fn color(share: f64) -> String {
    let place = share.clamp(0.0, 1.0) * (CIVIDIS.len() - 1) as f64;
    let below = (place.floor() as usize).min(CIVIDIS.len() - 2);
    let part = place - below as f64;
    let channel = |index: usize| {
        let (a, b) = (CIVIDIS[below][index], CIVIDIS[below + 1][index]);
        (a + (b - a) * part).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> HeatMap {
        HeatMap {
            title: "Surface".into(),
            subtitle: "longhaul test at 90 ms".into(),
            x: ("Streams".into(), vec!["1".into(), "4".into()]),
            y: ("Window".into(), vec!["1 MiB".into(), "4 MiB".into()]),
            cells: vec![vec![Some(0.1), Some(0.4)], vec![Some(0.4), None]],
            unit: "Gb/s".into(),
        }
    }

    #[test]
    fn a_tile_for_each_pair() {
        insta::assert_snapshot!(map().draw(Width::Page).document());
        assert!(map().draw(Width::Phone).embedded("").contains("0.40"));
    }

    #[test]
    fn more_is_lighter() {
        assert_eq!((color(0.0).as_str(), color(1.0).as_str()), ("#00224e", "#fee838"));
        let lightness = |share: f64| {
            let hex = color(share);
            let part = |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        assert!(
            (0..20).all(|n| lightness(f64::from(n) / 20.0) < lightness(f64::from(n + 1) / 20.0))
        );
    }
}
