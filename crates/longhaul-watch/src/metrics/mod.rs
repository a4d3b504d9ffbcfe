//! The metrics for Prometheus: the text of a sample, and the server of the text.

mod server;
mod text;

pub use server::{DEFAULT_PORT, MetricsServer};
pub use text::metrics_text;
