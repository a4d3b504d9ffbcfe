//! The engine: moves bytes, memory to memory and disk to disk.
//!
//! [`session`] connects client and server; [`serve`] is the listener; [`test`] measures from memory
//! to memory; [`copy`] moves files; [`diagnose`] measures each part of a copy separately; [`path`]
//! measures the network path; [`doctor`] measures this host without a network.

mod anonymous;
pub mod copy;
pub mod diagnose;
pub mod doctor;
mod error;
mod lock;
mod noise;
pub mod path;
mod quota;
pub mod serve;
pub mod session;
mod share;
pub mod test;

pub use anonymous::AnonymousPool;
pub use error::{EngineError, Result, TurnedAway};

/// Divides time limits: fuzz targets wait for many of them.
pub(crate) const HASTE: u64 = if cfg!(feature = "fuzzing") { 20 } else { 1 };
