//! The host's resources outside one connection: cores, TCP memory, drops, quotas.
//!
//! All values come from `proc(5)`. The kernel only adds fields to these texts; a counter that a
//! kernel lacks reads as zero. Values of a network namespace are those of the calling thread
//! (`/proc/thread-self/net`; `/proc/net` is that of the first thread).

mod cores;
mod drops;
mod quota;
mod tcp;
mod text;
mod windows;

pub use cores::{CoreTimes, Scheduling, core_times, scheduling};
pub use drops::{Drops, drops};
pub use quota::throttled;
pub use tcp::{TcpCounters, tcp_counters};
pub(crate) use windows::parse_memory as parse_tcp_memory;
pub use windows::{TcpMemory, WindowLimits, fastest_interface_bps, tcp_memory, window_limits};
