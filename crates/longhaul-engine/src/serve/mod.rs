//! The listening end: one port for control channels and data connections, limits on both, and
//! the dispatch to the services.

mod listener;

pub use listener::{Host, Listener, Services};

#[cfg(test)]
mod tests;
