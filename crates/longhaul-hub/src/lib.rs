//! The hub of a fleet: it enrols agents, plans their runs, keeps the history and shows it.
//!
//! Async code stays in this crate.

mod clock;
mod config;
mod figures;
mod fleet;
mod guard;
mod password;
pub mod records;
pub mod samples;
mod secret;
pub mod store;
mod tls;
mod words;

pub use config::{Channel, HubConfig, HubError};
pub use figures::Figures;
