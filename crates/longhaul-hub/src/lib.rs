//! The hub of a fleet: it enrolls agents, plans their runs, keeps the history and shows it.
//!
//! Async code stays in this crate.
//!
//! The hub stores samples as packed rows:
//!
//! ```
//! use longhaul_hub::samples::{pack, unpack};
//!
//! let rows = vec![vec![1_000, 9_400], vec![2_000, 9_410]];
//! let packed = pack(2, &rows);
//! assert!(packed.len() < 32, "{} bytes instead of 32", packed.len());
//! assert_eq!(unpack(2, &packed)?, rows);
//! # Ok::<(), longhaul_hub::samples::Malformed>(())
//! ```

mod clock;
mod config;
mod figures;
mod fleet;
mod guard;
mod hub;
mod local;
mod log;
mod login_guard;
mod outgoing;
mod private_file;
pub mod records;
pub mod samples;
mod secret;
mod start;
pub mod store;
mod tls;
mod trust;
mod upkeep;
mod web;
mod words;

pub use config::{Channel, FirstPassword, HubConfig, HubError};
pub use figures::{Figures, Route};
pub use outgoing::{MailSecurity, MailServer, is_address, is_url};
pub use secret::LEAST_CHARACTERS;
pub use start::{RunningHub, UserChange, change_users, run, start};
pub use trust::TrustError;
