//! The documents of the hub's API, which `longhaul fleet --json` prints.

mod access;
mod hosts;
mod meshes;
mod planned;
mod runs;
mod status;

pub use access::{LoginRequest, LoginResponse, NewToken, TOKEN_SCHEMA, TokenDocument, UserRole};
pub use hosts::{HOSTS_SCHEMA, HostDocument, HostState, HostsDocument};
pub use meshes::{
    APPLY_SCHEMA, ApplyDocument, LoadDocument, MeshText, PLAN_SCHEMA, PlanDocument, PlannedTest,
};
pub use planned::plan_document;
pub use runs::{RUNS_SCHEMA, RunDocument, RunState, RunsDocument};
pub use status::{CellDocument, CellMetric, CellState, STATUS_SCHEMA, StatusDocument};

/// The path of the API.
pub const API_BASE: &str = "/api/v1";
