//! Summary statistics over repeated measurements.

mod summary;

pub use summary::{median, quantile};
