//! The engine: moves bytes, memory to memory and disk to disk.
//!
//! [`session`] connects client and server; [`serve`] is the listener; [`test`](mod@test) measures from memory
//! to memory; [`copy`] moves files; [`diagnose`] measures each part of a copy separately; [`path`]
//! measures the network path; [`doctor`] measures this host without a network.
//!
//! A test over loopback, with both ends in this process:
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! use longhaul_core::plan::{TestLength, TestPlan};
//! use longhaul_core::wire::{RefusalKind, Service};
//! use longhaul_engine::serve::{InProcess, Services};
//! use longhaul_engine::session::ServedSession;
//! use longhaul_engine::test::{self, TestLimits};
//!
//! /// A server that runs a test for any client.
//! struct Tests;
//!
//! impl Services for Tests {
//!     fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
//!         None
//!     }
//!
//!     fn run(&self, _: Service, session: ServedSession) -> longhaul_engine::Result<()> {
//!         test::serve(session, &TestLimits::default())
//!     }
//! }
//!
//! let (server, session) = InProcess::start(Tests, Service::Test)?;
//! let plan = TestPlan { amount: TestLength::Time(Duration::from_millis(300)), ..TestPlan::new() };
//! let result = test::run(session, &plan, &AtomicBool::new(false), |_| {})?;
//! server.finish();
//! assert!(result.summary.throughput_bps.bps() > 0);
//! # Ok::<(), longhaul_engine::EngineError>(())
//! ```

pub mod copy;
pub mod diagnose;
pub mod doctor;
mod error;
pub mod path;
pub mod serve;
pub mod session;
mod share;
pub mod test;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use error::{EngineError, EntryViolation, HandshakeRefusal, Result, WaitsFor};
pub use share::SessionPool;

/// Divides the intervals of checks and reports, which tests shorten. Tests keep the limits of time: a
/// host that is shared with others can withhold the processor for seconds.
pub(crate) const HASTE: u64 = if cfg!(test) { 5 } else { FUZZ_HASTE };
/// Divides the time limits of fuzz targets, which wait for many of them.
pub(crate) const FUZZ_HASTE: u64 = if cfg!(feature = "fuzzing") { 20 } else { 1 };

/// Locks `mutex`, even after a panic in another thread. The panic is a bug that was reported; the
/// guarded data are valid at every step, and the session ends separately.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fills `bytes` with pseudo-random data, which neither a path nor a file system compresses; the
/// same each time.
pub(crate) fn noise(bytes: &mut [u8]) {
    blake3::Hasher::new().update(b"longhaul").finalize_xof().fill(bytes);
}

#[cfg(test)]
mod tests {
    #[test]
    fn noise_does_not_compress() {
        let mut bytes = vec![0; 102_400];
        super::noise(&mut bytes);
        let mut seen = [0u32; 256];
        bytes.iter().for_each(|&byte| seen[usize::from(byte)] += 1);
        assert!(seen.iter().all(|count| (250..550).contains(count)), "{seen:?}");
    }
}
