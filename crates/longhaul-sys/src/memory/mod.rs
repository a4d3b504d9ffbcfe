//! Memory of special kinds: [`AlignedBuffer`] for direct I/O, and [`Mapping`], large and free of
//! cost until it is touched.

mod aligned;
mod mapping;

pub use aligned::{AlignedBuffer, DIRECT_ALIGN};
pub use mapping::Mapping;
