//! Compares files with the manifest that a copy has written beside them, on this host or on a server.

mod local;
mod remote;

pub use local::check;
pub use remote::check_far;
pub(super) use remote::{CheckOrder, serve_check};
