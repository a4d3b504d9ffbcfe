//! Plans as text: those that ship, and reading a TOML file into a checked
//! [`MatrixPlan`](longhaul_core::plan::MatrixPlan) with line and column in every error.

mod load;
mod place;
mod shipped;

pub use load::{check, fingerprint, load, parse, select};
pub use shipped::{SHIPPED, Shipped};
