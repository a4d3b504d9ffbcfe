//! Series: points in time with several values, their packed blocks, and their consolidation.

mod bucket;
mod pack;
mod point;

pub use bucket::{Bucket, Span, merge, pack_bucket, unpack_bucket};
pub use pack::{Malformed, pack, unpack};
pub use point::{INTERFACE_METRICS, Kind, Point, STAMP_METRICS, interface_row, point, stamp_row};
