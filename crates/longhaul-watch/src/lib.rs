//! Samples, records and draws the traffic of network interfaces.
//!
//! - [`Sampler`] reads the counters of the interfaces of a network namespace, its TCP connections and the
//!   cores of the host.
//! - [`series`] and [`consolidate`] compute rates and bins of fixed length. They are pure: time is an
//!   argument.
//! - [`record`] keeps series on disk, and [`page`] draws them as MRTG does.
//! - [`metrics`] serves the counters to Prometheus.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_watch::{Sampler, SamplerOptions};
//!
//! let options = SamplerOptions { interval: Duration::from_millis(100), ..SamplerOptions::default() };
//! let mut sampler = Sampler::new(options)?;
//! let first = sampler.sample()?;
//! assert!(first.interfaces.iter().all(|one| one.change.is_none()), "a rate needs two samples");
//! # Ok::<(), longhaul_watch::WatchError>(())
//! ```

pub mod consolidate;
pub mod document;
mod error;
mod flows;
pub mod metrics;
pub mod page;
mod programs;
pub mod record;
mod sample;
mod sampler;
pub mod series;
mod ticker;

pub use error::WatchError;
pub use sample::{CoreSample, FlowSample, InterfaceSample, Sample, TcpTotals};
pub use sampler::{Sampler, SamplerOptions};
pub use ticker::Ticker;
