//! Plans as text: the built-in ones, and reading a TOML file into a checked
//! [`MatrixPlan`](longhaul_core::plan::MatrixPlan) with line and column in every error.

mod builtin;
mod load;
mod place;

pub use builtin::Builtin;
pub use load::{check, fingerprint, load, parse, select};
