//! `longhaul serve`: the far end of tests and copies.

mod confine;
mod limits;
mod log;
mod offer;
mod run;

pub(super) use run::Args;
