//! The data that tools copy: the user's own data, or files of incompressible bytes that are created
//! once and reused. Also checks that disk and memory have space for the data and the copies.

mod cache;
mod make;
mod room;
mod source;

pub use cache::{CacheEntry, cache_entries};
pub(crate) use make::split_mix;
pub(crate) use room::with_margin;
pub use room::{MemoryStore, Room, check_room};
pub use source::{CopyData, sources};
