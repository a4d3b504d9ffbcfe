//! The hub of a fleet: it enrols agents, plans their runs, keeps the history and shows it.
//!
//! Async code stays in this crate.

pub mod store;
