//! The sessions of a stateful reflector: a bounded table with expiry.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use longhaul_engine::serve::network;

use super::reflect::EarlierReply;

/// The maximum number of sessions.
const MOST_SESSIONS: usize = 4096;
/// The maximum number of sessions of one source.
const MOST_OF_SOURCE: usize = 256;
/// A session without packets for this time has ended (REFWAIT of RFC 5357, section 3.1).
pub(super) const EXPIRY: Duration = Duration::from_secs(900);
/// The shortest time between two searches for expired sessions.
const SEARCH: Duration = Duration::from_secs(1);

/// The identity of a session: the addresses of its packets and their session identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StampSessionId {
    /// The sender's address and port.
    pub sender: SocketAddr,
    /// The destination address of the requests.
    pub reflector: Option<IpAddr>,
    /// The identifier in the packets; 0 if the sender has none.
    pub ssid: u16,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Session {
    /// The number of requests received.
    pub(super) received: u32,
    /// The number of replies sent.
    pub(super) replied: u32,
    /// The bytes of the replies.
    pub(super) bytes: u64,
    /// The number and time of the last reply whose departure is known.
    pub(super) departed: Option<EarlierReply>,
    pub(super) begun: Instant,
    pub(super) last: Instant,
}

/// A session that has ended, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedSession {
    /// The identity.
    pub id: StampSessionId,
    /// The number of replies.
    pub replied: u32,
    /// The bytes of the replies.
    pub bytes: u64,
    /// The time between its first and last packet.
    pub duration: Duration,
}

/// The sessions of a reflector.
#[derive(Debug)]
pub(super) struct Sessions {
    table: HashMap<StampSessionId, Session>,
    of_source: HashMap<IpAddr, usize>,
    searched: Instant,
}

impl Sessions {
    pub(super) fn new(now: Instant) -> Self {
        Sessions { table: HashMap::new(), of_source: HashMap::new(), searched: now }
    }

    /// Returns the session, and whether it is new; `None` if the table is full.
    pub(super) fn enter(
        &mut self,
        id: StampSessionId,
        now: Instant,
    ) -> Option<(&mut Session, bool)> {
        let new = !self.table.contains_key(&id);
        if new {
            let of_source = self.of_source.entry(network(id.sender.ip())).or_default();
            if self.table.len() >= MOST_SESSIONS || *of_source >= MOST_OF_SOURCE {
                if *of_source == 0 {
                    self.of_source.remove(&network(id.sender.ip()));
                }
                return None;
            }
            *of_source += 1;
        }
        let fresh =
            Session { received: 0, replied: 0, bytes: 0, departed: None, begun: now, last: now };
        let session = self.table.entry(id).or_insert(fresh);
        session.last = now;
        Some((session, new))
    }

    pub(super) fn get(&mut self, id: &StampSessionId) -> Option<&mut Session> {
        self.table.get_mut(id)
    }

    /// Removes the sessions without packets since [`EXPIRY`], and returns them. It searches at most
    /// once per second.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<EndedSession> {
        if now.saturating_duration_since(self.searched) < SEARCH {
            return Vec::new();
        }
        self.searched = now;
        self.remove(|session| now.saturating_duration_since(session.last) >= EXPIRY)
    }

    /// Removes all sessions and returns them.
    pub(super) fn end(&mut self) -> Vec<EndedSession> {
        self.remove(|_| true)
    }

    fn remove(&mut self, over: impl Fn(&Session) -> bool) -> Vec<EndedSession> {
        let ended: Vec<_> = self
            .table
            .extract_if(|_, session| over(session))
            .map(|(id, session)| EndedSession {
                id,
                replied: session.replied,
                bytes: session.bytes,
                duration: session.last.saturating_duration_since(session.begun),
            })
            .collect();
        for EndedSession { id, .. } in &ended {
            let source = network(id.sender.ip());
            if let Some(count) = self.of_source.get_mut(&source) {
                *count -= 1;
                if *count == 0 {
                    self.of_source.remove(&source);
                }
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn id(source: u32, port: u16) -> StampSessionId {
        let sender = SocketAddr::new(Ipv4Addr::from_bits(0xc000_0000 + source).into(), port);
        StampSessionId { sender, reflector: None, ssid: 7 }
    }

    #[test]
    fn a_session_ends_after_its_last_packet() {
        let start = Instant::now();
        let mut sessions = Sessions::new(start);
        let (session, new) = sessions.enter(id(1, 1), start).unwrap();
        session.replied += 1;
        assert!(new);
        let later = start + EXPIRY - Duration::from_secs(1);
        assert!(!sessions.enter(id(1, 1), later).unwrap().1);
        assert!(sessions.enter(id(1, 2), later).unwrap().1);
        let other = StampSessionId { ssid: 8, ..id(1, 1) };
        assert!(sessions.enter(other, start).unwrap().1);
        let ended = sessions.expire(start + EXPIRY);
        assert_eq!(
            ended,
            [EndedSession { id: other, replied: 0, bytes: 0, duration: Duration::ZERO }]
        );
        let soon = start + EXPIRY + Duration::from_millis(999);
        assert_eq!(sessions.expire(soon), [], "it searches once per second");
        let mut ended = sessions.expire(later + EXPIRY);
        ended.sort_by_key(|ended| ended.replied);
        assert_eq!(ended[1].duration, EXPIRY - Duration::from_secs(1));
        assert!(sessions.of_source.is_empty());
    }

    #[test]
    fn the_table_is_bounded_in_total_and_per_source() {
        let now = Instant::now();
        let mut sessions = Sessions::new(now);
        let of_one = (0..1000).filter(|port| sessions.enter(id(1, *port), now).is_some()).count();
        assert_eq!(of_one, MOST_OF_SOURCE);
        let all = (0..100_000).filter(|source| sessions.enter(id(2 + source, 1), now).is_some());
        assert_eq!(all.count(), MOST_SESSIONS - MOST_OF_SOURCE);
        assert!(sessions.of_source.len() <= MOST_SESSIONS);
        assert!(sessions.enter(id(1, 5), now).is_some(), "a known session stays");
    }
}
