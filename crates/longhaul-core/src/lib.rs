//! The types that all crates share: units, plans (what to run), results (what happened), statistics
//! and wire formats; the rules that judge a host, and the evaluation of path probes.
//!
//! Nothing here accesses the operating system, starts a thread or needs `unsafe`, so everything is
//! tested as plain functions.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_core::plan::TestPlan;
//! use longhaul_core::units::{Bytes, Rate};
//!
//! let rate: Rate = "10G".parse()?;
//! assert_eq!(rate.bdp(Duration::from_millis(90)), Bytes::new(112_500_000));
//!
//! let plan = TestPlan { rate_bps: Some(rate), ..TestPlan::new() };
//! let document = serde_json::to_string(&plan)?;
//! assert_eq!(serde_json::from_str::<TestPlan>(&document)?, plan);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod diagnosis;
pub mod doctor;
pub mod path;
pub mod plan;
pub mod result;
pub mod sequential;
pub mod stats;
pub mod text;
pub mod units;
pub mod wire;
