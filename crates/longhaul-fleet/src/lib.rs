//! The pure part of a fleet: the messages between agents and the hub, the mesh that `mesh.toml`
//! declares, the schedule of its tests, the state of its grid, and the documents of the hub's API.
//!
//! Nothing here accesses the network, a clock or the file system.

pub mod api;
pub mod change;
pub mod grid;
pub mod mesh;
pub mod protocol;
pub mod psconfig;
pub mod schedule;
