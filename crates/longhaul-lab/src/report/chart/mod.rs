//! Charts as SVG: lines, bars and heat maps from numbers and names.
//!
//! Knows nothing of tools and runs. Every chart is drawn at two widths, one for a page and one
//! for a phone, because letters that shrink with a drawing are not read. Series are told apart
//! without colour as well: each has a marker, a dash and, where there is room, its name at its end.
//! Axes begin at zero; one that does not says that it is logarithmic.
//!
//! A drawing carries no network reference and no script, and follows the reader's light or dark.

mod bars;
mod heat;
mod ladder;
mod legend;
mod lines;
mod scale;
mod style;
mod svg;

pub(super) use bars::{Bar, BarChart};
pub(super) use heat::HeatMap;
pub(super) use ladder::{LadderChart, LadderRung};
pub(super) use lines::{Line, LineChart, LineKind, Panel, Point};
pub(super) use scale::{Axis, Scale, plain};
pub(super) use style::STYLE;
pub(super) use svg::Drawing;

/// For what a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// A page: screens from a tablet up, and print.
    Page,
    /// A phone held upright.
    Phone,
}

impl Width {
    /// In the units of the drawing, which are a screen's pixels where it is not scaled.
    const fn units(self) -> f64 {
        match self {
            Width::Page => 860.0,
            Width::Phone => 380.0,
        }
    }
}
