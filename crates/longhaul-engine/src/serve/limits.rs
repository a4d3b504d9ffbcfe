//! How many clients and connections a server takes.

use super::startups::StartupLimits;
use crate::anonymous::AnonymousPool;

/// How many clients a server takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// Sessions at once; 1 measures each client alone.
    pub at_once: usize,
    /// Of those, sessions of clients without an authorised key.
    pub anonymous: usize,
    /// Clients with and clients without an authorised key that wait for their turn, each; 0 turns
    /// away who finds no place.
    pub waiting: usize,
    /// Sessions and waiting clients of one address (of one /64, for IPv6).
    pub each_address: usize,
    /// Of those, the ones without an authorised key.
    pub anonymous_each_address: usize,
    /// Connections that are not authenticated yet.
    pub startups: StartupLimits,
    /// Refuse addresses whose connections keep failing, for a while.
    pub penalties: bool,
    /// What the sessions without an authorised key have together; the same that the limits of
    /// their tests have.
    pub pool: AnonymousPool,
}

impl Default for ClientLimits {
    /// 64 at once, which is what a large host's cores and memory stand. A quarter of them without
    /// a key: enough for people who try a path, and three quarters stay for transfers. 512 of each
    /// kind wait. No limit on the keys of one address; 32 clients without a key, which is a class
    /// or a small site behind one address.
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
    /// How many sessions without a key one address may run at once: half of the places, so that
    /// another address finds one.
    pub(super) fn anonymous_running_each_address(&self) -> usize {
        self.anonymous.div_ceil(2)
    }
}
