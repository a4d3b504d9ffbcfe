//! Memory: [`AlignedBuffer`] for direct I/O, [`Mapping`] for large memory that costs nothing until
//! it is used, and the amount that this process may use.

mod aligned;
mod mapping;
mod share;

pub use aligned::{AlignedBuffer, DIRECT_ALIGN};
pub use mapping::{Mapping, Prefault};
pub use share::usable_bytes;
