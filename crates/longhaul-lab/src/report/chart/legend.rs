//! The legend of a chart.

use super::svg::{Svg, shorten, width_of};

/// The height of a row.
const ROW: f64 = 20.0;
/// The width of a swatch with its marker and the space after it.
const SWATCH: f64 = 32.0;

/// Draws the names of series with their markers in rows of `width`, from `top` down. Returns the
/// lower end of the rows.
pub(super) fn legend(
    svg: &mut Svg,
    names: &[(usize, &str)],
    left: f64,
    top: f64,
    width: f64,
) -> f64 {
    let (mut x, mut y) = (left, top);
    let longest = ((width - SWATCH) / 7.5) as usize;
    for (series, name) in names {
        let name = shorten(name, longest);
        let needed = SWATCH + width_of(&name) + 14.0;
        if x > left && x + needed > left + width {
            (x, y) = (left, y + ROW);
        }
        svg.begin_series(*series);
        svg.line("line", (x, y), (x + 26.0, y));
        svg.mark(*series, (x + 13.0, y), "");
        svg.text("name", (x + SWATCH, y + 4.0), &name);
        svg.end_series();
        x += needed;
    }
    if names.is_empty() { top } else { y + ROW }
}
