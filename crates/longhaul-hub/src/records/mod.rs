//! The queries of the hub, which are the same for every database.
//!
//! Each function runs within a transaction, see [`Store`](crate::store::Store).

pub mod agents;
pub mod buckets;
pub mod cells;
pub mod counts;
mod days;
pub mod events;
pub mod forecast;
pub mod intake;
pub mod leases;
pub mod meshes;
pub mod numbers;
mod packed;
pub mod paths;
pub mod people;
pub mod removal;
pub mod runs;
pub mod series;
pub mod shipments;
pub mod snapshots;
