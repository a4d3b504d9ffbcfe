//! Series: points in time with several values, their packed blocks, and their consolidation.

mod bucket;
mod pack;
mod point;

pub use bucket::{Bucket, Span, merge, pack_bucket, unpack_bucket};
pub use pack::{Malformed, pack, unpack};
pub use point::{
    HOST_METRICS, INTERFACE_METRICS, Kind, Point, QUEUE_METRICS, STAMP_METRICS, host_metric,
    host_row, interface_row, point, queue_metric, queue_row, stamp_row,
};
