//! The graph of an interface: incoming traffic above, outgoing below, a column per sample.

use longhaul_core::units::Rate;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Columns of eighths of a cell.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// The mark of a sample without data.
const GAP: &str = "·";
/// The width for the labels of the scale.
const LABELS: u16 = 11;

/// One direction of the graph.
pub(super) struct Trace<'a> {
    /// The name of the direction.
    pub(super) name: &'a str,
    /// The rates in bit/s, the newest last; `None` in a gap.
    pub(super) rates: Vec<Option<f64>>,
    pub(super) style: Style,
}

impl Trace<'_> {
    /// Draws the newest rates that fit into `area`, with the newest on the right. `greatest` is the rate at
    /// the top.
    pub(super) fn draw(&self, area: Rect, greatest: f64, buffer: &mut Buffer, soft: Style) {
        if area.height == 0 || area.width <= LABELS {
            return;
        }
        let top = Rate::from_bps(greatest.round() as u64).to_string();
        buffer.set_stringn(area.x, area.y, &top, usize::from(LABELS), soft);
        let base = area.y + area.height - 1;
        buffer.set_stringn(area.x, base, self.name, usize::from(LABELS), self.style);
        let columns = usize::from(area.width - LABELS);
        let shown = &self.rates[self.rates.len().saturating_sub(columns)..];
        let left = area.x + LABELS + (columns - shown.len()) as u16;
        for (column, rate) in shown.iter().enumerate() {
            let x = left + column as u16;
            let Some(rate) = rate else {
                buffer.set_string(x, base, GAP, soft);
                continue;
            };
            let eighths = height(*rate, greatest, area.height);
            for row in 0..area.height {
                let level = eighths.saturating_sub(usize::from(row) * 8).min(8);
                buffer.set_string(x, base - row, EIGHTHS[level], self.style);
            }
        }
    }
}

/// Returns the height of a column in eighths of a cell. Any traffic is visible.
fn height(rate: f64, greatest: f64, rows: u16) -> usize {
    let most = usize::from(rows) * 8;
    if rate <= 0.0 || greatest <= 0.0 {
        return 0;
    }
    ((rate / greatest * most as f64).round() as usize).clamp(1, most)
}

/// Returns the rate at the top of a graph: the highest visible one, rounded up to 1, 2 or 5 times a power
/// of ten.
pub(super) fn top_of(rates: impl Iterator<Item = f64>) -> f64 {
    let greatest = rates.fold(1000.0, f64::max);
    let decade = 10_f64.powf(greatest.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    factors.map(|factor| factor * decade).find(|top| *top >= greatest).unwrap_or(greatest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_scaled_and_gaps_are_marked() {
        let area = Rect::new(0, 0, LABELS + 5, 2);
        let mut buffer = Buffer::empty(area);
        let rates = vec![Some(9e9), Some(0.0), None, Some(1.0), Some(5e9), Some(10e9)];
        let trace = Trace { name: "in", rates, style: Style::new() };
        trace.draw(area, 10e9, &mut buffer, Style::new());
        let row = |y: u16| -> String {
            (0..area.width).map(|x| buffer.cell((x, y)).unwrap().symbol()).collect()
        };
        assert_eq!(row(0), "10.0 Gb/s      █");
        assert_eq!(row(1), "in          ·▁██");
    }

    #[test]
    fn the_scale_ends_round() {
        assert_eq!(top_of([3.1e9, 7.0].into_iter()), 5e9);
        assert_eq!(top_of([10e9].into_iter()), 10e9);
        assert_eq!(top_of(std::iter::empty()), 1000.0);
    }
}
