//! Charts as SVG: lines, bars, heat maps and traffic over time, from numbers and names; the HTML page
//! around them.
//!
//! This crate does not depend on tools and runs. Every chart is drawn at two widths, for a page
//! and for a phone, because scaled-down text is unreadable. Series differ in more than color: each
//! has a marker, a dash pattern and, if there is space, its name at the end of its line. Axes start
//! at zero or are labeled as logarithmic.
//!
//! A drawing has no network reference and no script, and follows the reader's light or dark theme.
//!
//! ```
//! use longhaul_chart::{Bar, BarChart, Width};
//!
//! let bar = |name: &str, value| Bar { name: name.to_owned(), value, range: None };
//! let chart = BarChart {
//!     title: "Throughput".to_owned(),
//!     subtitle: "median of 5 runs".to_owned(),
//!     label: "Gb/s".to_owned(),
//!     groups: vec![("0 ms".to_owned(), vec![bar("iperf3", 15.8), bar("nuttcp", 17.6)])],
//!     palette: Vec::new(),
//! };
//! let svg = chart.draw(Width::Page).document();
//! assert!(svg.starts_with("<svg") && svg.contains("nuttcp"));
//! ```

mod bars;
mod heat;
mod lines;
mod page;
mod scale;
mod steps;
mod svg;
mod time_axis;
pub mod traffic;

pub use bars::{Bar, BarChart};
pub use heat::HeatMap;
pub use lines::{Line, LineChart, LineKind, LinePoint, Panel};
pub use page::{PAGE_STYLE, STYLE, document, sealed_document};
pub use scale::{Axis, Scale, plain};
pub use steps::{StepBar, StepChart};
pub use svg::Drawing;
pub use time_axis::time_ticks;

/// The kind of page that a chart is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A page: screens from tablet size, and print.
    Page,
    /// A phone in portrait orientation.
    Phone,
}

impl Width {
    /// Returns the width in drawing units, which are screen pixels if the drawing is not scaled.
    const fn units(self) -> f64 {
        match self {
            Width::Page => 860.0,
            Width::Phone => 380.0,
        }
    }
}
