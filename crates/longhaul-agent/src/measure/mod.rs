//! The permanent measurements of an agent: interfaces, STAMP, facts about the host.

mod facts;
mod interfaces;
mod stamp;
mod state;

pub(crate) use facts::{FACTS_INTERVAL, read_facts};
pub(crate) use interfaces::Interfaces;
pub(crate) use stamp::measure_peers;
pub(crate) use state::host_state;
