//! The server: one port for control channels and data connections, limits on both, and the dispatch
//! to the services.

mod admission;
mod connection;
mod descriptors;
mod event;
mod guest;
mod guest_report;
mod limiter;
mod limits;
mod listener;
mod penalties;
mod reach;
mod services;
mod single;
mod startups;

pub use event::{Client, DropReason, Event, SessionReport, SessionStart};
pub use guest::{Arrival, Gate, Guest, NoPlace, StreamPlaces, Visit};
pub use guest_report::GuestReport;
pub use limits::ClientLimits;
pub use listener::{Listener, Serving, serve_guests};
pub use reach::{Reach, is_out_of_reach};
pub use services::{Host, Services, serve_session};
pub use single::{DataPort, InProcess};
pub use startups::StartupLimits;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_left;
