//! The fleet as the hub runs it: planning, leases, uploads, the grid.

mod applied;
mod capacity;
mod excess;
mod grid;
mod ingest;
mod leases;
mod planner;

pub(crate) use applied::{Applied, refreshed};
pub(crate) use capacity::{declared_capacity, host_capacity};
pub(crate) use grid::update as update_grid;
pub(crate) use ingest::{Upload, ingest, limit_times, upload_seconds, within_limits};
pub(crate) use leases::{leases, news, stamp_peers};
pub(crate) use planner::plan;
