//! Measures the emulator's accuracy on this machine with an independent probe.
//!
//! [`run`] builds one link after another, sends over each with the [`probe`], and compares three
//! figures: the configured value, the value that the probe measured, and the emulator's counter.
//! The result is a [`Certificate`](longhaul_core::result::Certificate). A check that could not be
//! measured is recorded as not done, never as passed.
//!
//! - `lab` runs a probe over a link.
//! - `case` judges figures by confidence intervals.
//! - `checks` has one file per kind of property.

mod case;
mod checks;
mod lab;
mod noise;
pub mod probe;
mod run;
#[cfg(test)]
mod virtual_lab;

pub use run::{Settings, run};
