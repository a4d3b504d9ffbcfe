//! The laboratory: runs tools against each other over a path, keeps every run, draws the figures.
//!
//! A [`MatrixPlan`](longhaul_core::plan::MatrixPlan) says what to compare ([`plan`]); a
//! [`Driver`](drivers::Driver) knows one tool; the [`runner`] runs each cell as commands over a
//! path that a [`Network`] opens; the [`archive`] keeps each run the moment it ends; [`table`]
//! folds runs into the comparison, [`change`] compares two of them, and [`report`] draws both.
//!
//! The laboratory links neither the emulator nor the engine: the program supplies the network,
//! and longhaul's own commands are driven like any other tool's, so that they get no privilege
//! in a comparison.

pub mod archive;
pub mod change;
pub mod data;
pub mod drivers;
mod error;
pub mod host;
mod network;
pub mod plan;
pub mod reference;
pub mod report;
pub mod runner;
pub mod table;

pub use error::{LabError, Place};
pub use network::{FarHost, NetPath, Network, NetworkError, PathReport};
pub use runner::{has_listener, run_script};
