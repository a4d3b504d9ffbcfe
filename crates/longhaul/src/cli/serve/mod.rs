//! `longhaul serve`: the far end of tests and copies.

mod confine;
mod limits;
mod offer;
mod run;

pub(super) use run::Args;
