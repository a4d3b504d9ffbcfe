//! The mesh: the hosts of a fleet and the tests between them, as `mesh.toml` declares them.
//!
//! [`parse`] reads a file completely or returns one error with its place. `docs/guide/mesh.md`
//! describes the file.

mod error;
mod fit;
mod hosts;
mod model;
mod parse;
#[cfg(test)]
mod parse_tests;
mod raw;
mod test_table;

pub use error::{MeshError, MeshFault};
pub use hosts::MAX_HOSTS;
pub use model::{
    Judgement, Maintenance, Mesh, MeshHost, MeshInterface, MeshTest, StampMesh, Trunk,
};
pub use parse::{MAX_PARTS, MAX_TASKS, MAX_TEXT_BYTES, MAX_TRUNKS, parse};
