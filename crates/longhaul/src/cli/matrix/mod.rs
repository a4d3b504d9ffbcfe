//! `longhaul matrix`: plan, data and directory are settled and checked before anything starts.

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
