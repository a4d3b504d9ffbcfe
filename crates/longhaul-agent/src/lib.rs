//! The agent of a fleet. It dials the hub over HTTPS, keeps a journal on disk, runs the tests that
//! the hub leases to it as child processes of the program, samples the interfaces of its host, and
//! measures its peers with STAMP all the time.
//!
//! The agent uses threads and no async runtime. `docs/design/fleet.md` describes its states and
//! guarantees.

mod agent;
mod check;
mod client;
mod clock;
mod error;
mod home;
mod journal;
mod measure;
mod notice;
mod options;
mod run;
mod sync;

pub use agent::{enrol, run};
pub use check::{CheckItem, CheckResult, check};
pub use client::{HubClient, HubUrl, InvalidUrl, Trust};
pub use error::AgentError;
pub use home::{Enrolment, write_private};
pub use notice::Notice;
pub use options::{AgentOptions, DEFAULT_STATE_DIR};
