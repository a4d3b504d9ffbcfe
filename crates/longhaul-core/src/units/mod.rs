//! Quantities as types: [`Rate`] in bit/s (decimal), [`Bytes`], and time spans.
//!
//! This is the only place that parses or prints a quantity. Rates use decimal prefixes (`10G` is
//! 10^10 bit/s). Sizes use both kinds (`4GB` is 4 x 10^9 bytes; `4GiB` and `4G` are 4 x 2^30, as in
//! iperf3 and dd). Spans are written `90ms`, `1.5s`, `2m`.

mod bytes;
mod error;
mod min_free;
mod rate;
mod span;

pub use bytes::Bytes;
pub use error::UnitError;
pub use min_free::MinFree;
pub use rate::Rate;
pub(crate) use span::seconds;
pub use span::{format_span, parse_span, text as span_text};
