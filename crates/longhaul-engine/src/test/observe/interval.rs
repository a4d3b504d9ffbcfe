//! The observations of one interval.

use longhaul_core::result::{HostSample, TcpSample, ThreadSample};

use super::connection::Tally;

/// The observations of one interval.
pub(in crate::test) struct Observed {
    pub(in crate::test) host: HostSample,
    pub(in crate::test) threads: Vec<ThreadSample>,
    pub(super) tallies: Vec<Tally>,
}

impl Observed {
    /// Divides the time of stream `stream` that the kernel's clocks do not explain.
    pub(in crate::test) fn complete(&self, stream: usize, sample: &mut TcpSample) {
        if let Some(tally) = self.tallies.get(stream) {
            tally.complete(sample);
        }
    }
}
