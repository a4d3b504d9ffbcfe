//! Renders a [`Table`](crate::table::Table): as text for the terminal, as JSON, as one
//! self-contained HTML file with plots.
//!
//! Renderers read and compute nothing; the same archive gives the same bytes.

mod facts;
mod html;
mod json;
mod plot;
mod runs;
#[cfg(test)]
pub(crate) mod sample;
mod scale;
mod text;
mod write;

pub use html::html;
pub use json::json;
pub use plot::throughput;
pub use text::text;
pub use write::write;
