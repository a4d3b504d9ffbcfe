//! The types that all crates share: units, plans (what to run), results (what happened), statistics
//! and wire formats; the rules that judge a host, and the evaluation of path probes.
//!
//! Nothing here accesses the operating system, starts a thread or needs `unsafe`, so everything is
//! tested as plain functions.

pub mod diagnosis;
pub mod doctor;
pub mod path;
pub mod plan;
pub mod result;
pub mod stats;
pub mod text;
pub mod units;
pub mod wire;
