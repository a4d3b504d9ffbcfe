//! The listening end: one port for control channels and data connections, limits on both, and
//! the dispatch to the services.

mod listener;

pub use listener::{Host, Listener, Services, serve_session};

#[cfg(test)]
mod tests;
