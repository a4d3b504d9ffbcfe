//! The documents of the hub's API, which `longhaul fleet --json` prints.

mod access;
mod meshes;
mod runs;
mod status;

pub use access::{
    LOCAL_LOGIN_FILE, LocalLogin, LoginRequest, LoginResponse, NewToken, REVOKED_SCHEMA,
    RevokedDocument, TOKEN_SCHEMA, TokenDocument, UserRole,
};
pub use meshes::{
    APPLY_SCHEMA, ApplyDocument, CycleRun, LoadDocument, MAX_PLANNED_RUNS, MeshText, PLAN_SCHEMA,
    PlanDocument, PlannedTest, plan_document,
};
pub use runs::{RUNS_SCHEMA, RunDocument, RunState, RunsDocument};
pub use status::{
    CellDocument, CellMetric, CellState, HOSTS_SCHEMA, HostDocument, HostState, HostsDocument,
    SNAPSHOT_SCHEMA, STATUS_SCHEMA, SnapshotDocument, StatusDocument,
};

/// The path of the API.
pub const API_BASE: &str = "/api/v1";
