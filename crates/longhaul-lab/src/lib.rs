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
//!
//! ```
//! use std::path::Path;
//!
//! use longhaul_lab::{drivers, plan};
//!
//! let text = r#"
//! name = "example"
//! [conditions]
//! rtt = ["0ms", "90ms"]
//! rate = ["10G"]
//! [[entries]]
//! tool = "iperf3"
//! workload = "memory"
//! streams = [1, 4]
//! "#;
//! let plan = plan::parse("example.toml", text, &drivers::all(Path::new("longhaul")))?;
//! let labels: Vec<_> = plan.rows().into_iter().map(|row| row.label).collect();
//! assert_eq!(labels, ["iperf3, 1 stream", "iperf3, 4 streams"]);
//! assert_eq!(plan.cells().len(), 4);
//! # Ok::<(), longhaul_lab::LabError>(())
//! ```

pub mod archive;
mod best;
pub mod change;
pub mod data;
pub mod drivers;
mod error;
mod flow_share;
pub mod host;
mod network;
pub mod plan;
pub mod reference;
mod repeats;
pub mod report;
pub mod runner;
pub mod table;

pub use error::{LabError, Place};
pub use network::{FarHost, NetPath, Network, NetworkError, PathReport};
pub use runner::{has_listener, run_script};
