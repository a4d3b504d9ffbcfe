//! The report as one HTML document that needs no network and no script, for screens of any width,
//! in light and dark mode, and for print.

mod best;
mod comparison;
mod diagnosis;
mod document;
mod figure;
mod network;
mod published;
mod repeat;
mod runs;
mod summary;
mod throughput;

pub use diagnosis::diagnosis_html;
pub use document::html;
