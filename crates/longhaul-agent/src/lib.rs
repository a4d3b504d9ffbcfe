//! The agent of a fleet. It dials the hub over HTTPS, keeps a journal on disk, runs the tests that
//! the hub leases to it as child processes of the program, samples its host, and
//! measures its peers with STAMP all the time.
//!
//! The agent uses threads and no async runtime. `docs/design/fleet.md` describes its states and
//! guarantees.
//!
//! ```
//! use longhaul_agent::HubUrl;
//!
//! let hub: HubUrl = "https://hub.example".parse()?;
//! assert_eq!(hub.at("/agent/v1/sync"), "https://hub.example:5280/agent/v1/sync");
//! assert!("http://hub.example".parse::<HubUrl>().is_err(), "the hub has only HTTPS");
//! # Ok::<(), longhaul_agent::InvalidUrl>(())
//! ```

mod agent;
mod check;
mod client;
mod clock;
mod error;
mod home;
mod journal;
mod measure;
mod run;
mod signer;
mod sync;

pub use agent::{AgentOptions, DEFAULT_STATE_DIR, enroll, run};
pub use check::{CheckItem, CheckResult, check};
pub use client::{HubClient, HubUrl, InvalidUrl, Trust};
pub use error::{AgentError, Notice};
pub use home::{Enrollment, write_private};
pub use run::AllowedPeers;
