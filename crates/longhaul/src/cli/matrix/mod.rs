//! `longhaul matrix`: checks plan, data and directory, runs the matrix and prints its table.

mod args;
mod cost;
mod live;
mod progress;
mod run;
mod setup;
mod shipped;

pub(super) use args::MatrixArgs;
pub(super) use run::run;
pub(super) use setup::{certificate, coded};
