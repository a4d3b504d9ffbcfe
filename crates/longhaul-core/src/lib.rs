//! What every other room of longhaul speaks: units, plans (what to run), results (what
//! happened), statistics, and the wire formats; the rules by which a host is judged, and what
//! probes of a path add up to.
//!
//! Nothing here touches the operating system, starts a thread or needs `unsafe`, so all of it is
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
