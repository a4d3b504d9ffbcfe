//! Memory of special kinds: [`AlignedBuffer`] for direct I/O, and [`Mapping`], large and free of
//! cost until it is touched. And how much of it there is.

mod aligned;
mod mapping;
mod share;

pub use aligned::{AlignedBuffer, DIRECT_ALIGN};
pub use mapping::{Mapping, Prefault};
pub use share::usable_bytes;
