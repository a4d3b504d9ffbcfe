//! `longhaul serve`: the server for test, cp, path and diagnose.

mod confine;
mod limits;
mod log;
mod offer;
mod run;

pub(super) use run::Args;
