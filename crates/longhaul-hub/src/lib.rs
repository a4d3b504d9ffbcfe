//! The hub of a fleet: it enrols agents, plans their runs, keeps the history and shows it.
//!
//! Async code stays in this crate.

mod clock;
mod config;
mod figures;
mod fleet;
mod guard;
mod hub;
mod notify;
mod password;
pub mod records;
pub mod samples;
mod secret;
mod shares;
mod start;
pub mod store;
mod tls;
mod upkeep;
mod web;
mod webhook;
mod words;

pub use config::{Channel, HubConfig, HubError};
pub use figures::Figures;
pub use password::LEAST_CHARACTERS;
pub use start::{Started, UserChange, change_users, run, start};
