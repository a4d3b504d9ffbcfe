//! The hub of a fleet: it enrols agents, plans their runs, keeps the history and shows it.
//!
//! Async code stays in this crate.

mod clock;
mod figures;
pub mod records;
pub mod samples;
mod secret;
pub mod store;

pub use figures::Figures;
