//! What the host does beside one connection: its cores, its memory for TCP, its drops.
//!
//! All of it is read from `proc(5)`, as text that the kernel only ever adds to: a counter that a
//! kernel does not have reads as zero. What belongs to a network namespace is that of the calling
//! thread (`/proc/thread-self/net`, where `/proc/net` would be the first thread's).

mod cores;
mod drops;
mod quota;
mod text;
mod windows;

pub use cores::{CoreTimes, Scheduling, core_times, scheduling};
pub use drops::{Drops, drops};
pub use quota::throttled;
pub(crate) use windows::parse_memory as parse_tcp_memory;
pub use windows::{TcpMemory, WindowLimits, fastest_interface_bps, tcp_memory, window_limits};
