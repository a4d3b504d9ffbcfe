//! The server: answers iperf3 clients, many at once, as a guest of `longhaul serve`.

mod accept;
mod registry;
mod session;
mod streams;

pub use accept::Server;
pub use registry::Observer;
