//! Statistics: summaries of repeated measurements, confidence intervals, and goodness-of-fit tests.

mod fit;
mod interval;
mod proportion;
mod special;
mod summary;
pub use fit::{chi_square_p, kolmogorov_bound, kolmogorov_distance, normal_p, pearson_p};
pub use interval::median_interval;
pub use proportion::proportion_interval;
pub use summary::{deviation, median, quantile};
