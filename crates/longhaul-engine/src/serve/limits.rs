//! The limits on clients and connections of a server.

use super::startups::StartupLimits;
use crate::anonymous::AnonymousPool;

/// The limits on the clients of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// The most sessions at once; 1 measures each client separately.
    pub at_once: usize,
    /// The most sessions without an authorised key, of those.
    pub anonymous: usize,
    /// The most waiting clients with and without an authorised key, each; 0 refuses clients that
    /// find no place.
    pub waiting: usize,
    /// The most sessions and waiting clients of one address (of one /64 for IPv6).
    pub each_address: usize,
    /// The most of these without an authorised key.
    pub anonymous_each_address: usize,
    /// The limits on unauthenticated connections.
    pub startups: StartupLimits,
    /// True to refuse addresses whose connections keep failing for some time.
    pub penalties: bool,
    /// The resources that all sessions without an authorised key share, as in the limits of their
    /// tests.
    pub pool: AnonymousPool,
}

impl Default for ClientLimits {
    /// Returns 64 sessions at once, which the cores and memory of a large host can serve. A quarter
    /// may be without a key. 512 of each kind wait. The keys of one address are unlimited; 32
    /// clients without a key suffice for a class or a small site behind one address.
    fn default() -> Self {
        ClientLimits {
            at_once: 64,
            anonymous: 16,
            waiting: 512,
            each_address: usize::MAX,
            anonymous_each_address: 32,
            startups: StartupLimits::default(),
            penalties: true,
            pool: AnonymousPool::default(),
        }
    }
}

impl ClientLimits {
    /// Returns the most anonymous sessions of one address: half of the places, so that another
    /// address finds one.
    pub(super) fn anonymous_running_each_address(&self) -> usize {
        self.anonymous.div_ceil(2)
    }
}
