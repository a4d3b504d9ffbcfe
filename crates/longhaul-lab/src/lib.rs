//! The laboratory: runs tools against each other over a path, stores every run and draws the
//! figures.
//!
//! A [`MatrixPlan`](longhaul_core::plan::MatrixPlan) states the comparison ([`plan`]). A
//! [`Driver`](drivers::Driver) handles one tool. The [`runner`] runs each cell as commands over a
//! path that a [`Network`] opens. The [`archive`] stores each run when it ends. [`table`]
//! aggregates runs, [`change`] compares two tables, and [`report`] renders both.
//!
//! The laboratory links neither the emulator nor the engine. The program supplies the network, and
//! longhaul's own commands are driven like those of any other tool, so they get no privilege in a
//! comparison.

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
