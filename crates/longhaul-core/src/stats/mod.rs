//! Summary statistics over repeated measurements.

mod interval;
mod summary;

pub use interval::median_interval;
pub use summary::{median, quantile};
