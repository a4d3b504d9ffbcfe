//! Traffic over time in the manner of MRTG: an area for incoming and a line for outgoing traffic, with
//! a table of maximum, average and current values. A time without data is a gap, never a zero.
//!
//! ```
//! use longhaul_chart::Width;
//! use longhaul_chart::traffic::{Bin, Period, TrafficGraph, Unit};
//!
//! let bin = |start| Bin { start, covered_seconds: 300.0, average: 4e9, minimum: 1e9, maximum: 9e9 };
//! let graph = TrafficGraph {
//!     title: "eth0".into(),
//!     inbound: vec![bin(0), bin(300), bin(900)],
//!     outbound: vec![],
//!     capacity: Some(10e9),
//!     sample_seconds: Some(1.0),
//!     ..TrafficGraph::new(Period::Day, 1200, Unit::Bits)
//! };
//! assert_eq!(graph.inbound_figures().average, Some(4e9));
//! assert!(graph.draw(Width::Page).document().starts_with("<svg"));
//! ```

mod bin;
mod graph;
mod period;
mod table;

pub use bin::{Bin, Figures};
pub use graph::TrafficGraph;
pub use period::{Period, Unit, span_words};
pub use table::{figures_table, section};
