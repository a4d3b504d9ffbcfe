//! The pure part of a fleet: the messages between agents and the hub, the mesh that `mesh.toml`
//! declares, the schedule of its tests, the state of its grid, and the documents of the hub's API.
//!
//! Nothing here accesses the network, a clock or the file system.
//!
//! ```
//! use longhaul_fleet::mesh;
//!
//! let text = r#"
//! name = "testbed"
//! [hosts.west]
//! address = "192.0.2.1"
//! interface = "eth0"
//! capacity = "100G"
//! [hosts.east]
//! address = "192.0.2.2"
//! capacity = "40G"
//! [tests.daily]
//! kind = "throughput"
//! group = "all"
//! seconds = 20
//! every = "6h"
//! "#;
//! let mesh = mesh::parse(text)?;
//! let pairs = &mesh.tests[0].pairs;
//! assert_eq!(pairs.len(), 2, "both directions");
//! # Ok::<(), longhaul_fleet::mesh::MeshError>(())
//! ```

pub mod api;
pub mod change;
pub mod grid;
pub mod mesh;
pub mod protocol;
pub mod psconfig;
pub mod schedule;
