//! The listening end: one port for control channels and data connections, limits on both, and
//! the dispatch to the services.

mod admission;
mod event;
mod listener;
mod reach;
mod single;

pub use admission::ClientLimits;
pub use event::{Client, DropReason, Event, SessionReport, SessionStart};
pub use listener::{Host, Listener, Services, serve_session};
pub use reach::{Reach, is_out_of_reach};
pub use single::{DataPort, InProcess};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
