//! How many data connections a session may have, and the file descriptors that they take.
//!
//! A connection that proves itself is queued for its session only if the session has announced it,
//! so that a client cannot fill the server with connections that no request asked for.

use std::collections::HashSet;

use crate::quota::{Quota, Taken};
use crate::share::{Portion, Share};

/// What a data connection takes: its socket, and a copy by which another thread ends it.
const DESCRIPTORS: u64 = 2;
/// Data connections of a client with an authorised key that may come before the session announces
/// any: a copy opens them before it is welcome, which saves a round trip.
const EARLY_STREAMS: u32 = 128;

/// Where the descriptors of a session's data connections come from.
#[derive(Debug, Clone)]
pub(crate) enum Descriptors {
    /// Nobody counts them: the session is this user's own.
    Unbounded,
    /// Sessions that share them evenly; nothing before it is announced.
    Shared(Share),
    /// Sessions that take them as they need them.
    Quota(Quota),
}

/// The connections that a session is about to have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Announced {
    /// TCP connections, those included that this end opens.
    pub(crate) streams: u32,
    /// UDP flows.
    pub(crate) flows: u32,
    /// TCP connections that may come later, if there are descriptors for them then.
    pub(crate) further: u32,
    /// Descriptors of one connection beyond its own, such as pipes.
    pub(crate) beside: u32,
}

/// There are not enough descriptors.
#[derive(Debug, thiserror::Error)]
#[error(
    "this server has too few file descriptors left for {connections} connections; ask for fewer \
     streams (-P), or try again later"
)]
pub struct Shortage {
    connections: u32,
}

/// What one session may have.
#[derive(Debug)]
pub(crate) struct Allowance {
    source: Descriptors,
    streams: Numbers,
    flows: Numbers,
    /// Connections for which descriptors are held already.
    reserved: u32,
    portion: Option<Portion>,
    taken: Vec<Taken>,
}

/// The numbers of one kind of connections.
#[derive(Debug, Default)]
struct Numbers {
    /// How many may still come.
    left: u32,
    seen: HashSet<u32>,
}

impl Numbers {
    fn may_come(&self, number: u32) -> bool {
        self.left > 0 && !self.seen.contains(&number)
    }

    fn came(&mut self, number: u32) {
        self.left -= 1;
        self.seen.insert(number);
    }
}

impl Allowance {
    pub(crate) fn new(source: Descriptors) -> Self {
        let (streams, flows) = match source {
            Descriptors::Unbounded => (u32::MAX, u32::MAX),
            Descriptors::Shared(_) => (0, 0),
            Descriptors::Quota(_) => (EARLY_STREAMS, 0),
        };
        let numbers = |left| Numbers { left, seen: HashSet::new() };
        Allowance {
            source,
            streams: numbers(streams),
            flows: numbers(flows),
            reserved: 0,
            portion: None,
            taken: Vec::new(),
        }
    }

    /// Lets these connections come, counting those that came early, and holds descriptors for
    /// them.
    pub(crate) fn announce(&mut self, announced: Announced) -> Result<(), Shortage> {
        let Announced { streams, flows, further, beside } = announced;
        let short = Shortage { connections: streams + flows };
        let came = self.streams.seen.len() as u32;
        let coming = (streams + flows).saturating_sub(came);
        let needed = u64::from(coming) * DESCRIPTORS + u64::from(streams) * u64::from(beside);
        match &self.source {
            Descriptors::Unbounded => return Ok(()),
            Descriptors::Shared(share) => {
                let portion = share.take(needed);
                if portion.granted() < needed {
                    return Err(short);
                }
                self.portion = Some(portion);
            }
            Descriptors::Quota(quota) => {
                self.taken.push(quota.take(needed).ok_or(short)?);
            }
        }
        self.reserved = coming;
        self.streams.left = (streams + further).saturating_sub(came);
        self.flows.left = flows;
        Ok(())
    }

    /// Lets one more stream come, of any number, after those announced were done with.
    pub(crate) fn announce_again(&mut self) {
        self.streams.seen.clear();
        self.streams.left = self.streams.left.saturating_add(1);
        self.reserved += 1;
    }

    /// Counts data connection `number`; false if it may not come.
    pub(crate) fn admit_stream(&mut self, number: u32) -> bool {
        if !self.streams.may_come(number) {
            return false;
        }
        if self.reserved > 0 {
            self.reserved -= 1;
        } else if let Descriptors::Quota(quota) = &self.source {
            let Some(taken) = quota.take(DESCRIPTORS) else { return false };
            self.taken.push(taken);
        }
        self.streams.came(number);
        true
    }

    /// Counts UDP flow `number`, which `open` makes; `None` if it may not come, or that fails.
    pub(crate) fn admit_flow<T>(
        &mut self,
        number: u32,
        open: impl FnOnce() -> std::io::Result<T>,
    ) -> Option<T> {
        if !self.flows.may_come(number) {
            return None;
        }
        // After a failure the opener asks again.
        let flow = open().ok()?;
        self.reserved = self.reserved.saturating_sub(1);
        self.flows.came(number);
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
        let mut session = Allowance::new(Descriptors::Shared(share.clone()));
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
        let mut greedy = Allowance::new(Descriptors::Shared(share));
        let refused = greedy.announce(streams(128)).unwrap_err().to_string();
        assert!(refused.contains("128 connections") && refused.contains("-P"), "{refused}");
        assert!(!greedy.admit_stream(0));
    }

    #[test]
    fn an_authorised_copy_may_be_early_and_have_more_while_there_are_descriptors() {
        let quota = Quota::new(12);
        let mut session = Allowance::new(Descriptors::Quota(quota.clone()));
        assert!(session.admit_stream(0), "early");
        session.announce(Announced { further: 100, ..streams(3) }).unwrap();
        assert!((1..6).all(|number| session.admit_stream(number)));
        assert!(!session.admit_stream(6), "there are twelve descriptors");
        drop(session);
        assert!(quota.take(12).is_some());
    }

    #[test]
    fn pipes_count_too() {
        let mut session = Allowance::new(Descriptors::Quota(Quota::new(11)));
        assert!(session.announce(Announced { beside: 4, ..streams(2) }).is_err());
        assert!(session.announce(Announced { beside: 3, ..streams(2) }).is_ok());
    }
}
