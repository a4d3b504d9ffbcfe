//! The sending end of a copy: walk, read, send.
//!
//! The walk announces entries on the control channel and queues their blocks; readers fill
//! buffers from files; each data connection has a sender that takes the next filled buffer of any
//! file. Small files share a buffer. Nothing waits for a round trip per file.

mod alone;
mod announce;
mod carry;
mod feed;
mod file;
mod follow;
mod listed;
mod outstanding;
mod place;
mod plan;
mod run;
mod sampling;
mod shared;
mod steer;
mod walk;

pub(crate) use alone::{forget, read, sample_source};
pub use feed::{Feed, StreamReader};
pub use listed::read_names;
pub use plan::{SourcePlan, SourceRoot};
pub(super) use run::{SourceTerms, run};
