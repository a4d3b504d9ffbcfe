//! Proof of the emulator's accuracy on this machine, by a witness that knows nothing of it.
//!
//! [`run`] builds one link after the other, lets the [`probe`] send over each, and compares three
//! figures: what the link was configured for, what the probe saw, and what the emulator counted.
//! The result is a [`Certificate`](longhaul_core::result::Certificate). What could not be measured
//! here is in it as not done, and never as passed.
//!
//! - `lab` runs a probe over a link.
//! - `case` judges figures: how sure one can be, and what is good enough.
//! - `checks` are the checks, a file for each kind of property.

mod case;
mod checks;
mod lab;
pub mod probe;
mod run;

pub use run::{Settings, run};
