//! The engine: moves bytes, memory to memory and disk to disk.
//!
//! [`copy`] moves files; [`session`] is how two longhauls meet; [`serve`] is the listening end.

pub mod copy;
mod error;
pub mod serve;
pub mod session;

pub use error::{EngineError, Result};
