//! What copies copy: the user's own data, or files of incompressible bytes that are made once and
//! reused; and whether disk and memory have room for it and a copy.

mod make;
mod memory;
mod room;
mod source;

pub(crate) use make::split_mix;
pub use memory::MemoryStore;
pub(crate) use room::with_margin;
pub use room::{Room, check_room};
pub use source::{Source, sources};
