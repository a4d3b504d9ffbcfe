//! The data connections that a session may have, and their file descriptors.
//!
//! An authenticated connection is queued for its session only if the session has announced it, so
//! that a client cannot fill the server with unrequested connections.

use std::collections::HashSet;

use crate::share::{Quota, QuotaPart, SessionPart, Share};

/// The descriptors of a data connection: its socket, and a copy by which another thread ends it.
const DESCRIPTORS: u64 = 2;
/// The data connections of a client with an authorized key that may arrive before the session
/// announces any: a copy opens them before it is welcome, which saves a round trip.
const EARLY_STREAMS: u32 = 128;

/// The source of the descriptors of a session's data connections.
#[derive(Debug, Clone)]
pub(crate) enum DescriptorSource {
    /// Descriptors are not counted: the session belongs to this user.
    Unbounded,
    /// Descriptors that sessions share evenly; none before the announcement.
    Shared(Share),
    /// Descriptors that sessions take as they need them.
    Quota(Quota),
}

/// The announcement of a session's connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Announced {
    /// The TCP connections, including those that this end opens.
    pub(crate) streams: u32,
    /// UDP flows.
    pub(crate) flows: u32,
    /// The TCP connections that may arrive later if descriptors are available.
    pub(crate) further: u32,
    /// The additional descriptors per connection, such as pipes.
    pub(crate) beside: u32,
}

/// Too few descriptors are available.
#[derive(Debug, thiserror::Error)]
#[error(
    "this server has too few file descriptors left for {connections} connections; request fewer \
    streams, or try again later"
)]
pub struct Shortage {
    connections: u32,
}

/// The connections that one session may have.
#[derive(Debug)]
pub(crate) struct Allowance {
    source: DescriptorSource,
    streams: Numbers,
    flows: Numbers,
    /// The connections for which descriptors are reserved.
    reserved: u32,
    portion: Option<SessionPart>,
    taken: Vec<QuotaPart>,
}

/// The numbers of one kind of connection.
#[derive(Debug, Default)]
struct Numbers {
    /// The number of connections that may still arrive.
    left: u32,
    arrived: HashSet<u32>,
}

impl Numbers {
    fn is_expected(&self, number: u32) -> bool {
        self.left > 0 && !self.arrived.contains(&number)
    }

    fn arrived(&mut self, number: u32) {
        self.left -= 1;
        self.arrived.insert(number);
    }
}

impl Allowance {
    pub(crate) fn new(source: DescriptorSource) -> Self {
        let (streams, flows) = match source {
            DescriptorSource::Unbounded => (u32::MAX, u32::MAX),
            DescriptorSource::Shared(_) => (0, 0),
            DescriptorSource::Quota(_) => (EARLY_STREAMS, 0),
        };
        let numbers = |left| Numbers { left, arrived: HashSet::new() };
        Allowance {
            source,
            streams: numbers(streams),
            flows: numbers(flows),
            reserved: 0,
            portion: None,
            taken: Vec::new(),
        }
    }

    /// Permits these connections, including those that arrived early, and reserves descriptors for
    /// them.
    pub(crate) fn announce(&mut self, announced: Announced) -> Result<(), Shortage> {
        let Announced { streams, flows, further, beside } = announced;
        let short = Shortage { connections: streams + flows };
        let arrived = self.streams.arrived.len() as u32;
        let coming = (streams + flows).saturating_sub(arrived);
        let needed = u64::from(coming) * DESCRIPTORS + u64::from(streams) * u64::from(beside);
        match &self.source {
            DescriptorSource::Unbounded => return Ok(()),
            DescriptorSource::Shared(share) => {
                let portion = share.take(needed);
                if portion.granted() < needed {
                    return Err(short);
                }
                self.portion = Some(portion);
            }
            DescriptorSource::Quota(quota) => {
                self.taken.push(quota.take(needed).ok_or(short)?);
            }
        }
        self.reserved = coming;
        self.streams.left = (streams + further).saturating_sub(arrived);
        self.flows.left = flows;
        Ok(())
    }

    /// Permits one more stream, of any number, after the announced ones have ended.
    pub(crate) fn announce_again(&mut self) {
        self.streams.arrived.clear();
        self.streams.left = self.streams.left.saturating_add(1);
        self.reserved += 1;
    }

    /// Counts data connection `number`; false if it is not permitted.
    pub(crate) fn admit_stream(&mut self, number: u32) -> bool {
        if !self.streams.is_expected(number) {
            return false;
        }
        if self.reserved > 0 {
            self.reserved -= 1;
        } else if let DescriptorSource::Quota(quota) = &self.source {
            let Some(taken) = quota.take(DESCRIPTORS) else { return false };
            self.taken.push(taken);
        }
        self.streams.arrived(number);
        true
    }

    /// Counts UDP flow `number`, which `open` creates; `None` if it is not permitted or cannot be
    /// created.
    pub(crate) fn admit_flow<T>(
        &mut self,
        number: u32,
        open: impl FnOnce() -> std::io::Result<T>,
    ) -> Option<T> {
        if !self.flows.is_expected(number) {
            return None;
        }
        // After a failure the opener repeats its request.
        let flow = open().ok()?;
        self.reserved = self.reserved.saturating_sub(1);
        self.flows.arrived(number);
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(streams: u32) -> Announced {
        Announced { streams, ..Announced::default() }
    }

    #[test]
    fn an_anonymous_session_has_what_it_announced() {
        let share = Share::new(64, 4);
        let mut session = Allowance::new(DescriptorSource::Shared(share.clone()));
        assert!(!session.admit_stream(0), "nothing is announced yet");
        session.announce(Announced { flows: 1, ..streams(2) }).unwrap();
        assert!(session.admit_stream(0) && !session.admit_stream(0) && session.admit_stream(7));
        assert!(!session.admit_stream(1), "two were announced");
        let failed = || Err::<(), _>(std::io::ErrorKind::Other.into());
        assert!(session.admit_flow(0, failed).is_none(), "a failure does not count");
        assert!(session.admit_flow(0, || Ok(())).is_some());
        assert!(session.admit_flow(1, || Ok(())).is_none());
        session.announce_again();
        assert!(session.admit_stream(0) && !session.admit_stream(1));
        let mut greedy = Allowance::new(DescriptorSource::Shared(share));
        let refused = greedy.announce(streams(128)).unwrap_err().to_string();
        assert!(refused.contains("128 connections"), "{refused}");
        assert!(!greedy.admit_stream(0));
    }

    #[test]
    fn an_authorized_copy_may_be_early_and_have_more_while_there_are_descriptors() {
        let quota = Quota::new(12);
        let mut session = Allowance::new(DescriptorSource::Quota(quota.clone()));
        assert!(session.admit_stream(0), "early");
        session.announce(Announced { further: 100, ..streams(3) }).unwrap();
        assert!((1..6).all(|number| session.admit_stream(number)));
        assert!(!session.admit_stream(6), "there are twelve descriptors");
        drop(session);
        assert!(quota.take(12).is_some());
    }

    #[test]
    fn pipes_count_too() {
        let mut session = Allowance::new(DescriptorSource::Quota(Quota::new(11)));
        assert!(session.announce(Announced { beside: 4, ..streams(2) }).is_err());
        assert!(session.announce(Announced { beside: 3, ..streams(2) }).is_ok());
    }
}
