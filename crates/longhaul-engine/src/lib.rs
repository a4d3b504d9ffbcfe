//! The engine: moves bytes, memory to memory and disk to disk.
//!
//! [`session`] is how two longhauls meet; [`serve`] is the listening end; [`flow`] measures from
//! memory to memory; [`copy`] moves files; [`ladder`] measures each part of a copy by itself; [`path`]
//! asks what lies between; [`precursor`] asks what this host alone can do.

mod anonymous;
pub mod copy;
mod error;
pub mod flow;
pub mod ladder;
mod lock;
mod noise;
pub mod path;
pub mod precursor;
mod quota;
pub mod serve;
pub mod session;
mod share;

pub use anonymous::AnonymousPool;
pub use error::{EngineError, Result, TurnedAway, WaitsFor};

/// Divides time limits: fuzz targets wait for many of them.
pub(crate) const HASTE: u64 = if cfg!(feature = "fuzzing") { 20 } else { 1 };
