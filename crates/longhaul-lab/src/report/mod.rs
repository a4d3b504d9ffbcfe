//! Renders a [`Table`](crate::table::Table) as text for the terminal, as Markdown, as JSON, and as
//! one self-contained HTML file with plots; and the runs as CSV.
//!
//! The same archive gives the same bytes. Only [`figures`] computes: it aggregates runs for the
//! charts.

mod change;
mod chart;
mod csv;
mod figures;
mod json;
mod markdown;
mod page;
#[cfg(test)]
pub(crate) mod sample;
mod text;
mod write;

pub use change::change_text;
pub use csv::csv;
pub use json::json;
pub use markdown::markdown;
pub use page::{diagnosis_html, html};
pub use text::text;
pub use write::write;
