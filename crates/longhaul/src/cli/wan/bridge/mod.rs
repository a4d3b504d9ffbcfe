//! `longhaul wan bridge`: an emulated link between two real interfaces.

mod facts;
mod guard;
mod run;

pub(super) use facts::check_port;
pub(super) use guard::{GuardArgs, run as run_guard};
pub(super) use run::{BridgeArgs, run};
