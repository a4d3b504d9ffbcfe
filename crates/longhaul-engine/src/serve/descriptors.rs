//! The division of the process's file descriptors between kinds of clients.
//!
//! A quarter of the limit is reserved for files and other uses. Of the rest, a quarter is for
//! unauthenticated connections, an eighth for the control connections of anonymous clients, a
//! quarter for their data connections, and three eighths for clients with an authorized key.

use super::admission::Kind;
use super::limits::ClientLimits;
use crate::session::DescriptorSource;
use crate::share::{Quota, QuotaPart, SessionPart, Share};

/// The maximum number of descriptors that are ever needed.
const MOST: u64 = 1 << 20;
/// The minimum number of descriptors for the data connections of an anonymous session: a stream,
/// one for latency, and the pipes of `-Z`.
const LEAST_OF_SESSION: u64 = 16;

/// The descriptors of a server's connections.
#[derive(Debug)]
pub(super) struct Descriptors {
    /// The descriptors of unauthenticated connections.
    pub(super) opening: Quota,
    anonymous: Quota,
    anonymous_streams: Share,
    authorized: Quota,
}

impl Descriptors {
    /// Divides `limit`, and reduces `limits` to fit.
    pub(super) fn divide(limit: u64, limits: &mut ClientLimits) -> Self {
        let connections = limit.min(MOST) * 3 / 4;
        let (opening, streams) = (connections / 4, connections / 4);
        let count = |descriptors: u64| usize::try_from(descriptors).unwrap_or(usize::MAX);
        limits.startups = limits.startups.within(count(opening));
        limits.anonymous = limits.anonymous.min(count(streams / LEAST_OF_SESSION / 2).max(1));
        Descriptors {
            opening: Quota::new(opening),
            anonymous: Quota::new(connections / 8),
            anonymous_streams: Share::new(streams, limits.anonymous),
            authorized: Quota::new(connections * 3 / 8),
        }
    }

    /// Takes the descriptor of a session's control connection.
    pub(super) fn session(&self, kind: Kind) -> Option<QuotaPart> {
        match kind {
            Kind::Anonymous => self.anonymous.take(1),
            Kind::Authorized => self.authorized.take(1),
        }
    }

    /// Takes up to `count` descriptors for the data connections of another program's client.
    pub(super) fn guest_streams(&self, count: u64) -> SessionPart {
        self.anonymous_streams.take(count)
    }

    /// Returns the source of the descriptors of data connections.
    pub(super) fn streams(&self, kind: Kind) -> DescriptorSource {
        match kind {
            Kind::Anonymous => DescriptorSource::Shared(self.anonymous_streams.clone()),
            Kind::Authorized => DescriptorSource::Quota(self.authorized.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_no_more_than_three_quarters() {
        for limit in [64, 256, 1024, 20_000, u64::MAX] {
            let mut limits = ClientLimits::default();
            let descriptors = Descriptors::divide(limit, &mut limits);
            let connections = limit.min(MOST) * 3 / 4;
            let opening = limits.startups.full as u64;
            assert!(descriptors.opening.take(opening).is_some(), "{limit}");
            let authorized = connections * 3 / 8;
            let held = descriptors.authorized.take(authorized);
            assert!(held.is_some() && descriptors.session(Kind::Authorized).is_none());
            assert!(descriptors.session(Kind::Anonymous).is_some(), "they have their own");
            assert!(limits.anonymous >= 1);
        }
    }

    #[test]
    fn a_usual_limit_lowers_nothing_and_a_small_one_the_anonymous_places() {
        let mut limits = ClientLimits::default();
        Descriptors::divide(20_000, &mut limits);
        assert_eq!(limits, ClientLimits::default());
        Descriptors::divide(1024, &mut limits);
        assert_eq!((limits.startups.full, limits.anonymous), (192, 6));
    }
}
