//! The mesh: the hosts of a fleet and the tests between them, as `mesh.toml` declares them.

mod model;

pub use model::{
    Judgement, Maintenance, Mesh, MeshHost, MeshInterface, MeshTest, StampMesh, Trunk,
};
