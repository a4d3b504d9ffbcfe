//! Plans as text: the plans that ship, and the parser of TOML files into a checked
//! [`MatrixPlan`](longhaul_core::plan::MatrixPlan), with line and column in every error.

mod load;
mod place;
mod shipped;

pub use load::{check, fingerprint, load, parse, select};
pub use shipped::{SHIPPED, Shipped};
